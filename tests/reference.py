"""The papers' equations as plain loops over sentences, positions and memory slots: slow, obvious, and independent of the package.

Each function takes the weights by the names of the paper and returns log-probabilities; gradients come from autograd through the
loops. Nothing here is imported from attlm_fairseq.
"""

from __future__ import annotations

import torch
from torch import Tensor


def lstm_states(tokens: list[int], embedding: Tensor, layers: list[dict[str, Tensor]]) -> list[Tensor]:
    """Top-layer outputs ``h_1 .. h_T`` of an LSTM with one bias a gate (input, forget, cell, output), from zero states."""
    sequence = [embedding[token] for token in tokens]
    for layer in layers:
        hidden = cell = torch.zeros(layer["W_h"].shape[1], dtype=embedding.dtype)
        outputs = []
        for x in sequence:
            gates = layer["W_x"] @ x + layer["W_h"] @ hidden + layer["b"]
            i, f, g, o = gates.chunk(4)
            cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            outputs.append(hidden)
        sequence = outputs
    return sequence


def softmax(scores: list[Tensor]) -> list[Tensor]:
    exponentials = [torch.exp(score) for score in scores]
    total = sum(exponentials)
    return [value / total for value in exponentials]


def attentive_features(
    h: list[Tensor], W_s: Tensor, v_s: Tensor, W_c: Tensor, b_c: Tensor, W_q: Tensor | None = None
) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Salton et al. (2017), Eq. 3-7, 9 (``W_q`` None: single) and 10 (combined): ``h'_t`` and the weights ``a_1 .. a_{t-1}`` for each t."""
    features, weights = [], []
    for t in range(len(h)):
        memory = h[:t]
        context = torch.zeros_like(h[t])
        a = []
        if memory:
            scores = []
            for h_i in memory:
                inner = W_s @ h_i
                if W_q is not None:
                    inner = inner + W_q @ h[t]
                scores.append(sum(v * x for v, x in zip(v_s, torch.tanh(inner), strict=True)))
            a = softmax(scores)
            for a_i, h_i in zip(a, memory, strict=True):
                context = context + a_i * h_i
        features.append(torch.tanh(W_c @ torch.cat([h[t], context]) + b_c))
        weights.append(a)
    return features, weights


def next_token_log_probs(features: list[Tensor], W: Tensor, b: Tensor) -> Tensor:
    """Eq. 8: (T, V) natural-log probabilities of the token after each position."""
    return torch.stack([torch.log_softmax(W @ feature + b, dim=0) for feature in features])
