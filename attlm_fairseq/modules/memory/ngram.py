"""Concatenated parts of the last N outputs: the N-gram RNN of Daniluk et al. (2017).

Shapes: B sentences in the batch, T positions, H hidden size, D = H / N size of one part of a state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.attention import Columns
from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.memory.reader import MemoryReader
from attlm_fairseq.modules.state import Memory


class NgramReader(BiasesStartAtZero, MemoryReader):
    r"""Features ``h* = tanh(W_N [h^1_t; h^2_{t-1}; ..; h^N_{t-N+1}])`` of size D = H / N. Part k comes from position t - k + 1.

    Positions before the first are zeros. There are no attention weights. The paper's Eq. 13 has N - 1 parts, but the sizes
    in its table are only correct with N parts.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"ngram_order": 4}
    columns: Columns | None = None
    starts_with_state: ClassVar[bool] = False

    def __init__(self, hidden_size: int, order: int) -> None:
        super().__init__()
        if order < 1 or hidden_size % order:
            raise ValueError(f"the state size {hidden_size} is not divisible into {order} parts")
        self.order = order
        self.feature_size = hidden_size // order
        self.merge = nn.Linear(hidden_size, self.feature_size, bias=False)  # W_N

    @classmethod
    def from_config(cls, hidden_size: int, vocabulary_size: int, config: Mapping[str, Any]) -> NgramReader:
        return cls(hidden_size, config["ngram_order"])

    def forward(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, None]:
        """Return features (B, T, D) for states (B, T, H), and None instead of weights."""
        (past,) = self.empty_memory(states[:, 0]) if memory is None else memory
        parts = torch.cat((past, states), dim=1).chunk(self.order, dim=-1)
        starts = range(self.order - 1, -1, -1)
        shifted = [part[:, start : start + states.size(1)] for start, part in zip(starts, parts, strict=True)]
        return torch.tanh(self.merge(torch.cat(shifted, dim=-1))), None

    def empty_memory(self, state: Tensor) -> Memory:
        """Return the last N - 1 outputs (B, N - 1, H), newest last; at the start they are zeros."""
        return (state.new_zeros(state.size(0), self.order - 1, state.size(1)),)

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        return (torch.cat((memory[0], states), dim=1)[:, states.size(1) :],)
