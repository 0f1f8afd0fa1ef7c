"""N-best lists as arrays for the weight search.

Shapes: N lists, n_i hypotheses each, T = sum of n_i, F features, S statistics of the metric. The rows of a list are in
input order, which decides between equal totals, as in ``combination.combine``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from attlm_fairseq.nbest.features.combination import log_linear
from attlm_fairseq.nbest.features.within_lists import are_outliers, pooled

BLOCK_HYPOTHESES = 1 << 15  # hypotheses worked on at a time: memory stays small, and calls few


class Corpus:
    """All lists end to end: ``features`` (F, T), ``statistics`` (T, S); list i begins at row ``starts[i]``.

    ``scale`` (F,) is each feature's standard deviation within lists (see ``within_lists``), 0 for a constant feature.
    ``standardised`` (F, T) are the features minus their mean in the list, in this unit. In a list of outliers, they are minus
    the value nearest to 0.
    """

    def __init__(self, feature_matrices: Sequence[np.ndarray], statistics: Sequence[np.ndarray], order: Sequence[int]) -> None:
        if not len(feature_matrices) or len(feature_matrices) != len(statistics):
            raise ValueError(
                f"{len(feature_matrices)} feature matrices and {len(statistics)} statistics; expected equally many, at least 1"
            )
        self.sizes = np.array([len(matrix) for matrix in feature_matrices])
        if (self.sizes < 1).any() or any(len(of_list) != size for of_list, size in zip(statistics, self.sizes, strict=True)):
            raise ValueError("each list needs at least one hypothesis, and as many rows of statistics as of features")
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.features = np.ascontiguousarray(np.concatenate(feature_matrices, axis=0, dtype=np.float64)[:, order].T)
        if not np.isfinite(self.features).all():
            raise ValueError("features must be finite")
        self.statistics = np.concatenate(statistics, axis=0, dtype=np.float64)
        self.blocks = [(lists, rows, self.features.take(rows, axis=1)) for lists, rows in self.split(np.arange(len(self.sizes)))]
        # Within a list only differences count; centred, no precision is lost to a large common offset.
        self.scale = np.zeros(len(self.features))
        self.standardised = np.zeros_like(self.features)
        for column, values in enumerate(self.features):
            low, high = np.minimum.reduceat(values, self.starts), np.maximum.reduceat(values, self.starts)
            if (low != high).any():
                means = np.add.reduceat(values, self.starts) / self.sizes
                squares = np.add.reduceat(np.square(values - np.repeat(means, self.sizes)), self.starts)
                squares[low == high] = 0.0  # the mean of equal values may be another number
                # the mean is near a mark for log 0 such as -3.4e38, and minus it the other values would all be the same
                centres = np.where(are_outliers(squares / self.sizes), np.clip(0.0, low, high), means.clip(low, high))
                self.scale[column] = pooled(squares, self.sizes)
                self.standardised[column] = (values - np.repeat(centres, self.sizes)) / (self.scale[column] or 1.0)

    def split(self, lists: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield blocks of lists (k,) with the rows of their hypotheses (k, n), one rectangle per block.

        A list shorter than n is padded with its first row, which never beats itself.
        """
        by_size = lists[np.argsort(-self.sizes[lists], kind="stable")]  # so that blocks need little filling
        while len(by_size):
            place = np.arange(self.sizes[by_size[0]])
            block, by_size = np.split(by_size, [max(1, BLOCK_HYPOTHESES // len(place))])
            yield block, self.starts[block, None] + np.where(place < self.sizes[block, None], place, 0)

    def chosen(self, weights: np.ndarray) -> np.ndarray:
        """Statistics (N, S) of each list's best total under weights (F,) of the features as they are, ties to the first row."""
        best = self.starts.copy()
        if weights.any():
            for lists, rows, columns in self.blocks:
                best[lists] = rows[np.arange(len(lists)), log_linear(columns, weights).argmax(axis=1)]
        return self.statistics[best]
