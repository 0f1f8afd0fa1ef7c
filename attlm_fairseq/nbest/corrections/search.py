"""Beam search through the corrections of one hypothesis, with an n-gram LM: a monotone phrase decoder.

score = channel + lm_weight * ln p(words, </s>)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from attlm_fairseq.nbest.corrections.alignment import BEGIN, END
from attlm_fairseq.numeric import LN_10
from attlm_fairseq.text.symbols import UNKNOWN

if TYPE_CHECKING:
    import kenlm

LM_WEIGHT = 0.6
MIN_BEAM = 40
MAX_BEHIND = 12.0  # natural log: partial texts farther behind the best are dropped
MAX_REMEMBERED = 1 << 20  # (LM state, word) pairs


class Edge(NamedTuple):
    """The source words ``[begin, end)`` become ``target`` by ``rule``: (kind, source, target); None if they are kept."""

    begin: int
    end: int
    target: tuple[str, ...]
    log_prob: float
    rule: tuple[str, str, str] | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text with BEGIN and END. ``channel``: ln p of its best derivation; ``fired``: its edges with a rule."""

    words: tuple[str, ...]
    score: float
    channel: float
    fired: tuple[Edge, ...]


class SearchLM(Protocol):
    """What the search needs of an LM: states that can be compared, and ln p of words after one."""

    def start(self) -> object:
        """Return the state after the beginning of the sentence."""
        ...

    def step(self, state: object, words: Sequence[str]) -> tuple[float, object]:
        """Return ln p of the words after ``state`` (END ends the sentence), and the state after them."""
        ...

    def knows(self, word: str) -> bool:
        """Return whether the word is in the LM's vocabulary."""
        ...


class KenLMSearch:
    """A KenLM model as a SearchLM. Scores of (state, word) pairs are cached: the candidates of a list share most words."""

    def __init__(self, model: kenlm.Model) -> None:
        import kenlm

        self._new, self._model = kenlm.State, model
        self._start = kenlm.State()
        model.BeginSentenceWrite(self._start)
        self._known: dict[tuple[kenlm.State, str], tuple[float, kenlm.State]] = {}

    def start(self) -> kenlm.State:
        return self._start

    def step(self, state: kenlm.State, words: Sequence[str]) -> tuple[float, kenlm.State]:
        total = 0.0
        for word in words:
            found = self._known.get((state, word))
            if found is None:
                if len(self._known) >= MAX_REMEMBERED:
                    self._known.clear()
                following = self._new()
                looked_up = UNKNOWN if "\0" in word else word
                found = self._model.BaseScore(state, looked_up, following) * LN_10, following
                self._known[state, word] = found
            total += found[0]
            state = found[1]
        return total, state

    def knows(self, word: str) -> bool:
        return "\0" not in word and word in self._model


class NoLM:
    """No LM: candidates are found by the channel alone."""

    def start(self) -> None:
        return None

    def step(self, state: object, words: Sequence[str]) -> tuple[float, None]:
        return 0.0, None

    def knows(self, word: str) -> bool:
        return True


class _Partial(NamedTuple):
    score: float
    channel: float
    state: object
    before: _Partial | None
    edge: Edge | None


def search(edges: Sequence[Sequence[Edge]], lm: SearchLM, size: int, lm_weight: float = LM_WEIGHT) -> list[Candidate]:
    """Return the ``size`` best distinct texts, best first.

    ``edges[i]`` begin at source word i; the first source word is BEGIN and the last END. Partial texts over the same source
    words compete. Of two derivations of one text the better counts.
    """
    beam = max(MIN_BEAM, 2 * size)
    stacks: list[dict[tuple[str, ...], _Partial]] = [{} for _ in range(len(edges) + 1)]
    stacks[0][()] = _Partial(0.0, 0.0, None, None, None)
    for place, from_here in enumerate(edges):
        if not stacks[place]:
            continue
        partials = sorted(stacks[place].items(), key=lambda item: -item[1].score)[:beam]
        least = partials[0][1].score - MAX_BEHIND
        stacks[place] = {}
        for words, partial in partials:
            if partial.score < least:
                break
            for edge in from_here:
                target = edge.target
                if not words:  # every path begins with BEGIN, which the LM's first state has seen
                    added, state = lm.step(lm.start(), target[1:])
                else:
                    added, state = lm.step(partial.state, target)
                score = partial.score + edge.log_prob + lm_weight * added
                text = words + target
                stack = stacks[edge.end]
                known = stack.get(text)
                if known is None or known.score < score:
                    stack[text] = _Partial(score, partial.channel + edge.log_prob, state, partial, edge)
    ends = sorted(stacks[-1].items(), key=lambda item: (-item[1].score, item[0]))[:size]
    return [Candidate(words, end.score, end.channel, _fired(end)) for words, end in ends if words[-1] == END and words[0] == BEGIN]


def _fired(end: _Partial) -> tuple[Edge, ...]:
    edges = []
    partial: _Partial | None = end
    while partial is not None:
        if partial.edge is not None and partial.edge.rule is not None:
            edges.append(partial.edge)
        partial = partial.before
    return tuple(reversed(edges))
