"""The IncrementalLM contract: language models that a decoder steps as a batch.

Shapes: N hypotheses, V vocabulary.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from attlm_fairseq.checkpoints.vocabulary import Vocabulary


class IncrementalLM(Protocol):
    """A language model, neural or n-gram, that scores a batch of hypotheses step by step.

    Begin with ``states = lm.start(N)``. Call ``lm.step(states, tokens)`` first with ``lm.eos`` for all rows, then with the
    token that each hypothesis took. Call ``lm.select`` when the decoder reorders, duplicates or drops hypotheses.

    Token ids are those of ``vocabulary``. Only the LM interprets its states; it stores none of them itself.
    """

    vocabulary: Vocabulary
    eos: int  # the token that starts and ends a sentence

    def start(self, rows: int = 1) -> Any:
        """Return the states of ``rows`` empty hypotheses. Pass ``eos`` to the first step."""

    def step(self, states: Any, tokens: Tensor) -> tuple[Tensor, Any]:
        """Read one token for each hypothesis.

        Args:
            states: the states of N hypotheses.
            tokens: the last token of each hypothesis, (N,).

        Returns:
            Natural-log probabilities (N, V) of the next token, ``eos`` included, and the new states.
        """

    def select(self, states: Any, rows: Tensor) -> Any:
        """Return the states of the given rows (N,) in this order; rows may be repeated."""
