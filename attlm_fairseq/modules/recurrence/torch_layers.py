"""Helpers for torch's recurrent layers, which ``LSTM`` and ``RNN`` share."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def keep_one_bias(layers: nn.RNNBase) -> None:
    """Fix torch's second bias at 0. Only the sum of its two biases matters, and the papers have one bias."""
    for name, parameter in layers.named_parameters():
        if name.startswith("bias_hh"):
            nn.init.zeros_(parameter).requires_grad_(False)


def weights_of(layers: nn.RNNBase, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the input matrix, the recurrent matrix and the bias of a layer."""
    weight, recurrent, bias, other = (getattr(layers, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    return weight, recurrent, bias + other


def lstm_layer(
    inputs: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute one LSTM layer by torch's fused call, with weights that need not be parameters (such as weights with dropout).

    Args:
        inputs: (B, T, E).
        weight: the input matrix (4 H, E).
        recurrent: the recurrent matrix (4 H, H).
        bias: (4 H,).
        hidden: ``h`` before the first position, (B, H).
        cell: ``c`` before the first position, (B, H).

    Returns:
        Outputs (B, T, H), and ``h`` and ``c`` after the last position.
    """
    weights = [weight, recurrent, bias, torch.zeros_like(bias)]
    state = (hidden.unsqueeze(0).contiguous(), cell.unsqueeze(0).contiguous())
    outputs, hidden, cell = torch._VF.lstm(inputs, state, weights, True, 1, 0.0, True, False, True)
    return outputs, hidden[0], cell[0]


def rnn_layer(inputs: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Compute one layer of a plain RNN by torch's fused call.

    Args:
        inputs: (B, T, E).
        weight: the input matrix (H, E).
        recurrent: the recurrent matrix (H, H).
        bias: (H,).
        hidden: the state before the first position, (B, H).

    Returns:
        Outputs (B, T, H), and the state after the last position.
    """
    weights = [weight, recurrent, bias, torch.zeros_like(bias)]
    outputs, hidden = torch._VF.rnn_tanh(inputs, hidden.unsqueeze(0).contiguous(), weights, True, 1, 0.0, True, False, True)
    return outputs, hidden[0]


def rnn_layer_by_steps(inputs: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``rnn_layer`` under autocast, keeping the state in float32. torch's fused call would round the state."""
    outputs = []
    for step in (nn.functional.linear(inputs, weight).to(bias.dtype) + bias).unbind(1):
        hidden = torch.tanh(step + nn.functional.linear(hidden, recurrent))
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), hidden
