"""Weights by exact line search on the corpus metric (Och 2003), and how honest the resulting score is.

Along a direction d from weights w, each hypothesis' total is a line in t: ``(w + t d) . x``. The hypothesis a list chooses changes
only where its upper envelope of lines has a corner, so the corpus metric is piecewise constant, and all of its values can be
computed exactly from the corners of all lists (the thresholds) and the differences in statistics there.

Shapes: N lists, n_i hypotheses each, T = sum of n_i, F features, S statistics of the metric. The rows of a list stand in
the order of their rank as read, because that order decides between equal totals, here as in :func:`combination.combine`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.decision.mbr import sentence_losses
from attlm_fairseq.nbest.features.combination import alphabetical, log_linear, weighted_totals
from attlm_fairseq.nbest.features.within_lists import pooled
from attlm_fairseq.nbest.metrics import ErrorRate, Metric, corpus_score

ROUNDING_GAIN = 1e-9  # percent points: what counts as a gain rather than rounding
MIN_ROUND_GAIN = 1e-3  # percent points: a round of smaller gains is the last, for a pull can be followed in ever smaller steps
MIN_INTERVAL = 1e-9  # radians: an interval narrower than this is not a place to put weights
BLOCK_HYPOTHESES = 1 << 15  # hypotheses worked on at a time: memory stays small, and calls few
ROUNDINGS = (3, 4, 5, 6, 8, 10, 12, 15)  # significant digits tried for the weights, fewest first


@dataclass(frozen=True, slots=True)
class TuningResult:
    """Tuned weights. ``score`` (percent) is what exactly these weights give on the lists tuned on.

    ``first_best_score`` is that of the lists as read. ``influence`` is each feature's share of the decision: |weight| times the
    feature's standard deviation within lists, summing to 1. ``searches`` counts line searches.
    """

    weights: dict[str, float]
    score: float
    first_best_score: float
    influence: dict[str, float]
    searches: int
    restarts: int
    seed: int


@dataclass(frozen=True, slots=True)
class CrossValidation:
    """Each list's choice made with weights tuned on the other folds. ``score`` (percent) is of ``statistics`` (N, S), pooled.

    List i is in fold ``folds[i]``; ``results[k]`` was tuned without fold k.
    """

    score: float
    statistics: np.ndarray
    results: tuple[TuningResult, ...]
    folds: np.ndarray


@dataclass(frozen=True)
class SearchOptions:
    """How weights are searched for.

    Attributes:
        restarts: random points to begin from, besides the fixed ones.
        seed: random seed of the points and directions.
        start: weights (F,) to begin from as well.
        random_directions: random directions in each round, next to the F features; None is F.
        leaders: best end points; the last search goes along the lines that join them as well.
        intervals: lowest and highest weight allowed by name, both included, -inf and inf for none; equal ends fix the weight.
        l2: pull towards ``start``: percent points that the score must gain for a squared distance of 1 between the directions of
            weights and ``start``, features in units of their standard deviation within lists (at a right angle they are 2 apart).
    """

    restarts: int = 10
    seed: int = 1
    start: np.ndarray | None = None
    random_directions: int | None = None
    leaders: int = 5
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    l2: float = 0.0

    def __post_init__(self) -> None:
        for name, (low, high) in self.intervals.items():
            if not low <= high or low == math.inf or high == -math.inf:
                raise ValueError(f"interval of {name!r} is {low} to {high}, expected the lower end first")

    def start_for(self, names: Sequence[str]) -> np.ndarray | None:
        """Return the start (F,) as float64. Raises ValueError if it is not one finite weight for each name."""
        if self.start is None:
            return None
        start = np.asarray(self.start, dtype=np.float64)
        if start.shape != (len(names),) or not np.isfinite(start).all():
            raise ValueError(f"start must be {len(names)} finite weights")
        return start


DEFAULT_SEARCH = SearchOptions()


def tune(
    feature_matrices: Sequence[np.ndarray],
    statistics: Sequence[np.ndarray],
    metric: Metric,
    *,
    names: Sequence[str],
    options: SearchOptions = DEFAULT_SEARCH,
) -> TuningResult:
    """Find the weights of the features that give the best corpus score.

    ``feature_matrices[i]`` is (n_i, F), its columns called ``names``; ``statistics[i]`` is (n_i, S), from ``metric.statistics``.
    The search goes along every feature and along random directions, in random order, until a whole round has no gain. It begins
    at the start, at the best single feature, at equal weights and at random points, and ends with a search from the best end point
    along the lines that join the leaders as well. It moves only for a strict gain, into the middle (as an angle) of the widest of
    the best intervals. If nothing beats the input order, all weights are 0.

    The order of hypotheses depends on the direction of the weights only: they are scaled so that the most influential has absolute
    value 1, unless an interval has an end other than 0 and infinity. A feature that is constant within every list gets the
    weight next to 0 that is allowed, and so does one with which the score is as good there.
    Weights are rounded to as few significant digits (3 or more) as leave the score as good. Deterministic for a seed.
    """
    order = alphabetical(names)
    sorted_names = [names[column] for column in order]
    if len(set(names)) != len(names):
        raise ValueError(f"feature names are not distinct: {list(names)}")
    corpus = _Corpus(feature_matrices, statistics, order)
    allowed = np.array([options.intervals.get(name, (-math.inf, math.inf)) for name in sorted_names], dtype=np.float64).T
    start = options.start_for(names)
    search = _LineSearch(corpus, metric, None if start is None else start[order], allowed, options.l2)
    if options.l2 and (search.anchor is None or not search.anchor.any()):
        raise InputError("--l2 pulls towards a start in which no feature that tells hypotheses apart has a weight: give another --start")

    generator = np.random.default_rng(options.seed)
    random_directions = len(search.free) if options.random_directions is None else options.random_directions
    ends = [search.climb(point, random_directions, generator) for point in _starting_points(search, options.restarts, generator)]
    ends.sort(key=lambda end: -end[1])
    differences = [a[0] - b[0] for a, b in combinations(ends[: options.leaders], 2) if (a[0] != b[0]).any()]
    best, value = search.climb(ends[0][0], random_directions, generator, differences)
    if value <= search.value(search.none) + ROUNDING_GAIN:
        best = search.none

    weights = _written(search, best)
    influence = np.abs(weights) * search.scale
    influence /= influence.sum() or 1.0
    return TuningResult(
        weights={name: float(weights[sorted_names.index(name)]) for name in names},
        score=corpus_score(metric, corpus.chosen(weights)),
        first_best_score=corpus_score(metric, corpus.chosen(np.zeros(len(names)))),
        influence={name: float(influence[sorted_names.index(name)]) for name in names},
        searches=search.searches,
        restarts=options.restarts,
        seed=options.seed,
    )


def cross_validate(
    feature_matrices: Sequence[np.ndarray],
    statistics: Sequence[np.ndarray],
    metric: Metric,
    *,
    names: Sequence[str],
    folds: int = 5,
    groups: Sequence[int] | np.ndarray | None = None,
    tuner: Callable[..., TuningResult] = tune,
    options: SearchOptions = DEFAULT_SEARCH,
) -> CrossValidation:
    """Tune on all folds but one, choose in that one, pool: the score that tuned weights can be expected to give on new lists.

    ``groups`` (N,) are of lists that must stay in one fold, such as those of one utterance: weights tuned on one of them know the
    others. By default every list is one by itself. ``options`` are those of ``tuner``. Raises InputError when there are fewer groups
    than folds.
    """
    lists = len(feature_matrices)
    groups = range(lists) if groups is None else groups
    if not 2 <= folds <= len(set(groups)):
        raise InputError(
            f"{len(set(groups))} lists cannot be cross-validated in {folds} folds: at least 2 folds and one list a fold are needed"
        )
    fold_of = assign_folds(groups, folds)
    results = []
    chosen = np.empty((lists, np.asarray(statistics[0]).shape[1]))
    for fold in range(folds):
        rest, held_out = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        result = tuner([feature_matrices[i] for i in rest], [statistics[i] for i in rest], metric, names=names, options=options)
        chosen[held_out] = selection(
            [feature_matrices[i] for i in held_out], [statistics[i] for i in held_out], result.weights, names=names
        )
        results.append(result)
    return CrossValidation(corpus_score(metric, chosen), chosen, tuple(results), fold_of)


def assign_folds(groups: Sequence[int] | np.ndarray, folds: int) -> np.ndarray:
    """The fold (N,) of each list: the largest group first, each goes to the fold with the fewest lists. Single lists go round."""
    _, group_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    fold_of_group = np.empty(len(sizes), dtype=np.int64)
    fewest = [(0, fold) for fold in range(folds)]
    for group in np.argsort(-sizes, kind="stable"):
        size, fold_of_group[group] = fewest[0]
        heapq.heapreplace(fewest, (size + int(sizes[group]), int(fold_of_group[group])))
    return fold_of_group[group_of]


def selection(
    feature_matrices: Sequence[np.ndarray],
    statistics: Sequence[np.ndarray],
    weights: Mapping[str, float],
    *,
    names: Sequence[str],
) -> np.ndarray:
    """Return the statistics (N, S) of the hypotheses that these weights put first; without weights, of the first in input order."""
    for name in weights:
        if name not in names:
            raise InputError(f"weight for {name!r}, which is not a feature; features are {', '.join(names)}")
    totals = weighted_totals(feature_matrices, names, weights)
    return np.array([of_list[row.argmax()] for of_list, row in zip(statistics, totals, strict=True)], dtype=np.float64)


def oracle(statistics: Sequence[np.ndarray], metric: Metric, answers: Sequence[np.ndarray] = ()) -> np.ndarray:
    """The statistics (N, S) of the best hypotheses, one a list: the best score that any choice from the lists can have.

    Exact for error rates. For BLEU and chrF, which do not decompose, each list in turn takes the hypothesis that is best given the
    others, until nothing changes: a lower bound, in practice a close one. The climb starts from the lists as read, from the best
    sentences, and from ``answers``, (N, S) each, so that it ends no lower than any of them whose rows are all in the lists.
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
    """The choice (N, S) with the lowest error rate: Dinkelbach's iteration, which has to begin above the lowest.

    Therefore it begins with the longest references. A corpus without reference words has no ratio, and is compared by its score.
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
    """The statistics (N, S) chosen when no list by itself can better the corpus score any more, from the choice ``start`` (N,)."""
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


class _Corpus:
    """All lists end to end: ``features`` (F, T) in the order given, ``statistics`` (T, S); list i begins at row ``starts[i]``."""

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

    def split(self, lists: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Blocks of lists (k,) with the rows of their hypotheses (k, n), each in one rectangle.

        A list shorter than n is filled up with its first row again and again: a copy can never beat the first, which comes first.
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


class _LineSearch:
    """Coordinate ascent on the metric (signed so that higher is better) minus the L2 penalty.

    Points are weights (F,) of the features in units of their standard deviation within lists (``scale``, see :mod:`within_lists`; 0 for
    a feature that is constant within every list). ``start`` (F,) and ``allowed`` (2, F), the lowest and highest weights, are of the
    features as they are. Where all positive multiples of allowed weights are allowed too (``any_length``), points are of length 1.
    """

    def __init__(self, corpus: _Corpus, metric: Metric, start: np.ndarray | None, allowed: np.ndarray, l2: float) -> None:
        self.corpus, self.metric, self.allowed, self.l2 = corpus, metric, allowed, l2
        self.any_length = bool((np.isinf(allowed) | (allowed == 0)).all())
        self.sign = 1.0 if metric.higher_is_better else -1.0
        self.searches = 0
        starts, sizes = corpus.starts, corpus.sizes
        # Within a list only differences count; centred, no precision is lost to a large common offset.
        self.scale = np.zeros(len(corpus.features))
        scaled = np.zeros_like(corpus.features)
        for column, values in enumerate(corpus.features):
            if (np.maximum.reduceat(values, starts) != np.minimum.reduceat(values, starts)).any():
                centred = values - np.repeat(np.add.reduceat(values, starts) / sizes, sizes)
                self.scale[column] = pooled(np.add.reduceat(np.square(centred), starts), sizes)
                scaled[column] = centred / (self.scale[column] or 1.0)
        self.lower, self.upper = np.multiply(allowed, self.scale, out=np.zeros_like(allowed), where=self.scale > 0)
        self.free = np.flatnonzero(self.lower < self.upper)
        self.none = np.clip(0.0, self.lower, self.upper)  # as little weight as allowed
        self.start = None if start is None else np.clip(start, *allowed) * self.scale
        self.anchor = None if self.start is None else _unit(self.start)
        # Lists whose hypotheses are all equally good have no threshold that matters: they are added up once.
        statistics = corpus.statistics
        differs = (np.maximum.reduceat(statistics, starts) != np.minimum.reduceat(statistics, starts)).any(axis=1)
        self.settled = statistics[starts[~differs]].sum(axis=0)
        self.blocks = [(rows, scaled.take(rows, axis=1)) for _, rows in corpus.split(np.flatnonzero(differs))]

    def raw(self, point: np.ndarray) -> np.ndarray:
        return np.clip(np.where(self.scale > 0, point / np.where(self.scale > 0, self.scale, 1.0), 0.0), *self.allowed)

    def standing(self, point: np.ndarray) -> np.ndarray:
        return _unit(point) if self.any_length else point

    def value(self, point: np.ndarray) -> float:
        """The objective at a point, by choosing there; what every move must pass, whatever the thresholds promised."""
        return self.objective_of_raw(self.raw(point))

    def objective_of_raw(self, weights: np.ndarray) -> float:
        score = self.sign * corpus_score(self.metric, self.corpus.chosen(weights))
        return score - float(self._penalty(weights * self.scale, np.zeros(len(weights)), np.zeros(1))[0])

    def climb(
        self, point: np.ndarray, random_directions: int, generator: np.random.Generator, further: Sequence[np.ndarray] = ()
    ) -> tuple[np.ndarray, float]:
        """Line searches from ``point`` along features, random and ``further`` directions until a round brings nothing."""
        free = self.free
        point = self.standing(point)
        value = self.value(point)
        if not len(free) or not self.blocks:
            return point, value
        totals = self._totals(point)
        while True:
            directions = np.zeros((len(free) + random_directions, len(point)))
            directions[np.arange(len(free)), free] = 1.0
            directions[len(free) :, free] = generator.standard_normal((random_directions, len(free)))
            before = value
            for direction in generator.permutation(np.concatenate([directions, *(row[None] for row in further)])):
                moved, moved_value = self._search(point, value, totals, _unit(direction))
                if moved_value > value:
                    point, value, totals = moved, moved_value, self._totals(moved)
            if value - before <= (MIN_ROUND_GAIN if self.l2 else 0.0):
                return point, value

    def _totals(self, point: np.ndarray) -> list[np.ndarray]:
        return [log_linear(columns, point) for _, columns in self.blocks]

    def _search(self, point: np.ndarray, value: float, totals: list[np.ndarray], direction: np.ndarray) -> tuple[np.ndarray, float]:
        """The best point on the line through ``point``, where the objective is ``value``; ``point`` itself where nothing is better."""
        self.searches += 1
        lower, upper = self._allowed_range(point, direction)
        if not lower < upper:
            return point, value
        thresholds, scores = self._scores_along(totals, direction)

        # As angles about the origin all intervals are finite, and their widths do not depend on where on the line one stands.
        foot = -float(point @ direction)
        height = float(np.linalg.norm(point + foot * direction))
        height = height if height > 1e-12 else 1.0
        edges = np.clip(np.concatenate([[-math.inf], thresholds, [math.inf]]), lower, upper)
        angles = np.arctan((edges - foot) / height)
        wide = np.diff(angles) > MIN_INTERVAL
        left, right, scores = angles[:-1][wide], angles[1:][wide], scores[wide]
        if not len(scores):
            return point, value
        new = np.concatenate([[True], np.abs(np.diff(scores)) > ROUNDING_GAIN])  # neighbours with equal scores are one interval
        left, right, scores = left[new], right[np.concatenate([new[1:], [True]])], scores[new]
        middle = (left + right) / 2
        steps = foot + height * np.tan(middle)
        values = scores - self._penalty(point, direction, steps)

        best = np.flatnonzero(values >= values.max() - ROUNDING_GAIN)
        if values[best[0]] <= value + ROUNDING_GAIN:
            return point, value
        distance = np.abs(middle[best] - math.atan(-foot / height))
        for i in best[np.lexsort((distance, (left - right)[best]))][:3]:
            moved = self.standing(point + steps[i] * direction)
            moved_value = self.value(moved)
            if moved_value > value + ROUNDING_GAIN:
                return moved, moved_value
        return point, value

    def _scores_along(self, totals: list[np.ndarray], direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The thresholds (E,) of all lists, ascending, and the signed scores (E + 1,) of the intervals between them."""
        base = self.settled
        corners = []  # (where, row left of it, row right of it)
        for (rows, columns), intercepts in zip(self.blocks, totals, strict=True):
            leftmost, rounds = _envelope(log_linear(columns, direction), intercepts)
            base = base + self.corpus.statistics[rows[np.arange(len(rows)), leftmost]].sum(axis=0)
            corners += [(where, rows[lists, left], rows[lists, right]) for lists, where, left, right in rounds]
        thresholds, left, right = (np.concatenate(parts) for parts in zip(*corners, strict=True))
        order = np.argsort(thresholds, kind="stable")
        changes = self.corpus.statistics[right[order]] - self.corpus.statistics[left[order]]
        return thresholds[order], self.sign * self.metric.score(np.cumsum(np.concatenate([base[None], changes]), axis=0))

    def _allowed_range(self, point: np.ndarray, direction: np.ndarray) -> tuple[float, float]:
        """The steps that keep every weight allowed. A weight may stand at the end of its interval."""
        moving = np.flatnonzero(direction)
        ends = (np.stack([self.lower, self.upper])[:, moving] - point[moving]) / direction[moving]
        return float(ends.min(axis=0).max(initial=-math.inf)), float(ends.max(axis=0).min(initial=math.inf))

    def _penalty(self, point: np.ndarray, direction: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """The pull at ``point + steps * direction``: l2 times the squared distance of unit vectors; at the origin, as at a right angle."""
        if not self.l2:
            return np.zeros(len(steps))
        length = np.sqrt(np.maximum(point @ point + 2 * steps * (point @ direction) + steps**2 * (direction @ direction), 0.0))
        cosine = np.where(length > 0, (self.anchor @ point + steps * (self.anchor @ direction)) / np.where(length > 0, length, 1.0), 0.0)
        return self.l2 * 2.0 * (1.0 - cosine)


def _envelope(slopes: np.ndarray, intercepts: np.ndarray) -> tuple[np.ndarray, list[tuple[np.ndarray, ...]]]:
    """The upper envelopes of k lists of n lines each, (k, n), all lists at once.

    Returns the line that is highest towards minus infinity (k,), and round by round the corners: lists, where, the lines that
    are highest left and right of it. Of equal lines the first counts. From the flattest line one goes to the steeper one that is met
    first, until none is steeper: as many rounds as the longest envelope has corners. Where more than two lines meet, there may be
    several corners in one place, with nothing between them.
    """
    lists = np.arange(len(slopes))
    flattest = slopes == slopes.min(axis=1, keepdims=True)
    leftmost = current = np.where(flattest, intercepts, -math.inf).argmax(axis=1)
    reached = np.full(len(slopes), -math.inf)
    rounds: list[tuple[np.ndarray, ...]] = []
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        while len(lists):
            each = np.arange(len(lists))
            rise = slopes - slopes[each, current][:, None]
            meets = (intercepts[each, current][:, None] - intercepts) / rise
            np.copyto(meets, math.inf, where=rise <= 0)
            following = meets.argmin(axis=1)
            at = np.maximum(meets[each, following], reached)  # rounding must not turn corners around
            going = at < math.inf
            if not going.all():
                lists, at, current, following = lists[going], at[going], current[going], following[going]
                slopes, intercepts = slopes[going], intercepts[going]
            rounds.append((lists, at, current, following))
            current, reached = following, at
    return leftmost, rounds


def _starting_points(search: _LineSearch, restarts: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Start, the best single feature, equal weights, random ones; all of them allowed."""
    free, none, lower, upper = search.free, search.none, search.lower, search.upper
    ends = np.abs(np.concatenate([lower, upper]))
    size = max(ends[np.isfinite(ends)], default=0.0) or 1.0  # what is a large weight, if intervals have a scale
    points = [] if search.start is None else [search.start]
    singles = [np.clip(none + sign * size * np.eye(len(none))[column], lower, upper) for column in free for sign in (1.0, -1.0)]
    if singles := [point for point in singles if (point != none).any()]:
        points.append(max(singles, key=search.value))
    equal = none.copy()
    equal[free] = np.clip(np.where(upper[free] <= 0, -size, size), lower[free], upper[free])
    points.append(equal)
    for _ in range(restarts):
        point = none.copy()
        for column, normal in zip(free, generator.standard_normal(len(free)), strict=True):
            low, high = lower[column], upper[column]
            if math.isfinite(low) and math.isfinite(high):
                point[column] = low + (high - low) * (1 + math.erf(normal / math.sqrt(2))) / 2
            elif math.isfinite(low) or math.isfinite(high):
                point[column] = low + size * abs(normal) if math.isfinite(low) else high - size * abs(normal)
            else:
                point[column] = size * normal
        points.append(point)
    return points


def _written(search: _LineSearch, point: np.ndarray) -> np.ndarray:
    """The weights of the features as they are: no weight that earns nothing, normalised, no more digits than needed."""
    weights, none = search.raw(point), search.raw(search.none)
    value = search.objective_of_raw(weights)
    for column in np.argsort(np.abs(point), kind="stable"):
        without = weights.copy()
        without[column] = none[column]
        if weights[column] != none[column] and search.objective_of_raw(without) >= value - ROUNDING_GAIN:
            weights = without
            value = search.objective_of_raw(weights)
    if search.any_length and weights.any():
        weights = weights / np.abs(weights[np.argmax(np.abs(weights) * search.scale)])
    value = search.objective_of_raw(weights)
    for digits in ROUNDINGS:
        rounded = np.clip([float(f"{weight:.{digits}g}") for weight in weights], *search.allowed)
        if search.objective_of_raw(rounded) >= value - ROUNDING_GAIN:
            return rounded
    return weights


def _unit(vector: np.ndarray) -> np.ndarray:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector
