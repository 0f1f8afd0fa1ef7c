"""The Recurrence contract: how a language model reads one word after another.

Shapes: B sentences in the batch, T positions, E embedding, H size of an output, K what a word contributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

from torch import Tensor

from attlm_fairseq.modules.regularisation import Regularisation
from attlm_fairseq.modules.state import State


class Recurrence(Protocol):
    """Turns embeddings into states ``h_t`` that depend on the words up to t, which the memory reader then reads.

    The whole sequence at once (``read``), in pieces, and word by word (``inputs``, ``step``) agree to rounding. Nothing is
    kept on the module. Every state has the batch first. Parameters with "bias" in their name start at 0, the others uniformly random.
    """

    name: ClassVar[str]  # under which checkpoints hold its weights
    defaults: ClassVar[Mapping[str, Any]]  # its own options, named as on fairseq-train's command line
    counts: ClassVar[tuple[str, ...]]  # the options that say how many weights there are: checkpoints that lie about them are not built
    hidden_size: int  # H

    @classmethod
    def from_config(cls, embedding_size: int, config: Mapping[str, Any], regularisation: Regularisation) -> Recurrence:
        """Build it from the options of its model. It leaves out inputs of its upper layers and recurrent weights. Raises ValueError."""
        ...

    def initialise_biases(self) -> None:
        """Set the biases that do not start at 0."""
        ...

    def initial(self, rows: int) -> State:
        """Return the state before the first word, ``rows`` times."""
        ...

    def read(self, embedded: Tensor, before: State) -> tuple[Tensor, State]:
        """Embeddings (B, T, E) and the state before them -> outputs (B, T, H) and the state after them."""
        ...

    def inputs(self, embedded: Tensor) -> Tensor:
        """Embeddings (B, E) -> what these words contribute (B, K) wherever they stand: scoring computes it once per distinct word."""
        ...

    def step(self, inputs: Tensor, before: State) -> tuple[Tensor, State]:
        """``inputs`` (B, K), which are overwritten, and the state before -> output (B, H) and the state after."""
        ...

    def bfloat16_steps(self) -> Bfloat16Recurrence:
        """Return a copy for scoring whose matrix products are in bfloat16, its weights rounded once."""
        ...


class Bfloat16Recurrence(Protocol):
    """The steps of a Recurrence with products in bfloat16. Its state may have a layout of its own."""

    def initial(self, rows: int) -> State:
        """As of the Recurrence."""
        ...

    def inputs(self, embedded: Tensor) -> Tensor:
        """As of the Recurrence."""
        ...

    def step_rows(self, inputs: Tensor, places: Tensor, before: State, rows: Tensor) -> tuple[Tensor, State]:
        """Step from the inputs (W, K) at ``places`` (N,) and the states before at ``rows`` (N,); both stay as they are."""
        ...


class SelectedSteps:
    """A ``Bfloat16Recurrence`` of anything that has ``initial``, ``inputs`` and ``step``: rows are selected, then stepped."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        self.initial, self.inputs = steps.initial, steps.inputs

    def step_rows(self, inputs: Tensor, places: Tensor, before: State, rows: Tensor) -> tuple[Tensor, State]:
        return self.steps.step(inputs.index_select(0, places), tuple(part.index_select(0, rows) for part in before))


class Steps(Protocol):
    """The part of a Recurrence that goes word by word."""

    @property
    def initial(self) -> Callable[[int], State]:
        """As of the Recurrence."""
        ...

    @property
    def inputs(self) -> Callable[[Tensor], Tensor]:
        """As of the Recurrence."""
        ...

    def step(self, inputs: Tensor, before: State) -> tuple[Tensor, State]:
        """As of the Recurrence."""
        ...
