"""Beam search through the corrections of one hypothesis, with an n-gram LM: a monotone phrase decoder.

score = channel + lm_weight * ln p(words, </s>)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from attlm_fairseq.nbest.corrections.alignment import BEGIN, END
from attlm_fairseq.numeric import LN_10
from attlm_fairseq.text.symbols import UNKNOWN

if TYPE_CHECKING:
    import kenlm

LM_WEIGHT = 0.6
MIN_BEAM = 40
MAX_BEHIND = 12.0  # natural log: partial texts farther behind the best are dropped
MAX_REMEMBERED = 1 << 20  # (LM state, word) pairs
MAX_SHARED_BYTES = 1 << 24  # of partial texts kept for the next hypotheses of a list
PARTIAL_BYTES = 250  # of a partial text, without its characters


class Edge(NamedTuple):
    """The source words ``[begin, end)`` become ``target`` by ``rule``: (kind, source, target); None if they are kept."""

    begin: int
    end: int
    target: tuple[str, ...]
    log_prob: float
    rule: tuple[str, str, str] | None = None


# A partial text after its best derivation so far: score, ln p of the channel, words with a space before each, state of the LM after
# them, the partial text before, and the edge from there. A plain tuple: a NamedTuple takes 9 times as long to make.
Partial = tuple[float, float, str, Any, Any, "Edge | None"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text with BEGIN and END. ``channel``: ln p of its best derivation, which ends in ``end``."""

    words: tuple[str, ...]
    score: float
    channel: float
    end: Partial

    @property
    def fired(self) -> tuple[Edge, ...]:
        return tuple(edge for edge in derivation(self.end) if edge.rule is not None)


def derivation(end: Partial | None) -> list[Edge]:
    """Return the edges that lead to a partial text."""
    edges = []
    while end is not None:
        *_, end, edge = end
        if edge is not None:
            edges.append(edge)
    return edges[::-1]


class SearchLM(Protocol):
    """What the search needs of an LM: states that can be hashed, and ln p of words after one."""

    def start(self) -> object:
        """Return the state after the beginning of the sentence."""

    def step(self, state: object, words: Sequence[str]) -> tuple[float, object]:
        """Return ln p of the words after ``state`` (END ends the sentence), and the state after them."""

    def knows(self, word: str) -> bool:
        """Return whether the word is in the LM's vocabulary."""


class _State:
    """A state of KenLM, with ln p of the words that were scored after it and the states that follow."""

    __slots__ = ("following", "kenlm")

    def __init__(self, state: kenlm.State) -> None:
        self.kenlm = state
        self.following: dict[str, tuple[float, _State]] = {}


class KenLMSearch:
    """A KenLM model as a SearchLM. Scores after each state are cached: the candidates of a list share most words."""

    def __init__(self, model: kenlm.Model) -> None:
        import kenlm

        self._new, self._model = kenlm.State, model
        start = kenlm.State()
        model.BeginSentenceWrite(start)
        self._start = _State(start)
        self._forget()

    def start(self) -> _State:
        return self._start

    def step(self, state: Any, words: Sequence[str]) -> tuple[float, _State]:
        total = 0.0
        for word in words:
            log_prob, state = state.following.get(word) or self._score(state, word)
            total += log_prob
        return total, state

    def _score(self, state: _State, word: str) -> tuple[float, _State]:
        if self._remembered >= MAX_REMEMBERED:
            self._forget()
        following = self._new()
        log_prob = self._model.BaseScore(state.kenlm, word if _fits_kenlm(word) else UNKNOWN, following) * LN_10
        state.following[word] = found = log_prob, self._states.setdefault(following, _State(following))
        self._remembered += 1
        return found

    def _forget(self) -> None:
        self._remembered = 0
        self._start.following.clear()
        self._states: dict[kenlm.State, _State] = {}

    def knows(self, word: str) -> bool:
        return _fits_kenlm(word) and word in self._model


def _fits_kenlm(word: str) -> bool:
    """Return whether a C string in UTF-8 can hold the word."""
    return "\0" not in word and not any("\ud800" <= character <= "\udfff" for character in word)


class NoLM:
    """No LM: candidates are found by the channel alone."""

    def start(self) -> None:
        return None

    def step(self, state: object, words: Sequence[str]) -> tuple[float, None]:
        return 0.0, None

    def knows(self, word: str) -> bool:
        return True


class _Place:
    """Between two source words: the best partial texts, best first. ``following``: the next place, by the edges that end there."""

    __slots__ = ("following", "partials")

    def __init__(self, partials: list[Partial]) -> None:
        self.partials = partials
        self.following: dict[tuple[Edge, ...], _Place] = {}


def text_of(words: Sequence[str]) -> str:
    """Return words as a partial text has them: with a space before each."""
    return "".join(f" {word}" for word in words)


def words_of(text: str) -> tuple[str, ...]:
    return tuple(text.split(" ")[1:])


class Search:
    """Beam search through the corrections of the hypotheses of a list. What they share at their beginning is searched once."""

    def __init__(self, lm: SearchLM, size: int, lm_weight: float = LM_WEIGHT) -> None:
        """Find at most ``size`` texts for each hypothesis."""
        self.lm, self.size, self.lm_weight = lm, size, lm_weight
        self.beam = max(MIN_BEAM, 2 * size)
        self._start = _Place([(0.0, 0.0, "", None, None, None)])
        self._shared = 0  # bytes

    def best(self, edges: Sequence[Sequence[Edge]]) -> list[Candidate]:
        """Return the best distinct texts of a hypothesis, best first; see ``ends``."""
        return [Candidate(words_of(end[2]), end[0], end[1], end) for end in self.ends(edges)]

    def ends(self, edges: Sequence[Sequence[Edge]]) -> list[Partial]:
        """Return the best distinct texts of a hypothesis, best first.

        ``edges[i]`` begin at source word i; the first source word is BEGIN and the last END. Partial texts over the same source
        words compete. Of two derivations of one text the better counts.
        """
        ending: list[list[Edge]] = [[] for _ in range(len(edges) + 1)]
        for from_here in edges:
            for edge in from_here:
                ending[edge.end].append(edge)
        reach = max((edge.end - edge.begin for there in ending for edge in there), default=0)
        places = {0: self._start}
        for number, there in enumerate(ending[1:-1], 1):
            before, key = places[number - 1], tuple(there)
            place = before.following.get(key)
            if place is None:
                place = _Place(self._kept(self._reached(there, places)))
                self._share(before, key, place)
            places[number] = place
            places.pop(number - reach, None)  # of a long text not all places fit into memory
        found = self._reached(ending[-1], places)
        least = found[self.size - 1][0] if len(found) > self.size else -math.inf
        best = [end for end in found if end[0] >= least]
        best.sort(key=lambda end: (-end[0], words_of(end[2])))
        return [end for end in best[: self.size] if end[2].startswith(f" {BEGIN} ") and end[2].endswith(f" {END}")]

    def _reached(self, edges: Sequence[Edge], places: Mapping[int, _Place]) -> list[Partial]:
        """Return the partial texts that these edges make, all with the same end, best first."""
        found: dict[str, Partial] = {}
        for begin, of_place in groupby(edges, key=itemgetter(0)):
            steps = [(edge, text_of(edge.target)) for edge in of_place]
            after: dict[object, list[tuple[str, float, float, object, Edge]]] = {}  # by state: many partial texts share one
            for partial in places[begin].partials:
                score, channel, text, state, _, _ = partial
                following = after.get(state)
                if following is None:
                    following = after[state] = [self._after(text, state, edge, words) for edge, words in steps]
                for words, log_prob, weighted, later, edge in following:
                    made = (score + log_prob + weighted, channel + log_prob, text + words, later, partial, edge)
                    known = found.setdefault(made[2], made)
                    if known[0] < made[0]:
                        found[made[2]] = made
        return sorted(found.values(), key=itemgetter(0), reverse=True)

    def _after(self, text: str, state: object, edge: Edge, words: str) -> tuple[str, float, float, object, Edge]:
        """Return what follows a text along an edge: words, ln p of the channel, the LM's part of the score, its state, the edge."""
        if text:
            log_prob, later = self.lm.step(state, edge.target)
        else:  # every path begins with BEGIN, which the LM's first state has seen
            log_prob, later = self.lm.step(self.lm.start(), edge.target[1:])
        return words, edge.log_prob, self.lm_weight * log_prob, later, edge

    def _share(self, before: _Place, edges: tuple[Edge, ...], place: _Place) -> None:
        """Keep a place for the next hypotheses, while there is memory."""
        self._shared += sum(PARTIAL_BYTES + len(partial[2]) for partial in place.partials)
        if self._shared <= MAX_SHARED_BYTES:
            before.following[edges] = place

    def _kept(self, best_first: Sequence[Partial]) -> list[Partial]:
        return [partial for partial in best_first[: self.beam] if partial[0] >= best_first[0][0] - MAX_BEHIND]
