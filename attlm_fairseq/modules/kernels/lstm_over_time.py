"""An LSTM layer over all positions of a batch. It skips padding, and its matrix products may be in bfloat16.

Shapes: B sentences in the batch, T positions, N words of all sentences, E inputs, H hidden size; gates in torch's order:
input, forget, cell, output.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attlm_fairseq.modules.kernels.low_precision import rounded
from attlm_fairseq.modules.kernels.lstm_cell import gate_slopes, lstm_cell
from attlm_fairseq.modules.kernels.products import FixedProduct, left_factor, product, round_up_to_few


def lstm_over_time(
    inputs: Tensor,
    weight: Tensor,
    recurrent: Tensor,
    bias: Tensor,
    hidden: Tensor,
    cell: Tensor,
    *,
    lengths: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute one layer as ``attlm_fairseq.modules.recurrence.torch_layers.lstm_layer`` does.

    torch's own LSTM under autocast rounds the state to bfloat16 after every step, and these errors add up over a sentence.
    Here ``h`` and ``c`` stay in float32; only the factors and results of products are rounded.

    The other arguments and the results are those of ``lstm_layer``.

    Args:
        lengths: number of words of each row (B,), at least 1, on the CPU. Outputs after them are 0, and the states returned are
            those after the last word of each row. None: all rows have T words.
        dtype: of the matrix products, float32 or bfloat16.
    """
    outputs, last = _Layer.apply(inputs, weight, recurrent, bias, hidden, cell, lengths, dtype)
    return outputs, outputs[:, -1] if lengths is None else outputs[torch.arange(len(lengths)), lengths - 1], last


class _Packing:
    """The order of the words in which a layer is computed: position by position, at each one the rows that go on, longest first.

    If ``lengths`` are given, the N words are followed by some that do not count, so that products have few distinct sizes.
    """

    def __init__(self, batch: int, positions: int, lengths: Tensor | None) -> None:
        self.shape = (positions, batch)
        self.order: Tensor | None = None  # of the rows
        counts = [batch] * positions
        if lengths is not None:
            descending, self.order = lengths.sort(descending=True, stable=True)
            going_on = descending > torch.arange(positions).unsqueeze(1)  # (T, B)
            counts = going_on.sum(1).tolist()
            position, row = going_on.nonzero(as_tuple=True)
            self._places = self.order[row] * positions + position
        ends = [*accumulate(counts)]
        self.steps = [slice(end - count, end) for end, count in zip(ends, counts, strict=True) if count]
        self.count = ends[-1]

    def pack(self, values: Tensor) -> Tensor:
        """Return values (B, T, ..) in this order, (N, ..)."""
        if self.order is None:
            return values.transpose(0, 1).flatten(0, 1)
        places = torch.nn.functional.pad(self._places, (0, round_up_to_few(self.count) - self.count))
        return values.flatten(0, 1).index_select(0, places)

    def unpack(self, values: Tensor) -> Tensor:
        """Return values (N, ..) as (B, T, ..), 0 where there is no word."""
        if self.order is None:
            return values.unflatten(0, self.shape).transpose(0, 1)
        positions, batch = self.shape
        whole = values.new_zeros(batch * positions, *values.shape[1:])
        return whole.index_copy_(0, self._places, values[: self.count]).unflatten(0, (batch, positions))

    def pack_rows(self, values: Tensor) -> Tensor:
        """Return a copy of values (B, ..) of the rows in this order."""
        return values.clone() if self.order is None else values.index_select(0, self.order)

    def unpack_rows(self, values: Tensor) -> Tensor:
        return values if self.order is None else torch.empty_like(values).index_copy_(0, self.order, values)

    def last(self, values: Tensor) -> Tensor:
        """Return the values (B, ..) at the last words of the rows, given those of all words (N, ..)."""
        going_on = [step.stop - step.start for step in self.steps]
        pieces = [values[step][after:] for step, after in zip(self.steps, [*going_on[1:], 0], strict=True)]
        return self.unpack_rows(torch.cat(pieces[::-1]))

    def before(self, first: Tensor, values: Tensor) -> Tensor:
        """Return the values one position earlier (N, ..), given those at each word and, in this order, before the first, (B, ..)."""
        pieces = [values[step.start : step.start + after.stop - after.start] for step, after in pairwise(self.steps)]
        return torch.cat([first, *pieces, values[self.count :]])


class _Layer(torch.autograd.Function):
    """Computes one layer over all positions.

    Each time step does only the recurrent work. Input projections run before the loop for all positions; in backward, gate
    derivatives run before it and weight gradients after it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor,
        hidden: Tensor,
        cell: Tensor,
        lengths: Tensor | None,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        size, packing = hidden.size(1), _Packing(inputs.size(0), inputs.size(1), lengths)
        with torch.autocast(inputs.device.type, enabled=False):
            low_inputs = _factor(packing.pack(inputs), dtype)
            low_ih, low_hh = (_factor(weight, dtype, rows=True) for weight in (weight_ih, weight_hh))
            recur = FixedProduct(low_hh, len(hidden))
            gates = product(low_inputs, low_ih.t())[:, : 4 * size].float().add_(bias)
            low_before = low_inputs.new_zeros(len(gates), low_hh.size(1))  # h before each word; H may be rounded up
            states, cells = gates.new_empty(2, len(gates), size)
            before = packing.pack_rows(cell)
            low_before[: len(hidden), :size] = packing.pack_rows(hidden)
            for step, after in zip(packing.steps, [*packing.steps[1:], slice(0)], strict=True):
                of_step = gates[step]
                of_step += recur(low_before[_with_later_rows(step)])[: len(of_step), : 4 * size]
                lstm_cell(of_step, before[: len(of_step)], cells[step], states[step])
                before, going_on = cells[step], after.stop - (after.start or 0)
                low_before[after, :size] = states[step][:going_on]
        ctx.save_for_backward(low_inputs, low_ih, low_hh, gates, low_before, cells, cell)
        ctx.packing, ctx.input_size = packing, inputs.size(2)
        return packing.unpack(states), packing.last(cells)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor, grad_cell: Tensor) -> tuple[Tensor | None, ...]:
        low_inputs, low_ih, low_hh, gates, low_before, cells, cell = ctx.saved_tensors
        packing, size = ctx.packing, cells.size(1)
        with torch.autocast(low_inputs.device.type, enabled=False):
            grad_states, grad_cell = packing.pack(grad_outputs.float()), packing.pack_rows(grad_cell.float())
            slopes, into_cell = gate_slopes(gates, packing.before(packing.pack_rows(cell), cells), cells)
            slopes[packing.count :] = 0
            forget = gates[:, size : 2 * size]
            low_slopes = slopes if low_hh.dtype == slopes.dtype else slopes.new_zeros(len(slopes), len(low_hh), dtype=low_hh.dtype)
            recur = FixedProduct(low_hh.t(), len(cell))
            into_states = torch.zeros_like(grad_cell)  # of the position before, from the products
            for step in reversed(packing.steps):
                going_on = step.stop - step.start
                grad_hidden = grad_states[step] + into_states[:going_on]
                of_cells = grad_cell[:going_on].addcmul_(grad_hidden, into_cell[step])
                of_cell, of_state = slopes[step].unflatten(1, (4, size)).split((3, 1), dim=1)
                of_cell *= of_cells.unsqueeze(1)
                of_state *= grad_hidden.unsqueeze(1)
                if low_slopes is not slopes:
                    low_slopes[step, : 4 * size] = slopes[step]
                of_cells *= forget[step]
                into_states[:going_on] = recur(low_slopes[_with_later_rows(step)])[:going_on, :size]
            grad_inputs = packing.unpack(product(low_slopes, low_ih)[:, : ctx.input_size].float())
            by_gate = left_factor(low_slopes.t())
            grad_ih = product(by_gate, low_inputs)[: 4 * size, : ctx.input_size].float()
            grad_hh = product(by_gate, low_before)[: 4 * size, :size].float()
        grad_hidden, grad_cell = packing.unpack_rows(into_states), packing.unpack_rows(grad_cell)
        return grad_inputs, grad_ih, grad_hh, slopes.sum(0), grad_hidden, grad_cell, None, None


def _with_later_rows(step: slice) -> slice:
    """Return the slice lengthened to one of few distinct sizes. The products of the rows added, of later positions, are not used."""
    return slice(step.start, step.start + round_up_to_few(step.stop - step.start))


def _factor(values: Tensor, dtype: torch.dtype, *, rows: bool = False) -> Tensor:
    """Return a factor of products in ``dtype``, padded in a lower precision."""
    return values.to(dtype).contiguous() if dtype == torch.float32 else rounded(values, dtype, rows=rows)
