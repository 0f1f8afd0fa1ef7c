"""What torch's recurrent layers have in common."""

from __future__ import annotations

import torch
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


def lstm_layer(
    inputs: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One layer of an LSTM by torch's fused call, with weights that are computed, such as dropped ones.

    Inputs (B, T, E) and the state before, (B, H) each -> outputs (B, T, H), ``h`` and ``c`` after them.
    """
    weights = [weight, recurrent, bias, torch.zeros_like(bias)]
    state = (hidden.unsqueeze(0).contiguous(), cell.unsqueeze(0).contiguous())
    outputs, hidden, cell = torch._VF.lstm(inputs, state, weights, True, 1, 0.0, True, False, True)
    return outputs, hidden[0], cell[0]


def rnn_layer(inputs: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """One layer of a plain RNN by torch's fused call: inputs (B, T, E), the state (B, H) -> outputs (B, T, H), the state after them."""
    weights = [weight, recurrent, bias, torch.zeros_like(bias)]
    outputs, hidden = torch._VF.rnn_tanh(inputs, hidden.unsqueeze(0).contiguous(), weights, True, 1, 0.0, True, False, True)
    return outputs, hidden[0]


def rnn_layer_by_steps(inputs: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """As ``rnn_layer`` under autocast: a float32 state between products in lower precision, which torch's own would round."""
    outputs = []
    for step in (nn.functional.linear(inputs, weight).to(bias.dtype) + bias).unbind(1):
        hidden = torch.tanh(step + nn.functional.linear(hidden, recurrent))
        outputs.append(hidden)
    return torch.stack(outputs, dim=1), hidden
