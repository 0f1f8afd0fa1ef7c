"""Exact line search for the weights on the corpus metric (Och 2003).

Along a direction d from weights w, each hypothesis' total is a line in t: ``(w + t d) . x``. The answer of a list changes
only at a corner of the upper envelope of its lines. So the corpus metric is piecewise constant. All its values follow
exactly from the corners of all lists (the thresholds) and the differences in statistics there.

Shapes as in ``corpus``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from attlm_fairseq.nbest.features.combination import log_linear
from attlm_fairseq.nbest.metrics.metric import Metric, corpus_score
from attlm_fairseq.nbest.tuning.corpus import Corpus
from attlm_fairseq.nbest.tuning.search_options import SearchOptions

ROUNDING_GAIN = 1e-9  # percent points: what counts as a gain rather than rounding
MIN_INTERVAL = 1e-9  # radians: an interval narrower than this is not a place to put weights
ROUNDINGS = (3, 4, 5, 6, 8, 10, 12, 15)  # significant digits tried for the weights, fewest first


def best_scoring(corpus: Corpus, metric: Metric, allowed: np.ndarray, options: SearchOptions) -> tuple[np.ndarray, int]:
    """Return the weights (F,) with the best corpus score found, and the number of line searches.

    ``allowed`` (2, F) are the lowest and highest weights of the options, in the order of the corpus.

    - Starting points: the best single feature, equal weights, and random points.
    - Directions: every feature and random directions, in random order, until a round has no gain. A last search from the
      best end point also runs along the lines that join the best end points.
    - A step needs a strict gain. It goes to the middle (as an angle) of the widest of the best intervals.
    - If nothing beats the input order, all weights are 0.
    - Only the direction of the weights matters. They are scaled so that the most influential has absolute value 1, unless
      an interval has an end other than 0 and infinity.
    - A feature that is constant within every list, or that gains nothing, gets the allowed weight closest to 0.
    - Weights are rounded to as few significant digits (3 or more) as keep the score.
    """
    search = LineSearch(corpus, metric, allowed)
    generator = np.random.default_rng(options.seed)
    random_directions = len(search.free) if options.random_directions is None else options.random_directions
    ends = [search.climb(point, random_directions, generator) for point in _starting_points(search, options.restarts, generator)]
    ends.sort(key=lambda end: -end[1])
    differences = [a[0] - b[0] for a, b in combinations(ends[: options.leaders], 2) if (a[0] != b[0]).any()]
    best, value = search.climb(ends[0][0], random_directions, generator, differences)
    if value <= search.value(search.none) + ROUNDING_GAIN:
        best = search.none
    return _written(search, best), search.searches


class LineSearch:
    """Coordinate ascent on the metric (signed so that higher is better).

    Points are weights (F,) of features in units of their standard deviation within lists (``scale``, see ``within_lists``; 0
    for a constant feature). ``allowed`` (2, F) is on the scale of the features themselves. If all positive multiples of allowed
    weights are allowed (``any_length``), points have length 1.
    """

    def __init__(self, corpus: Corpus, metric: Metric, allowed: np.ndarray) -> None:
        self.corpus, self.metric, self.allowed = corpus, metric, allowed
        self.any_length = bool((np.isinf(allowed) | (allowed == 0)).all())
        self.sign = 1.0 if metric.higher_is_better else -1.0
        self.searches = 0
        starts = corpus.starts
        self.scale = corpus.scale
        self.lower, self.upper = np.multiply(allowed, self.scale, out=np.zeros_like(allowed), where=self.scale > 0)
        self.free = np.flatnonzero(self.lower < self.upper)
        self.none = np.clip(0.0, self.lower, self.upper)  # as little weight as allowed
        # Lists whose hypotheses are all equally good have no threshold that matters: they are added up once.
        statistics = corpus.statistics
        differs = (np.maximum.reduceat(statistics, starts) != np.minimum.reduceat(statistics, starts)).any(axis=1)
        self.settled = statistics[starts[~differs]].sum(axis=0)
        self.blocks = [(rows, corpus.standardised.take(rows, axis=1)) for _, rows in corpus.split(np.flatnonzero(differs))]

    def raw(self, point: np.ndarray) -> np.ndarray:
        return np.clip(np.where(self.scale > 0, point / np.where(self.scale > 0, self.scale, 1.0), 0.0), *self.allowed)

    def standing(self, point: np.ndarray) -> np.ndarray:
        return _unit(point) if self.any_length else point

    def value(self, point: np.ndarray) -> float:
        """Return the objective at a point, computed from the choices there: every move is checked with it, since thresholds are rounded."""
        return self.objective_of_raw(self.raw(point))

    def objective_of_raw(self, weights: np.ndarray) -> float:
        return self.sign * corpus_score(self.metric, self.corpus.chosen(weights))

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
            if value <= before:
                return point, value

    def _totals(self, point: np.ndarray) -> list[np.ndarray]:
        return [log_linear(columns, point) for _, columns in self.blocks]

    def _search(self, point: np.ndarray, value: float, totals: list[np.ndarray], direction: np.ndarray) -> tuple[np.ndarray, float]:
        """Return the best point on the line through ``point``, whose objective is ``value``; ``point`` itself if none is better."""
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

        best = np.flatnonzero(scores >= scores.max() - ROUNDING_GAIN)
        if scores[best[0]] <= value + ROUNDING_GAIN:
            return point, value
        distance = np.abs(middle[best] - math.atan(-foot / height))
        for i in best[np.lexsort((distance, (left - right)[best]))][:3]:
            moved = self.standing(point + steps[i] * direction)
            moved_value = self.value(moved)
            if moved_value > value + ROUNDING_GAIN:
                return moved, moved_value
        return point, value

    def _scores_along(self, totals: list[np.ndarray], direction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the thresholds (E,) of all lists, ascending, and the signed scores (E + 1,) of the intervals between them."""
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
        """Return the steps that keep every weight in its interval, ends included."""
        moving = np.flatnonzero(direction)
        ends = (np.stack([self.lower, self.upper])[:, moving] - point[moving]) / direction[moving]
        return float(ends.min(axis=0).max(initial=-math.inf)), float(ends.max(axis=0).min(initial=math.inf))


def _envelope(slopes: np.ndarray, intercepts: np.ndarray) -> tuple[np.ndarray, list[tuple[np.ndarray, ...]]]:
    """Compute the upper envelopes of k lists of n lines each, (k, n), all lists at once.

    From the flattest line, go to the steeper line that is met first, until none is steeper: as many rounds as the longest
    envelope has corners. Of equal lines the first counts. If more than two lines meet, several corners may coincide.

    Returns:
        The highest line towards minus infinity (k,), and for each round the corners: lists, positions, and the highest
        lines left and right of them.
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


def _starting_points(search: LineSearch, restarts: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Return the best single feature, equal weights and random points; all of them allowed."""
    free, none, lower, upper = search.free, search.none, search.lower, search.upper
    ends = np.abs(np.concatenate([lower, upper]))
    size = max(ends[np.isfinite(ends)], default=0.0) or 1.0  # what is a large weight, if intervals have a scale
    points = []
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


def _written(search: LineSearch, point: np.ndarray) -> np.ndarray:
    """Return the weights on the scale of the features: useless weights set to 0, normalised, rounded to the digits that matter."""
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
