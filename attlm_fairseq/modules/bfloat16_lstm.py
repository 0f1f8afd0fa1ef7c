"""An LSTM whose matrix products run in bfloat16 while its state, gates and gradients of weights stay in float32.

Shapes: B sentences in the batch, T positions, E inputs, H size of a state; gates in torch's order: input, forget, cell, output.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def bfloat16_lstm(lstm: nn.LSTM, inputs: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """As ``lstm(inputs, state)`` for inputs (B, T, E) and states (L, B, H), with products in bfloat16.

    torch's own LSTM under autocast rounds the state to bfloat16 after every step, which a long sentence adds up; here ``h`` and ``c``
    are float32 throughout and only what enters a product is rounded.
    """
    hidden, cell = [], []
    for layer in range(lstm.num_layers):
        weights = [getattr(lstm, f"{name}_l{layer}") for name in ("weight_ih", "weight_hh", "bias_ih")]
        inputs, last = _Layer.apply(inputs, *weights, state[0][layer], state[1][layer])
        hidden.append(inputs[:, -1])
        cell.append(last)
        if layer + 1 < lstm.num_layers:
            inputs = nn.functional.dropout(inputs, lstm.dropout, lstm.training)
    return inputs, (torch.stack(hidden), torch.stack(cell))


def product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right`` of bfloat16 factors, in float32."""
    return (left @ right).float()


class _Layer(torch.autograd.Function):
    """One layer over all positions. The gradients of the weights are one product over all positions, not a sum of small ones."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(inputs.device.type, enabled=False):
            low = [part.to(torch.bfloat16) for part in (inputs, weight_ih, weight_hh)]
            gates = (product(low[0], low[1].t()) + bias).transpose(0, 1).contiguous()  # (T, B, 4 H)
            recurrent = low[2].t().contiguous()
            states = [hidden.float()]
            cells = [cell.float()]
            for step in gates:
                step += product(states[-1].to(torch.bfloat16), recurrent)
                i, f, g, o = step.chunk(4, dim=1)
                i.sigmoid_(), f.sigmoid_(), g.tanh_(), o.sigmoid_()
                cells.append(f * cells[-1] + i * g)
                states.append(o * torch.tanh(cells[-1]))
            states, cells = torch.stack(states), torch.stack(cells)  # (T + 1, B, H)
        ctx.save_for_backward(*low, gates, states, cells)
        return states[1:].transpose(0, 1), cells[-1]

    @staticmethod
    def backward(ctx: Any, grad_outputs: Tensor, grad_cell: Tensor) -> tuple[Tensor, ...]:
        inputs, weight_ih, weight_hh, gates, states, cells = ctx.saved_tensors
        with torch.autocast(inputs.device.type, enabled=False):
            grad_outputs = grad_outputs.float().transpose(0, 1)
            grad_hidden, grad_cell = torch.zeros_like(states[0]), grad_cell.float()
            grad_gates = torch.empty_like(gates)
            for t in range(len(gates) - 1, -1, -1):
                i, f, g, o = gates[t].chunk(4, dim=1)
                squashed = torch.tanh(cells[t + 1])
                grad_hidden = grad_hidden + grad_outputs[t]
                grad_cell = grad_cell + grad_hidden * o * (1 - squashed * squashed)
                torch.cat(
                    (
                        grad_cell * g * i * (1 - i),
                        grad_cell * cells[t] * f * (1 - f),
                        grad_cell * i * (1 - g * g),
                        grad_hidden * squashed * o * (1 - o),
                    ),
                    dim=1,
                    out=grad_gates[t],
                )
                grad_cell = grad_cell * f
                grad_hidden = product(grad_gates[t].to(torch.bfloat16), weight_hh)
            flat = grad_gates.flatten(0, 1)  # (T B, 4 H)
            low = flat.to(torch.bfloat16)
            grad_inputs = product(low, weight_ih).unflatten(0, gates.shape[:2]).transpose(0, 1)
            grad_ih = product(low.t(), inputs.transpose(0, 1).flatten(0, 1))
            grad_hh = product(low.t(), states[:-1].flatten(0, 1).to(torch.bfloat16))
        return grad_inputs, grad_ih, grad_hh, flat.sum(0), grad_hidden, grad_cell
