"""The N best texts of a lattice, exactly: each text once, with the scores of the best of its paths.

The search is best-first (A*) over texts, not over paths. What it extends is a beginning of a text with all states in which
paths with this text may be, as determinisation has it. The estimate of what follows is exact, so beginnings are extended only
if one of the N texts begins with them. Of beginnings with equal estimates the longest goes first: else all texts that cost the
same would be searched side by side, and there may be millions. Each beginning is that of another text, so if N are better than a
state of a path, that state is left out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import heappop, heappush, nsmallest
from itertools import count
from typing import NamedTuple

from attlm_fairseq.nbest.features.combination import MAX_ABSOLUTE
from attlm_fairseq.nbest.lattices.lattice import WORDS, Arc, Lattice
from attlm_fairseq.nbest.nbest_list import Hypothesis

DECIMALS = 4  # of times in seconds
ROUNDING = 1e-9  # estimates that differ by less, relative to their size, are equal
SPARE = 64  # beginnings kept in addition to twice as many as are needed

Chain = tuple["Chain", Arc] | None  # the arcs of a path, last first


class _Path(NamedTuple):
    """The best path with a text to a state: what it costs, and its arcs."""

    cost: float
    chain: Chain


class _Text(NamedTuple):
    """A text, as its last word and what stands before it."""

    before: _Text | None
    word: str

    @classmethod
    def written(cls, text: _Text | None) -> str:
        """Return a text as its words, joined by spaces."""
        words = []
        while text is not None:
            words.append(text.word)
            text = text.before
        return " ".join(reversed(words))


class _Search:
    """A lattice prepared for the search."""

    def __init__(self, lattice: Lattice, weights: Mapping[str, float], left_out: Collection[str]) -> None:
        self.lattice = lattice
        self.left_out = {"", *left_out}
        self._weights = [weights.get(name, 0.0) for name in lattice.names]
        self._of_word = weights.get(WORDS, 0.0)
        order = lattice.in_order()
        self.place = {state: place for place, state in enumerate(order)}
        self.costs = {state: [self._cost(arc.scores, arc.word) for arc in lattice.arcs[state]] for state in order}
        self.end_costs = {state: self._cost(scores) for state, scores in lattice.finals.items() if state in self.place}
        self.rest: dict[int, float] = {}  # the least cost from a state to an end
        for state in reversed(order):
            onwards = [cost + self.rest[arc.target] for cost, arc in zip(self.costs[state], lattice.arcs[state], strict=True)]
            self.rest[state] = min([self.end_costs.get(state, math.inf), *onwards])

    def texts(self, size: int) -> Iterator[Hypothesis]:
        """Yield the ``size`` best texts, best first."""
        start = self.lattice.start
        number = count(0, -1)  # of equal estimates, the last one goes first
        queue: list[tuple[float, int, _Text | None, dict[int, _Path] | Chain]] = []
        heappush(queue, (self.rest[start], next(number), None, {start: _Path(0.0, None)}))
        most = math.inf  # what the last of the texts may cost
        while queue and size and math.isfinite(queue[0][0]):
            least, _, text, found = heappop(queue)
            if not isinstance(found, dict):
                yield self._hypothesis(text, found)
                size -= 1
                continue
            end, by_word = self._extended(found, most)
            for word, states in reversed(by_word.items()):
                estimate = min(path.cost + self.rest[state] for state, path in states.items())
                heappush(queue, (_not_below(least, estimate), next(number), _Text(text, word), states))
            if end is not None and end.cost <= most:
                heappush(queue, (_not_below(least, end.cost), next(number), text, end.chain))
            if len(queue) > 2 * size + SPARE:
                queue = nsmallest(size, queue)
                most = queue[-1][0] + ROUNDING * (1.0 + abs(queue[-1][0]))

    def _extended(self, states: dict[int, _Path], most: float) -> tuple[_Path | None, dict[str, dict[int, _Path]]]:
        """Return the best path that ends here, if one does, and the states after each next word, on paths that cost at most ``most``."""
        here, by_word, end = dict(states), dict[str, dict[int, _Path]](), None
        todo = [(self.place[state], state) for state in here]
        todo.sort()
        while todo:
            _, state = heappop(todo)
            path = here[state]
            if state in self.end_costs:
                ended = _Path(path.cost + self.end_costs[state], (path.chain, Arc(state, "", self.lattice.finals[state])))
                end = ended if end is None or ended.cost < end.cost else end
            for cost, arc in zip(self.costs[state], self.lattice.arcs[state], strict=True):
                if not path.cost + cost + self.rest[arc.target] <= most or math.isinf(self.rest[arc.target]):
                    continue
                if arc.word not in self.left_out:
                    self._take(by_word.setdefault(arc.word, {}), path, cost, arc)
                else:  # the same text, in a state that is later in the order
                    if arc.target not in here:
                        heappush(todo, (self.place[arc.target], arc.target))
                    self._take(here, path, cost, arc)
        return end, by_word

    @staticmethod
    def _take(states: dict[int, _Path], path: _Path, cost: float, arc: Arc) -> None:
        """Extend a path by an arc, unless a path to the same state costs no more."""
        total = path.cost + cost
        if arc.target not in states or total < states[arc.target].cost:
            states[arc.target] = _Path(total, (path.chain, arc))

    def _cost(self, scores: tuple[float, ...], word: str = "") -> float:
        cost = -sum(weight * score for weight, score in zip(self._weights, scores, strict=True))
        if word not in self.left_out:
            cost -= self._of_word
        if not abs(cost) + sum(map(abs, scores)) <= MAX_ABSOLUTE**2:  # not a number, too
            raise self.lattice.error(f"has a score, or a weighted sum of scores, beyond {MAX_ABSOLUTE**2:g}: give smaller weights")
        return cost

    def _hypothesis(self, text: _Text | None, chain: Chain) -> Hypothesis:
        arcs: list[Arc] = []
        while chain is not None:
            chain, arc = chain
            arcs.append(arc)
        columns = zip(*(arc.scores for arc in arcs), strict=True)
        scores = {name: math.fsum(column) for name, column in zip(self.lattice.names, columns, strict=True)}
        return Hypothesis(_Text.written(text), scores, times=self._times(arcs[::-1]))

    def _times(self, arcs: Sequence[Arc]) -> tuple[tuple[float, float], ...]:
        """Return begin and end of each word in seconds; nothing if durations are unknown."""
        if self.lattice.unit is None:
            return ()
        unit = self.lattice.unit
        times: list[tuple[float, float]] = []
        now = self.lattice.begin
        for arc in arcs:
            before, now = now, now + unit * arc.duration
            if arc.word not in self.left_out:
                times.append((round(before, DECIMALS), round(now, DECIMALS)))
        return tuple(times)


def _not_below(least: float, estimate: float) -> float:
    """Return ``least`` if the estimate differs from it by rounding alone: nothing that follows can cost less."""
    return least if estimate - least < ROUNDING * (1.0 + abs(least)) else estimate


def best_texts(lattice: Lattice, size: int, weights: Mapping[str, float] | None = None, left_out: Collection[str] = ()) -> list[Hypothesis]:
    """Return the ``size`` best texts of a lattice, best first; fewer if it has no more, and none without a path to an end.

    Args:
        lattice: the lattice.
        size: the number of texts.
        weights: weights of the scores and of ``words``. A path is the better the higher its weighted sum is. None: those of
            the lattice.
        left_out: words that are no part of a text, such as silence. Their scores count.

    Returns:
        Hypotheses with the scores of the best path that has this text, natural logs summed over its arcs and its end, and
        with the times of its words if the lattice has durations.

    Raises:
        InputError: the lattice has a cycle, or a score of an arc, or their weighted sum, is beyond 1e80.
    """
    search = _Search(lattice, lattice.weights if weights is None else weights, left_out)
    found = list(search.texts(size))
    for rank, hypothesis in enumerate(found, 1):
        hypothesis.rank = rank
    return found
