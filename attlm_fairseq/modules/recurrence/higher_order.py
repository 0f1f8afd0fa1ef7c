"""Higher-order recurrent networks: Soltani and Jiang (2016), "Higher Order Recurrent Neural Networks".

Shapes: B sentences in the batch, T positions, E embedding, L layers, N order, H hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.recurrence.recurrence import NoAttention, Product
from attlm_fairseq.modules.recurrence.stepped_layers import SteppedLayers, recurrent_product
from attlm_fairseq.modules.regularisation import Regularisation
from attlm_fairseq.modules.state import State

FEEDBACKS = ("fofe", "gated")
FORGETTING = 0.6  # alpha, the forgetting factor of FOFE (fixed-size ordinally forgetting encoding)


class HigherOrderLayer(BiasesStartAtZero, nn.Module):
    """One layer of ``HigherOrderRNN``, with the weights of its equations."""

    def __init__(self, input_size: int, hidden_size: int, order: int, gated: bool) -> None:
        super().__init__()
        self.order, self.gated = order, gated
        self.from_input = nn.Linear(input_size, hidden_size)  # W_in, b
        self.from_states = nn.ModuleList(nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(order))  # W_n
        gates = order if gated else 0
        self.gate_inputs = nn.ModuleList(nn.Linear(input_size, hidden_size, bias=False) for _ in range(gates))  # W_1n
        self.gate_states = nn.ModuleList(nn.Linear(hidden_size, hidden_size, bias=False) for _ in range(gates))  # W_2n

    def inputs(self, values: Tensor) -> Tensor:
        """Return the input projections of values (.., E): (.., H), or (.., (1 + N) H) with gates, the state's first."""
        dtype = self.from_input.bias.dtype  # under autocast the products have a lower precision; sums keep this one
        return torch.cat([layer(values).to(dtype) for layer in (self.from_input, *self.gate_inputs)], dim=-1)

    def initial(self, rows: int) -> State:
        return (self.from_input.bias.new_zeros(rows, self.order, len(self.from_input.bias)),)

    def products(self, regularisation: Regularisation) -> tuple[Sequence[Product], Sequence[Product]]:
        """Return the products with all W_n and with all W_2n."""
        of_states, of_gates = (
            [recurrent_product(cast(nn.Linear, each), regularisation, self.training) for each in kind]
            for kind in (self.from_states, self.gate_states)
        )
        return of_states, of_gates

    def step(self, inputs: Tensor, before: State, products: tuple[Sequence[Product], Sequence[Product]]) -> tuple[Tensor, State]:
        """Return the newest state and the N newest states, given the N newest states before (B, N, H), newest first."""
        (states,), (from_states, gate_states) = before, products
        total, *gates = inputs.split(states.size(2), dim=1)
        for lag, (multiply, state) in enumerate(zip(from_states, states.unbind(1), strict=True)):
            product = multiply(state)
            if self.gated:
                total = total + torch.sigmoid(gates[lag] + gate_states[lag](state)) * product
            else:
                total = total + FORGETTING ** (lag + 1) * product
        newest = torch.tanh(total)
        return newest, (torch.cat((newest.unsqueeze(1), states[:, :-1]), dim=1),)


class HigherOrderRNN(NoAttention, SteppedLayers):
    r"""A recurrent network of L layers in which the N newest states feed back into the next state.

    The states before the first word are zeros, so they add nothing. The kinds of feedback are:

    - ``fofe``: ``h_t = tanh(W_in x_t + b + sum_n alpha^n W_n h_{t-n})`` with alpha = 0.6;
    - ``gated``: ``h_t = tanh(W_in x_t + b + sum_n r_n * W_n h_{t-n})`` with ``r_n = sigmoid(W_1n x_t + W_2n h_{t-n})``.

    Its state holds the N newest states of each layer, newest first: (B, N, L, H).
    """

    name: ClassVar[str] = "hornn"
    counts: ClassVar[tuple[str, ...]] = ("decoder_layers", "hornn_order")
    defaults: ClassVar[Mapping[str, Any]] = {"hornn_order": 3, "hornn_feedback": "gated"}

    def build_layer(self, input_size: int, config: Mapping[str, Any]) -> HigherOrderLayer:
        order, feedback = config["hornn_order"], str(config["hornn_feedback"])
        if feedback not in FEEDBACKS:
            raise ValueError(f"feedback {feedback!r} is not one of: {', '.join(FEEDBACKS)}")
        if not isinstance(order, int) or order < 1:
            raise ValueError(f"the order must be a whole number of states that feed back, at least 1, not {order}")
        return HigherOrderLayer(input_size, self.hidden_size, order, feedback == "gated")
