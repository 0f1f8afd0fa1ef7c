"""An LSTM with matrix products in bfloat16. Its state, gates and bias gradients stay in float32.

Shapes: B sentences in the batch, T positions, E inputs, H hidden size; gates in torch's order: input, forget, cell, output.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attlm_fairseq.modules.kernels.low_precision import rounded
from attlm_fairseq.modules.kernels.lstm_cell import lstm_cell

DTYPE = torch.bfloat16


def bfloat16_lstm_layer(
    inputs: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute one layer as ``attlm_fairseq.modules.recurrence.torch_layers.lstm_layer`` does, with products in bfloat16.

    torch's own LSTM under autocast rounds the state to bfloat16 after every step, and these errors add up over a sentence.
    Here ``h`` and ``c`` stay in float32; only the factors and results of products are rounded.
    """
    outputs, last = _Layer.apply(inputs, weight, recurrent, bias, hidden, cell)
    return outputs, outputs[:, -1], last


class _Layer(torch.autograd.Function):
    """Computes one layer over all positions.

    Each time step does only the recurrent work, in preallocated buffers. Input projections run before the loop for all positions; in
    backward, gate derivatives run before it and weight gradients after it.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, Tensor]:
        size = hidden.size(1)
        with torch.autocast(inputs.device.type, enabled=False):
            low_inputs = rounded(inputs.transpose(0, 1), DTYPE)
            low_ih, low_hh = (rounded(weight, DTYPE, rows=True) for weight in (weight_ih, weight_hh))
            gates = (low_inputs.flatten(0, 1) @ low_ih.t())[:, : 4 * size].float().add_(bias).unflatten(0, low_inputs.shape[:2])
            low_states = low_inputs.new_empty(len(gates) + 1, len(hidden), low_hh.size(1))  # H rounded up
            low_states[:, :, size:] = 0
            states, cells = gates.new_empty(len(gates), *hidden.shape), gates.new_empty(len(gates) + 1, *hidden.shape)
            low_states[0, :, :size] = hidden
            cells[0] = cell
            product = low_states.new_empty(len(hidden), len(low_hh))
            for t, step in enumerate(gates):
                step += torch.mm(low_states[t], low_hh.t(), out=product)[:, : 4 * size]
                lstm_cell(step, cells[t], cells[t + 1], states[t])
                low_states[t + 1, :, :size] = states[t]
        ctx.save_for_backward(low_inputs, low_ih, low_hh, gates, low_states, cells)
        ctx.input_size = inputs.size(2)
        return states.transpose(0, 1), cells[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor, grad_cell: Tensor) -> tuple[Tensor, ...]:
        low_inputs, low_ih, low_hh, gates, low_states, cells = ctx.saved_tensors
        size = cells.size(2)
        with torch.autocast(low_inputs.device.type, enabled=False):
            grad_outputs, grad_cell = grad_outputs.float().transpose(0, 1), grad_cell.float().clone()
            i, f, g, o = gates.chunk(4, dim=2)
            squashed = torch.tanh(cells[1:])
            into_cell = o * (1 - squashed * squashed)  # d c_t / d h_t: the factor from a state's gradient to its cell's gradient
            # factors from a cell's gradient to the pre-activations of i, f and g, and from a state's gradient to that of o
            slopes = torch.cat((g * i * (1 - i), cells[:-1] * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o)), dim=2)
            low_slopes = low_inputs.new_empty(*gates.shape[:2], len(low_hh))
            low_slopes[:, :, 4 * size :] = 0
            product = torch.zeros_like(low_states[0])
            for t in range(len(gates) - 1, -1, -1):
                grad_hidden = grad_outputs[t] + product[:, :size]
                grad_cell.addcmul_(grad_hidden, into_cell[t])
                of_cell, of_state = slopes[t].unflatten(1, (4, size)).split((3, 1), dim=1)
                of_cell *= grad_cell.unsqueeze(1)
                of_state *= grad_hidden.unsqueeze(1)
                low_slopes[t, :, : 4 * size] = slopes[t]
                grad_cell *= f[t]
                torch.mm(low_slopes[t], low_hh, out=product)
            low_slopes = low_slopes.flatten(0, 1)  # (T B, 4 H rounded up)
            grad_inputs = (low_slopes @ low_ih)[:, : ctx.input_size].float().unflatten(0, gates.shape[:2]).transpose(0, 1)
            grad_ih = (low_slopes.t() @ low_inputs.flatten(0, 1))[: 4 * size, : ctx.input_size].float()
            grad_hh = (low_slopes.t() @ low_states[:-1].flatten(0, 1))[: 4 * size, :size].float()
        return grad_inputs, grad_ih, grad_hh, slopes.sum((0, 1)), product[:, :size].float(), grad_cell
