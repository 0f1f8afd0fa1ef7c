"""The LSTM-Network of Cheng, Dong and Lapata (2016), "Long Short-Term Memory-Networks for Machine Reading".

Shapes: B sentences in the batch, T positions, E embedding, L layers, H hidden size, M memory slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.attention import Columns, masked_softmax
from attlm_fairseq.modules.kernels.lstm_cell import lstm_cell_with_gradients
from attlm_fairseq.modules.recurrence.lstm import LSTM
from attlm_fairseq.modules.recurrence.lstm_layer import LSTMLayer
from attlm_fairseq.modules.recurrence.recurrence import Product
from attlm_fairseq.modules.recurrence.stepped_layers import SteppedLayers, recurrent_product
from attlm_fairseq.modules.regularisation import Regularisation
from attlm_fairseq.modules.state import State, append_slots


class LSTMNLayer(LSTMLayer):
    """One layer of ``LSTMN``. Its state is ``h~`` (B, H), and by slot ``W_h h_i`` (B, M, H), ``[h_i; c_i]`` (B, M, 2 H) and a mask."""

    def __init__(self, input_size: int, hidden_size: int, forget_bias: float | None) -> None:
        super().__init__(input_size, hidden_size, forget_bias)
        self.state_keys = nn.Linear(hidden_size, hidden_size, bias=False)  # W_h
        self.input_query = nn.Linear(input_size, hidden_size, bias=False)  # W_x
        self.read_query = nn.Linear(hidden_size, hidden_size, bias=False)  # W_h~
        self.score_vector = nn.Parameter(torch.empty(hidden_size).uniform_(-0.05, 0.05))  # v

    def inputs(self, values: Tensor) -> Tensor:
        """Return the input projections of values (.., E): of the four gates and of the attention's query, (.., 5 H)."""
        dtype = self.score_vector.dtype  # under autocast the products have a lower precision; sums keep this one
        return torch.cat((self.from_input(values).to(dtype), self.input_query(values).to(dtype)), dim=-1)

    def initial(self, rows: int) -> State:
        """Return the state before the first position. The memory holds ``h_0`` and ``c_0``, zeros."""
        read = self.score_vector.new_zeros(rows, len(self.score_vector))
        slot = read.unsqueeze(1)
        keys = self.state_keys(slot).to(read.dtype)  # 0; computed so that W_h has a gradient whatever the length
        return read, keys, torch.cat((slot, slot), dim=2), slot.new_ones(rows, 1, dtype=torch.bool)

    def products(self, regularisation: Regularisation) -> Product:
        """Return the product of the gates with ``h~``."""
        return recurrent_product(self.from_state, regularisation, self.training)

    def attend(self, inputs: Tensor, before: State) -> Tensor:
        """Return the weights (B, M) of the states in the memory."""
        read, keys, _, present = before
        query = inputs[:, -read.size(1) :] + self.read_query(read)
        with torch.autocast(read.device.type, enabled=False):
            return masked_softmax(torch.tanh(keys + query.to(keys.dtype).unsqueeze(1)) @ self.score_vector, present)

    def step(self, inputs: Tensor, before: State, from_read: Product) -> tuple[Tensor, State]:
        """Return ``h_t`` and the new state."""
        read, keys, values, present = before
        weights = self.attend(inputs, before)
        with torch.autocast(read.device.type, enabled=False):  # c~ is a sum over the sentence: in bfloat16 its errors would add up
            read, cell = (weights.unsqueeze(1) @ values).squeeze(1).chunk(2, dim=1)
        gates = inputs[:, : 4 * read.size(1)] + from_read(read)
        hidden, cell = lstm_cell_with_gradients(gates, cell)
        slots = append_slots(
            (keys, values, present), self.state_keys(hidden).to(keys.dtype)[:, None], torch.cat((hidden, cell), 1)[:, None]
        )
        return hidden, (read, *slots)


class LSTMN(SteppedLayers):
    r"""An LSTM of L layers that reads all its earlier states and cells in place of the last ones.

    In each layer, with its input ``x_t``, over the states ``h_0 .. h_{t-1}`` of the layer and their cells:

    ``a_i = v . tanh(W_h h_i + W_x x_t + W_h~ h~_{t-1})``, ``s = softmax_i(a)``, ``h~_t = sum_i s_i h_i``, ``c~_t = sum_i s_i c_i``;

    ``h_t`` and ``c_t`` are those of an LSTM that has ``h~_t`` and ``c~_t`` for ``h_{t-1}`` and ``c_{t-1}``. ``h_0``, ``c_0`` and ``h~_0``
    are zeros. ``h_0`` stays in the memory.

    In training, a memory carried over from the previous segment is a constant. ``W_h`` gets gradients from the states of the current
    segment only. The state has slots: ``h~`` of the layers (B, L H), and ``W_h h_i`` (B, M, L, H), ``[h_i; c_i]`` (B, M, L, 2 H) and a mask
    (B, M). So time and memory grow with the square of the length. Its own attention weights are those of the top layer.
    """

    name: ClassVar[str] = "lstmn"
    counts: ClassVar[tuple[str, ...]] = ("decoder_layers",)
    defaults: ClassVar[Mapping[str, Any]] = {"forget_bias": LSTM.defaults["forget_bias"]}
    columns: ClassVar[Columns | None] = Columns(newest=1, initial=True)

    def build_layer(self, input_size: int, config: Mapping[str, Any]) -> LSTMNLayer:
        return LSTMNLayer(input_size, self.hidden_size, config["forget_bias"])

    def join(self, states: Sequence[State]) -> State:
        reads, keys, values, present = zip(*states, strict=True)
        return torch.cat(reads, dim=1), torch.stack(keys, dim=2), torch.stack(values, dim=2), present[0]

    def split(self, state: State) -> Sequence[State]:
        reads, keys, values, present = state
        parts = zip(reads.chunk(len(self.layers), dim=1), keys.unbind(2), values.unbind(2), strict=True)
        return [(*part, present) for part in parts]

    def updated_state(self, state: State) -> State:
        reads, keys, values, present = state
        layers = zip(cast("Sequence[LSTMNLayer]", self.layers), values[..., : self.hidden_size].unbind(2), strict=True)
        return reads, torch.stack([layer.state_keys(states).to(keys.dtype) for layer, states in layers], dim=2), values, present

    def weights(self, embedded: Tensor, before: State) -> Tensor:
        """Return the weights (B, T, M + T - 1) of the top layer; those of the memory's slots come first."""
        sequence, states = embedded, self.split(before)
        for layer, state in zip(self.stacked[:-1], states[:-1], strict=True):
            sequence, _ = self.read_layer(layer, sequence, state)
        top, state, found = cast(LSTMNLayer, self.stacked[-1]), states[-1], []
        for inputs in top.inputs(sequence).unbind(1):
            found.append(top.attend(inputs, state))
            _, state = top.step(inputs, state, top.products(self.regularisation))
        return torch.stack([nn.functional.pad(weights, (0, found[-1].size(1) - weights.size(1))) for weights in found], dim=1)
