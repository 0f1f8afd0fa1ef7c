"""Small arithmetic that several rooms share."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

LN_10 = math.log(10.0)  # natural log of what ARPA files and SRILM write to the base 10


def ceil_div(count: int, size: int) -> int:
    """Return how many pieces of a size hold so many: the quotient, rounded up."""
    return -(-count // size)


def is_number(value: Any) -> bool:
    """Return whether a value of a JSON or TOML file is a number, finite or not; true and false are not."""
    return isinstance(value, (int, float, Real)) and not isinstance(value, bool)
