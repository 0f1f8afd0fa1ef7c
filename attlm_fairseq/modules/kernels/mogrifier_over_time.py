"""A layer of a Mogrifier LSTM over all positions of a batch. Its matrix products may be in bfloat16.

Shapes: B sentences in the batch, T positions, N = T B words, position by position, E inputs, H hidden size, K columns and M rows
of a matrix; the LSTM's gates in torch's order: input, forget, cell, output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attlm_fairseq.modules.kernels.low_precision import rounded, side_by_side
from attlm_fairseq.modules.kernels.lstm_cell import gate_slopes, lstm_cell
from attlm_fairseq.modules.kernels.products import FixedProduct, left_factor, product

Product = Callable[[Tensor], Tensor]
SMALL = 2**18  # numbers in a float32 matrix below which torch's own product of few rows is faster than oneDNN's with its layout


def mogrifier_over_time(
    inputs: Tensor,
    weight: Tensor,
    recurrent: Tensor,
    bias: Tensor,
    hidden: Tensor,
    cell: Tensor,
    *matrices: Tensor,
    counts: Sequence[int],
    capped: bool = False,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute one layer of ``attlm_fairseq.modules.recurrence.mogrifier.Mogrifier``.

    Autograd alone would add a gradient to every matrix at each position. Here these gradients are one product each, after the loop.

    The first arguments and the results are those of ``attlm_fairseq.modules.recurrence.torch_layers.lstm_layer``.

    Args:
        matrices: the matrix of each round, Q^1, R^2, Q^3, .., as one matrix or as two, of which the product is ``second first``.
        counts: for each round, 1 or 2.
        capped: the input gate is ``min(i, 1 - f)``.
        dtype: of the matrix products: that of the weights, or bfloat16. The state keeps that of the weights.
    """
    settings = capped, dtype, tuple(counts), torch.is_grad_enabled()
    outputs, last = _Layer.apply(inputs, hidden, cell, bias, *settings, weight, recurrent, *matrices)
    return outputs, outputs[:, -1], last


class _Matrix:
    """A matrix (M, K) in the steps of the loop and, after them, its gradient.

    It may have several parts (M, K_i), side by side. In a lower precision they are one factor of one product, which is rounded once.
    """

    def __init__(self, parts: Sequence[Tensor], dtype: torch.dtype, rows: int) -> None:
        self.dtype, self.full, self.outputs, self.rows = dtype, parts[0].dtype, len(parts[0]), rows
        self.rounds = dtype != self.full
        self.columns = [part.size(1) for part in parts]
        self.weights = [side_by_side(parts, dtype, rows=True)] if self.rounds else [part.contiguous() for part in parts]

    def factor(self, values: Tensor) -> Tensor:
        """Return values as a factor of products."""
        return rounded(values, self.dtype) if self.rounds else values.contiguous()

    def forwards(self) -> list[Product]:
        return [self._fixed(weight) for weight in self.weights]

    def backwards(self) -> list[Product]:
        return [self._fixed(weight.t()) for weight in self.weights]

    def _fixed(self, weight: Tensor) -> Product:
        # one row reads every number of the matrix once: storing it in another layout first costs as much as several products
        if not self.rounds and (weight.numel() < SMALL or self.rows == 1):
            return lambda values: values @ weight.t()
        return FixedProduct(weight, self.rows)

    def times(self, fixed: Sequence[Product], *values: Tensor) -> Tensor:
        """Return ``W v`` (B, M) for the values (B, K_i) of its parts, given ``forwards()``."""
        if self.rounds:
            [whole] = fixed
            return whole(self.factor(*values) if len(values) == 1 else side_by_side(values, self.dtype))[:, : self.outputs]
        first, *others = (one(self.factor(some)) for one, some in zip(fixed, values, strict=True))
        for other in others:
            first += other
        return first

    def transposed_times(self, fixed: Sequence[Product], values: Tensor) -> Sequence[Tensor]:
        """Return ``W_i^T v`` (B, K_i) of its parts for values (B, M), given ``backwards()``."""
        found = [one(self.factor(values)) for one in fixed]
        return found[0][:, : sum(self.columns)].split(self.columns, dim=1) if self.rounds else found

    def gradients(self, of_outputs: Tensor, *inputs: Tensor) -> list[Tensor]:
        """Return those of its parts (M, K_i).

        Args:
            of_outputs: those of its results in all steps, (T, B, M), or as returned by ``factor``.
            inputs: what its parts were multiplied by, (T, B, K_i).
        """
        by_output = left_factor(self.factor(of_outputs.flatten(0, 1)).t())
        products = (product(by_output, self.factor(values.flatten(0, 1))) for values in inputs)
        return [found[: self.outputs, :columns].to(self.full) for found, columns in zip(products, self.columns, strict=True)]


class _Layer(torch.autograd.Function):
    """Computes one layer over all positions.

    Of the two values that gate each other, 0 is the input x and 1 the state h. A round gates one of them, its target, by the other.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        hidden: Tensor,
        cell: Tensor,
        bias: Tensor,
        capped: bool,
        dtype: torch.dtype,
        counts: tuple[int, ...],
        differentiate: bool,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        batch, positions, size = len(inputs), inputs.size(1), hidden.size(1)
        with torch.autocast(inputs.device.type, enabled=False):
            sequence = inputs.transpose(0, 1).to(bias.dtype).contiguous()
            matrices = [_Matrix(weights[:2], dtype, batch), *(_Matrix([weight], dtype, batch) for weight in weights[2:])]
            (weight, into), *gating = [(matrix, matrix.forwards()) for matrix in matrices]
            rounds = _by_round(gating, counts)
            widths = [sequence.size(2), size]
            kept = positions if differentiate else 1  # what only the gradients need
            factors, gated = ([bias.new_empty(kept, batch, widths[number % 2]) for number in range(len(counts))] for _ in range(2))
            middles = [[bias.new_empty(kept, batch, matrix.outputs) for matrix, _ in of_round[:-1]] for of_round in rounds]
            gates = bias.new_empty(kept, batch, 4 * size)
            states, cells = bias.new_empty(2, positions, batch, size)
            before, state = cell, hidden
            for position in range(positions):
                newest, place = [sequence[position], state], position % kept
                for number, of_round in enumerate(rounds):
                    target = number % 2
                    values = newest[1 - target]
                    for (matrix, fixed), middle in zip(of_round, [*middles[number], None], strict=True):
                        values = matrix.times(fixed, values)
                        if middle is not None:
                            middle[place] = values
                    factor = factors[number][place].copy_(values).sigmoid_().mul_(2)
                    newest[target] = torch.mul(newest[target], factor, out=gated[number][place])
                of_step = torch.add(weight.times(into, *newest).to(bias.dtype), bias, out=gates[place])
                lstm_cell(of_step, before, cells[position], states[position], capped=capped)
                before, state = cells[position], states[position]
        of_rounds = *factors, *gated, *(middle for of_round in middles for middle in of_round)
        ctx.save_for_backward(sequence, hidden, cell, gates, states, cells, *of_rounds)
        ctx.matrices, ctx.counts, ctx.capped = matrices, counts, capped
        return states.transpose(0, 1), cells[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor, grad_cell: Tensor) -> tuple[Tensor | None, ...]:
        sequence, hidden, cell, gates, states, cells, *others = ctx.saved_tensors
        counts, size = ctx.counts, cells.size(2)
        factors, gated = others[: len(counts)], others[len(counts) : 2 * len(counts)]
        middles = _by_round(others[2 * len(counts) :], [count - 1 for count in counts])
        with torch.autocast(sequence.device.type, enabled=False):
            grad_states = grad_outputs.transpose(0, 1).to(cells.dtype)
            grad_cell = grad_cell.to(cells.dtype).clone()
            by_word = (values.flatten(0, 1) for values in (gates, torch.cat((cell.unsqueeze(0), cells[:-1])), cells))
            slopes, into_cell = (values.view(*cells.shape[:2], values.size(1)) for values in gate_slopes(*by_word, capped=ctx.capped))
            forget = gates[..., size : 2 * size]
            # factors from the gradient of a gated value to that of its gate's product: 2 s (1 - s) v, where 2 s is the factor
            into_gate = [torch.addcmul(value, value, factor, value=-0.5) for value, factor in zip(gated, factors, strict=True)]
            of_middles = [[torch.empty_like(middle) for middle in of_round] for of_round in middles]
            grad_inputs = torch.empty_like(sequence)
            (weight, into), *gating = [(matrix, matrix.backwards()) for matrix in ctx.matrices]
            low_slopes = slopes
            if weight.rounds:
                low_slopes = slopes.new_zeros(*slopes.shape[:2], len(weight.weights[0]), dtype=weight.dtype)
            rounds = _by_round(gating, counts)
            into_state = torch.zeros_like(grad_cell)  # of the position before
            for position in reversed(range(len(sequence))):
                grad_hidden = grad_states[position] + into_state
                of_cell = grad_cell.addcmul_(grad_hidden, into_cell[position])
                of_gates, of_output = slopes[position].unflatten(1, (4, size)).split((3, 1), dim=1)
                of_gates *= of_cell.unsqueeze(1)
                of_output *= grad_hidden.unsqueeze(1)
                of_cell *= forget[position]
                if low_slopes is not slopes:
                    low_slopes[position, :, : 4 * size] = slopes[position]
                newest = [values.to(cells.dtype) for values in weight.transposed_times(into, low_slopes[position])]
                for number in reversed(range(len(rounds))):
                    target = number % 2
                    of_values = into_gate[number][position].mul_(newest[target])
                    newest[target] *= factors[number][position]
                    for (matrix, fixed), middle in zip(reversed(rounds[number]), [*reversed(of_middles[number]), None], strict=True):
                        (of_values,) = matrix.transposed_times(fixed, of_values)
                        if middle is not None:
                            middle[position] = of_values
                    newest[1 - target] += of_values
                grad_inputs[position], into_state = newest
            # what each round read and gave: x^{-1}, h^0, x^1, h^2, ..
            read = [sequence, torch.cat((hidden.unsqueeze(0), states[:-1])), *gated]
            last_input, last_state = (read[-1], read[-2]) if len(counts) % 2 else (read[-2], read[-1])
            gradients = weight.gradients(low_slopes, last_input, last_state)
            for number, of_round in enumerate(rounds):
                into_matrices = [read[number + 1], *middles[number]]
                out_of_matrices = [*of_middles[number], into_gate[number]]
                for (matrix, _), values, of_values in zip(of_round, into_matrices, out_of_matrices, strict=True):
                    gradients += matrix.gradients(of_values, values)
        return grad_inputs.transpose(0, 1), into_state, grad_cell, slopes.sum((0, 1)), None, None, None, None, *gradients


def _by_round(values: Sequence[Any], counts: Sequence[int]) -> list[list[Any]]:
    """Return the values of each round, given those of all rounds and how many each round has."""
    remaining = iter(values)
    return [[next(remaining) for _ in range(count)] for count in counts]
