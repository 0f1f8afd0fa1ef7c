"""The contract of shallow fusion: scores for the decoder's tokens, whatever the language models' words are."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class ShallowFusion(Protocol):
    """Language-model scores for a decoder's own vocabulary of U tokens, addressed by their indexes.

    A token's score is what the decoder adds (natural log, weights applied) when a hypothesis takes it. States are immutable values; what
    was computed for them goes when they are dropped.
    """

    size: int
    """U: how many tokens the decoder has."""

    def start(self) -> Any:
        """Return the state of an empty hypothesis."""
        ...

    def score(self, state: Any, token: int) -> tuple[float, Any]:
        """Return the score of one token, and the state after it."""
        ...

    def scores(self, states: Sequence[Any]) -> np.ndarray:
        """Return the scores of every token after each of N states, float64 (N, U), computed together."""
        ...

    def end(self, state: Any) -> float:
        """Return the score of ending the hypothesis here; for decoders that have no token for that."""
        ...


def check_fusion(fusion: object) -> None:
    """Raise TypeError for what is not a ShallowFusion, such as the language models alone."""
    if not isinstance(fusion, ShallowFusion):
        raise TypeError(f"a fusion is expected, a LookAheadWordLM or TokenFusion over the language models, not a {type(fusion).__name__}")


def check_options(ends: Collection[int], size: int, unk_offset: float) -> None:
    """Raise ValueError for sentence ends that are not tokens, and for an offset of unknown words that is nan or inf."""
    if not all(isinstance(end, Integral) and 0 <= end < size for end in ends):
        raise ValueError(
            f"the ends {list(ends)} are not tokens: expected indexes from 0 to {size - 1}, or none if no token ends a sentence"
        )
    if math.isnan(unk_offset) or unk_offset == math.inf:
        raise ValueError(f"the offset of unknown words is a number or -inf, not {unk_offset}")
