"""Confidence intervals and significance by resampling the lists (Koehn 2004).

A resample draws as many lists as there are, with replacement, and scores the corpus they make. Everything is computed from
the statistics (N, S) of the hypotheses chosen, one row a list. Few lists resemble each other too much when they are drawn again, so that
intervals come out too narrow; there they are widened, and the p-value is that of a permutation test where it is larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attlm_fairseq.nbest.metrics import Metric, corpus_score

CHUNK = 1 << 21  # random numbers held at a time
SLACK = 1e-9  # percent points: a system compared with itself differs by rounding at most, on which its p-value must not depend
FEW = 30  # lists: with fewer the bootstrap's p-values are too small (4 lists: 19 % of equal systems have p <= 0.05, 20 lists: 7 %)
LEAST = 1.1  # factor of a cross-validated difference's spread, measured with 2 folds
ENOUGH = 200  # lists: with fewer, intervals are widened; from here on it would be by less than 1 %
EXACT = 12  # lists: up to here all 2^N permutations are tried


@dataclass(frozen=True, slots=True)
class Interval:
    """A score in percent (or a difference of two, in percent points) with its percentile bootstrap interval.

    With fewer than ENOUGH lists its ends are ``t(N - 1) / z * sqrt(N / (N - 1))`` times as far from the score, t and z being the quantiles
    of Student's and of the normal distribution: a resample varies by the mean of N squares where it should by their sum over N - 1, and
    the spread is itself an estimate. Of N lists drawn from ATIS, the quickstart and two distributions, 95 % intervals cover the score of
    all: 5 lists 82 to 93 % (percentiles alone 73 to 84 %), 10 lists 86 to 95 % (82 to 90 %), 20 lists 88 to 95 % (87 to 93 %); the
    least where few lists have most of the errors.
    """

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
    interval = _interval(corpus_score(metric, statistics), scores, level, len(statistics))
    lowest, highest = metric.bounds
    return replace(interval, low=max(interval.low, lowest), high=min(interval.high, highest))


def paired_bootstrap(
    a: np.ndarray, b: np.ndarray, metric: Metric, *, resamples: int = 1000, seed: int = 1, level: float = 0.95, folds: int = 0
) -> PairedComparison:
    """Compare two systems on the same lists, (N, S) each: every resample draws the same lists for both.

    The p-value is two-sided: how often a resampled difference is at least as far from the mean of the resampled differences as the
    observed difference is from 0, (hits + 1) / (resamples + 1). sacreBLEU's test is alike and not the same: it takes the absolute values of
    the resampled differences before it subtracts their mean. With fewer than FEW lists it is the larger of this and of the
    p-value of the permutation test: how often the difference is at least as large, in absolute value, when by the toss of a coin for each
    list the systems change places there. Up to EXACT lists all 2^N tosses are counted, with more ``resamples`` random ones in the same way
    as above.

    ``folds``: a are the held-out answers of a cross-validation in so many folds. Then the distances of the resampled differences from their
    mean, and the differences of permuted systems, are multiplied by :func:`cross_validation_factor`: interval and p-value grow.
    """
    a, b = _checked(a, resamples, level), _checked(b, resamples, level)
    if a.shape != b.shape:
        raise ValueError(f"paired systems must have the same lists: {a.shape} and {b.shape}")
    differences = np.concatenate([metric.score(counts @ a) - metric.score(counts @ b) for counts in _draws(len(a), resamples, seed)])
    observed = corpus_score(metric, a) - corpus_score(metric, b)
    factor = cross_validation_factor(folds) if folds else 1.0
    mean = differences.mean()
    if factor != 1:
        differences = mean + factor * (differences - mean)
    hits = int((np.abs(differences - mean) >= abs(observed) - SLACK).sum())
    p_value = (hits + 1) / (resamples + 1)
    if len(a) < FEW:
        p_value = max(p_value, _permutation_p(a, b, metric, abs(observed) / factor, resamples, seed))
    interval, (lowest, highest) = _interval(observed, differences, level, len(a)), metric.bounds
    most = highest - lowest
    return PairedComparison(replace(interval, low=max(interval.low, -most), high=min(interval.high, most)), p_value)


def summed(statistics: np.ndarray, groups: Sequence[int]) -> np.ndarray:
    """The statistics of each group's lists added up, (N, S) and (N,) -> (G, S): what is to be drawn as one is one row."""
    distinct, group_of = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(distinct), np.shape(statistics)[1]))
    np.add.at(sums, group_of, statistics)
    return sums


def cross_validation_factor(folds: int) -> float:
    """By how much the spread of a cross-validated difference is underrated where its lists are taken for independent.

    Every list helped to choose the weights by which the lists of the other folds were answered, so that their differences go up and down
    together. As in Nadeau and Bengio (2003) the variance grows by what training sets share: it is multiplied by
    1 + (folds - 2) / folds, the second term being the share of all lists that any two training sets have in common.
    Weights tuned on nothing but noise need 1.0 to 1.2 for 2 folds, 1.1 to 1.3 for 5, 1.3 to 1.5 for 20; this is 1.1, 1.26 and 1.38.
    The 1.1 is LEAST: two training sets have no list in common, but each of them is what the other one's weights are measured on.
    Where all folds choose the same weights no factor would be needed, and this one is too careful.
    """
    if folds < 2:
        raise ValueError(f"{folds} folds are no cross-validation")
    return max(LEAST, math.sqrt(1.0 + (folds - 2) / folds))


def _permutation_p(a: np.ndarray, b: np.ndarray, metric: Metric, observed: float, resamples: int, seed: int) -> float:
    """How often systems that change places at random in each list differ by ``observed`` or more."""
    lists = len(a)
    if lists <= EXACT:
        changed = (np.arange(1 << lists)[:, None] >> np.arange(lists) & 1).astype(np.float64)  # every number's bits
    else:
        changed = np.random.default_rng(seed).integers(0, 2, size=(resamples, lists)).astype(np.float64)
    change = changed @ (b - a)
    hits = int((np.abs(metric.score(a.sum(axis=0) + change) - metric.score(b.sum(axis=0) - change)) >= observed - SLACK).sum())
    return hits / len(changed) if lists <= EXACT else (hits + 1) / (resamples + 1)


def _draws(lists: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each list was drawn in each resample: (some resamples, lists) float64, in bounded memory."""
    generator = np.random.default_rng(seed)
    step = max(1, CHUNK // lists)
    for done in range(0, resamples, step):
        rows = min(step, resamples - done)
        drawn = generator.integers(0, lists, size=(rows, lists)) + lists * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * lists).reshape(rows, lists).astype(np.float64)


def _interval(score: float, scores: np.ndarray, level: float, lists: int) -> Interval:
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])
    if 1 < lists < ENOUGH:
        from scipy.special import ndtri, stdtrit

        wider = stdtrit(lists - 1, (1 + level) / 2) / ndtri((1 + level) / 2) * math.sqrt(lists / (lists - 1))
        low, high = score + wider * (low - score), score + wider * (high - score)
    return Interval(score, float(low), float(high), level)


def _checked(statistics: np.ndarray, resamples: int, level: float) -> np.ndarray:
    statistics = np.asarray(statistics, dtype=np.float64)
    if statistics.ndim != 2 or not len(statistics):
        raise ValueError(f"statistics must be (lists, S) with at least one list, not {statistics.shape}")
    if resamples < 1 or not 0 < level < 1:
        raise ValueError(f"resamples {resamples} must be at least 1 and level {level} between 0 and 1")
    return statistics
