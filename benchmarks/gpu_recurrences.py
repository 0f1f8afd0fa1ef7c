"""How fast and how exact a layer of an LSTM is on a GPU, by cuDNN and by a loop; and a Mogrifier's, with and without CUDA graphs.

Time of forward and backward pass, the median. Errors are relative, |found - exact| / |exact|, of outputs and of the recurrent matrix's
gradient. What is exact is cuDNN's result in float64 for an LSTM, and the loop in float64 for a Mogrifier.

    python benchmarks/gpu_recurrences.py [--sizes 32x35x650,40x70x1150] [--steps 20]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from attlm_fairseq.modules.kernels.cuda_graphs import Recordings
from attlm_fairseq.modules.kernels.lstm_over_time import lstm_over_time
from attlm_fairseq.modules.kernels.mogrifier_over_time import mogrifier_over_time
from attlm_fairseq.modules.recurrence.torch_layers import lstm_layer

Layer = Callable[..., tuple[Tensor, ...]]
ROUNDS, RANK = 5, 64


@contextlib.contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    backends = torch.backends.cudnn, torch.backends.cuda.matmul
    before = [backend.allow_tf32 for backend in backends]
    for backend in backends:
        backend.allow_tf32 = allowed
    yield
    for backend, value in zip(backends, before, strict=True):
        backend.allow_tf32 = value


def cudnn_in(dtype: torch.dtype) -> Layer:
    """Return an LSTM layer by cuDNN in a dtype, with float32 weights and results."""

    def layer(*values: Tensor) -> tuple[Tensor, ...]:
        return tuple(result.float() for result in lstm_layer(*(value.to(dtype) for value in values)))

    return layer


def random_values(*shapes: tuple[int, ...]) -> list[Tensor]:
    """Return values of the size that weights and inputs have in a trained model, about."""
    return [0.5 * torch.randn(shape, device="cuda") / max(1, shape[-1] / 16) ** 0.5 for shape in shapes]


def gradients(layer: Layer, values: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the outputs, and the gradient of the recurrent matrix for a sum of squares."""
    taken = [value.detach().requires_grad_() for value in values]
    outputs = layer(*taken)[0]
    return outputs.detach().double(), torch.autograd.grad(outputs.square().sum(), taken, allow_unused=True)[2].double()


def milliseconds(layer: Layer, values: list[Tensor], steps: int) -> float:
    taken = []
    for _ in range(steps + 3):  # the first three warm up
        torch.cuda.synchronize()
        began = time.perf_counter()
        gradients(layer, values)
        torch.cuda.synchronize()
        taken.append(1e3 * (time.perf_counter() - began))
    return statistics.median(taken[3:])


def compare(title: str, exact: Layer, layers: dict[str, tuple[Layer, bool]], values: list[Tensor], steps: int) -> None:
    print(title, flush=True)
    wanted = gradients(exact, [value.double() for value in values])
    for name, (layer, allowed) in layers.items():
        with tf32(allowed):
            taken = milliseconds(layer, values, steps)  # first: a recording is replayed from the second call on
            found = gradients(layer, values)
            errors = [float((one - other).norm() / other.norm()) for one, other in zip(found, wanted, strict=True)]
            print(f"  {name:34}{taken:8.2f} ms   outputs {errors[0]:.1e}, gradient {errors[1]:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="32x35x650,40x70x1150", help="rows x positions x size of a state; default %(default)s")
    parser.add_argument("--steps", type=int, default=20, help="measured for each; default %(default)s")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: there is no GPU that torch can use")
        return
    torch.manual_seed(1)
    print(torch.cuda.get_device_name(), torch.__version__)
    for sizes in options.sizes.split(","):
        rows, positions, size = map(int, sizes.split("x"))
        values = random_values((rows, positions, size), (4 * size, size), (4 * size, size), (4 * size,), (rows, size), (rows, size))
        layers = {
            "cuDNN, float32": (lstm_layer, False),
            "cuDNN, TF32": (lstm_layer, True),
            "cuDNN, bfloat16": (cudnn_in(torch.bfloat16), True),
            "loop, float32": (lstm_over_time, False),
            "loop, TF32": (lstm_over_time, True),
            "loop, bfloat16": (partial(lstm_over_time, dtype=torch.bfloat16), False),
        }
        compare(f"LSTM layer, {sizes}", lstm_layer, layers, values, options.steps)
        matrices = random_values(*[(RANK, size), (size, RANK)] * ROUNDS)
        loop = partial(mogrifier_over_time, counts=[2] * ROUNDS)
        low = partial(loop, dtype=torch.bfloat16)

        def recorded(function: Layer, *given: Tensor, recordings: Recordings, weight: Tensor = values[1]) -> tuple[Tensor, ...]:
            return recordings.call(weight, function, *given)

        layers = {
            "loop, float32": (loop, False),
            "loop, TF32": (loop, True),
            "loop, bfloat16": (low, True),
            **{
                f"CUDA graphs, {name}": (partial(recorded, function, recordings=Recordings()), allowed)
                for name, function, allowed in (("float32", loop, False), ("TF32", loop, True), ("bfloat16", low, True))
            },
        }
        compare(f"Mogrifier layer, {sizes}, {ROUNDS} rounds of rank {RANK}", loop, layers, [*values, *matrices], options.steps)


if __name__ == "__main__":
    main()
