"""Steps of an LSTM with products in bfloat16, for scoring. The weights are rounded once, not at every step.

The plain version is ``attlm_fairseq.modules.recurrence.lstm.LSTM.step`` on the rows selected.

Shapes: N rows, L layers, H hidden size, P hidden size padded to a multiple that bfloat16 products need.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.kernels import low_precision
from attlm_fairseq.modules.kernels.limits import limits_of
from attlm_fairseq.modules.kernels.low_precision import Bfloat16Linear, rounded, select_rows
from attlm_fairseq.modules.kernels.lstm_cell import lstm_cell
from attlm_fairseq.modules.kernels.products import product_into
from attlm_fairseq.modules.state import State


class Bfloat16LSTM:
    """An LSTM's steps. Factors and results of products are in bfloat16; biases, gates and cells are in float32.

    The state is ``h`` (N, L P) in bfloat16, since it is only used in products, and ``c`` (N, L, H). In ``h``, the layers are
    concatenated, so that the input of a layer and its own state form one matrix.

    bfloat16 products are so fast that the other work dominates. So inner dimensions are padded with zeros. Row counts are
    rounded to a few distinct sizes, because each new size compiles a kernel. Element-wise work runs on a few rows at a
    time, to stay in the cache.
    """

    def __init__(self, lstm: nn.LSTM, below: Sequence[int] = ()) -> None:
        """Round the weights. ``below`` are the layers whose outputs follow the top layer's, rounded to bfloat16."""
        self.below = below
        weights = dict(lstm.named_parameters())
        layers = range(lstm.num_layers)
        self.hidden_size = lstm.hidden_size
        self.biases = [weights[f"bias_ih_l{layer}"] + weights[f"bias_hh_l{layer}"] for layer in layers]
        self.inputs = Bfloat16Linear(weights["weight_ih_l0"], self.biases[0])
        own = [rounded(weights[f"weight_hh_l{layer}"], low_precision.DTYPE) for layer in layers]
        from_below = [rounded(weights[f"weight_ih_l{layer}"], low_precision.DTYPE) for layer in layers[1:]]
        self.padded_size = own[0].size(1)
        self.weights = [own[0], *(torch.cat(pair, dim=1) for pair in zip(from_below, own[1:], strict=True))]  # (4 H, P), then (4 H, 2 P)

    def initial(self, rows: int) -> State:
        hidden = self.weights[0].new_zeros(rows, len(self.weights) * self.padded_size)
        return hidden, self.biases[0].new_zeros(rows, len(self.weights), self.hidden_size)

    def step_rows(self, inputs: Tensor, places: Tensor, before: State, rows: Tensor) -> tuple[Tensor, State]:
        """Step N rows from the input projections (W, 4 H) at ``places`` (N,) and the states before at ``rows`` (N,)."""
        size, padded_size = self.hidden_size, self.padded_size
        hidden = select_rows(before[0], rows)  # a copy, like the cells: it is overwritten layer by layer
        cell = before[1].index_select(0, rows)
        product = hidden.new_empty(len(hidden), 4 * size)
        outputs = cell.new_empty(len(rows), size)
        at_once = min(len(rows), max(1, limits_of(hidden.device).step_numbers // (4 * size)))
        held, converted = cell.new_empty(2, at_once, 4 * size)
        for layer, weight in enumerate(self.weights):
            own = layer * padded_size
            product_into(hidden[:, max(0, own - padded_size) : own + padded_size], weight.t(), product)
            for begin in range(0, len(rows), at_once):
                gates = held[: min(at_once, len(rows) - begin)]
                some = slice(begin, begin + len(gates))
                if layer:
                    gates.copy_(product[some]).add_(self.biases[layer])
                else:
                    torch.index_select(inputs, 0, places[some], out=gates)
                    gates.add_(converted[: len(gates)].copy_(product[some]))
                lstm_cell(gates, cell[some, layer], cell[some, layer], outputs[some])
                hidden[some, own : own + size] = outputs[some]
        hidden = hidden[: len(rows)]
        if self.below:
            starts = [layer * padded_size for layer in self.below]
            outputs = torch.cat([outputs, *(hidden[:, start : start + size].to(outputs.dtype) for start in starts)], dim=1)
        return outputs, (hidden, cell)
