"""The mean of all states of the sentence: Salton and Kelleher (2018), "Persistence pays off".

Shapes: B sentences in the batch, T positions, H size of an LSTM state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.attention import Columns
from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.memory.reader import MemoryReader, Read
from attlm_fairseq.modules.state import Memory, of_sums


class AveragingReader(BiasesStartAtZero, MemoryReader):
    r"""Features ``tanh(W_c [h_t; c_t] + b_c)`` with the context ``c_t = (h_0 + h_1 + .. + h_t) / (t + 1)``.

    The memory begins with the zero vector ``h_0``, which counts as a state. The current state is stored before averaging, so
    the mean at position t is over t + 1 vectors. Every weight up to the current position is 1 / (t + 1). Column 0 of the
    weights is the share of ``h_0``, or of everything in the memory that was passed in.
    """

    defaults: ClassVar[Mapping[str, Any]] = {}
    columns: Columns | None = Columns(newest=0, initial=True)
    starts_with_state: ClassVar[bool] = False

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.feature_size = hidden_size
        self.merge = nn.Linear(2 * hidden_size, hidden_size)  # W_c, b_c

    @classmethod
    def from_config(cls, hidden_size: int, vocabulary_size: int, config: Mapping[str, Any]) -> AveragingReader:
        return cls(hidden_size)

    def features(self, states: Tensor, contexts: Tensor) -> Tensor:
        """Return ``tanh(W_c [h; c] + b_c)`` (.., H) for states and contexts (.., H)."""
        return torch.tanh(self.merge(torch.cat((states, contexts), dim=-1)))

    def forward(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Return features (B, T, H) and, if requested, weights (B, T, 1 + T), the memory's weight first."""
        total, count = self.empty_memory(states[:, 0]) if memory is None else memory
        counts = (count + torch.arange(1, states.size(1) + 1, device=states.device)).unsqueeze(2)  # (B, T, 1): t + 1
        contexts = (total.unsqueeze(1) + states.cumsum(dim=1, dtype=total.dtype)) / counts
        features = self.features(states, contexts.to(states.dtype))
        if not need_read:
            return features, None
        weights = (1 / counts).expand(-1, -1, states.size(1)).tril()
        return features, Read(torch.cat((count.unsqueeze(1) / counts, weights), dim=2))

    def empty_memory(self, state: Tensor) -> Memory:
        """Return the sum of the states and their number, at least float32. At the start this is ``h_0`` alone: zeros and 1."""
        dtype = of_sums(state)
        return torch.zeros_like(state, dtype=dtype), state.new_ones(state.size(0), 1, dtype=dtype)

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        total, count = memory
        return total + states.sum(dim=1, dtype=total.dtype), count + states.size(1)
