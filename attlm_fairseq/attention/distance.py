"""Mean attention by distance, over a text: how far back a model reads (Daniluk et al. 2017, Figure 3b)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attlm_fairseq.attention.persistence import Persistence
from attlm_fairseq.attention.weights import SentenceAttention


@dataclass(frozen=True)
class AtDistance:
    """What the predictions of a text read at one distance.

    Attributes:
        distance: d of the state ``h_(t-d)`` in the prediction of word t + 1: 0 is the current state. None is the initial
            state ``h_0``, which only averaging and selection models have in memory.
        predictions: number of predictions with a state at this distance in memory.
        mean: mean of their weights at this distance.
        equal: this mean if each prediction gave all states in its memory the same weight.
        share: share of all attention in the text; sums to 1 over the distances.
        contribution: mean share of the input at this distance in the LSTM's cell, if requested.
    """

    distance: int | None
    predictions: int
    mean: float
    equal: float
    share: float
    contribution: float | None = None


class DistanceProfile:
    """Sums weights by distance while a text is read."""

    def __init__(self) -> None:
        self.sentences = 0
        self.of = "state"  # or "word": what the memory holds
        self.predictions = 0  # of words and sentence ends
        self.without_memory = 0  # predictions with an empty memory
        self._start = 0.0  # weight on the state after the sentence start, at any distance
        self.persistence: Persistence | None = None  # None without contributions
        self._sums = np.zeros((4, 1))  # weight, number, equal share and contribution; columns: h_0, then distance 0, 1, ..

    def add(self, attention: SentenceAttention) -> None:
        rows, columns = np.nonzero(attention.in_memory)
        slots = attention.in_memory.sum(axis=1)
        bins = np.where(columns == 0, 0, 2 + rows - columns)  # column c > 0 is the state after input c - 1, row r that after input r
        shares = np.zeros(len(rows)) if attention.contributions is None else attention.contributions[rows, columns].astype(np.float64)
        values = (attention.weights[rows, columns].astype(np.float64), np.ones(len(rows)), 1 / slots[rows], shares)
        sums = np.stack([np.bincount(bins, value, minlength=self._sums.shape[1]) for value in values]).astype(np.float64)
        sums[:, : self._sums.shape[1]] += self._sums
        self._sums = sums
        self._start += float(attention.weights[:, 1].sum(dtype=np.float64))
        self.sentences += 1
        if attention.contributions is not None:
            self.persistence = self.persistence or Persistence()
            self.persistence.add(attention)
        self.of = attention.of
        self.predictions += len(slots)
        self.without_memory += int((slots == 0).sum())

    @property
    def reading(self) -> int:
        """Number of predictions whose memory is not empty."""
        return self.predictions - self.without_memory

    @property
    def start_share(self) -> float:
        """Share of all attention on the state after the sentence start, which models attend to when nothing else helps."""
        return self._start / self._all if self._all else 0.0

    @property
    def _all(self) -> float:
        """All attention of the text. A prediction has 1, with a pointer less: the softmax has the rest."""
        return float(self._sums[0].sum())

    def rows(self) -> list[AtDistance]:
        """Return the distances at which a state is in memory, nearest first; ``h_0`` comes last."""
        order = [*range(1, self._sums.shape[1]), 0]
        return [
            AtDistance(
                column - 1 if column else None,
                int(number),
                weight / number,
                equal / number,
                weight / self._all if self._all else 0.0,
                shares / number if self.persistence and column else None,
            )
            for column, (weight, number, equal, shares) in zip(order, self._sums[:, order].T.tolist(), strict=True)
            if number
        ]
