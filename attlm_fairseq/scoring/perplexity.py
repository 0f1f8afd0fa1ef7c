"""Perplexity, under the two names that must never be mixed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from attlm_fairseq.scoring.scorer import SentenceScore


@dataclass(frozen=True)
class Perplexity:
    """Two perplexities of a text and the events behind them.

    ``ppl``: every word and every sentence end is predicted and counted. ``ppl_salton2017``: the first event of each sentence is not
    predicted but counted all the same, as in the code behind Salton et al. (2017). ``ppl_known`` leaves the OOV words out of sum and count.
    """

    sentences: int
    words: int
    oov: int
    log_prob: float
    log_prob_first: float
    log_prob_oov: float

    @property
    def events(self) -> int:
        """Words and sentence ends."""
        return self.words + self.sentences

    @property
    def ppl(self) -> float:
        return exponential(-self.log_prob / self.events)

    @property
    def ppl_salton2017(self) -> float:
        return exponential(-(self.log_prob - self.log_prob_first) / self.events)

    @property
    def ppl_known(self) -> float:
        return exponential(-(self.log_prob - self.log_prob_oov) / (self.events - self.oov))


def measure_perplexity(scores: Iterable[SentenceScore]) -> Perplexity:
    """Sum up the scores of a text's sentences. Raises ValueError when there are none."""
    sentences = words = oov = 0
    sums, firsts, unknown = [], [], []
    for score in scores:
        sentences += 1
        words += score.words
        oov += score.oov_count
        sums.append(score.total)
        firsts.append(score.log_probs[0])
        unknown.extend(value for value, is_oov in zip(score.log_probs, score.oov, strict=False) if is_oov)
    if not sentences:
        raise ValueError("perplexity of no sentences")
    return Perplexity(sentences, words, oov, math.fsum(sums), math.fsum(firsts), math.fsum(unknown))


def exponential(value: float) -> float:
    """exp, infinite where it overflows."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
