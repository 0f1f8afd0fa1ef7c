"""Language models over histories: what every adapter to a decoder asks, whether a neural model answers or KenLM.

Shapes: N histories, K words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

UNKNOWN = "<unk>"


class CachedLM(Protocol):
    """A language model whose states are histories: immutable objects that stand for ``<s> w_1 .. w_n``, to be kept and dropped at will.

    What was computed for a history may be cached, without keeping the history alive (it can be weakly referenced). Tokens are
    whatever the model looks up; only ``token`` and ``tokens`` make them. ``<unk>`` is never a known word, whatever the vocabulary. Natural
    logarithms throughout.
    """

    @property
    def end(self) -> Any:
        """The token of the sentence end."""
        ...

    def token(self, word: str) -> Any:
        """The token of a word; that of the unknown word where the model does not have it."""
        ...

    def tokens(self, words: Sequence[str]) -> Any:
        """Those of K words, in the form in which ``log_probs`` takes them."""
        ...

    def knows(self, word: str) -> bool:
        """Whether the word has a probability of its own."""
        ...

    def words(self) -> Sequence[str]:
        """Every word that it knows, without special symbols. Raises InputError where the model cannot tell."""
        ...

    def start(self) -> Any:
        """The history of a sentence that has begun and has no word yet."""
        ...

    def score(self, history: Any, token: Any) -> tuple[float, Any]:
        """ln p(token | history), and the history that ends in the token."""
        ...

    def log_probs(self, histories: Sequence[Any], tokens: Any) -> np.ndarray:
        """ln p of each of K tokens after each of N histories, float32 or float64 (N, K). All histories are computed together."""
        ...
