"""The update of fairseq's Adam on a CPU by torch's fused kernel: one pass over weights, gradients and averages instead of nine."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from fairseq.optim.adam import Adam, FairseqAdam
from torch.optim.adamw import adamw


def has_fused_update(optimizer: Any) -> bool:
    """Return whether an optimizer of fairseq is its Adam, for contiguous float32 weights on a CPU."""
    if type(optimizer) is not FairseqAdam or type(optimizer.optimizer) is not Adam:
        return False
    groups = optimizer.optimizer.param_groups
    return not any(group["amsgrad"] for group in groups) and all(
        weight.dtype == torch.float32 and weight.device.type == "cpu" and weight.is_contiguous()
        for group in groups
        for weight in group["params"]
    )


@torch.no_grad()
def fused_update(adam: Adam) -> None:
    """Update the weights as ``adam.step()`` does, except for rounding. The state is the same, so either can go on from it."""
    for group in adam.param_groups:
        by_step = defaultdict(list)  # a weight that had no gradient at some time has fewer steps than others
        for weight in group["params"]:
            if weight.grad is None:
                continue
            state = adam.state[weight]
            if not state:
                state.update(step=0, exp_avg=torch.zeros_like(weight), exp_avg_sq=torch.zeros_like(weight))
            state["step"] += 1
            by_step[state["step"]].append(weight)
        beta1, beta2 = group["betas"]
        for step, weights in by_step.items():
            adamw(
                weights,
                [weight.grad.contiguous() for weight in weights],
                [adam.state[weight]["exp_avg"] for weight in weights],
                [adam.state[weight]["exp_avg_sq"] for weight in weights],
                [],
                [torch.tensor(step - 1.0, dtype=torch.float32) for _ in weights],
                fused=True,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"] / math.sqrt(1 - beta2**step),  # fairseq adds epsilon before it corrects the average of the squares
                maximize=False,
            )
