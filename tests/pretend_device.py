"""A device that is not the CPU, for machines that have no other: its tensors lie in the CPU's memory, behind a wall.

As with CUDA, an operation on tensors of two devices raises (but for copies, indices and single numbers), ``numpy()`` does, and autocast
casts what it casts on CUDA, which is not what it casts on a CPU. So a model on ``pretend`` shows whether each tensor that it makes
on its way is made where it is needed. What it cannot show: kernels, streams, memory.

It is made with torch's experimental backends in Python (torch 2.9 or later).
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map

NAME = "pretend"
# CUDA, too, copies between devices and indexes with indices of the CPU
MIXING = {"copy_", "_to_copy", "_copy_from", "index", "index_put", "index_put_", "_index_put_impl_"}
# https://docs.pytorch.org/docs/stable/amp.html, of what language models use: to the lower precision, to float32, to the widest
LOWER = "matmul mm bmm addmm baddbmm addbmm addmv mv addr linear linalg_multi_dot scaled_dot_product_attention"
FLOAT32 = "exp expm1 log log10 log2 log1p reciprocal rsqrt logsumexp pow.Tensor_Scalar pow.Tensor_Tensor norm.Scalar nll_loss"
FLOAT32_OUT = "softmax.int log_softmax.int cumsum sum sum.dim_IntList prod"
WIDEST = "addcmul addcdiv dot index_put scatter_add"
LIBRARIES = []  # what is registered lasts as long as the object that registered it


class PretendTensor(Tensor):
    """``raw`` holds the values, in the CPU's memory."""

    @staticmethod
    def __new__(cls, raw: Tensor) -> PretendTensor:
        layout = {"strides": raw.stride(), "storage_offset": raw.storage_offset(), "dtype": raw.dtype}
        return Tensor._make_wrapper_subclass(cls, raw.shape, **layout, device=f"{NAME}:0")

    def __init__(self, raw: Tensor) -> None:
        self.raw = raw

    def tolist(self) -> Any:
        return self.raw.tolist()

    def new_tensor(self, data: Any, dtype: torch.dtype | None = None) -> Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype).to(NAME)

    def __getitem__(self, places: Any) -> Tensor:
        """Of lists of indices, torch would make tensors of its own kind there."""
        parts = places if isinstance(places, tuple) else (places,)
        return super().__getitem__(tuple(torch.tensor(part) if isinstance(part, list) else part for part in parts))

    def __setitem__(self, places: Any, value: Any) -> None:
        """Not seen by autograd; of the CPU may be only what torch takes for CUDA tensors, too."""
        if isinstance(value, Tensor) and value.dim() and not isinstance(value, PretendTensor):
            raise RuntimeError(f"a tensor on {NAME} is set to one on the CPU, of {tuple(value.shape)}")
        places, value = tree_map(lambda part: part.raw if isinstance(part, PretendTensor) else part, (places, value))
        self.raw[places] = value

    def numpy(self, **options: Any) -> None:
        raise TypeError(f"a tensor on {NAME} has no numpy(): copy it to the CPU first")

    __array__ = numpy
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return on_raw_tensors(operation, *args, **(kwargs or {}))


def on_raw_tensors(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operation of torch on what the tensors hold. Raises RuntimeError for tensors of two devices."""
    name = operation.name().removeprefix("aten::").split(".")[0]
    owners: dict[int, PretendTensor] = {}
    strangers: list[Tensor] = []

    def unwrapped(value: Any) -> Any:
        if isinstance(value, PretendTensor):
            owners[id(value.raw)] = value
            return value.raw
        if isinstance(value, Tensor) and value.dim():
            strangers.append(value)
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def wrapped(value: Any) -> Any:
        if not isinstance(value, Tensor) or id(value) in owners:  # in place: the tensor itself is the result
            return owners.get(id(value), value)
        with torch.inference_mode(False):  # of a wrapper made in that mode torch can make no view
            return PretendTensor(value)

    to_CPU = any(isinstance(value, torch.device) and value.type == "cpu" for value in tree_leaves((args, kwargs)))
    raw_args, raw_kwargs = tree_map(unwrapped, (args, kwargs))
    if owners and strangers and name not in MIXING:
        raise RuntimeError(f"{name} of tensors on {NAME} and on the CPU, those of {[tuple(stray.shape) for stray in strangers]}")
    if name == "_copy_from":
        raw_args[1].copy_(raw_args[0])
        return args[1]
    result = INSTEAD.get(name, operation)(*raw_args, **raw_kwargs)
    return result if to_CPU else tree_map(wrapped, result)


def lstm_cell(inputs: Tensor, hidden: Tensor, cell: Tensor, *biases: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """What torch calls on devices that are not the CPU: gates of the input and of the state before -> h, c and the gates."""
    gates = sum((bias for bias in biases if bias is not None), inputs + hidden)
    i, f, g, o = gates.chunk(4, dim=1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * cell + i * g
    return o * after.tanh(), after, torch.cat((i, f, g, o), dim=1)


def lstm_cell_backward(
    grad_hidden: Tensor | None, grad_cell: Tensor | None, before: Tensor, after: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = gates.chunk(4, dim=1)
    squashed = after.tanh()
    zeros = torch.zeros_like(after)
    grad_hidden = zeros if grad_hidden is None else grad_hidden
    grad_cell = (zeros if grad_cell is None else grad_cell) + grad_hidden * o * (1 - squashed**2)
    parts = (
        grad_cell * g * i * (1 - i),
        grad_cell * before * f * (1 - f),
        grad_cell * i * (1 - g**2),
        grad_hidden * squashed * o * (1 - o),
    )
    grad_gates = torch.cat(parts, dim=1)
    return grad_gates, grad_cell * f, grad_gates.sum(0) if has_bias else None


def rnn_tanh(
    inputs: Tensor, before: Tensor, weights: list[Tensor], has_biases: bool, layers: int, dropout: float, train: bool, *options: bool
) -> tuple[Tensor, Tensor]:
    """The plain RNN of one direction, the batch first: torch's own loop in C++ ends the process on a device registered from Python."""
    assert has_biases
    assert options == (False, True)
    last = []
    for layer in range(layers):
        w_ih, w_hh, b_ih, b_hh = weights[4 * layer : 4 * layer + 4]
        if layer:
            inputs = torch.dropout(inputs, dropout, train)
        hidden, outputs = before[layer], []
        for step in nn.functional.linear(inputs, w_ih, b_ih).unbind(1):
            hidden = torch.tanh(step + nn.functional.linear(hidden, w_hh, b_hh))
            outputs.append(hidden)
        inputs = torch.stack(outputs, 1)
        last.append(hidden)
    return inputs, torch.stack(last)


INSTEAD: dict[str, Callable] = {"_thnn_fused_lstm_cell": lstm_cell, "_thnn_fused_lstm_cell_backward_impl": lstm_cell_backward}


class Module:
    """What torch asks of ``torch.pretend``."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def is_available(self) -> bool:
        """Not of its own accord, or the data loaders of other tests of this process would pin memory for it."""
        return False

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        torch.default_generator.manual_seed(seed)


def register() -> None:
    """Make ``pretend`` a device of this process, once and before the first backward pass, when torch's autograd counts the devices.

    Not where there is a GPU: torch would take ``pretend`` for the accelerator, and every backward pass on the GPU would fail
    (https://github.com/pytorch/pytorch/issues/161129).

    ``with torch.device(..)`` keeps, from its first use on, the functions that it applies to: they must be torch's own,
    not what ``made_there`` puts in the place of ``torch.tensor``. transformers, for one, asks it for the device in use.
    """
    if torch.cuda.is_available():
        return
    with torch.device("cpu"):
        torch.empty(0)
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=Module())
    backend, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    backend.fallback(on_raw_tensors, "PrivateUse1")
    backend.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, rule in ((LOWER, to_lower), (FLOAT32, to_float32), (FLOAT32_OUT, summed_in_float32), (WIDEST, to_widest)):
        for name in names.split():
            packet, _, overload = name.partition(".")
            aten.impl(name, rule(getattr(getattr(torch.ops.aten, packet), overload or "default")), "AutocastPrivateUse1")
    for key in ("PrivateUse1", "AutogradPrivateUse1"):  # it consists of other operations, which autograd follows
        aten.impl("rnn_tanh.input", rnn_tanh, key)
    LIBRARIES.extend((backend, aten))


@contextlib.contextmanager
def made_there() -> Iterator[None]:
    """``torch.tensor(.., device="pretend")`` works."""
    original = torch.tensor
    torch.tensor = functools.partial(tensor, original)
    try:
        yield
    finally:
        torch.tensor = original


def tensor(original: Callable[..., Tensor], data: Any, *, device: Any = None, **options: Any) -> Tensor:
    """``torch.tensor``, which cannot make tensors of other kinds than its own."""
    there = device is not None and torch.device(device).type == NAME
    return original(data, **options).to(NAME) if there else original(data, device=device, **options)


def without_autocast(operation: Any, *args: Any, **kwargs: Any) -> Any:
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)):
        return operation(*args, **kwargs)


def casting(dtype_of: Callable[[list[torch.dtype]], torch.dtype]) -> Callable:
    """An autocast rule: all numbers with a fraction in the dtype that depends on theirs; float64 is left alone."""

    def rule(operation: Any) -> Callable:
        def cast_and_run(*args: Any, **kwargs: Any) -> Any:
            castable = [value for value in tree_leaves((args, kwargs)) if isinstance(value, PretendTensor) and value.dtype in HALVES]
            if not castable:
                return without_autocast(operation, *args, **kwargs)
            dtype = dtype_of([value.dtype for value in castable])

            def cast(value: Any) -> Any:
                return value.to(dtype) if isinstance(value, PretendTensor) and value.dtype in HALVES else value

            args, kwargs = without_autocast(tree_map, cast, (args, kwargs))
            return without_autocast(operation, *args, **kwargs)

        return cast_and_run

    return rule


HALVES = (torch.float32, torch.bfloat16, torch.float16)
to_lower = casting(lambda dtypes: torch.get_autocast_dtype(NAME))
to_float32 = casting(lambda dtypes: torch.float32)
to_widest = casting(lambda dtypes: torch.float32 if torch.float32 in dtypes else dtypes[0])


def summed_in_float32(operation: Any) -> Callable:
    """An autocast rule: the result of numbers of lower precision is float32, if nothing else is asked for."""

    def run(first: Tensor, *args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        default = torch.float32 if first.dtype in HALVES else None
        return without_autocast(operation, first, *args, dtype=dtype or default, **kwargs)

    return run


def on_pretend_device(model: nn.Module) -> nn.Module:
    """A copy of a language model there. What is tied stays tied, which torch does only for tensors of its own kind."""
    moved = copy.deepcopy(model).to(NAME)
    if getattr(model.output, "weight", None) is model.embedding.weight:
        moved.output.weight = moved.embedding.weight
    return moved
