"""The batch of a process that has no data left while others still have some.

fairseq's own, an empty one, would take what this process has computed with ``--update-freq`` in the same update out of the counts,
but not out of the gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

_MARK = "absent"


def absent_batch() -> dict[str, Any]:
    return {_MARK: True}


def is_absent(sample: Mapping[str, Any]) -> bool:
    return _MARK in sample


def counting_nothing(loss: Tensor, sample_size: int, logging_output: Mapping[str, Any]) -> tuple[Tensor, int, dict[str, Any]]:
    """Return the results of a step on some other batch, as those of no data."""
    return loss * 0, 0, {name: value * 0 for name, value in logging_output.items()}
