"""KenLM over histories.

Shapes: N histories, K words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from weakref import WeakValueDictionary

import kenlm
import numpy as np

from attlm_fairseq.decoding.kenlm_lm import lookup
from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.kenlm import LN_10, UNKNOWN, load_kenlm, read_unigrams


class NgramHistory:
    """What an n-gram model remembers of ``<s> w_1 .. w_n``. There is one object for each of KenLM's states that is in use."""

    __slots__ = ("__weakref__", "state")

    def __init__(self, state: kenlm.State) -> None:
        self.state = state


class CachedKenLM:
    """An n-gram model as a CachedLM. A word costs KenLM about a microsecond; a distribution over the vocabulary that many times over.

    Words that the model does not have are its ``<unk>``, as are ``<s>``, ``</s>`` and what KenLM cannot look up (an empty word, a space).
    """

    def __init__(self, path: Path | str, words: Sequence[str] | None = None) -> None:
        """Load an ARPA or binary file. ``words``, its vocabulary, is needed where it is to be listed and the file is a binary one.

        Raises InputError where the file is missing or broken.
        """
        self.path = Path(path)
        self._words = words
        self._model = load_kenlm(self.path)
        self._histories: WeakValueDictionary[kenlm.State, NgramHistory] = WeakValueDictionary()
        state = kenlm.State()
        self._model.BeginSentenceWrite(state)
        self._start = self._history(state)
        self.token = lru_cache(maxsize=1 << 16)(self._token)

    @property
    def end(self) -> str:
        return "</s>"

    def _token(self, word: str) -> str:
        word = lookup(word)
        return word if word in self._model else UNKNOWN

    def tokens(self, words: Sequence[str]) -> list[str]:
        return [self.token(word) for word in words]

    def knows(self, word: str) -> bool:
        return self.token(word) != UNKNOWN

    def words(self) -> Sequence[str]:
        """Those given, or else those of the ARPA file. Raises InputError for a binary file."""
        words = [word for word in (read_unigrams(self.path) if self._words is None else self._words) if self.knows(word)]
        if not words:
            raise InputError("has no words besides its special symbols", path=self.path)
        return words

    def start(self) -> NgramHistory:
        return self._start

    def score(self, history: NgramHistory, token: str) -> tuple[float, NgramHistory]:
        following = kenlm.State()
        log10 = self._model.BaseScore(history.state, token, following)
        return log10 * LN_10, self._history(following)

    def log_probs(self, histories: Sequence[NgramHistory], tokens: Sequence[str]) -> np.ndarray:
        following = kenlm.State()
        score = self._model.BaseScore
        rows = {history: np.array([score(history.state, token, following) for token in tokens]) * LN_10 for history in set(histories)}
        return np.stack([rows[history] for history in histories])

    def _history(self, state: kenlm.State) -> NgramHistory:
        history = self._histories.get(state)
        if history is None:
            history = self._histories[state] = NgramHistory(state)
        return history
