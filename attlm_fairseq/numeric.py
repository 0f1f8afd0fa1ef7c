"""Small arithmetic helpers."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

LN_10 = math.log(10.0)  # ARPA files and SRILM write base-10 logs: times LN_10 they are natural logs


def ceil_div(count: int, size: int) -> int:
    """Return ``count / size``, rounded up."""
    return -(-count // size)


def is_number(value: Any) -> bool:
    """Return whether a value from JSON or TOML is a number, finite or not. Booleans are not numbers."""
    return isinstance(value, (int, float, Real)) and not isinstance(value, bool)
