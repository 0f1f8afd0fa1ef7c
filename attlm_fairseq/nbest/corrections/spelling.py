"""Known words that are spelled like unknown ones: best-first search for the most probable targets of a letter channel.

A target is one or several words of a vocabulary, so that "twa" finds "t w a" and "on route" finds "enroute".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush

from attlm_fairseq.nbest.corrections.letters import MAX_LETTERS, LetterChannel

MAX_COST = 12.0  # natural log
MAX_STEPS = 1000  # states looked at
MAX_FOUND = 6
MIN_PROBABILITY = 0.02
REMEMBERED = 1 << 16  # stretches


class _Node:
    """A node of the vocabulary's letter tree."""

    __slots__ = ("children", "letters", "word")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.word = False
        self.letters: list[tuple[str, float, _Node]] | None = None  # with the cost of inserting each, once they were needed


class SpellingSearch:
    """The likeliest word sequences of a vocabulary for an unknown spelling."""

    def __init__(self, channel: LetterChannel, vocabulary: Iterable[str]) -> None:
        self.channel = channel
        self.vocabulary = frozenset(vocabulary)
        self._root = _Node()
        for word in sorted(self.vocabulary):
            node = self._root
            for letter in word:
                node = node.children.setdefault(letter, _Node())
            node.word = True
        self._nearest = lru_cache(maxsize=REMEMBERED)(self._search)

    def options(self, words: Sequence[str], begin: int, end: int) -> Iterator[tuple[tuple[str, ...], float]]:
        """Targets for a stretch with an unknown word, with ln p among the targets found."""
        text = " ".join(words[begin:end])
        if self.channel.changes and len(text) <= MAX_LETTERS:
            yield from self._nearest(text)

    def _search(self, text: str) -> tuple[tuple[tuple[str, ...], float], ...]:
        channel = self.channel
        costs = [channel.change(letter) for letter in text]
        ahead = [channel.stop]  # least cost of what is left, backwards
        for of_letter in reversed(costs):
            ahead.append(ahead[-1] + channel.stop + min(of_letter.values()))
        ahead.reverse()
        found: dict[str, float] = {}
        seen: set[tuple[int, str]] = set()  # what is written says in which node it ends
        heap: list[tuple[float, int, str, int, _Node]] = [(ahead[0], 0, "", 0, self._root)]
        for serial in range(1, MAX_STEPS):
            if not heap or len(found) >= MAX_FOUND:
                break
            cost, _, written, place, node = heappop(heap)
            if cost > MAX_COST:
                break
            if (place, written) in seen:
                continue
            seen.add((place, written))
            if place == len(text) and node.word and written != text:
                found.setdefault(written, cost)
            later = ahead[place]
            done = cost - later
            for b, insert, child in self._letters(node) if node.letters is None else node.letters:
                if (then := done + insert + later) <= MAX_COST:
                    heappush(heap, (then, serial, written + b, place, child))
            if place == len(text):
                continue
            change, done, later = costs[place], done + channel.stop, ahead[place + 1]
            for b, _, child in node.letters or ():
                if b in change and (then := done + change[b] + later) <= MAX_COST:
                    heappush(heap, (then, serial, written + b, place + 1, child))
            if "" in change and (then := done + change[""] + later) <= MAX_COST:
                heappush(heap, (then, serial, written, place + 1, node))
        total = sum(math.exp(-cost) for cost in found.values())
        ranked = [(tuple(target.split()), -cost - math.log(total)) for target, cost in found.items()]
        return tuple((words, log_prob) for words, log_prob in ranked if log_prob >= math.log(MIN_PROBABILITY))

    def _letters(self, node: _Node) -> list[tuple[str, float, _Node]]:
        """Return the letters that may follow, with the cost of inserting each: infinite if that is impossible."""
        following = [*node.children.items(), *([(" ", self._root)] if node.word else ())]
        node.letters = [(letter, self.channel.inserts.get(letter, math.inf), child) for letter, child in following]
        return node.letters
