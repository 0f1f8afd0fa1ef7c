"""Perplexity in several definitions, each with its own name because their values are not comparable."""

from __future__ import annotations

import math
from array import array

from attlm_fairseq.scoring.scorer import SentenceScore


class PerplexityCounter:
    """Sums of natural-log probabilities over the sentences of a text, and their perplexities as ``verbs.text.Perplexity`` has them."""

    def __init__(self, scores_end: bool = True) -> None:
        """Count sentence ends as events unless the LM does not score them."""
        self.scores_end = scores_end
        self.sentences = 0
        self.words = 0
        self.oov = 0
        self.log_probs = array("d")  # of each sentence: kept as a list, to be summed exactly
        self._first = array("d")
        self._oov = array("d")

    def add(self, score: SentenceScore) -> None:
        self.sentences += 1
        self.words += score.words
        self.oov += score.oov_count
        self.log_probs.append(score.total)
        self._first.append(score.log_probs[0] if score.log_probs else 0.0)  # a blank line without a sentence end has no event
        self._oov.append(math.fsum(value for value, unknown in zip(score.log_probs, score.oov, strict=False) if unknown))

    @property
    def events(self) -> int:
        return self.words + self.ends

    @property
    def ends(self) -> int:
        return self.sentences if self.scores_end else 0

    @property
    def ppl(self) -> float:
        return perplexity(math.fsum(self.log_probs), self.events)

    @property
    def ppl_salton2017(self) -> float:
        return perplexity(math.fsum(self.log_probs) - math.fsum(self._first), self.events)

    @property
    def ppl_without_oov(self) -> float:
        return perplexity(math.fsum(self.log_probs) - math.fsum(self._oov), self.events - self.oov)

    def ppl_as_read(self, words: int) -> float:
        """Return the perplexity per given number of words plus scored sentence ends, to compare LMs with different tokenisation."""
        return perplexity(math.fsum(self.log_probs), words + self.ends)


def perplexity(log_prob: float, events: int) -> float:
    """Return exp(-log_prob / events): inf if it overflows, nan if there are no events."""
    if not events:
        return math.nan
    try:
        return math.exp(-log_prob / events)
    except OverflowError:
        return math.inf
