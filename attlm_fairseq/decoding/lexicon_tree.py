"""The words of a language model as a tree of their letters, for the probability of a partial word.

Shapes: W words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np


class LexiconTree:
    """Words in the order of their bytes, so that the words below a node of the tree, those with one prefix, are a range of places."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = sorted({word.encode() for word in words if word})
        self.range = lru_cache(maxsize=1 << 16)(self._range)

    def _range(self, prefix: bytes) -> tuple[int, int]:
        """The places ``begin <= place < end`` of the words that begin with the prefix."""
        begin = bisect_left(self.words, prefix)
        return begin, bisect_left(self.words, prefix + b"\xff", begin)  # no UTF-8 has this byte

    def continuations(self, prefix: bytes, tokens: Mapping[bytes, Sequence[int]], whole: bool = False) -> np.ndarray:
        """The tokens by which a partial word goes on to another one that is in the tree: rows (token, begin, end) with its range of words.

        With ``whole``, those that complete a word; their range is that word alone.
        """
        rows = []
        begin, end = self.range(prefix)
        seen: set[bytes] = set()
        for word in self.words[begin:end]:
            for length in [len(word)] if whole else range(len(prefix) + 1, len(word) + 1):
                text = word[len(prefix) : length]
                if text and text not in seen and text in tokens:
                    seen.add(text)
                    first, last = self.range(prefix + text)
                    rows += [(token, first, first + 1 if whole else last) for token in tokens[text]]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)


def range_sums(values: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The sums of values (W,) over ranges none of which is empty, each summed by itself: no small one is lost in a difference."""
    if not len(begins):
        return np.zeros(0)
    padded = np.append(values, 0.0)  # so that an end may be W
    return np.add.reduceat(padded, np.column_stack((begins, ends)).ravel())[::2]
