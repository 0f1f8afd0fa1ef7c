"""How much memory the prefix tree of some sentences takes while a model runs over it, and cutting sentences into blocks that fit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch

from attlm_fairseq.modules.language_model import LanguageModel

FLOAT = 4  # bytes
MEASURED_POSITIONS = 64  # a memory that still grows after so many words is taken to go on growing


class TreeMemory:
    """What one model, or the largest of several that take turns, holds beside its weights for a tree.

    ``node``: bytes for every node, its features. ``word``: bytes for every distinct word, its share of the first layer's gates.
    :meth:`state`: bytes of one row's state and reader memory at a depth.
    """

    def __init__(self, models: Sequence[LanguageModel]) -> None:
        self.node = max(model.reader.feature_size for model in models) * FLOAT + 64
        self.word = max(4 * model.lstm.hidden_size for model in models) * FLOAT
        self._states = [max(sizes) for sizes in zip(*map(_state_sizes, models), strict=True)]

    def state(self, depth: int) -> int:
        """Bytes of one row after ``depth`` words."""
        beyond = max(0, depth + 1 - len(self._states))
        return self._states[depth if not beyond else -1] + beyond * (self._states[-1] - self._states[-2])


def _state_sizes(model: LanguageModel) -> list[int]:
    """Bytes of one row's state after 0, 1, .. words, tried out on the reader."""
    weight = model.embedding.weight
    layers = 2 * model.lstm.num_layers * model.lstm.hidden_size * FLOAT
    output = weight.new_zeros(1, 1, model.lstm.hidden_size)
    with torch.inference_mode():
        memory = model.reader.empty_memory(output[:, 0])
        sizes = []
        for _ in range(MEASURED_POSITIONS):
            memory = model.reader.advance(output, memory)  # <s> is read before the first word
            sizes.append(layers + sum(part.numel() * part.element_size() for part in memory))
    return sizes


def split_evenly(sentences: Sequence[Sequence[int]], counts: Sequence[int], smallest: int) -> list[tuple[int, int]]:
    """Ranges of consecutive sorted sentences, with about equally many distinct prefixes and not under ``smallest``.

    As many as the largest of ``counts`` (1 is one of them) that allows that.
    """
    new = [len(one) - common_prefix(before, one) for before, one in zip([(), *sentences], sentences, strict=False)]
    nodes = list(accumulate(new))
    parts = max(count for count in counts if count == 1 or count * smallest <= nodes[-1])
    bounds = [0, *(bisect_left(nodes, nodes[-1] * part / parts) + 1 for part in range(1, parts)), len(sentences)]
    return [(begin, end) for begin, end in pairwise(bounds) if begin < end]


def split_into_blocks(sentences: Sequence[Sequence[int]], memory: TreeMemory, limit: int) -> list[tuple[int, int]]:
    """Ranges of consecutive sorted sentences whose trees take at most ``limit`` bytes each, or hold one sentence."""
    blocks: list[tuple[int, int]] = []
    begin = 0
    block = _Block(memory)
    for index, sentence in enumerate(sentences):
        block.add(sentence, common_prefix(sentences[index - 1], sentence) if index > begin else 0)
        if index > begin and block.bytes > limit:
            blocks.append((begin, index))
            begin, block = index, _Block(memory)
            block.add(sentence, 0)
    return [*blocks, (begin, len(sentences))] if len(sentences) > begin else blocks


class _Block:
    """The bytes of a tree that grows by one sentence after the other."""

    def __init__(self, memory: TreeMemory) -> None:
        self._memory = memory
        self._widths: list[int] = [1]  # nodes of each depth
        self._words: set[int] = set()
        self._nodes = 1
        self._level = 0  # bytes of the states while the costliest level is computed

    def add(self, sentence: Sequence[int], shared: int) -> None:
        """Add a sentence that has its first ``shared`` words in the tree already."""
        self._nodes += len(sentence) - shared
        self._words.update(sentence[shared:])
        for depth in range(shared + 1, len(sentence) + 1):
            if depth == len(self._widths):
                self._widths.append(0)
            self._widths[depth] += 1
        for depth in range(shared + 1, min(len(sentence) + 2, len(self._widths))):
            # the level above, and the new one twice: its pieces and the whole that they are put together to
            level = self._widths[depth - 1] * self._memory.state(depth - 1) + 2 * self._widths[depth] * self._memory.state(depth)
            self._level = max(self._level, level)

    @property
    def bytes(self) -> int:
        return self._nodes * self._memory.node + len(self._words) * self._memory.word + self._level


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    length = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        length += 1
    return length
