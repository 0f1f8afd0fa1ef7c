"""The words of a language model as a prefix tree, for the probability of a partial word.

Shapes: W words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np


class LexiconTree:
    """A prefix tree, stored as words sorted by bytes: the words with a common prefix are a contiguous range."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = sorted({word.encode() for word in words if word})
        self.range = lru_cache(maxsize=1 << 16)(self._range)

    def _range(self, prefix: bytes) -> tuple[int, int]:
        """Return the range ``begin <= index < end`` of the words that begin with the prefix."""
        begin = bisect_left(self.words, prefix)
        return begin, bisect_left(self.words, prefix + b"\xff", begin)  # 0xff is not a byte of valid UTF-8

    def continuations(self, prefix: bytes, tokens: Mapping[bytes, Sequence[int]], whole: bool = False) -> np.ndarray:
        """Return the tokens that extend a partial word to another prefix in the tree, as rows (token, begin, end).

        The range is that of the words with the extended prefix. With ``whole``, return only tokens that complete a word; the
        range is then that word alone.
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
    """Return the sums of values (W,) over non-empty ranges.

    Each range is summed separately. Differences of cumulative sums would lose small values to rounding.
    """
    if not len(begins):
        return np.zeros(0)
    padded = np.append(values, 0.0)  # an index of W must be valid
    return np.add.reduceat(padded, np.column_stack((begins, ends)).ravel())[::2]
