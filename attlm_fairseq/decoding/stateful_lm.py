"""The StatefulLM contract: language models for decoders that keep one state per hypothesis. Shapes: N histories, K words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class StatefulLM(Protocol):
    """A language model whose states are histories: immutable objects that represent ``<s> w_1 .. w_n``.

    Results may be cached by history. Histories support weak references, so a cache does not keep them alive. Tokens are the
    model's own objects; get them only from ``token`` and ``tokens``. ``<unk>`` never counts as a known word. All logarithms
    are natural.
    """

    @property
    def order(self) -> int | None:
        """Return the number of words that a score depends on, the scored word included; None if it depends on the whole history."""

    @property
    def end(self) -> Any:
        """Return the token of the sentence end."""

    def token(self, word: str) -> Any:
        """Return the token of a word, or the token of ``<unk>`` if the model does not know the word."""

    def tokens(self, words: Sequence[str]) -> Any:
        """Return the tokens of K words, as input for ``log_probs``."""

    def knows(self, word: str) -> bool:
        """Return whether the word has its own probability, different from that of ``<unk>``."""

    def words(self) -> Sequence[str]:
        """Return all known words, without special symbols. Raises InputError if the model cannot list them."""

    def start(self) -> Any:
        """Return the empty history ``<s>``."""

    def after(self, start: Any, sentences: Sequence[Sequence[Any]]) -> Any:
        """Return the empty history of a sentence that follows these sentences of tokens, oldest first, without their ends.

        ``start`` is what ``start`` or an earlier ``after`` returned. An LM that scores sentences independently returns ``start``.
        """

    def score(self, history: Any, token: Any) -> tuple[float, Any]:
        """Return ln p(token | history) and the history extended by the token."""

    def log_probs(self, histories: Sequence[Any], tokens: Any) -> np.ndarray:
        """Return ln p of K tokens after each of N histories, (N, K) in float32 or float64, computed in one batch."""

    def save(self, place: Path) -> None:
        """Write the model to the file or folder ``place``, for ``load_stateful_lm``.

        Raises:
            InputError: a checkpoint cannot be exported, see ``DecoderLM.save``.
            OSError: a file or folder cannot be copied.
        """
