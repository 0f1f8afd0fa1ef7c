"""A language model's products in bfloat16, laid out for scoring: weights are rounded once, not at every step.

Shapes: N rows, L layers, H size of an LSTM state, P the same padded, F features, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.kernels.low_precision import ROWS, rounded
from attlm_fairseq.modules.language_model import LanguageModel, LanguageModelState
from attlm_fairseq.modules.memory import Reader

DTYPE = torch.bfloat16
CACHED = 1 << 17  # numbers in float32 that stay in a processor's cache from one operation to the next
# rows, and words of the vocabulary, of a product that gives logits; words whose logits are summed at once: few enough for the cache
LOGITS = {"cpu": (512, 5000, 256), "cuda": (1024, 4096, 4096)}


class Bfloat16Model:
    """The steps and the normalisers of a LanguageModel with matrix products in bfloat16, as fast as the processor takes them.

    What enters a product is rounded to bfloat16, and so is what comes out of it; all else is float32: biases, gates, cells, what the
    reader reads and remembers, features, sums. A state's ``hidden``, which only ever enters products, is (N, L P) in bfloat16: the
    layers side by side, so that a layer's input and its own state are one matrix.

    Fast products leave the rest to take most of the time. So inner dimensions are padded with zeros, there are few numbers of rows, and
    what comes between two products is computed a few rows at a time, in the cache.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        lstm = model.lstm
        self.embedding = rounded(model.embedding.weight, DTYPE)
        self.input_weight = rounded(lstm.weight_ih_l0, DTYPE)
        self.biases = [getattr(lstm, f"bias_ih_l{layer}") + getattr(lstm, f"bias_hh_l{layer}") for layer in range(lstm.num_layers)]
        own = [rounded(getattr(lstm, f"weight_hh_l{layer}"), DTYPE) for layer in range(lstm.num_layers)]
        below = [rounded(getattr(lstm, f"weight_ih_l{layer}"), DTYPE) for layer in range(1, lstm.num_layers)]
        self.padded_size = own[0].size(1)
        self.weights = [own[0], *(torch.cat(pair, dim=1) for pair in zip(below, own[1:], strict=True))]  # (4 H, P), then (4 H, 2 P)
        self.reader = with_bfloat16_products(model.reader)
        if isinstance(model.output, nn.Linear):
            self.output = self.embedding if model.output.weight is model.embedding.weight else rounded(model.output.weight, DTYPE)
            self.factors = model.output.bias.exp()

    def initial_state(self, batch: int) -> LanguageModelState:
        cell = self.biases[0].new_zeros(batch, self.model.lstm.num_layers, self.model.lstm.hidden_size)
        hidden = self.embedding.new_zeros(batch, self.model.lstm.num_layers * self.padded_size)
        return LanguageModelState(hidden, cell, self.reader.empty_memory(cell[:, 0]))

    def input_gates(self, tokens: Tensor) -> Tensor:
        """Token ids (N,) -> what they add to the first layer's four gates (N, 4 H), biases included, in float32."""
        gates = self.biases[0].new_empty(len(tokens), len(self.biases[0]))
        for some, of_some in zip(tokens.split(1024), gates.split(1024), strict=True):
            embedded = selected(self.embedding, some)
            of_some.copy_((embedded @ self.input_weight.t())[: len(some)]).add_(self.biases[0])
        return gates

    def step(self, input_gates: Tensor, places: Tensor, state: LanguageModelState, rows: Tensor) -> tuple[Tensor, LanguageModelState]:
        """Features (N, F) and the state after words whose gates are ``input_gates[places]`` and the state before them ``state[rows]``."""
        size, padded_size = self.model.lstm.hidden_size, self.padded_size
        hidden = selected(state.hidden, rows)  # of our own, as the cells are: overwritten layer by layer
        cell = state.cell.index_select(0, rows)
        memory = tuple(part.index_select(0, rows) for part in state.memory)
        product = hidden.new_empty(len(hidden), 4 * size)
        outputs = cell.new_empty(len(rows), size)
        at_once = min(len(rows), max(1, CACHED // (4 * size))) if hidden.device.type == "cpu" else len(rows)
        held, converted = cell.new_empty(2, at_once, 4 * size)
        for layer, weight in enumerate(self.weights):
            own = layer * padded_size
            torch.mm(hidden[:, max(0, own - padded_size) : own + padded_size], weight.t(), out=product)
            for begin in range(0, len(rows), at_once):
                gates = held[: min(at_once, len(rows) - begin)]
                some = slice(begin, begin + len(gates))
                if layer:
                    gates.copy_(product[some]).add_(self.biases[layer])
                else:
                    torch.index_select(input_gates, 0, places[some], out=gates)
                    gates.add_(converted[: len(gates)].copy_(product[some]))
                gates[:, : 2 * size].sigmoid_()
                gates[:, 2 * size : 3 * size].tanh_()
                gates[:, 3 * size :].sigmoid_()
                written, kept, candidate, shown = gates.chunk(4, dim=1)
                after = cell[some, layer].mul_(kept).addcmul_(written, candidate)
                hidden[some, own : own + size] = torch.tanh(after, out=outputs[some]).mul_(shown)
        outputs = outputs.unsqueeze(1)
        features, _ = self.reader(outputs, memory=memory)
        return features.squeeze(1), LanguageModelState(hidden[: len(rows)], cell, self.reader.advance(outputs, memory))

    def normalisers(self, features: Tensor, check: Callable[[], None]) -> Tensor:
        """``ln sum_v exp(logit_v)`` (N,) for features (N, F), infinite or undefined where float32 cannot hold the sum."""
        rows, columns, at_once = LOGITS["cpu" if features.device.type == "cpu" else "cuda"]
        rows = whole_rows(min(rows, len(features)))
        inputs = self.output.new_zeros(rows, self.output.size(1))
        logits = self.output.new_empty(columns * rows)
        held = features.new_empty(at_once * rows)
        sums = features.new_zeros(len(features))
        for some, of_some in zip(features.split(rows), sums.split(rows), strict=True):
            check()
            inputs[: len(some), : some.size(1)] = some
            low = inputs[: whole_rows(len(some))]
            for piece, factors in zip(self.output.split(columns), self.factors.split(columns), strict=True):
                product = torch.mm(piece, low.t(), out=logits[: len(piece) * len(low)].view(len(piece), len(low)))
                for part, of_part in zip(product.split(at_once), factors.split(at_once), strict=True):
                    values = held[: part.numel()].view(part.shape).copy_(part).exp_()
                    of_some.addmv_(values.t()[: len(some)], of_part)
        return sums.log_()


class Bfloat16Linear(nn.Module):
    """A linear layer that takes and gives float32 and whose product is in bfloat16."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = rounded(layer.weight, DTYPE), layer.bias

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.flatten(0, -2)
        low = self.weight.new_empty(whole_rows(len(rows)), self.weight.size(1))
        low[:, rows.size(1) :] = 0
        low[: len(rows), : rows.size(1)] = rows
        outputs = (low @ self.weight.t())[: len(rows)].to(inputs.dtype)
        return (outputs if self.bias is None else outputs.add_(self.bias)).unflatten(0, inputs.shape[:-1])


def with_bfloat16_products(reader: Reader) -> Reader:
    """A copy whose linear layers take their products in bfloat16."""
    changed = copy.deepcopy(reader)
    for name, layer in reader.named_children():
        if isinstance(layer, nn.Linear):
            setattr(changed, name, Bfloat16Linear(layer))
    return changed


def selected(matrix: Tensor, rows: Tensor) -> Tensor:
    """The rows (N,) of a matrix, and behind them what happens to be there, up to :func:`whole_rows`."""
    chosen = matrix.new_empty(whole_rows(len(rows)), matrix.size(1))
    torch.index_select(matrix, 0, rows, out=chosen[: len(rows)])
    return chosen


def whole_rows(count: int) -> int:
    """As many rows or a few more: a multiple of ``ROWS``, of fewer a power of two."""
    return -(-count // ROWS) * ROWS if count > ROWS // 2 else max(16, 1 << (count - 1).bit_length())


def piece_sizes(length: int, most: int) -> list[int]:
    """Sizes of as few pieces as have at most so many each, all but the last multiples of ``ROWS`` where that many are allowed."""
    pieces = -(-length // most)
    size = min(whole_rows(-(-length // pieces)), most)
    return [min(size, length - begin) for begin in range(0, length, size)]
