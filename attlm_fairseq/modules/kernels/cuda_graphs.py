"""Functions of tensors as CUDA graphs: recorded once, forward and backward, and then replayed without a launch for each kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Function = Callable[..., tuple[Tensor, ...]]
MAX_RECORDINGS = 4  # of one function: each keeps its memory


class Recordings:
    """The recordings of functions, one function for each weight that they read. A recording lives as long as the weight."""

    def __init__(self) -> None:
        self._of: Any = WeakTensorKeyDictionary()

    def call(self, weight: Tensor, function: Function, *values: Tensor, **settings: Hashable) -> tuple[Tensor, ...]:
        """Return ``function(*values, **settings)``. From the second time on that values have the same shapes, a recording is replayed.

        Args:
            weight: on a GPU.
            function: always the same one for a weight. It may not wait for the GPU, nor draw random numbers. torch's setting of TF32
                stays that of the recording.
            values: all tensors that the function reads, the weight among them.
            settings: its other arguments; with others there is another recording.

        Raises:
            RuntimeError: when gradients are computed, but the function was called again in between: the recording has then forgotten
                the values that they need.
        """
        key = tuple((value.shape, value.dtype, value.requires_grad) for value in values), tuple(settings.items())
        function = partial(function, **settings)
        recordings: dict[Any, Recording | None] = self._of.setdefault(weight, {})
        if key not in recordings:
            recordings[key] = None
        elif recordings[key] is None and sum(found is not None for found in recordings.values()) < MAX_RECORDINGS:
            recordings[key] = Recording(function, values)
        return (recordings[key] or function)(*values)


class Recording:
    """A function, recorded for arguments with the shapes of some values."""

    def __init__(self, function: Function, values: tuple[Tensor, ...]) -> None:
        samples = tuple(value.detach().clone().requires_grad_(value.requires_grad) for value in values)
        with torch.autocast(values[0].device.type, enabled=False), _capturing_this_thread(), warnings.catch_warnings():
            # a recording has streams of its own
            warnings.filterwarnings("ignore", message="The AccumulateGrad node's stream does not match")
            self._replay = cast(Function, torch.cuda.make_graphed_callables(function, samples, allow_unused_input=True))
        self._calls = 0

    def __call__(self, *values: Tensor) -> tuple[Tensor, ...]:
        self._calls += 1
        outputs, calls = self._replay(*_OwnGradients.apply(*values)), self._calls

        def check(gradient: Tensor) -> None:
            if self._calls != calls:
                raise RuntimeError("a model with --cuda-graphs was called again before the gradients of its last call were computed")

        if outputs[0].requires_grad:
            outputs[0].register_hook(check)
        return outputs


@contextmanager
def _capturing_this_thread() -> Iterator[None]:
    """Let other threads use the GPU during a recording, as fairseq's does that reads the next batches: torch's default is an error then."""
    graph: Any = torch.cuda.graph
    torch.cuda.graph = partial(graph, capture_error_mode="thread_local")  # type: ignore[misc,assignment]  # make_graphed_callables takes no mode
    try:
        yield
    finally:
        torch.cuda.graph = graph  # type: ignore[misc]


class _OwnGradients(torch.autograd.Function):
    """Copies gradients out of the memory of a recording, which is written again when it is replayed."""

    @staticmethod
    def forward(ctx: Any, *values: Tensor) -> tuple[Tensor, ...]:
        return tuple(value.view_as(value) for value in values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:
        return tuple(gradient if gradient is None else gradient.clone() for gradient in gradients)


RECORDINGS = Recordings()
