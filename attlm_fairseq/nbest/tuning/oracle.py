"""The oracle: the best score that any choice from the lists can have."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attlm_fairseq.nbest.decision.mbr import sentence_losses
from attlm_fairseq.nbest.metrics.metric import ErrorRate, Metric, corpus_score

ROUNDING_GAIN = 1e-9  # percent points: what counts as a gain rather than rounding


def oracle(statistics: Sequence[np.ndarray], metric: Metric, answers: Sequence[np.ndarray] = ()) -> np.ndarray:
    """Return the statistics (N, S) of the oracle: one hypothesis per list, with the best corpus score.

    Exact for error rates. BLEU and chrF do not decompose over lists: each list in turn takes the hypothesis that is
    best given the others, until nothing changes. The result is a lower bound, in practice a close one. The climb starts
    from the input order, from the best sentences, and from each of ``answers``, (N, S), so it is at least as good as
    these.
    """
    rows = [np.asarray(of_list, dtype=np.float64) for of_list in statistics]
    if isinstance(metric, ErrorRate):
        return _lowest_rate(rows, metric)
    starts = [
        np.zeros(len(rows), dtype=np.int64),
        np.array([np.argmin(sentence_losses(of_list, metric)) for of_list in rows]),
        *(np.array([(of_list == row).all(axis=1).argmax() for of_list, row in zip(rows, answer, strict=True)]) for answer in answers),
    ]
    ends = [_climbed(rows, start, metric) for start in starts]
    return max(ends, key=lambda chosen: corpus_score(metric, chosen))


def _lowest_rate(rows: Sequence[np.ndarray], metric: ErrorRate) -> np.ndarray:
    """Return the choice (N, S) with the lowest error rate, by Dinkelbach's iteration, which must begin above it.

    Therefore it begins with the longest references. A corpus without reference words has no ratio, and is compared by
    its score.
    """
    chosen = np.array([of_list[np.lexsort((of_list[:, 0], -of_list[:, 1]))[0]] for of_list in rows])
    score = math.inf
    while corpus_score(metric, chosen) < score:
        best, score = chosen, corpus_score(metric, chosen)
        chosen = np.array([of_list[np.argmin(of_list[:, 0] - score / 100.0 * of_list[:, 1])] for of_list in rows])
    if all((of_list[:, 1] == 0).any() for of_list in rows):
        without_words = np.array([min(of_list[of_list[:, 1] == 0], key=lambda row: row[0]) for of_list in rows])
        best = min(best, without_words, key=lambda choice: corpus_score(metric, choice))
    return best


def _climbed(rows: Sequence[np.ndarray], start: np.ndarray, metric: Metric) -> np.ndarray:
    """Return the statistics (N, S) of the choice reached from ``start`` (N,) when no change of a single list improves the corpus score."""
    choice = start.copy()
    sign = 1.0 if metric.higher_is_better else -1.0
    totals = np.sum([of_list[row] for of_list, row in zip(rows, choice, strict=True)], axis=0)
    value, changed = sign * float(metric.score(totals)), True
    while changed:
        changed = False
        for i, of_list in enumerate(rows):
            alternatives = sign * metric.score(totals - of_list[choice[i]] + of_list)
            row = int(np.argmax(alternatives))
            if alternatives[row] > value + ROUNDING_GAIN:
                totals = totals - of_list[choice[i]] + of_list[row]
                choice[i], value, changed = row, float(alternatives[row]), True
    return np.array([of_list[row] for of_list, row in zip(rows, choice, strict=True)])
