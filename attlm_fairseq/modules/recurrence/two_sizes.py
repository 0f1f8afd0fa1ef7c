"""A recurrence whose top layer has another size than the layers below it, as in AWD-LSTM (Merity, Keskar and Socher 2018).

Shapes: B sentences in the batch, T positions, N rows, E embedding, H size of the layers below the top one, P size of the top layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.recurrence.recurrence import Bfloat16Recurrence, Recurrence
from attlm_fairseq.modules.regularisation import Regularisation
from attlm_fairseq.modules.state import State


class TwoSizes(nn.Module):
    """Two recurrences of one kind: ``lower`` are all layers but the top one; ``top`` is the top layer, which reads their outputs.

    Its state has the parts of the state of ``lower``, then those of ``top``.
    """

    lower: Recurrence
    top: Recurrence

    def __init__(
        self, kind: type[Recurrence], top_size: int, embedding_size: int, config: Mapping[str, Any], regularisation: Regularisation
    ) -> None:
        """Build both with the options of the model.

        Raises:
            ValueError: there is only one layer, or an option has an invalid value.
        """
        super().__init__()
        layers, lower_layers = config["decoder_layers"], config["lower_layers"]
        if layers < 2:
            raise ValueError(
                f"--decoder-top-size {top_size} is for 2 layers or more: give --decoder-layers 2 or more, or the --decoder-hidden-size "
                f"{config['decoder_hidden_size']} for both"
            )
        self.below: tuple[int, ...] = lower_layers
        self.needs_between = layers - 2 in lower_layers
        others = tuple(layer for layer in lower_layers if layer != layers - 2)
        self.lower = kind(embedding_size, {**config, "decoder_layers": layers - 1, "lower_layers": others}, regularisation)
        of_top = {"decoder_layers": 1, "decoder_hidden_size": top_size, "lower_layers": ()}
        self.top = kind(self.lower.hidden_size, {**config, **of_top}, regularisation)
        self.name, self.columns = kind.name, kind.columns
        self.hidden_size, self.lower_size = top_size, self.lower.hidden_size
        self.regularisation = regularisation
        self.lower_parts = len(self.lower.initial(1))

    def initialise_biases(self) -> None:
        self.lower.initialise_biases()
        self.top.initialise_biases()

    def initial(self, rows: int) -> State:
        return *self.lower.initial(rows), *self.top.initial(rows)

    def split(self, state: State) -> tuple[State, State]:
        """Return the state of ``lower`` and that of ``top``."""
        return state[: self.lower_parts], state[self.lower_parts :]

    def read(self, embedded: Tensor, before: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        of_lower, of_top = self.split(before)
        outputs, of_lower = self.lower.read(embedded, of_lower, lengths)
        outputs = self.dropped(outputs)
        top, of_top = self.top.read(outputs[..., : self.lower_size], of_top, lengths)
        return self.joined(top, outputs), (*of_lower, *of_top)

    def weights(self, embedded: Tensor, before: State) -> Tensor | None:
        """Return the weights of ``top``."""
        of_lower, of_top = self.split(before)
        outputs, _ = self.lower.read(embedded, of_lower)
        return self.top.weights(self.dropped(outputs)[..., : self.lower_size], of_top)

    def inputs(self, embedded: Tensor) -> Tensor:
        return self.lower.inputs(embedded)

    def updated_state(self, state: State) -> State:
        of_lower, of_top = self.split(state)
        return *self.lower.updated_state(of_lower), *self.top.updated_state(of_top)

    def step(self, inputs: Tensor, before: State) -> tuple[Tensor, State]:
        of_lower, of_top = self.split(before)
        outputs, of_lower = self.lower.step(inputs, of_lower)
        outputs = self.dropped(outputs)
        top, of_top = self.top.step(self.top.inputs(outputs[..., : self.lower_size]), of_top)
        return self.joined(top, outputs), (*of_lower, *of_top)

    def dropped(self, outputs: Tensor) -> Tensor:
        """Return the outputs of ``lower``, with dropout of the first H numbers: those of its own top layer, which ``top`` reads."""
        between, others = outputs[..., : self.lower_size], outputs[..., self.lower_size :]
        between = self.regularisation.drop(between, self.regularisation.dropout_between, self.training)
        return torch.cat((between, others), dim=-1) if others.size(-1) else between

    def joined(self, top: Tensor, outputs: Tensor) -> Tensor:
        """Return the outputs of ``top``, followed by those of ``lower`` that the output layer needs."""
        others = outputs if self.needs_between else outputs[..., self.lower_size :]
        return torch.cat((top, others), dim=-1) if self.below else top

    def bfloat16_steps(self) -> Bfloat16TwoSizes:
        return Bfloat16TwoSizes(self)


class Bfloat16TwoSizes:
    """The steps of ``TwoSizes`` in evaluation, with products in bfloat16."""

    def __init__(self, recurrence: TwoSizes) -> None:
        self.recurrence = recurrence
        self.lower: Bfloat16Recurrence = recurrence.lower.bfloat16_steps()
        self.top: Bfloat16Recurrence = recurrence.top.bfloat16_steps()
        self.inputs = self.lower.inputs

    def initial(self, rows: int) -> State:
        return *self.lower.initial(rows), *self.top.initial(rows)

    def step_rows(self, inputs: Tensor, places: Tensor, before: State, rows: Tensor) -> tuple[Tensor, State]:
        of_lower, of_top = self.recurrence.split(before)
        outputs, of_lower = self.lower.step_rows(inputs, places, of_lower, rows)
        from_lower = self.top.inputs(outputs[:, : self.recurrence.lower_size])
        top, of_top = self.top.step_rows(from_lower, torch.arange(len(rows), device=rows.device), of_top, rows)
        return self.recurrence.joined(top, outputs), (*of_lower, *of_top)
