"""No memory: the plain LSTM language model that the papers compare with, as the same code with nothing to read.

Shapes: B sentences in the batch, T positions, H size of an LSTM state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from attlm_fairseq.modules.memory.reader import Memory


class PlainReader(nn.Module):
    """Features ``h_t``. There are no attention weights."""

    def __init__(self, state_size: int) -> None:
        super().__init__()
        self.feature_size = state_size

    @classmethod
    def from_config(cls, state_size: int, config: Mapping[str, Any]) -> PlainReader:
        return cls(state_size)

    def forward(self, states: Tensor, need_weights: bool = False, memory: Memory | None = None) -> tuple[Tensor, None]:
        return states, None

    def empty_memory(self, state: Tensor) -> Memory:
        return ()

    def advance(self, states: Tensor, memory: Memory) -> Memory:
        return memory
