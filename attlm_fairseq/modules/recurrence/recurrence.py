"""The Recurrence contract: how a language model reads one word after another.

Shapes: B sentences in the batch, T positions, E embedding, H size of an output, K input projection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from attlm_fairseq.modules.attention import Columns
from attlm_fairseq.modules.regularisation import Regularisation
from attlm_fairseq.modules.state import State

Product = Callable[[Tensor], Tensor]
"""Multiplies states (B, H) by a recurrent matrix."""


class Recurrence(Protocol):
    """Turns embeddings into states ``h_t`` that depend on the words up to t. The memory reader reads these states.

    ``read`` (whole sequences or pieces) and ``inputs`` with ``step`` (single words) agree, except for rounding. The
    module stores no state. The first dimension of every state is the batch. Parameters with "bias" in their name are
    initialised to 0, all others uniformly at random.
    """

    name: ClassVar[str]  # the prefix of its weights in checkpoints
    defaults: ClassVar[Mapping[str, Any]]  # its own options, named as on fairseq-train's command line
    counts: ClassVar[tuple[str, ...]]  # options that set the number of weights; loading compares them with the checkpoint
    columns: ClassVar[Columns | None]  # the meaning of the columns of its own attention weights; None if it has none
    hidden_size: int  # H
    lower_size: int  # the size of the output of each layer below the top one
    below: tuple[int, ...]  # lower layers (0 is the first) whose outputs follow the top layer's in all outputs

    def __init__(self, embedding_size: int, config: Mapping[str, Any], regularisation: Regularisation) -> None:
        """Build the recurrence from the options of its model.

        Of ``regularisation``, it applies the dropout between layers and the dropout of recurrent weights. ``lower_layers`` in
        ``config`` are the layers ``below`` that the output layer needs.

        Raises:
            ValueError: an option has an invalid value.
        """
        ...

    def initialise_biases(self) -> None:
        """Set the biases that start at another value than 0, and the parameters that are not to be drawn."""
        ...

    def initial(self, rows: int) -> State:
        """Return the state before the first word for ``rows`` sentences."""
        ...

    def read(self, embedded: Tensor, before: State, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        """Return outputs (B, T, H) and the new state, given embeddings (B, T, E) and the state before them.

        With layers ``below``, outputs are wider: the outputs of these layers follow, after dropout. ``lengths`` (B,), on the CPU,
        says how many words each row has, at least 1: what is computed after them is not used, nor is the new state.
        """
        ...

    def weights(self, embedded: Tensor, before: State) -> Tensor | None:
        """Return its attention weights (B, T, M) while it reads, given the arguments of ``read``; None if it has none."""
        ...

    def inputs(self, embedded: Tensor) -> Tensor:
        """Return the input projections (B, K) of embeddings (B, E). Scoring computes them once per distinct word."""
        ...

    def step(self, inputs: Tensor, before: State) -> tuple[Tensor, State]:
        """Return the output (B, H) and the new state, given ``inputs`` (B, K), which are overwritten, and the state before."""
        ...

    def updated_state(self, state: State) -> State:
        """Return the state after the weights have changed: products with them that it keeps for speed are computed again."""
        ...

    def bfloat16_steps(self) -> Bfloat16Recurrence:
        """Return a copy for scoring with matrix products in bfloat16. Its weights are rounded once, here."""
        ...


def with_layers_below(outputs: Sequence[Tensor], below: Sequence[int]) -> Tensor:
    """Return the top layer's output (.., H), followed by those of the layers ``below``, given the outputs of all layers."""
    return torch.cat([outputs[-1], *(outputs[layer] for layer in below)], dim=-1) if below else outputs[-1]


class NoAttention:
    """Base of the recurrences that do not attend to anything themselves, and keep no products in their state."""

    columns: ClassVar[Columns | None] = None

    def weights(self, embedded: Tensor, before: State) -> None:
        """Return None."""

    def updated_state(self, state: State) -> State:
        return state


class Bfloat16Recurrence(Protocol):
    """The steps of a Recurrence with products in bfloat16. The layout of its state may differ from the Recurrence's."""

    def initial(self, rows: int) -> State:
        """See ``Recurrence.initial``."""
        ...

    def inputs(self, embedded: Tensor) -> Tensor:
        """See ``Recurrence.inputs``."""
        ...

    def step_rows(self, inputs: Tensor, places: Tensor, before: State, rows: Tensor) -> tuple[Tensor, State]:
        """Step N selected rows; ``inputs`` and ``before`` do not change.

        Args:
            inputs: the input projections of W words, (W, K).
            places: the row of ``inputs`` for each step, (N,).
            before: the states before.
            rows: the row of ``before`` for each step, (N,).

        Returns:
            Outputs (N, H) and the new states.
        """
        ...


class SelectedSteps:
    """Makes a ``Bfloat16Recurrence`` of any ``Steps``: it selects the rows, then steps them."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.initial, self.inputs = steps.initial, steps.inputs

    def step_rows(self, inputs: Tensor, places: Tensor, before: State, rows: Tensor) -> tuple[Tensor, State]:
        return self.steps.step(inputs.index_select(0, places), tuple(part.index_select(0, rows) for part in before))


class Steps(Protocol):
    """The part of a Recurrence that reads single words."""

    @property
    def initial(self) -> Callable[[int], State]:
        """See ``Recurrence.initial``."""
        ...

    @property
    def inputs(self) -> Callable[[Tensor], Tensor]:
        """See ``Recurrence.inputs``."""
        ...

    def step(self, inputs: Tensor, before: State) -> tuple[Tensor, State]:
        """See ``Recurrence.step``."""
        ...
