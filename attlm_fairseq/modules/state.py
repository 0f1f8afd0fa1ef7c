"""The state of a language model after some words, and all operations on its rows.

Shapes: B sentences in the batch, M memory slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

State = tuple[Tensor, ...]
"""The state of a recurrence: tensors of any shape whose first dimension is the batch, so that rows can be selected."""

Memory = tuple[Tensor, ...]
"""The memory of a reader. The first dimension of every tensor is the batch, so ``index_select`` can reorder, duplicate and
drop rows.

A memory of M slots has one slot per state, in the second dimension of all its tensors, the newest last. Its last tensor is
a bool tensor (B, M) that says which slots a row uses. Rows with memories of different lengths are padded on the left."""


class LanguageModelState(NamedTuple):
    """The whole state of the model after some words. It is immutable: steps return a new state."""

    recurrent: State
    memory: Memory

    def map(self, change: Callable[[Tensor], Tensor]) -> LanguageModelState:
        """Return the state with ``change`` applied to every tensor."""
        return LanguageModelState(tuple(map(change, self.recurrent)), tuple(map(change, self.memory)))

    def select(self, rows: Tensor) -> LanguageModelState:
        """Return the given rows (N,) in this order; rows may be repeated."""
        return self.map(lambda part: part.index_select(0, rows))

    def row(self, row: int) -> LanguageModelState:
        """Return a copy of one row."""
        return self.map(lambda part: part[row : row + 1].clone())

    def detach(self) -> LanguageModelState:
        """Return the same values without their gradient graph: truncated backpropagation stops here."""
        return self.map(Tensor.detach)

    @staticmethod
    def cat(states: Sequence[LanguageModelState]) -> LanguageModelState:
        """Return all rows of several states, in order.

        Raises:
            ValueError: the memories have different numbers of slots. Padding them would require a mask, which slows every step.
        """
        if len(states) == 1:
            return states[0]
        if len(shapes := {state.shape for state in states}) != 1:
            raise ValueError(f"states after unlike numbers of words cannot be one batch: rows of {sorted(shapes)}")
        recurrent, memory = (tuple(map(torch.cat, zip(*parts, strict=True))) for parts in zip(*states, strict=True))
        return LanguageModelState(recurrent, memory)

    @staticmethod
    def stack(states: Sequence[LanguageModelState]) -> LanguageModelState:
        """Return all rows of several states, in order. Memories of slots are padded on the left to the longest memory."""
        if states[0].has_slots:
            slots = max(state.memory[-1].size(1) for state in states)
            states = [state._replace(memory=tuple(pad_slots(part, slots) for part in state.memory)) for state in states]
        return LanguageModelState.cat(states)

    @property
    def shape(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of one row. States with equal shapes fit into one batch."""
        return tuple(tuple(part.shape[1:]) for part in (*self.recurrent, *self.memory))

    @property
    def bytes(self) -> int:
        """The size of one row in bytes."""
        return row_bytes(*self.recurrent, *self.memory)

    @property
    def has_slots(self) -> bool:
        """Whether the memory has one slot per state, see ``Memory``. Other memories are sums or a fixed number of outputs."""
        return bool(self.memory) and self.memory[-1].dtype == torch.bool

    def truncate(self, slots: int) -> LanguageModelState:
        """Keep only the newest ``slots`` slots of a memory of slots. Other memories do not change."""
        return self._replace(memory=tuple(part[:, -slots:] for part in self.memory)) if self.has_slots else self

    def reset(self, rows: Tensor, initial: LanguageModelState) -> LanguageModelState:
        """Replace the rows for which ``rows`` (B,) is True by the single row of ``initial``. Drop memory slots that no row uses."""

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
        """Return this state without the leading slots that no row uses."""
        if not self.has_slots:
            return self
        used = self.memory[-1].any(dim=0).nonzero()
        first = int(used[0]) if len(used) else self.memory[-1].size(1)
        return self._replace(memory=tuple(part[:, first:] for part in self.memory))


def pad_slots(part: Tensor, slots: int) -> Tensor:
    """Pad a tensor (B, M, ..) of a memory of slots on the left with zeros."""
    return torch.cat((part.new_zeros(len(part), slots - part.size(1), *part.shape[2:]), part), dim=1)


def row_bytes(*parts: Tensor) -> int:
    """Return the size in bytes of one row of all the tensors together."""
    return sum(math.prod(part.shape[1:]) * part.element_size() for part in parts)
