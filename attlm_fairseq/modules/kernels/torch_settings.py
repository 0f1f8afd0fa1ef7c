"""Settings of torch that are the whole process's, changed for as long as a thread needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch

Restore = Callable[[], None]
AUTOCAST_DEVICES = ("cpu", "cuda")
ROUNDING = ("bf16", "tf32")  # settings with which a CPU's library rounds float32 factors, if the CPU has the instructions


@contextmanager
def full_float32() -> Iterator[None]:
    """Compute in float32, without TF32 on a GPU and without bfloat16 on a CPU. Scores are promised in float32.

    cuDNN's recurrent layers use TF32 by default. Other products are rounded if the program or its environment asks torch for it, as
    ``torch.set_float32_matmul_precision("medium")`` and autocast do.
    """
    with _FULL_FLOAT32, ExitStack() as left:
        for device in filter(torch.is_autocast_enabled, AUTOCAST_DEVICES):
            left.enter_context(torch.autocast(device, enabled=False))
        yield


@contextmanager
def made_in_float32() -> Iterator[None]:
    """Make weights in float32, whatever the program's default dtype."""
    with _MADE_IN_FLOAT32:
        yield


@contextmanager
def without_cudnn() -> Iterator[None]:
    """Compute recurrent layers without cuDNN, which has no gradients outside training. torch's own ``cudnn.flags`` refuses to
    be entered within ``full_float32``.
    """
    with _WITHOUT_CUDNN:
        yield


class _WhileInside:
    """Keeps settings changed for as long as a thread is inside."""

    def __init__(self, change: Callable[[], Restore]) -> None:
        """``change`` changes the settings, and returns what restores them."""
        self._change, self._lock, self._inside, self._restore = change, threading.Lock(), 0, _nothing

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._restore = self._change()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._restore()


def _compute_in_float32() -> Restore:
    restore_gpus = _compute_in_float32_on_gpus() if torch.cuda.is_available() else _nothing
    on_cpu: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = on_cpu.fp32_precision
    if before not in ROUNDING:
        return restore_gpus
    on_cpu.fp32_precision = "ieee"

    def restore() -> None:
        on_cpu.fp32_precision = before
        restore_gpus()

    return restore


def _compute_in_float32_on_gpus() -> Restore:
    rnn: Any = torch.backends.cudnn.rnn
    restore_products = _multiply_in_float32()
    before, rnn.fp32_precision = rnn.fp32_precision, "ieee"

    def restore() -> None:
        rnn.fp32_precision = before
        restore_products()

    return restore


def _make_float32() -> Restore:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    return partial(torch.set_default_dtype, before)


def _leave_cudnn_out() -> Restore:
    before, torch.backends.cudnn.enabled = torch.backends.cudnn.enabled, False
    return partial(setattr, torch.backends.cudnn, "enabled", before)


def _multiply_in_float32() -> Restore:
    """Have torch multiply float32 without TF32 on GPUs, and return what restores its settings.

    torch has one setting for all products, one for those of GPUs and an older one for these. If they contradict each other,
    torch raises errors when they are read, and when it multiplies.
    """
    matmul: Any = torch.backends.cuda.matmul
    if matmul.fp32_precision != "tf32":
        return _nothing
    on_cpu: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = on_cpu.fp32_precision
    try:
        whole = torch.get_float32_matmul_precision()
    except RuntimeError:  # that of GPUs, or of CPUs, was set by itself
        return _without_tf32(matmul)
    torch.set_float32_matmul_precision("highest")

    def restore() -> None:
        torch.set_float32_matmul_precision(whole)
        on_cpu.fp32_precision = before

    return restore


def _without_tf32(matmul: Any) -> Restore:
    """Change the settings of GPUs alone."""
    try:
        older = matmul.allow_tf32
    except RuntimeError:  # only the newer one was set
        matmul.fp32_precision = "ieee"
        return partial(setattr, matmul, "fp32_precision", "tf32")
    matmul.allow_tf32 = False
    return partial(setattr, matmul, "allow_tf32", older)


def _nothing() -> None:
    """Restore nothing."""


_FULL_FLOAT32 = _WhileInside(_compute_in_float32)
_MADE_IN_FLOAT32 = _WhileInside(_make_float32)
_WITHOUT_CUDNN = _WhileInside(_leave_cudnn_out)
