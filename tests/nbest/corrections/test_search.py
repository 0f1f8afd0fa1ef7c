"""The beam search against every derivation written down."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from attlm_fairseq.nbest.corrections.search import Edge, search


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
    found = search(EDGES, BigramLM(), 100, weight)
    assert len(found) == len(best)
    for candidate, (words, (score, channel, fired)) in zip(found, expected, strict=True):
        assert (candidate.score, candidate.channel) == pytest.approx((score, channel))
        assert (candidate.words, candidate.fired) == (words, fired)
    assert [candidate.words for candidate in search(EDGES, BigramLM(), 3, weight)] == [words for words, _ in expected[:3]]
