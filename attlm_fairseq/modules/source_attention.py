"""Attention over the states of a source sentence. Merged into a language model's features, it makes a translation model.

Shapes: B sentences, T target positions, S source positions, F features, D size of a source state.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.attention import masked_softmax


class SourceAttention(nn.Module):
    """``a_s = softmax_s(q_s . W_a f)``, ``c = sum_s a_s q_s``, ``f' = tanh(W_c [f; c] + b_c)`` over source states ``q``.

    This is the "general" score of Luong, Pham and Manning (2015), with the features ``f`` of a memory reader in place of
    their ``h_t``. The features combine ``h_t`` with its context, so the prediction depends on state, memory and source.
    """

    def __init__(self, feature_size: int, source_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(feature_size, source_size, bias=False)  # W_a
        self.merge = nn.Linear(feature_size + source_size, feature_size)  # W_c

    def forward(self, features: Tensor, source: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """Attend to the source and merge the result into the features.

        Args:
            features: (B, T, F).
            source: states of the source words, (B, S, D).
            present: (B, S) bool, False for padding.

        Returns:
            Features (B, T, F) and the attention weights (B, T, S).
        """
        scores = self.query(features) @ source.transpose(1, 2)
        weights = masked_softmax(scores, present.unsqueeze(1))
        return torch.tanh(self.merge(torch.cat((features, weights @ source), dim=2))), weights
