"""Confidence intervals and significance by resampling the lists (Koehn 2004).

A resample draws as many lists as there are, with replacement, and scores the corpus they make. Everything is computed from
the statistics (N, S) of the hypotheses chosen, one row a list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from attlm_fairseq.nbest.metrics import Metric, corpus_score

CHUNK = 1 << 21  # random numbers held at a time


@dataclass(frozen=True, slots=True)
class Interval:
    """A score in percent (or a difference of two, in percent points) with its percentile bootstrap interval."""

    score: float
    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """How system a differs from system b: the interval of ``score(a) - score(b)``, and the two-sided p-value of no difference.

    The p-value is None where there is none to be had: a was tuned on these very lists, and is better on them by that alone.
    """

    difference: Interval
    p_value: float | None


def confidence_interval(statistics: np.ndarray, metric: Metric, *, resamples: int = 1000, seed: int = 1, level: float = 0.95) -> Interval:
    """The corpus score of the chosen hypotheses' statistics (N, S) with its interval."""
    statistics = _checked(statistics, resamples, level)
    scores = np.concatenate([metric.score(counts @ statistics) for counts in _draws(len(statistics), resamples, seed)])
    return _interval(corpus_score(metric, statistics), scores, level)


def paired_bootstrap(
    a: np.ndarray, b: np.ndarray, metric: Metric, *, resamples: int = 1000, seed: int = 1, level: float = 0.95
) -> PairedComparison:
    """Compare two systems on the same lists, (N, S) each: every resample draws the same lists for both.

    The p-value is how often a resampled difference is at least as far from the mean of the resampled differences as the
    observed difference is from 0, as in sacreBLEU: (hits + 1) / (resamples + 1).
    """
    a, b = _checked(a, resamples, level), _checked(b, resamples, level)
    if a.shape != b.shape:
        raise ValueError(f"paired systems must have the same lists: {a.shape} and {b.shape}")
    differences = np.concatenate([metric.score(counts @ a) - metric.score(counts @ b) for counts in _draws(len(a), resamples, seed)])
    observed = corpus_score(metric, a) - corpus_score(metric, b)
    # A system compared with itself differs by rounding at most; without the slack its p-value would depend on it.
    hits = int((np.abs(differences - differences.mean()) >= abs(observed) - 1e-9).sum())
    return PairedComparison(_interval(observed, differences, level), (hits + 1) / (resamples + 1))


def _draws(lists: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each list was drawn in each resample: (some resamples, lists) float64, in bounded memory."""
    generator = np.random.default_rng(seed)
    step = max(1, CHUNK // lists)
    for done in range(0, resamples, step):
        rows = min(step, resamples - done)
        drawn = generator.integers(0, lists, size=(rows, lists)) + lists * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * lists).reshape(rows, lists).astype(np.float64)


def _interval(score: float, scores: np.ndarray, level: float) -> Interval:
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
    return Interval(score, float(low), float(high), level)


def _checked(statistics: np.ndarray, resamples: int, level: float) -> np.ndarray:
    statistics = np.asarray(statistics, dtype=np.float64)
    if statistics.ndim != 2 or not len(statistics):
        raise ValueError(f"statistics must be (lists, S) with at least one list, not {statistics.shape}")
    if resamples < 1 or not 0 < level < 1:
        raise ValueError(f"resamples {resamples} must be at least 1 and level {level} between 0 and 1")
    return statistics
