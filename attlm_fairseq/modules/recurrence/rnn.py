"""The plain (Elman) RNN.

Shapes: B sentences in the batch, L layers, H size of a state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.kernels.low_precision import Bfloat16Linear
from attlm_fairseq.modules.recurrence.recurrence import SelectedSteps, with_layers_below
from attlm_fairseq.modules.recurrence.torch_layers import ReadLayer, TorchLayers, rnn_layer, rnn_layer_by_steps, weights_of
from attlm_fairseq.modules.state import State


class RNN(BiasesStartAtZero, TorchLayers, nn.RNN):
    """A recurrent network of L layers: ``h_t = tanh(W x_t + U h_{t-1} + b)``. Its state is ``h`` (B, L, H)."""

    name: ClassVar[str] = "rnn"
    counts: ClassVar[tuple[str, ...]] = ("decoder_layers",)
    defaults: ClassVar[Mapping[str, Any]] = {}

    def initial(self, rows: int) -> State:
        return (weights_of(self, 0)[1].new_zeros(rows, self.num_layers, self.hidden_size),)

    def layer_reader(self, low: bool, lengths: Tensor | None) -> ReadLayer:
        return rnn_layer_by_steps if low else rnn_layer

    def read_together(self, embedded: Tensor, before: State) -> tuple[Tensor, State]:
        outputs, after = self(embedded, *before)
        return outputs, (after,)

    def cell(self, inputs: Tensor, recurrent: Tensor, before: State) -> State:
        return (torch.tanh(inputs + nn.functional.linear(before[0], recurrent)),)

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
