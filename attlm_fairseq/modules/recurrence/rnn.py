"""The plain (Elman) RNN.

Shapes: B sentences in the batch, T positions, E embedding, L layers, H size of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.kernels.low_precision import Bfloat16Linear
from attlm_fairseq.modules.recurrence.recurrence import NoAttention, SelectedSteps, with_layers_below
from attlm_fairseq.modules.recurrence.torch_layers import keep_one_bias, rnn_layer, rnn_layer_by_steps, weights_of
from attlm_fairseq.modules.regularisation import NOTHING_LEFT_OUT, Regularisation
from attlm_fairseq.modules.state import State


class RNN(BiasesStartAtZero, NoAttention, nn.RNN):
    """A recurrent network of L layers: ``h_t = tanh(W x_t + U h_{t-1} + b)``. Its state is ``h`` (B, L, H)."""

    name: ClassVar[str] = "rnn"
    counts: ClassVar[tuple[str, ...]] = ("decoder_layers",)
    defaults: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        embedding_size: int,
        hidden_size: int,
        layers: int,
        regularisation: Regularisation = NOTHING_LEFT_OUT,
        below: tuple[int, ...] = (),
    ) -> None:
        dropout = regularisation.dropout_between if layers > 1 else 0.0
        super().__init__(embedding_size, hidden_size, layers, batch_first=True, dropout=dropout)
        self.regularisation = regularisation
        self.below = below
        keep_one_bias(self)

    @classmethod
    def from_config(cls, embedding_size: int, config: Mapping[str, Any], regularisation: Regularisation) -> RNN:
        sizes = config["decoder_hidden_size"], config["decoder_layers"]
        return cls(embedding_size, *sizes, regularisation, tuple(config.get("lower_layers", ())))

    def initial(self, rows: int) -> State:
        return (weights_of(self, 0)[1].new_zeros(rows, self.num_layers, self.hidden_size),)

    def read(self, embedded: Tensor, before: State) -> tuple[Tensor, State]:
        low = torch.is_autocast_enabled(embedded.device.type)
        if low or self.below or (self.training and self.regularisation.needs_layers):
            return self._read_layers(embedded, before, rnn_layer_by_steps if low else rnn_layer)
        outputs, after = self(embedded, before[0].transpose(0, 1).contiguous())
        return outputs, (after.transpose(0, 1),)

    def _read_layers(self, sequence: Tensor, before: State, read_layer: Callable[..., tuple[Tensor, Tensor]]) -> tuple[Tensor, State]:
        """Compute ``read`` layer by layer, with dropout between the layers."""
        last, outputs = [], []
        for layer, hidden in enumerate(before[0].unbind(1)):
            weight, recurrent, bias = weights_of(self, layer)
            if layer:
                sequence = self.regularisation.drop(sequence, self.dropout, self.training)
                outputs.append(sequence)
            sequence, hidden = read_layer(sequence, weight, self.regularisation.drop_weights(recurrent, self.training), bias, hidden)
            last.append(hidden)
        return with_layers_below([*outputs, sequence], self.below), (torch.stack(last, dim=1),)

    def inputs(self, embedded: Tensor) -> Tensor:
        """Return the input projections of the first layer, ``W x + b`` (B, H)."""
        weight, _, bias = weights_of(self, 0)
        return nn.functional.linear(embedded, weight, bias)

    def step(self, inputs: Tensor, before: State) -> tuple[Tensor, State]:
        hidden: list[Tensor] = []
        for layer, h in enumerate(before[0].unbind(1)):
            weight, recurrent, bias = weights_of(self, layer)
            if layer:
                inputs = nn.functional.linear(self.regularisation.drop(hidden[-1], self.dropout, self.training), weight, bias)
            hidden.append(torch.tanh(inputs + nn.functional.linear(h, recurrent)))
        return with_layers_below(hidden, self.below), (torch.stack(hidden, 1),)

    def bfloat16_steps(self) -> SelectedSteps:
        return SelectedSteps(Bfloat16RNN(self))


class Bfloat16RNN:
    """The steps of an ``RNN`` in evaluation, with products in bfloat16 and states in float32."""

    def __init__(self, rnn: RNN) -> None:
        layers = [weights_of(rnn, layer) for layer in range(rnn.num_layers)]
        self.initial, self.below = rnn.initial, rnn.below
        self.from_below = [Bfloat16Linear(weight, bias) for weight, _, bias in layers]
        self.from_before = [Bfloat16Linear(recurrent, None) for _, recurrent, _ in layers]
        self.inputs = self.from_below[0]

    def step(self, inputs: Tensor, before: State) -> tuple[Tensor, State]:
        hidden: list[Tensor] = []
        for layer, (from_before, h) in enumerate(zip(self.from_before, before[0].unbind(1), strict=True)):
            hidden.append(torch.tanh((self.from_below[layer](hidden[-1]) if layer else inputs) + from_before(h)))
        return with_layers_below(hidden, self.below), (torch.stack(hidden, 1),)
