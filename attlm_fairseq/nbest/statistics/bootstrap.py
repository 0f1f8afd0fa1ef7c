"""Confidence intervals and significance by resampling the lists.

All results come from the statistics (N, S) of the chosen hypotheses, one row per list: a resample is scored by the sum
of its rows. Intervals of scores are scipy's BCa bootstrap (Efron 1987), which corrects for bias and skewness. For few lists the
level is adjusted to the width of Student's t (Hesterberg 2015). A difference of two systems has the p-value of a paired
permutation test, and the interval of the differences that this test does not reject.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attlm_fairseq.nbest.metrics.metric import ScoreOfSums

RANDOM_NUMBERS_HELD = 1 << 21  # at a time: bounds memory for many lists
MAX_BCA_LISTS = 2000  # BCa scores the corpus without each list, N^2 operations; for more lists percentiles differ by nothing
MIN_TAIL = 5e-4  # probability left out at either end: of fewer than 5 lists the interval is the range of resamples in any case
TAIL_RESAMPLES = 10  # resamples beyond either end, at the least
TOSSES = 9999
SCORE_DIGITS = 9  # of percent points: two systems that are equal differ by rounding alone, on which p-values must not depend
MIN_CROSS_VALIDATION_FACTOR = 1.1  # measured with 2 folds on weights tuned on noise


@dataclass(frozen=True, slots=True)
class Interval:
    """A score or a difference of two, with a confidence interval: in percent, a perplexity, or in the unit of a program's metric.

    Of lists with 15 % errors, 95 % intervals of scores cover the truth for 5, 8, 10 and 20 lists in 95, 93, 93 and 96 % of cases;
    for 3 in 75 %. If one list in ten has most of the errors, they cover it for 5, 10, 20 and 100 lists in 65, 69, 86 and 94 %.

    Attributes:
        score: the score of all lists.
        low: the low end of the interval; minus infinity if so few lists bound no difference.
        high: the high end; infinity in the same case.
        level: the nominal level, 0.95: how often such intervals cover the truth if there are many lists.
    """

    score: float
    low: float
    high: float
    level: float


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """How system a differs from system b.

    Attributes:
        difference: ``score(a) - score(b)`` with its interval.
        p_value: two-sided, of no difference; None if a was tuned on these very lists, and is better on them by that alone.
    """

    difference: Interval
    p_value: float | None


def confidence_interval(
    statistics: np.ndarray, metric: ScoreOfSums, *, resamples: int = 1000, seed: int = 1, level: float = 0.95
) -> Interval:
    """Return the corpus score of chosen hypotheses, statistics (N, S), with its bootstrap interval."""
    statistics = _checked(statistics, resamples, level)
    interval = _interval(len(statistics), lambda counts: metric.score(counts @ statistics), resamples, seed, level)
    return _within(interval, *metric.bounds)


def paired_test(
    a: np.ndarray, b: np.ndarray, metric: ScoreOfSums, *, tosses: int = TOSSES, seed: int = 1, level: float = 0.95, folds: int = 0
) -> PairedComparison:
    """Compare two systems on the same lists, statistics (N, S) each, by a paired permutation test.

    The p-value is two-sided: how often the difference is at least as large if in each list the systems change places by the
    toss of a coin; all 2^N tosses if these are at most ``tosses``, else ``tosses`` random ones, (hits + 1) / (tosses + 1).

    The interval has the differences that the same tosses do not reject. A metric that is a ratio of sums has the difference
    D / E, the sums over lists of d and e. Another difference x is tested by tossing the signs of d - x e: with the sums D_s and
    E_s of the tossed lists, the toss is as extreme for all x between (D - D_s) / (E - E_s) and (D + D_s) / (E + E_s). So if each
    list has one reference, the interval leaves 0 out exactly if p <= 1 - level. Other metrics, such as BLEU, and references of
    different lengths are taken as linear: d are the jackknife's pseudo-values, e = 1. A toss that exchanges only lists without
    words in their references rejects no x. Fewer than 6 lists at a level of 0.95 reject none, and the ends are infinite.

    Args:
        folds: a are the held-out answers of a cross-validation with so many folds: the ends of the interval are
            ``cross_validation_factor`` times as far from the difference, and 0 is rejected accordingly.
    """
    a, b = _checked(a, tosses, level), _checked(b, tosses, level)
    if a.shape != b.shape:
        raise ValueError(f"paired systems must have the same lists: {a.shape} and {b.shape}")
    factor = cross_validation_factor(folds) if folds else 1.0
    parts = np.stack(_parts(a, b, metric), axis=1)
    observed, sums = _difference(a.sum(axis=0), b.sum(axis=0), metric), parts.sum(axis=0)
    differences, tossed = _tossed(a, b, metric, parts, tosses, seed)
    if folds:  # how far 0 is from the difference counts as less
        nearer = (1.0 - 1.0 / factor) * observed
        differences = (tossed[:, 0] - nearer * tossed[:, 1]) / sums[1]
    hits = int((np.abs(differences) >= abs(observed) / factor - 10.0**-SCORE_DIGITS).sum())
    max_extreme = math.floor((1.0 - level) * len(tossed) + 1e-9)  # tosses that are as extreme as a difference which is rejected
    mirrored = np.array([-1.0, 1.0])
    low, high = _low_end(sums, tossed, max_extreme), -_low_end(mirrored * sums, mirrored * tossed, max_extreme)
    low, high = (float(observed + factor * (end - observed)) + 0.0 for end in (low, high))
    most = metric.bounds[1] - metric.bounds[0]
    interval = Interval(float(observed), max(low, -most) if low > -math.inf else low, min(high, most) if high < math.inf else high, level)
    return PairedComparison(interval, hits / len(tossed))


def _difference(a: np.ndarray, b: np.ndarray, metric: ScoreOfSums) -> np.ndarray:
    """Return the difference of two systems' scores from their sums, (.., S) each, rounded."""
    return np.round(metric.score(a) - metric.score(b), SCORE_DIGITS)


def _parts(a: np.ndarray, b: np.ndarray, metric: ScoreOfSums) -> tuple[np.ndarray, np.ndarray]:
    """Return d and e (N,) of each list: the difference of the scores is sum d / sum e."""
    lists = len(a)
    if metric.ratio is not None and np.array_equal(a[:, 1], b[:, 1]) and a[:, 1].sum() > 0:
        return metric.ratio * (a[:, 0] - b[:, 0]), a[:, 1]
    whole = metric.score(a.sum(axis=0)) - metric.score(b.sum(axis=0))
    if lists == 1:
        return np.array([whole]), np.ones(1)
    without = metric.score(a.sum(axis=0) - a) - metric.score(b.sum(axis=0) - b)
    return whole - (lists - 1) * (without - without.mean()), np.ones(lists)


def _tossed(a: np.ndarray, b: np.ndarray, metric: ScoreOfSums, parts: np.ndarray, tosses: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the difference of the systems after each toss, (T,), and the sums of d and e with their signs tossed, (T, 2)."""
    differences, sums = [], []
    for exchanged in _exchanged(len(a), tosses, seed):
        change = exchanged @ (b - a)
        differences.append(_difference(a.sum(axis=0) + change, b.sum(axis=0) - change, metric))
        sums.append(parts.sum(axis=0) - 2.0 * (exchanged @ parts))
    return np.concatenate(differences), np.concatenate(sums)


def _exchanged(lists: int, tosses: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks (T, N) of tosses, 1 where a list's systems change places: all 2^N, or none changed and then random ones."""
    at_once = max(1, RANDOM_NUMBERS_HELD // lists)
    if 2**lists <= tosses:
        for begin in range(0, 2**lists, at_once):
            numbers = np.arange(begin, min(begin + at_once, 2**lists))
            yield ((numbers[:, None] >> np.arange(lists)) & 1).astype(np.float64)
        return
    yield np.zeros((1, lists))
    generator = np.random.default_rng(seed)
    for begin in range(0, tosses, at_once):
        yield generator.integers(0, 2, size=(min(at_once, tosses - begin), lists), dtype=np.int8).astype(np.float64)


def _low_end(sums: np.ndarray, tossed: np.ndarray, max_extreme: int) -> float:
    """Return the least difference for which more than ``max_extreme`` tosses are as extreme; minus infinity if there is none.

    ``sums`` (2,) are D and E, ``tossed`` (T, 2) D_s and E_s of ``paired_test``.
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # a toss that changes nothing is as extreme for all differences
        ends = np.array([(sums[0] - tossed[:, 0]) / (sums[1] - tossed[:, 1]), (sums[0] + tossed[:, 0]) / (sums[1] + tossed[:, 1])])
    low = np.where(np.isfinite(ends).all(axis=0), ends.min(axis=0), -math.inf)
    return float(np.sort(np.round(low, SCORE_DIGITS))[max_extreme])


def summed(statistics: np.ndarray, groups: Sequence[int] | np.ndarray) -> np.ndarray:
    """Add up the statistics of each group's lists, (N, S) and (N,) -> (G, S): what is drawn as one is one row."""
    distinct, group_of = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(distinct), np.shape(statistics)[1]))
    np.add.at(sums, group_of, statistics)
    return sums


def cross_validation_factor(folds: int) -> float:
    """Return by how much the standard deviation of a cross-validated difference is underrated if its lists are taken as independent.

    Every list helped to choose the weights by which the lists of the other folds were answered. As in Nadeau and Bengio
    (2003) the variance grows by the share of all lists that two training sets have in common: 1 + (folds - 2) / folds.
    Weights tuned on noise need 1.0 to 1.2 for 2 folds, 1.1 to 1.3 for 5, 1.3 to 1.5 for 20; this is 1.1, 1.26 and 1.38.
    """
    if folds < 2:
        raise ValueError(f"{folds} folds are not a cross-validation")
    return max(MIN_CROSS_VALIDATION_FACTOR, math.sqrt(1.0 + (folds - 2) / folds))


def student_tail(lists: int, level: float) -> float:
    """Return the probability that a bootstrap interval leaves out at either end.

    A resample of N lists varies less than N new lists do, by sqrt((N - 1) / N), and the normal distribution has lighter
    tails than Student's t with N - 1 degrees of freedom. Both are made good by leaving out less (Hesterberg 2015,
    expanded percentiles).
    """
    from scipy.stats import norm, t

    return max(MIN_TAIL, float(norm.sf(math.sqrt(lists / (lists - 1)) * t.isf((1 - level) / 2, lists - 1))))


def _interval(lists: int, score: Callable[[np.ndarray], np.ndarray], resamples: int, seed: int, level: float) -> Interval:
    """Bootstrap ``score``, a function of how often each list was drawn, (rows, N) -> (rows,)."""
    from scipy.stats import bootstrap

    observed = float(score(np.ones((1, lists)))[0])
    if lists == 1:
        return Interval(observed, observed, observed, level)

    def of_drawn(drawn: np.ndarray, axis: int) -> np.ndarray:
        """Return the score of lists (.., n) drawn by number."""
        drawn = np.moveaxis(drawn, axis, -1)
        rows = drawn.reshape(-1, drawn.shape[-1]) + lists * np.arange(drawn[..., 0].size)[:, None]
        counts = np.bincount(rows.ravel(), minlength=lists * len(rows)).reshape(-1, lists).astype(np.float64)
        return score(counts).reshape(drawn.shape[:-1])

    tail = student_tail(lists, level)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a score that is the same in all resamples has no BCa interval, and needs none
        found = bootstrap(
            (np.arange(lists),),
            of_drawn,
            n_resamples=max(resamples, math.ceil(TAIL_RESAMPLES / tail)),
            batch=max(1, RANDOM_NUMBERS_HELD // lists),
            vectorized=True,
            confidence_level=1 - 2 * tail,
            method="BCa" if lists <= MAX_BCA_LISTS else "percentile",
            rng=np.random.default_rng(seed),
        )
    low, high = map(float, found.confidence_interval)
    if math.isnan(low) or math.isnan(high):
        low, high = map(float, np.quantile(found.bootstrap_distribution, [tail, 1 - tail]))
    return Interval(observed, low, high, level)


def _within(interval: Interval, lowest: float, highest: float) -> Interval:
    return replace(interval, low=max(interval.low, lowest), high=min(interval.high, highest))


def _checked(statistics: np.ndarray, repetitions: int, level: float) -> np.ndarray:
    statistics = np.asarray(statistics, dtype=np.float64)
    if statistics.ndim != 2 or not len(statistics):
        raise ValueError(f"statistics must be (lists, S) with at least one list, not {statistics.shape}")
    if repetitions < 1 or not 0 < level < 1:
        raise ValueError(f"{repetitions} resamples or tosses must be at least 1, and level {level} between 0 and 1")
    return statistics
