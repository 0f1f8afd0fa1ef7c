"""Histories of LMs that read a limited number of tokens: before a long sentence, fewer of the earlier sentences fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from attlm_fairseq.scoring.deviation import Deviation
from attlm_fairseq.scoring.scorer import SentenceScore


class HasHistory(Protocol):
    """A scorer after a history of sentences, which are tokens."""

    _history: tuple[Any, ...]
    deviation: Deviation | None

    def with_history(self, history: Iterable[Any]) -> HasHistory:
        """Return the LM after another history."""

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        """See ``Scorer.score``."""


def last_that_fit(lengths: Sequence[int], room: int) -> int:
    """Return how many of the last sentences of these lengths fit together."""
    kept, size = len(lengths), sum(lengths)
    while kept and size > room:
        size -= lengths[len(lengths) - kept]
        kept -= 1
    return kept


def score_after(scorer: HasHistory, sentences: Sequence[Sequence[str]], kept: Sequence[int]) -> list[SentenceScore]:
    """Return the score of each sentence after so many of the last sentences of the scorer's history.

    The number is that of the sentence itself, so that a score does not depend on the other sentences of a call.
    """
    scores: dict[int, SentenceScore] = {}
    for number in sorted(set(kept)):
        places = [place for place, of_sentence in enumerate(kept) if of_sentence == number]
        later = scorer.with_history(scorer._history[len(scorer._history) - number :])
        scores |= zip(places, later.score([sentences[place] for place in places]), strict=True)
        scorer.deviation = scorer.deviation or later.deviation
    return [scores[place] for place in range(len(sentences))]
