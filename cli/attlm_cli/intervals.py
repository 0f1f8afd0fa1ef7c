"""``--interval`` and ``--fix``: what weights `attlm tune` may find."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.features.combination import LARGEST


def parse_intervals(intervals: Sequence[str], fixed: Sequence[str], names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """``NAME=LOW:HIGH`` (an end may be missing) and ``NAME=NUMBER`` as intervals of features. Raises InputError."""
    found: dict[str, tuple[float, float]] = {}
    for option, texts in (("--interval", intervals), ("--fix", fixed)):
        for text in texts:
            name, _, ends = text.rpartition("=")
            try:
                if option == "--fix":
                    low = high = float(ends)
                else:
                    lower, colon, upper = ends.partition(":")
                    if not colon:
                        raise ValueError
                    low, high = float(lower or "-inf"), float(upper or "inf")
            except ValueError:
                expected = "NAME=LOW:HIGH, such as lm=0:2 or lm=0:" if option == "--interval" else "NAME=NUMBER, such as am_score=1"
                raise InputError(f"{option} {text!r}: expected {expected}") from None
            if not low <= high or any(LARGEST < abs(end) < math.inf for end in (low, high)) or low == math.inf or high == -math.inf:
                raise InputError(f"{option} {text!r}: expected finite numbers of at most {LARGEST:g}, the lower one first")
            if name not in names:
                raise InputError(f"{option} {text!r}: the features are {', '.join(names)}")
            if name in found:
                raise InputError(f"{option} {text!r}: {name} has been given an interval or a weight before")
            found[name] = (low, high)
    return found
