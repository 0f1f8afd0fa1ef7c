"""Recurrences whose layers are computed step by step: the part that does not depend on the equations of a layer.

Shapes: B sentences in the batch, T positions, E embedding, L layers, H hidden size, K input projection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from attlm_fairseq.modules.kernels.low_precision import with_bfloat16_products
from attlm_fairseq.modules.recurrence.recurrence import Product, SelectedSteps, with_layers_below
from attlm_fairseq.modules.regularisation import Regularisation
from attlm_fairseq.modules.state import State


class SteppedLayer(Protocol):
    """One layer: its equations and its weights. Products go through ``nn.Linear`` layers."""

    def initialise_biases(self) -> None:
        """See ``Recurrence.initialise_biases``."""
        ...

    def initial(self, rows: int) -> State:
        """Return the layer's state before the first position."""
        ...

    def inputs(self, values: Tensor) -> Tensor:
        """Return the input projections (.., K) of inputs (.., E), which do not depend on the state."""
        ...

    def products(self, regularisation: Regularisation) -> Any:
        """Return the products with the recurrent matrices for ``step``. In training, weight dropout is applied to the matrices."""
        ...

    def step(self, inputs: Tensor, before: State, products: Any) -> tuple[Tensor, State]:
        """Return the output (B, H) and the new state, given the input projections (B, K) and the state before."""
        ...


class SteppedLayers(nn.Module):
    """Base of recurrences of L layers with a loop over positions. The input projections of a layer run before its loop.

    By default the state of the recurrence holds the states of its layers, stacked in the last dimension but one.
    """

    def __init__(self, embedding_size: int, config: Mapping[str, Any], regularisation: Regularisation) -> None:
        super().__init__()
        self.hidden_size: int = config["decoder_hidden_size"]
        self.lower_size = self.hidden_size
        sizes = [embedding_size, *[self.hidden_size] * (config["decoder_layers"] - 1)]
        self.layers = nn.ModuleList(self.build_layer(size, config) for size in sizes)
        self.regularisation = regularisation
        self.below: tuple[int, ...] = config["lower_layers"]

    def build_layer(self, input_size: int, config: Mapping[str, Any]) -> nn.Module:
        """Build one ``SteppedLayer`` from the options of the model. Raises ValueError for an invalid option."""
        raise NotImplementedError

    @property
    def stacked(self) -> Sequence[SteppedLayer]:
        """The layers, typed for mypy: ``nn.ModuleList`` does not know the type of its elements."""
        return cast("Sequence[SteppedLayer]", self.layers)

    def join(self, states: Sequence[State]) -> State:
        """Return the state of the recurrence, given the state of each layer."""
        return tuple(torch.stack(parts, dim=-2) for parts in zip(*states, strict=True))

    def split(self, state: State) -> Sequence[State]:
        """Return the state of each layer, given the state of the recurrence."""
        return list(zip(*(part.unbind(-2) for part in state), strict=True))

    def initialise_biases(self) -> None:
        for layer in self.stacked:
            layer.initialise_biases()

    def initial(self, rows: int) -> State:
        return self.join([layer.initial(rows) for layer in self.stacked])

    def read(self, embedded: Tensor, before: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        sequence, outputs, after = embedded, [], []
        for number, (layer, state) in enumerate(zip(self.stacked, self.split(before), strict=True)):
            if number:
                sequence = self.regularisation.drop(sequence, self.regularisation.dropout_between, self.training)
                outputs.append(sequence)
            sequence, state = self.read_layer(layer, sequence, state)
            after.append(state)
        return with_layers_below([*outputs, sequence], self.below), self.join(after)

    def read_layer(self, layer: SteppedLayer, sequence: Tensor, state: State) -> tuple[Tensor, State]:
        """Return the outputs (B, T, H) of a layer and its new state, given its inputs (B, T, E) and the state before them."""
        outputs, products = [], layer.products(self.regularisation)
        for inputs in layer.inputs(sequence).unbind(1):
            output, state = layer.step(inputs, state, products)
            outputs.append(output)
        return torch.stack(outputs, dim=1), state

    def inputs(self, embedded: Tensor) -> Tensor:
        """Return the input projections of the first layer."""
        return self.stacked[0].inputs(embedded)

    def step(self, inputs: Tensor, before: State) -> tuple[Tensor, State]:
        outputs: list[Tensor] = []
        after: list[State] = []
        for number, (layer, state) in enumerate(zip(self.stacked, self.split(before), strict=True)):
            if number:
                outputs[-1] = self.regularisation.drop(outputs[-1], self.regularisation.dropout_between, self.training)
                inputs = layer.inputs(outputs[-1])
            output, state = layer.step(inputs, state, layer.products(self.regularisation))
            outputs.append(output)
            after.append(state)
        return with_layers_below(outputs, self.below), self.join(after)

    def bfloat16_steps(self) -> SelectedSteps:
        return SelectedSteps(with_bfloat16_products(self))


def recurrent_product(layer: nn.Linear, regularisation: Regularisation, training: bool) -> Product:
    """Return the product with a recurrent matrix; in training, weight dropout is applied to the matrix."""
    if not (training and regularisation.weight_drop):
        return layer
    return partial(linear, weight=regularisation.drop_weights(layer.weight, True), bias=layer.bias)
