"""The Reader contract: the one part in which the papers' language models differ.

Shapes: B sentences in the batch, T positions, H size of an LSTM state, F size of the features, M memory slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

Memory = tuple[Tensor, ...]
"""What a reader remembers of the states it has read. Every tensor has the batch first, so that rows can be reordered, duplicated and
dropped one by one with ``index_select``.

A memory of M slots, one a state, ends with a bool tensor (B, M) that says which slots a row has; all its parts have the slots in their
second dimension, the newest last. So rows with memories of unlike lengths stand side by side, padded on the left."""


class Reader(Protocol):
    """Turns LSTM states into the features of the output layer, reading the memory of earlier states.

    Strictly causal: the features at position t depend on ``h_1 .. h_t`` alone. Nothing is kept on the module. A sequence may be read
    in pieces of any length, down to single states: reading ``states`` and then ``more`` with the memory that
    ``advance(states, memory)`` returns gives the features of both in one call, to rounding.
    """

    feature_size: int

    @classmethod
    def from_config(cls, state_size: int, config: Mapping[str, Any]) -> Reader:
        """Build the reader for LSTM states of ``state_size`` from the options of its model."""
        ...

    def __call__(self, states: Tensor, need_weights: bool = False, memory: Memory | None = None) -> tuple[Tensor, Tensor | None]:
        """States (B, T, H) -> features (B, T, F) and, only when asked for, attention weights (B, T, M).

        ``memory`` is of the states before these; without one it is empty. With one, the weights have a column for each of its slots
        (one for a running sum) before those of the states.
        """
        ...

    def empty_memory(self, state: Tensor) -> Memory:
        """The memory before the first position, for a batch like ``state`` (B, H)."""
        ...

    def advance(self, states: Tensor, memory: Memory) -> Memory:
        """States (B, T, H) and the memory before them -> the memory after them; the one given stays as it is."""
        ...


def masked_softmax(scores: Tensor, visible: Tensor) -> Tensor:
    """Softmax over the last dimension where ``visible``; 0 elsewhere, also where nothing is visible."""
    return torch.softmax(scores.masked_fill(~visible, -torch.inf), dim=-1).masked_fill(~visible, 0.0)


def with_memory(present: Tensor, visible: Tensor) -> Tensor:
    """Which slots of the memory there are (B, M), which states each position sees (T, K) -> what it sees of both (B, T, M + K)."""
    rows, length = len(present), len(visible)
    return torch.cat((present.unsqueeze(1).expand(rows, length, -1), visible.expand(rows, -1, -1)), dim=2)


def grown(memory: Memory, *parts: Tensor) -> Memory:
    """A memory of slots with those of new states (B, T, ..) behind its own."""
    present = parts[0].new_ones(parts[0].shape[:2], dtype=torch.bool)
    return tuple(torch.cat(pair, dim=1) for pair in zip(memory, (*parts, present), strict=True))
