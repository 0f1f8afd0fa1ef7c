"""Recurrent weighted averages: Ostmeyer and Cowell (2017), "Machine Learning on Sequential Data Using a Recurrent Weighted Average".

Shapes: B sentences in the batch, E input size, L layers, H hidden size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.recurrence.recurrence import NoAttention, Product
from attlm_fairseq.modules.recurrence.stepped_layers import SteppedLayers, recurrent_product
from attlm_fairseq.modules.regularisation import Regularisation
from attlm_fairseq.modules.state import State, of_sums


class WeightedAverageLayer(BiasesStartAtZero, nn.Module):
    """One layer of ``WeightedAverage``. Its state is ``h``, the largest ``a``, and the two sums divided by its exp, (B, H) each."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.from_input = nn.Linear(input_size, 2 * hidden_size)  # W_u, W_g and b_u, b_g
        self.score_input = nn.Linear(input_size, hidden_size, bias=False)  # W_a
        self.from_state = nn.Linear(hidden_size, 2 * hidden_size, bias=False)  # U_g, U_a
        self.first_state = nn.Parameter(torch.empty(hidden_size).uniform_(-0.05, 0.05))  # s_0

    def inputs(self, values: Tensor) -> Tensor:
        """Return the input projections of values (.., E): of u, g and a, (.., 3 H)."""
        dtype = self.first_state.dtype  # under autocast the products have a lower precision; sums keep this one
        return torch.cat((self.from_input(values).to(dtype), self.score_input(values).to(dtype)), dim=-1)

    def initial(self, rows: int) -> State:
        first = torch.tanh(self.first_state).expand(rows, -1)
        zeros = torch.zeros_like(first, dtype=of_sums(first))
        return first, torch.full_like(zeros, torch.finfo(zeros.dtype).min), zeros, zeros

    def products(self, regularisation: Regularisation) -> Product:
        """Return the product with U_g and U_a."""
        return recurrent_product(self.from_state, regularisation, self.training)

    def step(self, inputs: Tensor, before: State, from_state: Product) -> tuple[Tensor, State]:
        hidden, largest, numerator, denominator = before
        u, g, a = inputs.chunk(3, dim=1)
        state_g, state_a = from_state(hidden).chunk(2, dim=1)
        a = (a + state_a).to(largest.dtype)
        after = torch.maximum(largest, a)
        kept, added = torch.exp(largest - after), torch.exp(a - after)
        numerator = numerator * kept + u * torch.tanh(g + state_g) * added
        denominator = denominator * kept + added
        hidden = torch.tanh(numerator / denominator).to(hidden.dtype)
        return hidden, (hidden, after, numerator, denominator)


class WeightedAverage(NoAttention, SteppedLayers):
    r"""A recurrent network of L layers whose state is an average over all words so far, with weights that never change.

    ``u_t = W_u x_t + b_u``, ``g_t = W_g x_t + U_g h_{t-1} + b_g``, ``a_t = W_a x_t + U_a h_{t-1}``, and by dimension
    ``h_t = tanh(sum_{i<=t} exp(a_i) u_i tanh(g_i) / sum_{i<=t} exp(a_i))``. ``h_0 = tanh(s_0)`` is learned.

    The sums are updated at each step, so all steps cost the same. The state is ``h``, the largest ``a``, and the two sums divided by
    the exp of the largest ``a``, (B, L, H) each.
    """

    name: ClassVar[str] = "rwa"
    counts: ClassVar[tuple[str, ...]] = ("decoder_layers",)
    defaults: ClassVar[Mapping[str, Any]] = {}

    def build_layer(self, input_size: int, config: Mapping[str, Any]) -> WeightedAverageLayer:
        return WeightedAverageLayer(input_size, self.hidden_size)
