"""The Mogrifier LSTM of Melis, Kočiský and Blunsom (2020), "Mogrifier LSTM".

Shapes: B sentences in the batch, T positions, E embedding, L layers, H hidden size, R rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.kernels.cuda_graphs import RECORDINGS
from attlm_fairseq.modules.kernels.low_precision import DTYPE
from attlm_fairseq.modules.kernels.lstm_cell import lstm_cell_with_gradients
from attlm_fairseq.modules.kernels.mogrifier_over_time import mogrifier_over_time
from attlm_fairseq.modules.recurrence.lstm import LSTM
from attlm_fairseq.modules.recurrence.lstm_layer import LSTMLayer
from attlm_fairseq.modules.recurrence.recurrence import NoAttention, Product
from attlm_fairseq.modules.recurrence.stepped_layers import SteppedLayer, SteppedLayers, recurrent_product
from attlm_fairseq.modules.regularisation import Regularisation
from attlm_fairseq.modules.state import State


class MogrifierLayer(LSTMLayer):
    """One layer of ``Mogrifier``. Its state is ``h`` and ``c`` (B, H)."""

    def __init__(
        self, input_size: int, hidden_size: int, rounds: int, rank: int, capped: bool, forget_bias: float | None, recorded: bool
    ) -> None:
        super().__init__(input_size, hidden_size, forget_bias)
        self.capped, self.recorded = capped, recorded
        sizes = [(hidden_size, input_size), (input_size, hidden_size)]
        self.rounds = nn.ModuleList(gate_product(*sizes[number % 2], rank) for number in range(rounds))  # Q^1, R^2, Q^3, ..

    def inputs(self, values: Tensor) -> Tensor:
        """Return the values as they are. The state gates them before the first product."""
        return values

    def initial(self, rows: int) -> State:
        zeros = self.from_input.bias.new_zeros(rows, len(self.from_input.bias) // 4)
        return zeros, zeros

    def products(self, regularisation: Regularisation) -> Product:
        """Return the product with U."""
        return recurrent_product(self.from_state, regularisation, self.training)

    def step(self, inputs: Tensor, before: State, from_state: Product) -> tuple[Tensor, State]:
        hidden, cell = before
        for number, product in enumerate(self.rounds):
            if number % 2:
                hidden = 2 * torch.sigmoid(product(inputs)) * hidden
            else:
                inputs = 2 * torch.sigmoid(product(hidden)) * inputs
        gates = self.from_input(inputs).to(cell.dtype) + from_state(hidden)
        after = lstm_cell_with_gradients(gates, cell, self.capped)
        return after[0], after

    def read_all(self, sequence: Tensor, before: State, regularisation: Regularisation) -> tuple[Tensor, State]:
        """Return the outputs (B, T, H) and the new state, given the inputs (B, T, E) and the state before them."""
        low = torch.is_autocast_enabled(sequence.device.type)
        rounds = [[matrix.weight for matrix in product.modules() if isinstance(matrix, nn.Linear)] for product in self.rounds]
        recurrent = regularisation.drop_weights(self.from_state.weight, self.training)
        weight, bias, dtype = self.from_input.weight, self.from_input.bias, DTYPE if low else recurrent.dtype
        settings: dict[str, Any] = {"counts": tuple(map(len, rounds)), "capped": self.capped, "dtype": dtype}
        values = (sequence, weight, recurrent, bias, *before, *(matrix for of_round in rounds for matrix in of_round))
        if self.recorded and self.training and torch.is_grad_enabled() and weight.device.type == "cuda":
            outputs, *after = RECORDINGS.call(weight, mogrifier_over_time, *values, **settings)
        else:
            outputs, *after = mogrifier_over_time(*values, **settings)
        return outputs, tuple(after)


def gate_product(input_size: int, output_size: int, rank: int) -> nn.Module:
    """Return a linear layer. If the rank is above 0, its matrix is the product of two matrices of this rank."""
    if not rank:
        return nn.Linear(input_size, output_size, bias=False)
    return nn.Sequential(nn.Linear(input_size, rank, bias=False), nn.Linear(rank, output_size, bias=False))


class Mogrifier(NoAttention, SteppedLayers):
    r"""An LSTM of L layers whose input and state gate each other R times before each step.

    With ``x^{-1} = x_t``, ``h^0 = h_{t-1}`` and i = 1 .. R: ``x^i = 2 sigmoid(Q^i h^{i-1}) * x^{i-2}`` for odd i,
    ``h^i = 2 sigmoid(R^i x^{i-1}) * h^{i-2}`` for even i. The LSTM reads the newest x and h. With a rank k, each Q and R is the product
    of two matrices of rank k. With a capped input gate, ``c_t = f c_{t-1} + min(i, 1 - f) g``.

    Its state is ``h`` and ``c``, (B, L, H) each.
    """

    name: ClassVar[str] = "mogrifier"
    counts: ClassVar[tuple[str, ...]] = ("decoder_layers", "mogrifier_rounds")
    defaults: ClassVar[Mapping[str, Any]] = {
        "mogrifier_rounds": 5,
        "mogrifier_rank": 0,
        "mogrifier_capped": False,
        "cuda_graphs": False,
        "forget_bias": LSTM.defaults["forget_bias"],
    }

    def build_layer(self, input_size: int, config: Mapping[str, Any]) -> MogrifierLayer:
        rounds, rank = config["mogrifier_rounds"], config["mogrifier_rank"]
        if not isinstance(rounds, int) or rounds < 1:
            raise ValueError(f"the number of rounds must be a whole number, at least 1, not {rounds}")
        if not isinstance(rank, int) or rank < 0:
            raise ValueError(f"the rank must be a whole number, or 0 for full matrices, not {rank}")
        capped, recorded = bool(config["mogrifier_capped"]), bool(config["cuda_graphs"])
        return MogrifierLayer(input_size, self.hidden_size, rounds, rank, capped, config["forget_bias"], recorded)

    def read_layer(self, layer: SteppedLayer, sequence: Tensor, state: State) -> tuple[Tensor, State]:
        one_word = sequence.size(1) == 1 and not torch.is_grad_enabled()
        if one_word or not isinstance(layer, MogrifierLayer) or not isinstance(layer.from_state, nn.Linear):  # or rounded layers
            return super().read_layer(layer, sequence, state)
        return layer.read_all(sequence, state, self.regularisation)
