"""Attention over a short window with separate keys, values and predictions: Daniluk et al. (2017), "Frustratingly Short Attention Spans".

Shapes: B sentences in the batch, T positions, H size of an LSTM state, D of one of its parts, L length of the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.memory.reader import Memory

PARTS = {"attention": 1, "key-value": 2, "key-value-predict": 3}


class KeyValuePredictReader(nn.Module):
    r"""Features ``h* = tanh(W_r r + W_x x_t)`` of size D = H / parts, ``r`` read from the L outputs before the current one.

    ``M = tanh(W_Y [k_{t-L} .. k_{t-1}] + W_h k_t)``, ``alpha = softmax(w . M)``, ``r = sum alpha v``, where an output is

    - ``attention``: key, value and prediction all at once, ``k = v = x = h``;
    - ``key-value``: ``h = [k; v]`` and ``x = v``;
    - ``key-value-predict``: ``h = [k; v; p]`` and ``x = p``.

    Near the start there are fewer than L; at the first position none, and r is zero. No biases.
    Column i of the weights (B, T, T) is position i; they are zero outside the window.
    """

    def __init__(self, state_size: int, mode: str = "key-value-predict", window: int = 5) -> None:
        super().__init__()
        if mode not in PARTS:
            raise ValueError(f"mode {mode!r} is not one of: {', '.join(PARTS)}")
        if state_size % PARTS[mode]:
            raise ValueError(f"the state size {state_size} is not divisible into the {PARTS[mode]} parts of {mode}")
        if window < 1:
            raise ValueError(f"the window must hold at least 1 output, not {window}")
        self.mode = mode
        self.window = window
        self.feature_size = size = state_size // PARTS[mode]
        self.memory_keys = nn.Linear(size, size, bias=False)  # W_Y
        self.current_key = nn.Linear(size, size, bias=False)  # W_h
        self.score_vector = nn.Parameter(torch.empty(size).uniform_(-0.1, 0.1))  # w
        self.read_value = nn.Linear(size, size, bias=False)  # W_r
        self.current_prediction = nn.Linear(size, size, bias=False)  # W_x

    @classmethod
    def from_config(cls, state_size: int, config: Mapping[str, Any]) -> KeyValuePredictReader:
        return cls(state_size, str(config["kvp_mode"]), config["attention_window"])

    def parts(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """States (.., H) -> keys, values and predictions (.., D)."""
        pieces = states.chunk(PARTS[self.mode], dim=-1)
        return pieces[0], pieces[min(1, len(pieces) - 1)], pieces[-1]

    def features(self, scores: Tensor, present: Tensor, values: Tensor, predictions: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and which slots there are (.., L), their values (.., L, D), predictions (.., D) -> features (.., D), weights (.., L)."""
        weights = torch.softmax(scores.masked_fill(~present, -torch.inf), dim=-1)
        weights = weights.masked_fill(~present, 0.0)  # where there is nothing to read, softmax gives nan
        read = (weights.unsqueeze(-2) @ values).squeeze(-2)
        return torch.tanh(self.read_value(read) + self.current_prediction(predictions)), weights

    def forward(self, states: Tensor, need_weights: bool = False) -> tuple[Tensor, Tensor | None]:
        """States (B, T, H) -> features (B, T, D) and, on request, weights (B, T, T)."""
        length, window = states.size(1), min(self.window, max(1, states.size(1) - 1))
        keys, values, predictions = self.parts(states)
        slots = torch.arange(length, device=states.device).unsqueeze(1) - window + torch.arange(window, device=states.device)  # (T, L)
        present = slots >= 0
        memory_keys = windows(self.memory_keys(keys), window)
        scores = torch.tanh(memory_keys + self.current_key(keys).unsqueeze(2)) @ self.score_vector  # (B, T, L)
        features, weights = self.features(scores, present, windows(values, window), predictions)
        if not need_weights:
            return features, None
        full = weights.new_zeros(states.size(0), length, length)
        return features, full.scatter_add(2, slots.clamp(min=0).expand_as(weights), weights)

    def empty_memory(self, state: Tensor) -> Memory:
        """The keys and values of the last outputs, at most L: (B, M, D) each."""
        empty = state.new_zeros(state.size(0), 0, self.feature_size)
        return empty, empty

    def step(self, state: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        keys, values = memory
        key, value, prediction = self.parts(state)
        scores = torch.tanh(self.memory_keys(keys) + self.current_key(key).unsqueeze(1)) @ self.score_vector  # (B, M)
        features, _ = self.features(scores, torch.ones_like(scores, dtype=torch.bool), values, prediction)
        return features, (
            torch.cat((keys, key.unsqueeze(1)), dim=1)[:, -self.window :],
            torch.cat((values, value.unsqueeze(1)), dim=1)[:, -self.window :],
        )


def windows(sequence: Tensor, window: int) -> Tensor:
    """(B, T, D) -> (B, T, L, D): for each position the ``window`` before it, oldest first, zeros before the beginning."""
    return nn.functional.pad(sequence, (0, 0, window, 0))[:, :-1].unfold(1, window, 1).transpose(2, 3)
