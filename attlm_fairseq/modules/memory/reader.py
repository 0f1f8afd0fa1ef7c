"""The Reader contract: the one part in which the papers' language models differ.

Shapes: B sentences in the batch, T positions, H size of an LSTM state, F size of the features, M memory slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

Memory = tuple[Tensor, ...]
"""What a reader remembers of the states it has stepped over. Every tensor has the batch first, so that rows can be reordered,
duplicated and dropped one by one with ``index_select``."""


class Reader(Protocol):
    """Turns LSTM states into the features of the output layer, reading the memory of earlier states.

    Strictly causal: the features at position t depend on ``h_1 .. h_t`` alone. Nothing is kept on the module. The whole
    sequence at once (calling the reader) and step by step agree to rounding.
    """

    feature_size: int

    @classmethod
    def from_config(cls, state_size: int, config: Mapping[str, Any]) -> Reader:
        """Build the reader for LSTM states of ``state_size`` from the options of its model."""
        ...

    def __call__(self, states: Tensor, need_weights: bool = False) -> tuple[Tensor, Tensor | None]:
        """States (B, T, H) -> features (B, T, F) and, only when asked for, attention weights (B, T, M)."""
        ...

    def empty_memory(self, state: Tensor) -> Memory:
        """The memory before the first position, for a batch like ``state`` (B, H)."""
        ...

    def step(self, state: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """State (B, H) of one position and the memory before it -> features (B, F) and the memory after it."""
        ...
