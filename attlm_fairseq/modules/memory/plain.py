"""A reader without memory: the plain LSTM language model, which is the baseline of the papers.

Shapes: B sentences in the batch, T positions, H hidden size, P size of the projection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from attlm_fairseq.modules.attention import Columns
from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.memory.reader import MemoryReader
from attlm_fairseq.modules.state import Memory


class PlainReader(BiasesStartAtZero, MemoryReader):
    """Returns the states ``h_t`` as features, or with a projection ``W_p h_t + b_p`` of size P. There are no attention weights."""

    defaults: ClassVar[Mapping[str, Any]] = {"projection_size": 0}
    columns: Columns | None = None

    def __init__(self, hidden_size: int, projection_size: int = 0) -> None:
        super().__init__()
        if not isinstance(projection_size, int) or projection_size < 0:
            raise ValueError(f"--projection-size must be a whole number, 0 for no projection, not {projection_size}")
        self.feature_size = projection_size or hidden_size
        self.projection = nn.Linear(hidden_size, projection_size) if projection_size else None  # W_p, b_p
        self.starts_with_state = not projection_size

    @classmethod
    def from_config(cls, hidden_size: int, vocabulary_size: int, config: Mapping[str, Any]) -> PlainReader:
        return cls(hidden_size, config["projection_size"])

    def forward(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, None]:
        return states if self.projection is None else self.projection(states), None

    def empty_memory(self, state: Tensor) -> Memory:
        return ()

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        return memory
