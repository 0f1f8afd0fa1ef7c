"""The mean of all states of the sentence: Salton and Kelleher (2018), "Persistence pays off".

Shapes: B sentences in the batch, T positions, H size of an LSTM state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.memory.reader import Memory


class AveragingReader(nn.Module):
    r"""Features ``tanh(W_c [h_t; c_t] + b_c)`` with the context ``c_t = (h_0 + h_1 + .. + h_t) / (t + 1)``.

    The memory begins with the zero vector ``h_0``, which counts, and the current state is stored before averaging: at position t it holds
    t + 1 vectors. The weights (B, T, T) are 1 / (t + 1) up to the current position; the share of ``h_0`` is what is missing to 1.
    """

    def __init__(self, state_size: int) -> None:
        super().__init__()
        self.feature_size = state_size
        self.merge = nn.Linear(2 * state_size, state_size)  # W_c, b_c

    @classmethod
    def from_config(cls, state_size: int, config: Mapping[str, Any]) -> AveragingReader:
        return cls(state_size)

    def features(self, states: Tensor, contexts: Tensor) -> Tensor:
        """States and contexts (.., H) -> features (.., H)."""
        return torch.tanh(self.merge(torch.cat((states, contexts), dim=-1)))

    def forward(self, states: Tensor, need_weights: bool = False, memory: Memory | None = None) -> tuple[Tensor, Tensor | None]:
        """States (B, T, H) -> features (B, T, H) and, on request, weights (B, T, T), after the share of the memory if given."""
        total, count = self.empty_memory(states[:, 0]) if memory is None else memory
        counts = (count + torch.arange(1, states.size(1) + 1, device=states.device)).unsqueeze(2)  # (B, T, 1): t + 1
        features = self.features(states, (total.unsqueeze(1) + states.cumsum(dim=1)) / counts)
        if not need_weights:
            return features, None
        weights = (1 / counts).expand(-1, -1, states.size(1)).tril()
        return features, weights if memory is None else torch.cat((count.unsqueeze(1) / counts, weights), dim=2)

    def empty_memory(self, state: Tensor) -> Memory:
        """The sum of the states and how many vectors it is of: ``h_0`` alone."""
        return torch.zeros_like(state), state.new_ones(state.size(0), 1)

    def advance(self, states: Tensor, memory: Memory) -> Memory:
        total, count = memory
        return total + states.sum(dim=1), count + states.size(1)
