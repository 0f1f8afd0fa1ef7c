"""What torch's recurrent layers have in common."""

from __future__ import annotations

from torch import Tensor, nn


def keep_one_bias(layers: nn.RNNBase) -> None:
    """Fix the second of torch's two biases at 0: they only ever act as their sum, and the papers have one."""
    for name, parameter in layers.named_parameters():
        if name.startswith("bias_hh"):
            nn.init.zeros_(parameter).requires_grad_(False)


def weights_of(layers: nn.RNNBase, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the input matrix, the recurrent matrix and the bias of a layer."""
    weight, recurrent, bias, other = (getattr(layers, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    return weight, recurrent, bias + other
