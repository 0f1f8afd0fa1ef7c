"""What a language model knows after some words, and the one place that knows how to move the rows of it.

Shapes: B sentences in the batch, M memory slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

State = tuple[Tensor, ...]
"""What a recurrence knows: tensors of any shapes, each with the batch first, so that rows can be moved one by one."""

Memory = tuple[Tensor, ...]
"""What a reader remembers of the states it has read. Every tensor has the batch first, so that rows can be reordered, duplicated and
dropped one by one with ``index_select``.

A memory of M slots, one per state, ends with a bool tensor (B, M) that says which slots a row has; all its parts have the slots in their
second dimension, the newest last. So rows with memories of unlike lengths stand side by side, padded on the left."""


class LanguageModelState(NamedTuple):
    """Everything the model knows of the words read so far. A value: steps return a new one and change nothing."""

    recurrent: State
    memory: Memory

    def map(self, change: Callable[[Tensor], Tensor]) -> LanguageModelState:
        """Return the state with every tensor changed."""
        return LanguageModelState(tuple(map(change, self.recurrent)), tuple(map(change, self.memory)))

    def select(self, rows: Tensor) -> LanguageModelState:
        """Return the given rows (N,) in their order; a row may be taken any number of times."""
        return self.map(lambda part: part.index_select(0, rows))

    def row(self, row: int) -> LanguageModelState:
        """Return one row, in memory of its own."""
        return self.map(lambda part: part[row : row + 1].clone())

    def detach(self) -> LanguageModelState:
        """Return the same values without what gradients need: truncated backpropagation stops here."""
        return self.map(Tensor.detach)

    @staticmethod
    def cat(states: Sequence[LanguageModelState]) -> LanguageModelState:
        """Return all rows of several states, in order.

        Raises:
            ValueError: Their memories have unlike numbers of slots. Padding them would give the readers a mask that costs every step.
        """
        if len(states) == 1:
            return states[0]
        if len(shapes := {state.shape for state in states}) != 1:
            raise ValueError(f"states after unlike numbers of words cannot be one batch: rows of {sorted(shapes)}")
        recurrent, memory = (tuple(map(torch.cat, zip(*parts, strict=True))) for parts in zip(*states, strict=True))
        return LanguageModelState(recurrent, memory)

    @staticmethod
    def stack(states: Sequence[LanguageModelState]) -> LanguageModelState:
        """Return all rows of several states, in order; memories of slots are padded on the left to the longest of them."""
        if states[0].has_slots:
            slots = max(state.memory[-1].size(1) for state in states)
            states = [state._replace(memory=tuple(pad_slots(part, slots) for part in state.memory)) for state in states]
        return LanguageModelState.cat(states)

    @property
    def shape(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of one row: equal for states that fit into one batch."""
        return tuple(tuple(part.shape[1:]) for part in (*self.recurrent, *self.memory))

    @property
    def bytes(self) -> int:
        """The memory that one row takes."""
        return row_bytes(*self.recurrent, *self.memory)

    @property
    def has_slots(self) -> bool:
        """Whether the memory has one slot per state, as ``Memory`` describes, rather than sums or a fixed number of outputs."""
        return bool(self.memory) and self.memory[-1].dtype == torch.bool

    def truncate(self, slots: int) -> LanguageModelState:
        """Return this state with at most the newest slots of a memory of slots; any other memory stays as it is."""
        return self._replace(memory=tuple(part[:, -slots:] for part in self.memory)) if self.has_slots else self

    def reset(self, rows: Tensor, initial: LanguageModelState) -> LanguageModelState:
        """Replace the rows (B,) bool by the one row of ``initial``; memory slots that no row has are left out."""

        def replace(part: Tensor, new: Tensor) -> Tensor:
            return torch.where(rows.view(-1, *[1] * (part.dim() - 1)), new, part)

        memory = self.memory
        if self.has_slots:  # the shorter one is padded on the left
            slots = max(memory[-1].size(1), initial.memory[-1].size(1))
            pairs = [(pad_slots(part, slots), pad_slots(new, slots)) for part, new in zip(memory, initial.memory, strict=True)]
            memory = tuple(replace(*pair) for pair in pairs)
        else:
            memory = tuple(map(replace, memory, initial.memory))
        return LanguageModelState(tuple(map(replace, self.recurrent, initial.recurrent)), memory).without_unused_slots()

    def without_unused_slots(self) -> LanguageModelState:
        """Return this state without the oldest slots, as far as no row has them."""
        if not self.has_slots:
            return self
        used = self.memory[-1].any(dim=0).nonzero()
        first = int(used[0]) if len(used) else self.memory[-1].size(1)
        return self._replace(memory=tuple(part[:, first:] for part in self.memory))


def pad_slots(part: Tensor, slots: int) -> Tensor:
    """Pad a part (B, M, ..) of a memory of slots on the left, with zeros."""
    return torch.cat((part.new_zeros(len(part), slots - part.size(1), *part.shape[2:]), part), dim=1)


def row_bytes(*parts: Tensor) -> int:
    """The memory that one row of all the tensors takes."""
    return sum(math.prod(part.shape[1:]) * part.element_size() for part in parts)
