"""The tree of distinct prefixes of many sentences, level by level, so that each prefix is computed once.

Hypotheses of an n-best list share most of their beginnings. A node is a distinct prefix; the root is the empty one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PrefixTree:
    """Distinct prefixes of S sentences. Nodes are numbered level by level: the root is 0.

    ``tokens[d]`` and ``parents[d]`` (N_d,): the last token of each prefix of length d + 1, and the place of the prefix without it
    among the N_{d-1} of the level above. ``paths[s]``: the nodes of sentence s from its first word to its last.
    """

    tokens: list[np.ndarray]
    parents: list[np.ndarray]
    paths: list[np.ndarray]

    @property
    def size(self) -> int:
        """Number of nodes, the root included."""
        return 1 + sum(map(len, self.tokens))


def build_prefix_tree(sentences: Sequence[Sequence[int]]) -> PrefixTree:
    """Build the tree of sentences sorted lexicographically: those that share a prefix stand together."""
    lengths = np.array([len(sentence) for sentence in sentences])
    depth = int(lengths.max(initial=0))
    matrix = np.full((len(sentences), depth), -1, dtype=np.int64)
    for row, sentence in zip(matrix, sentences, strict=True):
        row[: len(sentence)] = sentence
    inside = np.arange(depth) < lengths[:, None]
    # a prefix is new unless the sentence before has it too: every token so far is the same
    same = np.logical_and.accumulate(matrix[1:] == matrix[:-1], axis=1)
    new = inside & ~np.concatenate((np.zeros((min(1, len(sentences)), depth), dtype=bool), same))
    place = new.cumsum(axis=0) - 1  # (S, depth): among the nodes of the level
    offsets = 1 + np.concatenate(([0], new.sum(axis=0).cumsum()))
    tokens, parents = [], []
    for level in range(depth):
        rows = np.flatnonzero(new[:, level])
        tokens.append(matrix[rows, level])
        parents.append(place[rows, level - 1] if level else np.zeros(len(rows), dtype=np.int64))
    paths = [place[s, :length] + offsets[:length] for s, length in enumerate(lengths)]
    return PrefixTree(tokens, parents, paths)
