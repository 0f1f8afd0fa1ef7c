"""NumPy arrays in checkpoints, without NumPy's own unpickling: a file can only make arrays of 64-bit numbers.

fairseq's metrics contain such arrays. NumPy's constructors accept any object with a ``dtype`` attribute as a dtype, and
its ``__setstate__`` methods do not check their arguments. The classes here stand in under NumPy's names, compare types
exactly and make the array themselves, once: torch can make a tensor of its memory while the file is read, and filling
the array again would free that memory.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

NUMBERS = {"i8": np.dtype("<i8"), "f8": np.dtype("<f8")}
"""The types that an array can have, by the names that a file gives them."""


class NumberType:
    """Stands in for ``numpy.dtype``: 64-bit integers ("i8") or floating-point numbers ("f8"), and no other type."""

    __slots__ = ("code",)  # no __dict__: a file can give any class here that has one to an object that it has filled

    def __init__(self, code: Any = None, *copied: Any) -> None:
        if type(code) is not str or code not in NUMBERS:
            found = repr(code)[:40] if type(code) is str else type(code).__name__
            raise pickle.UnpicklingError(f"an array of {found}, expected integers or floating-point numbers of 64 bits")
        self.code = code

    def __setstate__(self, state: Any) -> None:
        """Accept and ignore what the file says about the type, except for a byte order that is not this machine's."""
        if type(state) is not tuple or len(state) < 2 or type(state[1]) is not str or state[1] not in ("<", "=", "|"):
            raise pickle.UnpicklingError("an array type that is not a plain little-endian number")


class PlainArray(np.ndarray):
    """Stands in for ``numpy.ndarray``. Only ``reconstruct`` makes one, empty, and only ``__setstate__`` fills it."""

    def __new__(cls, *arguments: Any) -> PlainArray:
        raise pickle.UnpicklingError("a numpy.ndarray that is called, expected an array as numpy saves it")

    def __setstate__(self, state: Any) -> None:
        """Take shape, type and content as NumPy saves them, once: (version, shape, type, Fortran order, bytes)."""
        if self.dtype in NUMBERS.values():
            raise pickle.UnpicklingError("an array that is filled twice")
        types = [type(part) for part in state] if type(state) is tuple else []
        if types != [int, tuple, NumberType, bool, bytes] or any(type(size) is not int or size < 0 for size in state[1]):
            raise pickle.UnpicklingError("an array whose content is not (version, shape, type, order, bytes)")
        _, shape, number, fortran, content = state
        if len(content) != 8 * math.prod(shape):
            raise pickle.UnpicklingError(f"an array of shape {shape} in {len(content)} bytes, expected 8 bytes a number")
        super().__setstate__((1, shape, NUMBERS[number.code], fortran, content))

    def __reduce__(self) -> Any:
        """Save as an ordinary array, which needs no class of this package to be read."""
        return np.array(self).__reduce__()


def reconstruct(kind: Any, shape: Any, code: Any) -> PlainArray:
    """Stand in for NumPy's ``_reconstruct``: an empty array, for exactly the arguments that NumPy saves."""
    if kind is not PlainArray or type(shape) is not tuple or shape != (0,) or type(code) is not bytes or code != b"b":
        raise pickle.UnpicklingError("an array that is not saved in numpy's way")
    return np.ndarray.__new__(PlainArray, (0,), "b")


STAND_INS: list[tuple[Callable[..., Any], str]] = [
    (NumberType, "numpy.dtype"),
    (PlainArray, "numpy.ndarray"),
    (reconstruct, "numpy.core.multiarray._reconstruct"),
    (reconstruct, "numpy._core.multiarray._reconstruct"),  # from NumPy 2 on
]
"""For ``torch.serialization.add_safe_globals``: what a file gets for each name."""
