"""Dropout with random numbers that are much cheaper on a CPU than torch's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attlm_fairseq.numeric import ceil_div

BITS = 16  # bits per random number, so probabilities are multiples of 2^-16


def dropout(values: Tensor, probability: float, training: bool) -> Tensor:
    """Set each value to 0 with this probability, or divide it by 1 - ``probability``, as ``torch.nn.functional.dropout`` does.

    On a CPU the probability is rounded to a multiple of 2^-16.

    Raises:
        ValueError: the probability is outside [0, 1].
    """
    if not training or not 0 < probability < 1 or values.device.type != "cpu":
        return nn.functional.dropout(values, probability, training)
    return _Dropout.apply(values, probability)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, probability: float) -> Tensor:
        # torch draws one random number per value, sequentially. 64 random bits are enough for four values.
        bits = torch.empty(ceil_div(values.numel(), 4), dtype=torch.int64).random_(-(1 << 63), None)
        numbers = bits.view(torch.int16)[: values.numel()].view(values.shape)
        of_all = 1 << BITS
        dropped = min(round(probability * of_all), of_all - 1)
        factors = torch.empty(values.shape, dtype=values.dtype)
        torch.ge(numbers, dropped - of_all // 2, out=factors).mul_(of_all / (of_all - dropped))
        ctx.save_for_backward(factors)
        return values * factors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        [factors] = ctx.saved_tensors
        return grad * factors, None
