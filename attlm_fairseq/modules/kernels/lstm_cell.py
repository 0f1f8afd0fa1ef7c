"""The element-wise part of an LSTM step, which training, decoding and scoring share.

Shapes: N rows, H hidden size; gates in torch's order: i (input), f (forget), g (cell), o (output).
"""

from __future__ import annotations

import torch
from torch import Tensor

from attlm_fairseq.modules.kernels.limits import limits_of


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


def gate_slopes(gates: Tensor, before: Tensor, cells: Tensor, *, capped: bool = False) -> tuple[Tensor, Tensor]:
    """Return the derivatives of ``c = f * c_before + i * g`` and ``h = o * tanh(c)``, for N words of all positions.

    Args:
        gates: the activations of i, f, g and o (N, 4 H).
        before: the cells before each word (N, H).
        cells: the cells after it.
        capped: the input gate is ``min(i, 1 - f)``.

    Returns:
        Those of c with respect to the pre-activations of i, f and g and of h with respect to that of o, (N, 4 H):
        ``g i (1 - i)``, ``c_before f (1 - f)``, ``i (1 - g^2)`` and ``tanh(c) o (1 - o)``.
        That of h with respect to c, (N, H): ``o (1 - tanh(c)^2)``.
    """
    slopes, into_cell = torch.empty_like(gates), torch.empty_like(cells)
    rows = max(1, limits_of(gates.device).step_numbers // gates.size(1))  # few rows stay in a CPU's cache
    for begin in range(0, len(gates), rows):
        some = slice(begin, begin + rows)
        _write_slopes(gates[some], before[some], cells[some], slopes[some], into_cell[some], capped)
    return slopes, into_cell


def _write_slopes(gates: Tensor, before: Tensor, cells: Tensor, slopes: Tensor, into_cell: Tensor, capped: bool) -> None:
    i, f, g, o = gates.chunk(4, dim=1)
    of_i, of_f, of_g, of_o = slopes.chunk(4, dim=1)
    squashed = torch.tanh(cells)
    free = (i <= 1 - f).to(g.dtype) if capped else None
    torch.mul(g if free is None else g * free, i, out=of_i)
    of_i.addcmul_(of_i, i, value=-1)
    torch.mul(before if free is None else before - g * (1 - free), f, out=of_f)
    of_f.addcmul_(of_f, f, value=-1)
    taken = i if free is None else torch.minimum(i, 1 - f)
    torch.mul(g, g, out=of_g)
    torch.addcmul(taken, of_g, taken, value=-1, out=of_g)
    torch.mul(squashed, o, out=of_o)
    of_o.addcmul_(of_o, o, value=-1)
    torch.addcmul(o, squashed.square_(), o, value=-1, out=into_cell)


def lstm_cell_with_gradients(gates: Tensor, before: Tensor, capped: bool = False) -> tuple[Tensor, Tensor]:
    """Return h and c as ``lstm_cell`` does, by operations that autograd can follow. ``gates`` are not overwritten.

    ``capped``: the input gate is ``min(i, 1 - f)``.
    """
    i, f, g, o = gates.chunk(4, dim=1)
    forget, take = torch.sigmoid(f), torch.sigmoid(i)
    after = forget * before + (torch.minimum(take, 1 - forget) if capped else take) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(after), after
