"""The fairseq plugin: registration, safe loading of checkpoints, one-line input errors."""

from __future__ import annotations

import argparse
import collections
import importlib
import io
import os
import pkgutil
import sys
import typing
import warnings
from collections.abc import Callable, Iterable
from types import TracebackType

import fairseq.checkpoint_utils
import fairseq.distributed.utils
import fairseq.utils
import omegaconf
import omegaconf.base
import torch
from fairseq.distributed.utils import _TensorPlaceholder

from attlm_fairseq.checkpoints.fairseq_loading import close_eval, refuse_unusable
from attlm_fairseq.checkpoints.plain_arrays import STAND_INS
from attlm_fairseq.checkpoints.plain_data import SafeGlobals, allowed_globals, require_safe_torch
from attlm_fairseq.checkpoints.resuming import complete_checkpoints
from attlm_fairseq.errors import InputError
from attlm_fairseq.fairseq_import import is_command

FILE_GLOBALS: SafeGlobals = [argparse.Namespace, *STAND_INS]
"""What a checkpoint file may name besides tensors: the options of fairseq's argparse models, and arrays of numbers in its metrics."""

BROADCAST_GLOBALS = [
    omegaconf.DictConfig,
    omegaconf.ListConfig,
    omegaconf.base.ContainerMetadata,
    omegaconf.base.Metadata,
    omegaconf.nodes.AnyNode,
    typing.Any,
    dict,
    int,
    list,
    collections.defaultdict,
    _TensorPlaceholder,
]
"""What the processes of one training send each other besides, when it is resumed: never allowed while a file is read."""

OTHERS_WARNINGS = [
    # what fairseq's way of calling hydra and torch makes these say in every run: nothing that our users could change
    r"hydra\.experimental\.",
    r"\s*The version_base parameter is not specified",
    r"In 'config': Usage of deprecated keyword in package header",
    r"\s*'config' is validated against ConfigStore schema",
    r"\s*The strict flag in the compose API is deprecated",
    r"'pin_memory' argument is set as true but no accelerator is found",
    r"`torch\.cuda\.amp\.autocast\(args\.\.\.\)` is deprecated",
    r"`torch\.cuda\.amp\.GradScaler\(args\.\.\.\)` is deprecated",
    r"`torch\.jit\.script` is deprecated",
    # the same with a GPU, and with several
    r"amp_C fused kernels unavailable",
    r"RNN module weights are not part of single contiguous chunk of memory",
    r"The torch\.cuda\.\*DtypeTensor constructors are no longer recommended",
]


def register() -> None:
    """Register the models, tasks and criterions with fairseq and allow its checkpoints to be loaded with ``weights_only``.

    fairseq's commands get this from ``--user-dir attlm_fairseq``; a Python program that imported this package before
    fairseq calls it itself. Calling it again does nothing.
    """
    if is_command():  # a program of the user's keeps its own ways
        if sys.excepthook is sys.__excepthook__:
            sys.excepthook = one_line_input_errors
        for message in OTHERS_WARNINGS:
            warnings.filterwarnings("ignore", message=message)
    refuse_unsafe_loading()
    torch.serialization.add_safe_globals(FILE_GLOBALS)
    if fairseq.distributed.utils.broadcast_object is not broadcast_object:
        fairseq.distributed.utils.broadcast_object = broadcast_object
        fairseq.checkpoint_utils.load_checkpoint_to_cpu = refuse_unusable(fairseq.checkpoint_utils.load_checkpoint_to_cpu)
        fairseq.utils.clip_grad_norm_ = clip_grad_norm
    close_eval()
    complete_checkpoints()
    for folder in ("criterions", "tasks", "models"):
        package = importlib.import_module(f"attlm_fairseq.{folder}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def refuse_unsafe_loading() -> None:
    """Raise InputError if this torch, as it is set up, would run code hidden in a checkpoint that fairseq loads."""
    require_safe_torch()
    name = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    if os.environ.get(name, "0").lower() in ("1", "y", "yes", "true"):
        raise InputError(f"{name} is set: fairseq would run code hidden in checkpoints; unset it")


def broadcast_object(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    """Call fairseq's ``broadcast_object`` while objects that no checkpoint file may hold can be received.

    Only the first process of the training sends them, and it has read its checkpoint with ``FILE_GLOBALS`` only.
    """
    with allowed_globals([*FILE_GLOBALS, *BROADCAST_GLOBALS]):
        return _broadcast_object(*args, **kwargs)


_broadcast_object = fairseq.distributed.utils.broadcast_object


def clip_grad_norm(
    params: torch.Tensor | Iterable[torch.Tensor],
    max_norm: float,
    aggregate_norm_fn: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> torch.Tensor:
    """Call fairseq's ``clip_grad_norm_`` with the norm on the device of the gradients.

    On a machine with a GPU, fairseq moves the norm to the GPU even with ``--cpu``, and torch then refuses to multiply the gradients by it.
    """
    params = [params] if isinstance(params, torch.Tensor) else list(params)
    device = next((param.grad.device for param in params if param is not None and param.grad is not None), None)

    def on_their_device(norm: torch.Tensor) -> torch.Tensor:
        return (norm if aggregate_norm_fn is None else aggregate_norm_fn(norm)).to(device)

    return _clip_grad_norm(params, max_norm, on_their_device)


_clip_grad_norm = fairseq.utils.clip_grad_norm_


def one_line_input_errors(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Exception hook: print an InputError that ends a fairseq command as one line, and exit with code 2, as ``attlm`` does."""
    # fairseq replaces any error raised while it loads the weights of a checkpoint by its own
    inner = error.__context__ if type(error) is Exception else error
    message = str(inner) if isinstance(inner, InputError) else None
    if isinstance(
        error, torch.multiprocessing.ProcessRaisedException
    ):  # training on several devices: holds the traceback of one process as text
        name = f"{InputError.__module__}.{InputError.__qualname__}: "
        lines = str(error).strip().splitlines()
        if lines[-1].startswith((name, "Exception: ")):
            message = next((line.removeprefix(name) for line in reversed(lines) if line.startswith(name)), None)
    if message is not None:
        # among several processes, torch's own hook calls this one, and would print what sys.stderr has caught after this: never
        stream = sys.__stderr__ if isinstance(sys.stderr, io.StringIO) else sys.stderr
        print(f"attlm: error: {message}", file=stream, flush=True)
        sys.stdout.flush()
        os._exit(2)  # not sys.exit: fairseq's thread that prefetches batches can abort a normal exit
    sys.__excepthook__(kind, error, traceback)
