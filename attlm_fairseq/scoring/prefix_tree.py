"""The tree of distinct prefixes of many sentences, level by level, so that each prefix is computed once.

Hypotheses of an n-best list share most of their beginnings. A node is a distinct prefix; the root is the empty one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np


@dataclass(frozen=True)
class PrefixTree:
    """Distinct prefixes of S sentences. Nodes are numbered level by level: the root is 0.

    ``tokens[d]`` (N_d,) has the last token of each prefix of length d + 1. ``parents[d]`` (N_d,) has the index of its parent
    among the N_{d-1} nodes of the level above. ``paths[s]`` has the nodes of sentence s from its first word to its last.
    """

    tokens: list[np.ndarray]
    parents: list[np.ndarray]
    paths: list[np.ndarray]

    @property
    def size(self) -> int:
        """Return the number of nodes, the root included."""
        return 1 + sum(map(len, self.tokens))


def build_prefix_tree(sentences: Sequence[Sequence[int]]) -> PrefixTree:
    """Build the tree of lexicographically sorted sentences. Sorting makes sentences with a common prefix neighbours."""
    shared = shared_words(sentences)
    new = np.array([len(sentence) for sentence in sentences], dtype=np.int64) - shared  # nodes that a sentence adds
    ends = new.cumsum()
    begins = ends - new
    total = int(new.sum())
    # the nodes sentence by sentence: level from 0, token, and number in the whole tree
    levels = np.arange(total) - np.repeat(begins - shared, new)
    tokens = np.fromiter(chain.from_iterable(one[known:] for one, known in zip(sentences, shared, strict=True)), np.int64, total)
    by_level = np.argsort(levels, kind="stable")
    numbers = np.empty(total, dtype=np.int64)
    numbers[by_level] = np.arange(1, total + 1)
    parents = np.concatenate(([0], numbers))[:total]  # the node before, but for the first that a sentence adds
    paths = []
    path = np.empty(0, dtype=np.int64)
    for known, begin, end in zip(shared, begins, ends, strict=True):
        if begin < end:
            parents[begin] = path[known - 1] if known else 0
        path = np.concatenate((path[:known], numbers[begin:end]))
        paths.append(path)
    widths = np.bincount(levels)
    starts = np.concatenate(([0], widths.cumsum() + 1 - widths))  # the number of the first node of the level above
    parents -= starts[levels]
    bounds = widths.cumsum()[:-1]
    of_levels = [np.split(values[by_level], bounds) if total else [] for values in (tokens, parents)]
    return PrefixTree(of_levels[0], of_levels[1], paths)


def shared_words(sentences: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the length (S,) of the common prefix of each sorted sentence and the one before it."""
    return np.array([common_prefix(before, one) for before, one in zip([(), *sentences], sentences, strict=False)], dtype=np.int64)


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    length = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        length += 1
    return length
