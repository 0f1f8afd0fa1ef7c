"""The state of a language model after some words, and all operations on its rows.

Shapes: B sentences in the batch, M memory slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

State = tuple[Tensor, ...]
"""The state of a recurrence: tensors of any shape whose first dimension is the batch, so that rows can be selected. It may have
slots, like a ``Memory``."""

Memory = tuple[Tensor, ...]
"""The memory of a reader. The first dimension of every tensor is the batch, so ``index_select`` can reorder, duplicate and
drop rows.

A memory of M slots has one slot per state, the newest last. Its last tensor is a bool tensor (B, M) that says which slots a row
uses. Its tensors of three or more dimensions hold the slots in the second. Its other tensors (B, F) have none. Rows with
memories of different lengths are padded on the left."""


class LanguageModelState(NamedTuple):
    """The whole state of the model after some words. It is immutable: steps return a new state."""

    recurrent: State
    memory: Memory

    def map(self, change: Callable[[Tensor], Tensor]) -> LanguageModelState:
        return LanguageModelState(tuple(map(change, self.recurrent)), tuple(map(change, self.memory)))

    def select(self, rows: Tensor) -> LanguageModelState:
        """Return the given rows (N,) in this order; rows may be repeated."""
        return self.map(lambda part: part.index_select(0, rows))

    def row(self, row: int) -> LanguageModelState:
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
        """Return all rows of several states, in order. States and memories of slots are padded on the left to the longest."""
        padded = zip(*(pad_alike(*parts) for parts in zip(*states, strict=True)), strict=True)
        return LanguageModelState.cat([LanguageModelState(*parts) for parts in padded])

    @property
    def shape(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of one row. States with equal shapes fit into one batch."""
        return tuple(tuple(part.shape[1:]) for part in (*self.recurrent, *self.memory))

    @property
    def layout(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """What all states of one model share, however many words they have read: dimensions, and sizes but for rows and slots."""

        def of(part: Tensor) -> tuple[int, ...]:
            return part.dim(), *part.shape[2 if part.dim() > 2 or part.dtype == torch.bool else 1 :]

        return tuple(tuple(map(of, parts)) for parts in self)

    @property
    def bytes(self) -> int:
        return row_bytes(*self.recurrent, *self.memory)

    @property
    def has_slots(self) -> bool:
        """Whether the recurrence or the memory has one slot per state, see ``Memory``. Others are sums or a fixed number of outputs."""
        return has_slots(self.recurrent) or has_slots(self.memory)

    def truncate(self, slots: int) -> LanguageModelState:
        """Keep only the newest ``slots`` slots. What has no slots does not change."""
        return LanguageModelState(*(change_slots(parts, lambda part: part[:, -slots:]) for parts in self))

    def reset(self, rows: Tensor, initial: LanguageModelState) -> LanguageModelState:
        """Replace the rows for which ``rows`` (B,) is True by the single row of ``initial``. Drop slots that no row uses."""

        def replace(part: Tensor, new: Tensor) -> Tensor:
            return torch.where(rows.view(-1, *[1] * (part.dim() - 1)), new, part)

        pairs = [pad_alike(*pair) for pair in zip(self, initial, strict=True)]
        return LanguageModelState(*(tuple(map(replace, *pair)) for pair in pairs)).without_unused_slots()

    def without_unused_slots(self) -> LanguageModelState:
        """Return this state without the leading slots that no row uses."""
        return LanguageModelState(*map(drop_unused_slots, self))


def of_sums(values: Tensor) -> torch.dtype:
    """Return the dtype for sums of such values over many words: at least float32, where small parts of a large sum are not lost."""
    return torch.promote_types(values.dtype, torch.float32)


class HasInitialState(Protocol):
    def initial_state(self, batch: int) -> LanguageModelState: ...


class Carried(NamedTuple):
    """What of a state is carried from one segment of a document, or sentence of a conversation, to the next.

    Attributes:
        slots: number of newest slots; 0: all.
        memory: whether the memory is carried. If not, it is empty again, and only the recurrent state goes on.
    """

    slots: int = 0
    memory: bool = True

    @property
    def limit(self) -> int | None:
        """The largest number of slots that are carried; None if there is no limit."""
        return (self.slots or None) if self.memory else 0

    @property
    def options(self) -> dict[str, Any]:
        """The options of ``document_reset_lm`` that differ from carrying everything."""
        return {**({"memory_slots": self.slots} if self.slots else {}), **({} if self.memory else {"reset": "memory"})}

    def of(self, state: LanguageModelState, model: HasInitialState) -> LanguageModelState:
        """Return what is carried of the state (B rows) of a model."""
        if not self.memory:
            state = state._replace(memory=model.initial_state(len(state.recurrent[0])).memory)
        return state.truncate(self.slots) if self.slots else state


EVERYTHING = Carried()


def has_slots(parts: State | Memory) -> bool:
    """Return whether there is one slot per state, see ``Memory``."""
    return bool(parts) and parts[-1].dtype == torch.bool


def change_slots(parts: Memory, change: Callable[[Tensor], Tensor]) -> Memory:
    """Return a state or memory with ``change`` applied to every tensor that holds slots; without slots, return it as it is."""
    if not has_slots(parts):
        return parts
    return tuple(change(part) if part.dim() > 2 or part.dtype == torch.bool else part for part in parts)


def pad_slots(parts: Memory, slots: int) -> Memory:
    """Pad a state or memory of slots on the left with zeros."""
    return change_slots(parts, lambda part: torch.cat((part.new_zeros(len(part), slots - part.size(1), *part.shape[2:]), part), dim=1))


def pad_alike(*several: Memory) -> list[Memory]:
    """Return states or memories of one kind, padded on the left to the largest number of slots."""
    if not has_slots(several[0]):
        return [*several]
    slots = max(parts[-1].size(1) for parts in several)
    return [pad_slots(parts, slots) for parts in several]


def drop_unused_slots(parts: Memory) -> Memory:
    """Return a state or memory without the leading slots that no row uses."""
    if not has_slots(parts):
        return parts
    used = parts[-1].any(dim=0).nonzero()
    first = int(used[0]) if len(used) else parts[-1].size(1)
    return change_slots(parts, lambda part: part[:, first:])


def append_slots(memory: Memory, *parts: Tensor) -> Memory:
    """Return a memory of slots with the slots of new states, ``parts`` (B, T, ..), after its own."""
    present = parts[0].new_ones(parts[0].shape[:2], dtype=torch.bool)
    return tuple(torch.cat(pair, dim=1) for pair in zip(memory, (*parts, present), strict=True))


def row_bytes(*parts: Tensor) -> int:
    return sum(math.prod(part.shape[1:]) * part.element_size() for part in parts)


def slot_bytes(parts: Memory) -> int:
    """Return the size in bytes of one slot of a row; 0 without slots."""
    if not has_slots(parts):
        return 0
    return sum(math.prod(part.shape[2:]) * part.element_size() for part in parts if part.dim() > 2 or part.dtype == torch.bool)
