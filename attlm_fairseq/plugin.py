"""What makes the package a fairseq plugin: registration, safe loading of checkpoints, one-line input errors."""

from __future__ import annotations

import argparse
import collections
import importlib
import os
import pickle
import pkgutil
import sys
import typing
import warnings
from types import TracebackType

import numpy as np
import omegaconf
import omegaconf.base
import torch
from fairseq.distributed.utils import _TensorPlaceholder

from attlm_fairseq.errors import InputError


def builtin_dtype(code: typing.Any, *copied: bool) -> np.dtype:
    """What a checkpoint gets for ``numpy.dtype``: numpy's one int64 or float64, which cannot be changed.

    ``numpy.dtype`` itself would give a copy, whose ``__setstate__`` takes anything a file says: int64 could be declared to be pointers.
    Raises UnpicklingError for any other type.
    """
    if code not in ("i8", "f8"):
        raise pickle.UnpicklingError(f"an array of {code!r}, expected whole or floating-point numbers of 64 bits")
    return np.dtype(code)


builtin_dtype.__module__, builtin_dtype.__name__, builtin_dtype.__qualname__ = "numpy", "dtype", "dtype"  # torch goes by the name

SAFE_GLOBALS = [
    # what checkpoints of fairseq's argparse models and a distributed resume hold besides tensors: containers of options, no code
    argparse.Namespace,
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
    # arrays of numbers, which fairseq's metrics hold after --eval-bleu. torch calls nothing but what stands here, and changes only objects
    # of the classes that do: no array of objects can be filled
    np.empty(0).__reduce__()[0],  # _reconstruct, of numpy.core or, from numpy 2 on, numpy._core
    np.ndarray,
    builtin_dtype,
    np.dtypes.Int64DType,
    np.dtypes.Float64DType,
]

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
]


def register() -> None:
    """Register the models, tasks and criterions with fairseq and allow its checkpoints to be loaded with ``weights_only``.

    fairseq's commands get this from ``--user-dir attlm_fairseq``; a Python program that imported this package before fairseq
    calls it itself. Calling it again does nothing.
    """
    torch.serialization.add_safe_globals(SAFE_GLOBALS)
    for message in OTHERS_WARNINGS:
        warnings.filterwarnings("ignore", message=message)
    for folder in ("criterions", "tasks", "models"):
        package = importlib.import_module(f"attlm_fairseq.{folder}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = one_line_input_errors


def one_line_input_errors(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    """Exception hook: an InputError that ends a fairseq command is one line and exit code 2, as in ``attlm``."""
    # fairseq raises an error of its own in place of any that comes of the weights in a checkpoint
    inner = error.__context__ if type(error) is Exception else error
    message = str(inner) if isinstance(inner, InputError) else None
    if isinstance(error, torch.multiprocessing.ProcessRaisedException):  # several devices: the traceback of one process, as text
        name = f"{InputError.__module__}.{InputError.__qualname__}: "
        lines = str(error).strip().splitlines()
        if lines[-1].startswith((name, "Exception: ")):
            message = next((line.removeprefix(name) for line in reversed(lines) if line.startswith(name)), None)
    if message is not None:
        print(f"attlm: error: {message}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(2)  # a thread of fairseq's that reads batches ahead may abort Python's own way of ending
    sys.__excepthook__(kind, error, traceback)
