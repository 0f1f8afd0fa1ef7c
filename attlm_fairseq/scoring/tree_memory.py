"""The memory that scoring a prefix tree needs, and the division of sentences into blocks that fit."""

from __future__ import annotations

import copy
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Protocol

import numpy as np
import torch

from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.state import row_bytes, slot_bytes
from attlm_fairseq.scoring.prefix_tree import shared_words

FLOAT = 4  # bytes
MEASURED_POSITIONS = 64  # a memory that still grows after this many words is assumed to grow without limit


class RowMemory(Protocol):
    """The bytes that an LM needs for a tree: per node, per distinct word, and per row of a level."""

    @property
    def node(self) -> int:
        """Bytes per node."""

    @property
    def word(self) -> int:
        """Bytes per distinct word."""

    def state(self, depth: int) -> int:
        """Return the bytes of one row after ``depth`` words."""


class TreeMemory:
    """The memory that one model needs for a tree, without its weights; of several models, the largest counts.

    ``node``: bytes per node, for its features, and for what was read if the output layer needs it. ``word``: bytes per distinct
    word, for its input projection. ``state``: bytes of one row's state and reader memory at a depth.
    """

    words_before = 0

    def __init__(self, models: Sequence[LanguageModel]) -> None:
        self.node = max(map(_node_bytes, models))
        self.word = max(map(_word_bytes, models))
        self._states = [max(sizes) for sizes in zip(*map(_state_sizes, models), strict=True)]

    def after(self, words: int, most: int | None = None) -> TreeMemory:
        """Return what is held after so many more words before each sentence; ``most``: of how many at most, None: of all."""
        later = copy.copy(self)
        later.words_before += words
        if most is not None:
            later.words_before = min(later.words_before, most)
        return later

    def state(self, depth: int) -> int:
        """Bytes of one row after ``depth`` words."""
        depth += self.words_before
        beyond = max(0, depth + 1 - len(self._states))
        return self._states[depth if not beyond else -1] + beyond * (self._states[-1] - self._states[-2])


class ForestMemory:
    """A ``TreeMemory`` for sentences that follow histories: the tree has one more level, with the histories below its root."""

    def __init__(self, tree: TreeMemory) -> None:
        self.node, self.word, self._tree = tree.node, tree.word, tree

    def state(self, depth: int) -> int:
        """Return the bytes of one row after the number of its history and ``depth - 1`` words."""
        return self._tree.state(depth - 1) if depth else 0


def _node_bytes(model: LanguageModel) -> int:
    columns = model.reader.columns
    slots = columns.oldest + 1 if model.output.needs_read and columns and columns.oldest is not None else 0
    return model.feature_size * FLOAT + 64 + 2 * slots * (FLOAT + 8)  # of a level's pieces and the whole: weights and words


@torch.inference_mode()
def _word_bytes(model: LanguageModel) -> int:
    return row_bytes(model.inputs(torch.zeros(1, dtype=torch.int64, device=model.embedding.weight.device)).values)


@torch.inference_mode()
def _state_sizes(model: LanguageModel) -> list[int]:
    """Bytes of one row's state after 0, 1, .. words: of the recurrence by its slots, of the memory tried out on the reader."""
    state = model.initial_state(1)
    output = model.embedding.weight.new_zeros(1, 1, model.recurrence.hidden_size)
    token = torch.zeros(1, 1, dtype=torch.int64, device=output.device)
    sizes = []
    of_recurrence = slot_bytes(state.recurrent)
    for words in range(1, MEASURED_POSITIONS + 1):
        state = state._replace(memory=model.reader.advance(output, token, state.memory))  # <s> is read before the first word
        sizes.append(state.bytes + words * of_recurrence)
    return sizes


def split_evenly(sentences: Sequence[Sequence[int]], counts: Sequence[int], smallest: int) -> list[tuple[int, int]]:
    """Return ranges of consecutive sorted sentences with about equally many distinct prefixes, each at least ``smallest``.

    The number of ranges is the largest of ``counts`` (which contains 1) that allows this.
    """
    nodes = [int(count) for count in np.cumsum([*map(len, sentences)] - shared_words(sentences))]
    parts = max(count for count in counts if count == 1 or count * smallest <= nodes[-1])
    bounds = [0, *(bisect_left(nodes, nodes[-1] * part / parts) + 1 for part in range(1, parts)), len(sentences)]
    return [(begin, end) for begin, end in pairwise(bounds) if begin < end]


def split_into_blocks(sentences: Sequence[Sequence[int]], memory: RowMemory, limit: int) -> list[tuple[int, int]]:
    """Ranges of consecutive sorted sentences whose trees take at most ``limit`` bytes each, or hold one sentence."""
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    shared = shared_words(sentences)
    words = np.fromiter(chain.from_iterable(sentences), dtype=np.int64, count=int(lengths.sum()))
    starts = np.concatenate(([0], lengths.cumsum()))
    states = np.array([memory.state(depth) for depth in range(int(lengths.max(initial=0)) + 1)])

    def tree_bytes(begin: int, end: int) -> int:
        new_from = shared[begin:end].copy()  # a sentence has nodes of its own from this depth on, to its end
        new_from[0] = 0
        begun, ended = (np.bincount(depths, minlength=len(states)).cumsum() for depths in (new_from, lengths[begin:end]))
        widths = np.concatenate(([1], (begun - ended)[:-1]))  # nodes of each depth; of depth 0 the root
        # the level above, and the new one twice: its pieces and the whole that they are put together to
        level = (widths[:-1] * states[:-1] + 2 * widths[1:] * states[1:]).max(initial=0)
        distinct = len(np.unique(words[starts[begin] : starts[end]]))
        return int(widths.sum() * memory.node + distinct * memory.word + level)

    blocks: list[tuple[int, int]] = []
    begin, last = 0, len(sentences)
    while begin < last:
        end = last
        if tree_bytes(begin, end) > limit:  # the larger, the more: the last that fits
            end = begin + max(1, bisect_right(range(begin + 1, last), limit, key=lambda end: tree_bytes(begin, end)))
        blocks.append((begin, end))
        begin = end
    return blocks
