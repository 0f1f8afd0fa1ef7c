"""What an adapter needs to know of fusion: scores for the decoder's units, whatever the language models' words are."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from numbers import Integral
from typing import Any, Protocol

import numpy as np


class Fusion(Protocol):
    """Language-model scores for a decoder's own vocabulary of U units, addressed by their indexes.

    A unit's score is what the decoder adds (natural log, weights applied) when a hypothesis takes it. States are immutable values; what
    was computed for them goes when they are dropped.
    """

    size: int
    """U: how many units the decoder has."""

    def start(self) -> Any:
        """The state of an empty hypothesis."""
        ...

    def score(self, state: Any, unit: int) -> tuple[float, Any]:
        """The score of one unit, and the state after it."""
        ...

    def scores(self, states: Sequence[Any]) -> np.ndarray:
        """The scores of every unit after each of N states, float64 (N, U), computed together."""
        ...

    def end(self, state: Any) -> float:
        """The score of ending the hypothesis here; for decoders that have no unit for that."""
        ...


def check_options(ends: Collection[int], size: int, unk_offset: float) -> None:
    """Raises ValueError for sentence ends that are no units, and for an offset of unknown words that is nan or inf."""
    if not all(isinstance(end, Integral) and 0 <= end < size for end in ends):
        raise ValueError(
            f"the ends {list(ends)} are no units: expected indexes from 0 to {size - 1}, or none where no unit ends a sentence"
        )
    if math.isnan(unk_offset) or unk_offset == math.inf:
        raise ValueError(f"the offset of unknown words is a number or -inf, not {unk_offset}")
