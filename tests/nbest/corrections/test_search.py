"""The beam search against every derivation written down."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from attlm_fairseq.nbest.corrections import search
from attlm_fairseq.nbest.corrections.search import Edge, Search


class BigramLM:
    """A made-up LM whose states are words."""

    def start(self) -> str:
        return "<s>"

    def step(self, state: str, words: Sequence[str]) -> tuple[float, str]:
        total = 0.0
        for word in words:
            total -= (sum(map(ord, state)) * 7 + sum(map(ord, word)) * 13) % 11 / 3
            state = word
        return total, state

    def knows(self, word: str) -> bool:
        return True


EDGES = [
    [Edge(0, 1, ("<s>",), 0.0), Edge(0, 2, ("<s>", "x"), -1.0, ("phrase", "<s> a", "<s> x"))],
    [Edge(1, 2, ("a",), -0.5), Edge(1, 2, ("b", "c"), -1.5, ("phrase", "a", "b c")), Edge(1, 3, (), -3.0, ("phrase", "a d", ""))],
    [Edge(2, 3, ("d",), -0.1), Edge(2, 3, ("c", "d"), -2.0, ("number", "d", "c d"))],
    [Edge(3, 4, ("</s>",), 0.0), Edge(3, 4, ("please", "</s>"), -1.0, ("phrase", "</s>", "please </s>"))],
]


def derivations(place: int = 0) -> list[list[Edge]]:
    if place == len(EDGES):
        return [[]]
    return [[edge, *rest] for edge in EDGES[place] for rest in derivations(edge.end)]


@pytest.mark.parametrize("weight", [0.0, 0.6])
def test_best_texts_with_their_best_derivations(weight: float) -> None:
    best: dict[tuple[str, ...], tuple[float, float, tuple]] = {}
    for derivation in derivations():
        words = tuple(itertools.chain.from_iterable(edge.target for edge in derivation))
        channel = sum(edge.log_prob for edge in derivation)
        score = channel + weight * BigramLM().step("<s>", words[1:])[0]
        if words not in best or score > best[words][0]:
            best[words] = score, channel, tuple(edge for edge in derivation if edge.rule)
    expected = sorted(best.items(), key=lambda item: -item[1][0])
    found = Search(BigramLM(), 100, weight).best(EDGES)
    assert len(found) == len(best)
    for candidate, (words, (score, channel, fired)) in zip(found, expected, strict=True):
        assert (candidate.score, candidate.channel) == pytest.approx((score, channel))
        assert (candidate.words, candidate.fired) == (words, fired)
    assert [candidate.words for candidate in Search(BigramLM(), 3, weight).best(EDGES)] == [words for words, _ in expected[:3]]


class CountingLM(BigramLM):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def step(self, state: str, words: Sequence[str]) -> tuple[float, str]:
        self.asked += 1
        return super().step(state, words)


@pytest.mark.parametrize("memory", [search.MAX_SHARED_BYTES, 3 * search.PARTIAL_BYTES, 0])
def test_what_hypotheses_share_is_searched_once_and_changes_nothing(monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    monkeypatch.setattr(search, "MAX_SHARED_BYTES", memory)
    other_end = [*EDGES[:2], [Edge(2, 3, ("e",), -0.1)], EDGES[3]]
    another_way = [*EDGES[:1], [Edge(1, 2, ("a",), -0.4)], EDGES[2], EDGES[3]]
    lms = [CountingLM() for _ in range(4)]
    together = Search(lms[0], 5)
    for edges, lm in zip((EDGES, other_end, another_way), lms[1:], strict=True):
        assert together.best(edges) == Search(lm, 5).best(edges)
    assert (lms[0].asked < sum(lm.asked for lm in lms[1:])) == (memory > 0)
