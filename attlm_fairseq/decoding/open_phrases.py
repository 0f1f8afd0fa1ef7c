"""Which phrases of a list may begin in a text that is not finished, and what they are worth so far."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from attlm_fairseq.text.phrases import MAX_SIGNS, PhraseList, is_sign, punctuation

REMEMBERED = 1 << 16
LAST = "\U0010ffff"  # no text of a phrase has it


class Tail(NamedTuple):
    """The end of a text, on which phrases depend that may still go on.

    Attributes:
        words: the words before the last, case folded. A phrase that begins with the first of them may go on.
        word: what is there of the last word, case folded; ``""`` if a new word begins, None if no phrase goes on in the last word.
    """

    words: tuple[str, ...] = ()
    word: str | None = ""


class OpenPhrases:
    """Follows a text as it grows, so that in the end each word inside a phrase has counted once, as ``PhraseList.count`` counts them.

    The value of a text is ``final`` plus ``worth(tail)``. ``final`` never changes; ``worth`` counts the phrases that stand in the tail,
    or a part of a phrase that may be under way: its weight and number of words, times the share of its letters that are there.
    """

    def __init__(self, phrases: PhraseList) -> None:
        self.phrases = phrases
        weights = phrases.weights
        texts = sorted((" ".join(words), weight * len(words)) for words, weight in weights.items())
        self.texts = [text for text, _ in texts]
        self._rates = np.array([value / len(text) for text, value in texts])  # of a letter
        self.worth = lru_cache(maxsize=REMEMBERED)(self._worth)
        self._rate = lru_cache(maxsize=REMEMBERED)(self._best_rate)

    def range(self, text: str) -> tuple[int, int]:
        """Return the range ``begin <= index < end`` of the phrases' texts that begin with ``text``."""
        begin = bisect_left(self.texts, text)
        return begin, bisect_left(self.texts, text + LAST, begin)

    def unfinished(self, tail: Tail) -> Iterator[str]:
        """Yield the end of the tail from each word on, without punctuation before it, too: what a phrase may begin with."""
        if tail.word is not None:
            for place in range(len(tail.words) + 1):
                yield from _beginnings(tail.words[place:], tail.word)

    def append(self, tail: Tail, letters: str) -> tuple[float, Tail]:
        """Return what becomes final, and the tail, if letters are added to the last word."""
        return (0.0, tail) if tail.word is None or not letters else self._settled(Tail(tail.words, tail.word + letters))

    def close(self, tail: Tail) -> tuple[float, Tail]:
        """Return what becomes final, and the tail, if the last word ends."""
        if tail.word is None:
            return 0.0, Tail()
        return self._settled(Tail((*tail.words, tail.word))) if tail.word else (0.0, tail)

    def end(self, tail: Tail) -> float:
        """Return what becomes final if the text ends."""
        return self.phrases.count((*tail.words, tail.word) if tail.word else tail.words)

    def _settled(self, tail: Tail) -> tuple[float, Tail]:
        """Take words off the tail that no phrase depends on any more, longest match first."""
        total, words, word = 0.0, tail.words, tail.word
        while words and not self._goes_on(words, word):
            length = next((length for length in range(len(words), 0, -1) if self.phrases.standing(words[:length]) is not None), 0)
            total += self.phrases.count(words[:length])
            words = words[max(1, length) :]
        if not words and word and not self._goes_on((), word):
            word = None
        return total, Tail(words, word)

    def _goes_on(self, words: tuple[str, ...], word: str | None) -> bool:
        """Return whether a phrase that begins with the first of the words may still come or become longer, or ends in the last word."""
        if word is None:
            return False
        begun = any(self._rate(text) for text in _beginnings(words, word))
        return begun or (bool(word) and self.phrases.standing((*words, word)) is not None)

    def _best_rate(self, text: str) -> float:
        """Return the largest value of a letter of the phrases that begin with a text, 0 if there is none."""
        begin, end = self.range(text)
        return float(self._rates[begin:end].max()) if begin < end else 0.0

    def _worth(self, tail: Tail) -> float:
        best = self.end(tail)
        if tail.word is not None:
            for place in range(len(tail.words) + 1):
                begun = max(self._rate(text) * len(text) for text in _beginnings(tail.words[place:], tail.word))
                best = max(best, self.phrases.count(tail.words[:place]) + begun)
        return best


def _beginnings(words: tuple[str, ...], word: str) -> Iterator[str]:
    """Yield the text of the words, then without one or more signs of the punctuation before the first."""
    text = " ".join((*words, word))
    signs_alone = not words and len(word) <= MAX_SIGNS and all(map(is_sign, word))
    signs = len(word) if signs_alone else len(punctuation(words[0] if words else word)[0])
    for cut in range(signs + 1):
        yield text[cut:]
