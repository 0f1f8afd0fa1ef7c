"""Small arithmetic helpers."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, NamedTuple

MAX_DIGITS = 18  # of a whole number in a text: fits 64 bits
LN_2 = math.log(2.0)  # fairseq writes base-2 logs
LN_10 = math.log(10.0)  # ARPA files and SRILM write base-10 logs: times LN_10 they are natural logs


class Allowed(NamedTuple):
    """The values that an argument or an entry of a file may have.

    Attributes:
        is_right: whether a value is one of them.
        expected: what they are, for messages.
        convert: returns the value as it is kept.
    """

    is_right: Callable[[Any], bool]
    expected: str
    convert: Callable[[Any], Any] = lambda value: value


def ceil_div(count: int, size: int) -> int:
    """Return ``count / size``, rounded up."""
    return -(-count // size)


def whole_number(text: str) -> int | None:
    """Return the number that a text has in decimal digits; None for any other text, or more than 18 digits, which Python may refuse."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else None


def is_number(value: Any) -> bool:
    """Return whether a value from JSON or TOML is a number, finite or not. Booleans are not numbers."""
    return isinstance(value, (int, float, Real)) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Return whether a value is a number that is finite as a float."""
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:  # an int beyond all floats
        return False


FINITE = Allowed(is_finite, "a finite number", float)
NOT_NEGATIVE = Allowed(lambda value: is_finite(value) and value >= 0, "a finite number that is not negative", float)
POSITIVE = Allowed(lambda value: is_finite(value) and value > 0, "a number above 0, such as 0.95", float)
WHOLE_NUMBER = Allowed(
    lambda value: isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0, "a whole number, not negative", int
)
