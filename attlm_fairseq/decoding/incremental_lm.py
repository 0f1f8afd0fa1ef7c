"""The contract of language models that a decoder steps as a batch.

Shapes: N hypotheses, V vocabulary.
"""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from attlm_fairseq.checkpoints.vocabulary import Vocabulary


class IncrementalLM(Protocol):
    """A language model in batched steps, neural or n-gram. Its states are values that only it understands: nothing is kept in it.

    ``states = lm.start(N)``, then ``lm.step(states, tokens)`` with ``lm.eos``, the symbol that starts a sentence, and from then on with
    the token that each hypothesis took. ``lm.select`` follows the decoder when it reorders, duplicates or drops hypotheses.
    Token ids are those of ``vocabulary``.
    """

    vocabulary: Vocabulary
    eos: int

    def start(self, rows: int = 1) -> Any:
        """Return the states of ``rows`` hypotheses that have not begun: the first step feeds them ``eos``."""
        ...

    def step(self, states: Any, tokens: Tensor) -> tuple[Tensor, Any]:
        """Read one token for each hypothesis.

        Args:
            states: the states of N hypotheses.
            tokens: the token (N,) that each has just taken.

        Returns:
            Natural-log probabilities (N, V) of the next token, and the new states.
        """
        ...

    def select(self, states: Any, rows: Tensor) -> Any:
        """Return the states of the given rows (N,), in their order; a row may be taken any number of times."""
        ...
