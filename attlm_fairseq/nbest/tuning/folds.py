"""Assign lists to folds, and tune weights without some of the folds."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists
from attlm_fairseq.nbest.tuning.search_options import SearchOptions
from attlm_fairseq.nbest.tuning.tuning import TuningResult, tune

FOLDS = 5  # unless told otherwise
MIN_FOLDS = 3  # a setting is chosen without the held-out fold, on answers whose weights lack one fold more
NOTHING: frozenset[int] = frozenset()


def assign_folds(groups: Sequence[int] | np.ndarray, folds: int) -> np.ndarray:
    """Return the fold (N,) of each list. Larger groups go first, each to the fold with the fewest lists; single lists take turns."""
    _, group_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    fold_of_group = np.empty(len(sizes), dtype=np.int64)
    fewest = [(0, fold) for fold in range(folds)]
    for group in np.argsort(-sizes, kind="stable"):
        size, fold_of_group[group] = fewest[0]
        heapq.heapreplace(fewest, (size + int(sizes[group]), int(fold_of_group[group])))
    return fold_of_group[group_of]


class FoldTuner:
    """Weights tuned without the lists of some folds; each search runs once, on demand.

    List i is in fold ``fold_of[i]``. ``tune`` takes the numbers of the lists to tune on.
    """

    def __init__(self, fold_of: np.ndarray, tune: Callable[[Sequence[int]], TuningResult]) -> None:
        self.fold_of, self._tune = fold_of, tune
        self._found: dict[frozenset[int], TuningResult] = {}

    def folds(self, left_out: frozenset[int] = NOTHING) -> list[int]:
        return [fold for fold in np.unique(self.fold_of).tolist() if fold not in left_out]

    def lists(self, folds: Sequence[int]) -> list[int]:
        return np.flatnonzero(np.isin(self.fold_of, list(folds))).tolist()

    def without(self, left_out: frozenset[int]) -> TuningResult:
        """Return what was tuned without these folds; on all lists if no fold is left, as for lists that are one fold."""
        if left_out not in self._found:
            folds = self.folds(left_out)
            lists = self.lists(folds) if folds else list(range(len(self.fold_of)))
            self._found[left_out] = self._tune(lists)
        return self._found[left_out]


def tuner_of_folds(
    measured: MeasuredLists, metric: Metric, names: Sequence[str], folds: int, samples: np.ndarray, options: SearchOptions
) -> FoldTuner:
    """Return the tuner of the features ``names``. Lists of one sample (N,) are in one fold.

    There are at most as many folds as samples; if these are fewer than MIN_FOLDS, all lists are one fold.
    """
    folds = min(folds, len(set(samples.tolist())))
    columns = [measured.names.index(name) for name in names]
    features = [of_list[:, columns] for of_list in measured.features]

    def tuned_on(lists: Sequence[int]) -> TuningResult:
        return tune([features[i] for i in lists], [measured.statistics[i] for i in lists], metric, names=names, options=options)

    return FoldTuner(assign_folds(samples, folds if folds >= MIN_FOLDS else 1), tuned_on)
