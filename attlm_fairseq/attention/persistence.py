"""Does an LSTM's cell still hold what the memory reads? In Salton and Kelleher (2018), inputs that persist are important."""

from __future__ import annotations

import math

import numpy as np

from attlm_fairseq.attention.weights import SentenceAttention

MIN_STATES = 3  # the rank correlation of fewer states says nothing


class Persistence:
    """Sums over the predictions of a text: does the LSTM's cell still hold the inputs whose states the model attends to?

    Only predictions with at least three states in memory count, each without ``h_0``; their weights are divided by their sum.
    """

    def __init__(self) -> None:
        self.predictions = 0
        self._correlations = 0.0
        self._attended = 0.0
        self._by_place = np.zeros((3, 0, 0))  # shares, their number, and weights by position in the sentence and distance

    def add(self, attention: SentenceAttention) -> None:
        from scipy.stats import spearmanr

        assert attention.contributions is not None, "the sentence was read without contributions"
        size = len(attention.weights)
        of_sentence = np.zeros((3, size, size))
        for row, present in enumerate(attention.in_memory[:, 1:]):
            [places] = np.nonzero(present)
            weights, shares = attention.weights[row, 1 + places], attention.contributions[row, 1 + places]
            if len(places) < MIN_STATES or not weights.sum():
                continue
            weights = weights / weights.sum()
            of_sentence[:, row, row - places] = shares, np.ones(len(places)), weights
            self.predictions += 1
            self._attended += float(weights @ shares)
            if np.ptp(weights) and np.ptp(shares):  # equal weights have no order
                self._correlations += float(spearmanr(weights, shares).statistic)
        self._by_place = _added(self._by_place, of_sentence)

    @property
    def correlation(self) -> float:
        """Mean rank correlation (Spearman) of weights and shares over the states in memory; equal weights count as 0."""
        return self._correlations / self.predictions if self.predictions else math.nan

    @property
    def attended(self) -> float:
        """Mean share in the cell of the inputs whose states are read, weighted by the attention."""
        return self._attended / self.predictions if self.predictions else math.nan

    @property
    def expected(self) -> float:
        """The same mean if each input had the average share at its position of the sentence and its distance."""
        shares, numbers, weights = self._by_place
        average = np.divide(shares, numbers, out=np.zeros_like(shares), where=numbers > 0)
        return float((average * weights).sum() / self.predictions) if self.predictions else math.nan

    def __str__(self) -> str:
        return (
            f"an attended input has {self.attended:.2%} of the LSTM's cell, the average input at its place and distance "
            f"{self.expected:.2%}; rank correlation of weights and shares {self.correlation:.3f} ({self.predictions:,} predictions)"
        )


def _added(sums: np.ndarray, of_sentence: np.ndarray) -> np.ndarray:
    """Return the sum of two arrays (3, T, T) of different T."""
    large, small = (sums, of_sentence) if sums.shape[1] > of_sentence.shape[1] else (of_sentence, sums)
    size = small.shape[1]
    total = large.copy()
    total[:, :size, :size] += small
    return total
