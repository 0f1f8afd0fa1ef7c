"""Attention over the earlier states of the sentence: Salton, Ross and Kelleher (2017), "Attentive Language Models".

Shapes: B sentences in the batch, T positions, H size of an LSTM state, M memory slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.memory.reader import Memory

QUERY_BLOCK = 32  # positions whose pairwise `combined` scores are held at once: bounds memory at B * QUERY_BLOCK * T * H


class AttentiveReader(nn.Module):
    r"""Features ``h'_t = tanh(W_c [h_t; c_t] + b_c)`` (Eq. 7) with the context ``c_t = sum_{i<t} a_i h_i`` (Eq. 3).

    ``a = softmax_i score(h_i, h_t)`` (Eq. 4) with

    - ``single``: ``v_s . tanh(W_s h_i)`` (Eq. 9): a state's score never changes, so running sums are all the memory there is;
    - ``combined``: ``v_s . tanh(W_s h_i + W_q h_t)`` (Eq. 10).

    The current state is stored only after its prediction; at the first position the memory is empty and ``c_1 = 0``.
    Position t of the weights (B, T, T) holds ``a_i`` for i < t and zeros from t on.
    """

    def __init__(self, state_size: int, score: str = "single") -> None:
        super().__init__()
        if score not in ("single", "combined"):
            raise ValueError(f"attention score {score!r} is not one of: single, combined")
        self.score = score
        self.feature_size = state_size
        self.state_scores = nn.Linear(state_size, state_size, bias=False)  # W_s
        self.query = nn.Linear(state_size, state_size, bias=False) if score == "combined" else None  # W_q
        self.score_vector = nn.Parameter(torch.empty(state_size).uniform_(-0.05, 0.05))  # v_s
        self.merge = nn.Linear(2 * state_size, state_size)  # W_c, b_c

    @classmethod
    def from_config(cls, state_size: int, config: Mapping[str, Any]) -> AttentiveReader:
        return cls(state_size, score=config["attention_score"])

    def features(self, states: Tensor, contexts: Tensor) -> Tensor:
        """``h'`` of Eq. 7 for states and contexts (.., H)."""
        return torch.tanh(self.merge(torch.cat((states, contexts), dim=-1)))

    def forward(self, states: Tensor, need_weights: bool = False) -> tuple[Tensor, Tensor | None]:
        """States (B, T, H) -> features (B, T, H) and, on request, weights (B, T, T)."""
        keys = self.state_scores(states[:, :-1])  # positions 2 .. T attend to 1 .. T-1: both T-1 long, lower triangle included
        if self.query is None:
            scores = (torch.tanh(keys) @ self.score_vector).unsqueeze(1)  # (B, 1, T-1): the same for every query
        else:
            scores = self._combined_scores(keys, self.query(states[:, 1:]))  # (B, T-1, T-1)
        later = torch.ones(keys.size(1), keys.size(1), dtype=torch.bool, device=states.device).triu(1)
        weights = torch.softmax(scores.masked_fill(later, -torch.inf), dim=-1)
        contexts = nn.functional.pad(weights @ states[:, :-1], (0, 0, 1, 0))  # c_1 = 0
        features = self.features(states, contexts)
        return features, nn.functional.pad(weights, (0, 1, 1, 0)) if need_weights else None

    def _combined_scores(self, keys: Tensor, queries: Tensor) -> Tensor:
        """Eq. 10 for all pairs: keys and queries (B, T-1, H) -> scores (B, T-1, T-1); what the mask hides is left at 0."""
        rows = []
        for begin in range(0, queries.size(1), QUERY_BLOCK):
            block = queries[:, begin : begin + QUERY_BLOCK]
            visible = keys[:, : begin + block.size(1)]  # no query of the block sees further
            pairs = torch.tanh(visible.unsqueeze(1) + block.unsqueeze(2))  # (B, block, visible, H)
            rows.append(nn.functional.pad(pairs @ self.score_vector, (0, keys.size(1) - visible.size(1))))
        return torch.cat(rows, dim=1) if rows else keys.new_zeros(keys.size(0), 0, 0)

    def empty_memory(self, state: Tensor) -> Memory:
        if self.query is None:
            # the largest score so far, the sum of exp(score - largest) and the states' sum under those weights
            return state.new_full((state.size(0), 1), -torch.inf), state.new_zeros(state.size(0), 1), torch.zeros_like(state)
        empty = state.new_zeros(state.size(0), 0, state.size(1))
        return empty, empty  # the states (B, M, H) and W_s applied to them

    def step(self, state: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        key = self.state_scores(state)
        if self.query is None:
            largest, norm, total = memory
            features = self.features(state, torch.where(norm > 0, total / norm, 0.0))
            score = (torch.tanh(key) @ self.score_vector).unsqueeze(1)
            new_largest = torch.maximum(largest, score)
            kept, added = torch.exp(largest - new_largest), torch.exp(score - new_largest)
            return features, (new_largest, norm * kept + added, total * kept + added * state)
        states, keys = memory
        scores = torch.tanh(keys + self.query(state).unsqueeze(1)) @ self.score_vector  # (B, M)
        context = (torch.softmax(scores, dim=-1).unsqueeze(1) @ states).squeeze(1)  # M = 0 gives zeros
        return self.features(state, context), (
            torch.cat((states, state.unsqueeze(1)), dim=1),
            torch.cat((keys, key.unsqueeze(1)), dim=1),
        )
