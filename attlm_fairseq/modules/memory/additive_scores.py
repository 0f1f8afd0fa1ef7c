"""Additive attention scores of all pairs of positions, computed without storing a vector per pair.

Shapes: B sentences in the batch, T queries, K keys, H size of both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attlm_fairseq.modules.kernels.limits import limits_of


def additive_scores(keys: Tensor, queries: Tensor, vector: Tensor, before: int = 0) -> Tensor:
    """Return ``vector . tanh(keys_k + queries_t)`` (B, T, K) for keys (B, K, H), queries (B, T, H) and a vector (H,).

    Query t sees keys up to ``before + t`` only. Most other scores are not computed and stay 0; the caller must mask them.
    The vectors of the pairs (B, T, K, H) are computed in pieces that fit the cache. Backward computes them again instead of
    storing them. Under autocast the scores are computed in float32.
    """
    dtype = torch.promote_types(vector.dtype, torch.float32)
    with torch.autocast(keys.device.type, enabled=False):
        return _AdditiveScores.apply(keys.to(dtype), queries.to(dtype), vector.to(dtype), before)


def pieces(keys: Tensor, queries: Tensor, before: int) -> list[tuple[slice, slice, slice]]:
    """Return the slices of sentences, queries and keys that are computed together."""
    limits = limits_of(keys.device)
    cut = []
    for first in range(0, queries.size(1), limits.queries):
        last = min(first + limits.queries, queries.size(1))
        visible = min(before + last, keys.size(1))
        if not visible:
            continue
        rows = max(1, limits.pairs // ((last - first) * visible * keys.size(2)))
        cut += [(slice(row, row + rows), slice(first, last), slice(0, visible)) for row in range(0, len(keys), rows)]
    return cut


class _AdditiveScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Tensor, queries: Tensor, vector: Tensor, before: int) -> Tensor:
        """Compute the scores from tanh(x) = 2 s - 1 with s = sigmoid(2 x): on a CPU tanh takes up to seven times as long."""
        keys, queries, twice, one = 2 * keys, 2 * queries, 2 * vector, vector.sum()
        ctx.save_for_backward(keys, queries, vector)
        ctx.before = before
        scores = keys.new_zeros(len(keys), queries.size(1), keys.size(1))
        for row, query, key in pieces(keys, queries, before):
            squashed = (keys[row, None, key] + queries[row, query, None]).sigmoid_()  # (rows, queries, keys, H)
            scores[row, query, key] = squashed @ twice - one
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients. With g the gradient of a score: dv = sum g (2 s - 1), dk = dq = 4 v * sum g (s - s^2)."""
        keys, queries, vector = ctx.saved_tensors
        grad_keys, grad_queries, grad_vector = torch.zeros_like(keys), torch.zeros_like(queries), torch.zeros_like(vector)
        for row, query, key in pieces(keys, queries, ctx.before):
            weight = grad[row, query, key]
            squashed = (keys[row, None, key] + queries[row, query, None]).sigmoid_()
            grad_vector += 2 * (weight.flatten() @ squashed.flatten(0, 2)) - weight.sum()
            slopes = squashed.addcmul_(squashed, squashed, value=-1).mul_(weight.unsqueeze(3))
            grad_queries[row, query] += slopes.sum(2)
            grad_keys[row, key] += slopes.sum(1)
        return grad_keys.mul_(4 * vector), grad_queries.mul_(4 * vector), grad_vector, None
