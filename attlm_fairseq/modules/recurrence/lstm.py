"""The LSTM that all the papers use, with one bias per gate.

Shapes: B sentences in the batch, T positions, E embedding, L layers, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.kernels.bfloat16_lstm import bfloat16_lstm_layer
from attlm_fairseq.modules.kernels.bfloat16_lstm_steps import Bfloat16LSTM
from attlm_fairseq.modules.kernels.lstm_cell import lstm_cell
from attlm_fairseq.modules.recurrence.recurrence import NoAttention, with_layers_below
from attlm_fairseq.modules.recurrence.torch_layers import keep_one_bias, lstm_layer, weights_of
from attlm_fairseq.modules.regularisation import NOTHING_LEFT_OUT, Regularisation
from attlm_fairseq.modules.state import State


class LSTM(NoAttention, nn.LSTM):
    """An LSTM of L layers.

    ``i, f, o = sigmoid(W x_t + U h_{t-1} + b)``, ``g = tanh(W x_t + U h_{t-1} + b)``, ``c_t = f c_{t-1} + i g`` and
    ``h_t = o tanh(c_t)``, with W, U and b of its own for each of i, f, o and g.

    Its state is ``h`` and ``c``, (B, L, H) each. Under autocast to bfloat16, products are in bfloat16, the state in float32.
    """

    name: ClassVar[str] = "lstm"
    counts: ClassVar[tuple[str, ...]] = ("decoder_layers",)
    defaults: ClassVar[Mapping[str, Any]] = {"forget_bias": 1.0}

    def __init__(
        self,
        embedding_size: int,
        hidden_size: int,
        layers: int,
        regularisation: Regularisation = NOTHING_LEFT_OUT,
        forget_bias: float = 0.0,
        below: tuple[int, ...] = (),
    ) -> None:
        dropout = regularisation.dropout_between if layers > 1 else 0.0
        super().__init__(embedding_size, hidden_size, layers, batch_first=True, dropout=dropout)
        self.regularisation = regularisation
        self.forget_bias = forget_bias
        self.below = below
        keep_one_bias(self)

    @classmethod
    def from_config(cls, embedding_size: int, config: Mapping[str, Any], regularisation: Regularisation) -> LSTM:
        sizes = config["decoder_hidden_size"], config["decoder_layers"]
        return cls(embedding_size, *sizes, regularisation, config["forget_bias"], tuple(config.get("lower_layers", ())))

    def initialise_biases(self) -> None:
        """Set the biases of the forget gates to ``forget_bias``."""
        for layer in range(self.num_layers):
            _, forget, _, _ = getattr(self, f"bias_ih_l{layer}").chunk(4)
            nn.init.constant_(forget, self.forget_bias)

    def initial(self, rows: int) -> State:
        zeros = weights_of(self, 0)[1].new_zeros(rows, self.num_layers, self.hidden_size)
        return zeros, zeros

    def read(self, embedded: Tensor, before: State) -> tuple[Tensor, State]:
        low = torch.is_autocast_enabled(embedded.device.type)
        if low or self.below or (self.training and self.regularisation.needs_layers):
            return self._read_layers(embedded, before, bfloat16_lstm_layer if low else lstm_layer)
        hidden, cell = (part.transpose(0, 1).contiguous() for part in before)  # (L, B, H)
        outputs, after = self(embedded, (hidden, cell))
        return outputs, tuple(part.transpose(0, 1) for part in after)

    def _read_layers(
        self, sequence: Tensor, before: State, read_layer: Callable[..., tuple[Tensor, Tensor, Tensor]]
    ) -> tuple[Tensor, State]:
        """Compute ``read`` layer by layer, with dropout between the layers."""
        hidden, cell, outputs = [], [], []
        for layer, (h, c) in enumerate(zip(before[0].unbind(1), before[1].unbind(1), strict=True)):
            weight, recurrent, bias = weights_of(self, layer)
            if layer:
                sequence = self.regularisation.drop(sequence, self.dropout, self.training)
                outputs.append(sequence)
            sequence, h, c = read_layer(sequence, weight, self.regularisation.drop_weights(recurrent, self.training), bias, h, c)
            hidden.append(h)
            cell.append(c)
        return with_layers_below([*outputs, sequence], self.below), (torch.stack(hidden, 1), torch.stack(cell, 1))

    def inputs(self, embedded: Tensor) -> Tensor:
        """Return the input projections of the first layer's four gates, ``W x + b`` (B, 4 H)."""
        weight, _, bias = weights_of(self, 0)
        return nn.functional.linear(embedded, weight, bias)

    def step(self, inputs: Tensor, before: State) -> tuple[Tensor, State]:
        """Compute layer by layer. torch's fused call copies the weights at every step, which costs as much as the products."""
        hidden: list[Tensor] = []
        cell: list[Tensor] = []
        for layer, (h, c) in enumerate(zip(before[0].unbind(1), before[1].unbind(1), strict=True)):
            weight, recurrent, bias = weights_of(self, layer)
            if layer:
                inputs = nn.functional.linear(self.regularisation.drop(hidden[-1], self.dropout, self.training), weight, bias)
            # In place, since memory traffic dominates the cost. Not under autocast, which ignores in-place products.
            low = torch.is_autocast_enabled(inputs.device.type)
            gates = torch.addmm(inputs, h, recurrent.t()) if low else inputs.addmm_(h, recurrent.t())
            for values, new in zip((hidden, cell), lstm_cell(gates, c), strict=True):
                values.append(new)
        return with_layers_below(hidden, self.below), (torch.stack(hidden, 1), torch.stack(cell, 1))

    def bfloat16_steps(self) -> Bfloat16LSTM:
        return Bfloat16LSTM(self, self.below)
