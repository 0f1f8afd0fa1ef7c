"""Higher-order recurrent networks: Soltani and Jiang (2016), "Higher Order Recurrent Neural Networks".

Shapes: B sentences in the batch, T positions, E embedding, L layers, N order, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.kernels.low_precision import with_bfloat16_products
from attlm_fairseq.modules.recurrence.recurrence import SelectedSteps
from attlm_fairseq.modules.regularisation import NOTHING_LEFT_OUT, Regularisation
from attlm_fairseq.modules.state import State

Product = Callable[[Tensor], Tensor]
"""Multiplies states (B, H) by one of the recurrent matrices (H, H)."""

FEEDBACKS = ("fofe", "gated")
FORGETTING = 0.6  # alpha, the forgetting factor of FOFE (fixed-size ordinally forgetting encoding)


class HigherOrderLayer(nn.Module):
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

    def feedback(self, regularisation: Regularisation) -> tuple[Sequence[Product], Sequence[Product]]:
        """Return the products with all W_n and with all W_2n. In training, weight dropout is applied to the matrices."""
        modules = cast("Sequence[nn.Linear]", self.from_states), cast("Sequence[nn.Linear]", self.gate_states)
        if not (self.training and regularisation.weight_drop):
            return modules
        of_states, of_gates = (
            [partial(linear, weight=regularisation.drop_weights(each.weight, True)) for each in kind] for kind in modules
        )
        return of_states, of_gates

    def step(self, inputs: Tensor, before: Tensor, from_states: Sequence[Product], gate_states: Sequence[Product]) -> Tensor:
        """Return the N newest states after a step.

        Args:
            inputs: the input projections, as ``inputs`` returns them.
            before: the N newest states before the step, (B, N, H), newest first.
            from_states: the products with W_n, see ``feedback``.
            gate_states: the products with W_2n, see ``feedback``.
        """
        total, *gates = inputs.split(before.size(2), dim=1)
        for lag, (multiply, state) in enumerate(zip(from_states, before.unbind(1), strict=True)):
            product = multiply(state)
            if self.gated:
                total = total + torch.sigmoid(gates[lag] + gate_states[lag](state)) * product
            else:
                total = total + FORGETTING ** (lag + 1) * product
        return torch.cat((torch.tanh(total).unsqueeze(1), before[:, :-1]), dim=1)


class HigherOrderRNN(BiasesStartAtZero, nn.Module):
    r"""A recurrent network of L layers in which the N newest states feed back into the next state.

    The states before the first word are zeros, so they add nothing. The kinds of feedback are:

    - ``fofe``: ``h_t = tanh(W_in x_t + b + sum_n alpha^n W_n h_{t-n})`` with alpha = 0.6;
    - ``gated``: ``h_t = tanh(W_in x_t + b + sum_n r_n * W_n h_{t-n})`` with ``r_n = sigmoid(W_1n x_t + W_2n h_{t-n})``.

    Its state holds the N newest states of each layer, newest first: (B, L, N, H).
    """

    name: ClassVar[str] = "hornn"
    counts: ClassVar[tuple[str, ...]] = ("decoder_layers", "hornn_order")
    defaults: ClassVar[Mapping[str, Any]] = {"hornn_order": 3, "hornn_feedback": "gated"}
    below: tuple[int, ...] = ()

    def __init__(
        self,
        embedding_size: int,
        hidden_size: int,
        layers: int,
        order: int,
        feedback: str,
        regularisation: Regularisation = NOTHING_LEFT_OUT,
    ) -> None:
        """Build the layers.

        Raises:
            ValueError: ``feedback`` is not one of ``FEEDBACKS``, or ``order`` is below 1.
        """
        super().__init__()
        if feedback not in FEEDBACKS:
            raise ValueError(f"feedback {feedback!r} is not one of: {', '.join(FEEDBACKS)}")
        if not isinstance(order, int) or order < 1:
            raise ValueError(f"the order must be a whole number of states that feed back, at least 1, not {order}")
        self.hidden_size, self.order = hidden_size, order
        sizes = [embedding_size, *[hidden_size] * (layers - 1)]
        self.layers = nn.ModuleList(HigherOrderLayer(size, hidden_size, order, feedback == "gated") for size in sizes)
        self.regularisation = regularisation

    @property
    def stacked(self) -> Sequence[HigherOrderLayer]:
        """The layers, typed for mypy: ``nn.ModuleList`` does not know the type of its elements."""
        return cast("Sequence[HigherOrderLayer]", self.layers)

    @classmethod
    def from_config(cls, embedding_size: int, config: Mapping[str, Any], regularisation: Regularisation) -> HigherOrderRNN:
        layers, order = config["decoder_layers"], config["hornn_order"]
        return cls(embedding_size, config["decoder_hidden_size"], layers, order, str(config["hornn_feedback"]), regularisation)

    def initial(self, rows: int) -> State:
        return (self.stacked[0].from_input.bias.new_zeros(rows, len(self.layers), self.order, self.hidden_size),)

    def read(self, embedded: Tensor, before: State) -> tuple[Tensor, State]:
        """Compute layer by layer: the input projections for all positions at once, the feedback step by step."""
        sequence, last = embedded, []
        for number, (layer, states) in enumerate(zip(self.stacked, before[0].unbind(1), strict=True)):
            outputs = []
            of_all = layer.inputs(self._dropped(sequence) if number else sequence)
            feedback = layer.feedback(self.regularisation)
            for inputs in of_all.unbind(1):
                states = layer.step(inputs, states, *feedback)
                outputs.append(states[:, 0])
            sequence = torch.stack(outputs, dim=1)
            last.append(states)
        return sequence, (torch.stack(last, dim=1),)

    def inputs(self, embedded: Tensor) -> Tensor:
        """Return the input projections of the first layer: for its state, then for each of its gates."""
        return self.stacked[0].inputs(embedded)

    def step(self, inputs: Tensor, before: State) -> tuple[Tensor, State]:
        after: list[Tensor] = []
        for number, (layer, states) in enumerate(zip(self.stacked, before[0].unbind(1), strict=True)):
            inputs = layer.inputs(self._dropped(after[-1][:, 0])) if number else inputs
            after.append(layer.step(inputs, states, *layer.feedback(self.regularisation)))
        return after[-1][:, 0], (torch.stack(after, dim=1),)

    def _dropped(self, values: Tensor) -> Tensor:
        """Apply dropout to the outputs (B, T, H) or (B, H) of the layer below."""
        return self.regularisation.drop(values, self.regularisation.dropout_between, self.training)

    def bfloat16_steps(self) -> SelectedSteps:
        return SelectedSteps(with_bfloat16_products(self))
