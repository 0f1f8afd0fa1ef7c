"""The contract of language models over histories, which every adapter to a decoder that keeps states by hypothesis asks.

Shapes: N histories, K words.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class StatefulLM(Protocol):
    """A language model whose states are histories: immutable objects that stand for ``<s> w_1 .. w_n``.

    What was computed for a history may be cached, without keeping the history alive (it can be weakly referenced). Tokens are
    whatever the model looks up; only ``token`` and ``tokens`` make them. ``<unk>`` is never a known word, whatever the vocabulary. Natural
    logarithms throughout.
    """

    @property
    def order(self) -> int | None:
        """How many words a score depends on, its own included; None if on all words before."""
        ...

    @property
    def end(self) -> Any:
        """The token of the sentence end."""
        ...

    def token(self, word: str) -> Any:
        """Return the token of a word; that of the unknown word if the model does not have it."""
        ...

    def tokens(self, words: Sequence[str]) -> Any:
        """Return the tokens of K words, in the form in which ``log_probs`` takes them."""
        ...

    def knows(self, word: str) -> bool:
        """Return whether the word has a probability of its own."""
        ...

    def words(self) -> Sequence[str]:
        """Return every word that it knows, without special symbols. Raises InputError if the model cannot tell."""
        ...

    def start(self) -> Any:
        """Return the history of a sentence that has no word yet."""
        ...

    def score(self, history: Any, token: Any) -> tuple[float, Any]:
        """Return ln p(token | history), and the history that ends in the token."""
        ...

    def log_probs(self, histories: Sequence[Any], tokens: Any) -> np.ndarray:
        """Return ln p of each of K tokens after each of N histories, float32 or float64 (N, K). All histories are computed together."""
        ...

    def save(self, place: Path) -> None:
        """Write what ``load_stateful_lm`` reads: a file or folder of this name. Raises InputError."""
        ...
