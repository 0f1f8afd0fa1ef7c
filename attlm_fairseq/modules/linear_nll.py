"""The loss of a full-softmax output layer in pieces that stay in the cache, its gradients computed along the way.

Shapes: N predictions, F features, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LOGITS = {"cpu": 2_097_152, "cuda": 67_108_864}  # logits held at once: what a processor's cache holds; what fills a GPU


def linear_nll(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """``- sum_n ln softmax(weight features_n + bias)[targets_n]``, a float32 scalar, for features (N, F) and targets (N,).

    The same as cross entropy on the logits, without ever holding (N, V) of them: for V = 10,000 and N = 1,120 these
    are four arrays of 43 MiB. Under autocast the matrix products run in its dtype; the softmax, the sum and the gradients of
    weight and bias are float32.
    """
    device = features.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else features.dtype
    return _LinearNLL.apply(features, weight, bias, targets, dtype)


class _LinearNLL(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        exact = torch.promote_types(weight.dtype, torch.float32)
        rows = max(1, LOGITS["cpu" if features.device.type == "cpu" else "cuda"] // len(weight))
        differentiate = any(ctx.needs_input_grad[:3])
        with torch.autocast(features.device.type, enabled=False):
            inputs, matrix, offsets = features.to(dtype), weight.to(dtype), bias.to(exact)
            held = torch.empty(min(rows, len(features)), len(weight), dtype=exact, device=features.device)
            total = torch.zeros((), dtype=torch.float64, device=features.device)
            if differentiate:
                grad_features = torch.empty_like(features)
                grad_weight = torch.zeros(weight.shape[::-1], dtype=exact, device=weight.device).t()  # so laid out, a product adds faster
                grad_bias = torch.zeros_like(offsets)
            for begin in range(0, len(features), rows):
                piece, target = inputs[begin : begin + rows], targets[begin : begin + rows].unsqueeze(1)
                logits = held[: len(piece)]
                if dtype == exact:
                    torch.addmm(offsets, piece, matrix.t(), out=logits)
                else:
                    torch.add(piece @ matrix.t(), offsets, out=logits)
                reached = logits.gather(1, target)
                top = logits.amax(1, keepdim=True)
                sums = logits.sub_(top).exp_().sum(1, keepdim=True)
                total += (top + sums.log() - reached).sum(dtype=torch.float64)
                if differentiate:
                    errors = logits.mul_(sums.reciprocal_())  # the softmax
                    errors.scatter_add_(1, target, errors.new_full(target.shape, -1.0))  # less the one-hot targets
                    grad_bias += errors.sum(0)
                    errors = errors.to(dtype)
                    grad_features[begin : begin + rows] = errors @ matrix
                    if dtype == exact:
                        grad_weight.addmm_(errors.t(), piece)
                    else:
                        grad_weight += errors.t() @ piece
        if differentiate:
            ctx.save_for_backward(grad_features, grad_weight.to(weight.dtype).contiguous(), grad_bias.to(bias.dtype))
        return total.to(exact)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        needed = ctx.needs_input_grad[:3]
        return *(saved * grad.to(saved.dtype) if use else None for saved, use in zip(ctx.saved_tensors, needed, strict=True)), None, None
