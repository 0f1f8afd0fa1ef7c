"""The element-wise part of an LSTM step, which training, decoding and scoring share.

Shapes: N rows, H hidden size; gates in torch's order: i (input), f (forget), g (cell), o (output).
"""

from __future__ import annotations

import torch
from torch import Tensor


def lstm_cell(
    gates: Tensor, before: Tensor, after: Tensor | None = None, output: Tensor | None = None, *, capped: bool = False
) -> tuple[Tensor, Tensor]:
    """Return ``h = o * tanh(c)`` and ``c = f * c_before + i * g``, all (N, H), for pre-activations (N, 4 H).

    The pre-activations in ``gates`` are overwritten by their activations. If given, ``after`` receives c and ``output``
    receives h, without gradients. ``after`` may be ``before`` itself. ``capped``: the input gate is ``min(i, 1 - f)``.
    """
    size = before.size(1)
    gates[:, : 2 * size].sigmoid_()
    gates[:, 2 * size : 3 * size].tanh_()
    gates[:, 3 * size :].sigmoid_()
    i, f, g, o = gates.chunk(4, dim=1)
    after = torch.mul(f, before, out=after).addcmul_(torch.minimum(i, 1 - f) if capped else i, g)
    return torch.mul(o, torch.tanh(after, out=output), out=output), after


def lstm_cell_with_gradients(gates: Tensor, before: Tensor, capped: bool = False) -> tuple[Tensor, Tensor]:
    """Return h and c as ``lstm_cell`` does, by operations that autograd can follow. ``gates`` are not overwritten.

    ``capped``: the input gate is ``min(i, 1 - f)``.
    """
    i, f, g, o = gates.chunk(4, dim=1)
    forget, take = torch.sigmoid(f), torch.sigmoid(i)
    after = forget * before + (torch.minimum(take, 1 - forget) if capped else take) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(after), after
