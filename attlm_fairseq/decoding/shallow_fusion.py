"""The ShallowFusion contract: language-model scores for the decoder's tokens, even if the LMs have other units."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from attlm_fairseq.decoding.log_linear_lm import LogLinearLM


@runtime_checkable
class ShallowFusion(Protocol):
    """Language-model scores for a decoder's own vocabulary of U tokens, which are addressed by index.

    The decoder adds a token's score (natural log, LM weights applied) to a hypothesis that takes the token. States are
    immutable. Dropping a state also frees the results cached for it.
    """

    size: int
    """U: the number of the decoder's tokens."""

    @property
    def ends(self) -> Collection[int]:
        """Return the tokens that end a sentence; none if no token does."""

    def start(self) -> Any:
        """Return the state of an empty hypothesis."""

    def score(self, state: Any, token: int) -> tuple[float, Any]:
        """Return the score of one token and the state after it."""

    def scores(self, states: Sequence[Any]) -> np.ndarray:
        """Return the scores of all tokens after each of N states, (N, U) in float64, computed in one batch."""

    def end(self, state: Any) -> float:
        """Return the score of ending the hypothesis here, for decoders without an end token."""


Fusion = TypeVar("Fusion")


def with_lms(fusion: Fusion, lms: LogLinearLM) -> Fusion:
    """Return a fusion of LMs with these LMs instead, which differ in nothing but where sentences begin. Tables and caches are shared."""
    changed = object.__new__(type(fusion))
    changed.__dict__.update(vars(fusion), lms=lms)
    return changed


def check_fusion(fusion: object) -> None:
    """Raise TypeError if ``fusion`` is not a ShallowFusion, for example a language model."""
    if not isinstance(fusion, ShallowFusion):
        raise TypeError(f"a fusion is expected, a LookAheadWordLM or TokenFusion over the language models, not a {type(fusion).__name__}")


def check_options(ends: Collection[int], size: int, unk_offset: float) -> None:
    """Raise ValueError if an element of ``ends`` is not a token, or if ``unk_offset`` is nan or inf."""
    if not isinstance(ends, Collection):
        raise ValueError(f"the ends are {ends!r}: expected the tokens that end a sentence, as a list")
    if not all(isinstance(end, Integral) and 0 <= end < size for end in ends):
        raise ValueError(
            f"the ends {list(ends)} are not tokens: expected indexes from 0 to {size - 1}, or none if no token ends a sentence"
        )
    if math.isnan(unk_offset) or unk_offset == math.inf:
        raise ValueError(f"the offset of unknown words is a number or -inf, not {unk_offset}")


def check_texts(texts: Sequence[bytes | None]) -> None:
    """Raise ValueError if the text of a token is neither bytes nor None."""
    for token, text in enumerate(texts):
        if not isinstance(text, bytes | None):
            raise ValueError(f"the text of token {token} is {text!r}, expected bytes, such as token_texts({[text]!r}) gives, or None")
