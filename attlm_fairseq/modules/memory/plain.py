"""A reader without memory: the plain LSTM language model, which is the baseline of the papers.

Shapes: B sentences in the batch, T positions, H hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from attlm_fairseq.modules.attention import Columns
from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.memory.reader import MemoryReader
from attlm_fairseq.modules.state import Memory


class PlainReader(BiasesStartAtZero, MemoryReader):
    """Returns the states ``h_t`` as features. There are no attention weights."""

    defaults: ClassVar[Mapping[str, Any]] = {}
    columns: Columns | None = None
    starts_with_state: ClassVar[bool] = True

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.feature_size = hidden_size

    @classmethod
    def from_config(cls, hidden_size: int, vocabulary_size: int, config: Mapping[str, Any]) -> PlainReader:
        return cls(hidden_size)

    def forward(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, None]:
        return states, None

    def empty_memory(self, state: Tensor) -> Memory:
        return ()

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        return memory
