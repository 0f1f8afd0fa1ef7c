"""The package's neural models over histories: each history's distribution is computed once, many of them together.

Shapes: N histories, K words, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from attlm_fairseq.decoding.cache import CACHE_BYTES, HistoryCache
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.vocabulary import UNK


class NeuralHistory:
    """``<s> w_1 .. w_n`` as its last token and the history before it. There is one object for each history that is in use."""

    __slots__ = ("__weakref__", "parent", "token")

    def __init__(self, parent: NeuralHistory | None, token: int) -> None:
        self.parent = parent
        self.token = token


class CachedNeuralLM:
    """A DecoderLM as a CachedLM: a distribution is computed when a history's first successor is asked for, then kept.

    Two decoder hypotheses of the same words share one history, however they came about. Values leave when the decoder drops the
    history, or, least recently used first, where they would take more than ``cache_bytes``; the sentence start's stay.
    """

    def __init__(self, lm: DecoderLM, cache_bytes: int = CACHE_BYTES) -> None:
        self.lm = lm
        self.vocabulary = lm.vocabulary
        self.cache = HistoryCache(cache_bytes)
        self.computed = 0  # distributions so far; what the cache spared is the queries beyond these
        self._symbols = {symbol: index for index, symbol in enumerate(lm.vocabulary.symbols) if index > UNK}
        self._start = NeuralHistory(None, lm.eos)
        self._start_value: tuple[np.ndarray, Any] | None = None
        self._histories: WeakValueDictionary[tuple[NeuralHistory, int], NeuralHistory] = WeakValueDictionary()

    @classmethod
    def load(cls, path: Path | str, dictionary: Path | None = None, device: str = "cpu", cache_bytes: int = CACHE_BYTES) -> CachedNeuralLM:
        """Load a checkpoint of fairseq-train or a folder written by ``attlm export``. Raises InputError."""
        return cls(DecoderLM.load(Path(path), dictionary, device), cache_bytes)

    @property
    def end(self) -> int:
        return self.lm.eos

    def token(self, word: str) -> int:
        return self._symbols.get(word, UNK)

    def tokens(self, words: Sequence[str]) -> np.ndarray:
        return np.array([self.token(word) for word in words], dtype=np.int64)

    def knows(self, word: str) -> bool:
        return word in self._symbols

    def words(self) -> Sequence[str]:
        return list(self._symbols)

    def start(self) -> NeuralHistory:
        return self._start

    def score(self, history: NeuralHistory, token: int) -> tuple[float, NeuralHistory]:
        value = self._cached(history) or self._values([history])[0]
        return float(value[0][token]), self._extended(history, token)

    def log_probs(self, histories: Sequence[NeuralHistory], tokens: np.ndarray) -> np.ndarray:
        values = self._values(histories)
        result = np.empty((len(histories), len(tokens)), dtype=np.float32)
        for row, (log_probs, _) in zip(result, values, strict=True):
            np.take(log_probs, tokens, out=row)
        return result

    def _extended(self, history: NeuralHistory, token: int) -> NeuralHistory:
        extended = self._histories.get((history, token))
        if extended is None:
            extended = self._histories[history, token] = NeuralHistory(history, token)
        return extended

    def _cached(self, history: NeuralHistory) -> tuple[np.ndarray, Any] | None:
        return self._start_value if history is self._start else self.cache.get(history)

    def _values(self, histories: Sequence[NeuralHistory]) -> list[tuple[np.ndarray, Any]]:
        """The distributions (V,) after the histories, and the LM's states: from the cache, else computed, all of a length together."""
        found: dict[NeuralHistory, tuple[np.ndarray, Any]] = {}  # also what is too much for the cache
        levels: list[list[NeuralHistory]] = []  # to be computed: those asked for, then what these need, and so on
        wanted = list(dict.fromkeys(histories))
        while wanted:
            missing = []
            for history in wanted:
                value = self._cached(history)
                if value is None:
                    missing.append(history)
                else:
                    found[history] = value
            levels.append(missing)
            wanted = list(dict.fromkeys(h.parent for h in missing if h.parent is not None and h.parent not in found))
        for missing in reversed(levels):
            missing = [history for history in missing if history not in found]
            if missing:
                self._compute(missing, found)
        return [found[history] for history in histories]

    def _compute(self, histories: list[NeuralHistory], found: dict[NeuralHistory, tuple[np.ndarray, Any]]) -> None:
        """Compute histories whose parents are found; add them to ``found`` and to the cache."""
        before = [self.lm.start() if history.parent is None else found[history.parent][1] for history in histories]
        if len(histories) == 1:  # nothing to join and to part again
            log_probs, *states = self.lm.step(before[0], torch.tensor([histories[0].token]))
        else:
            log_probs, states = self.lm.step_each(before, [history.token for history in histories])
        self.computed += len(histories)
        rows = log_probs.float().cpu().numpy()
        for history, row, state in zip(histories, rows, states, strict=True):
            value = found[history] = (row.copy() if len(rows) > 1 else row, state)  # a view would keep all the rows
            if history is self._start:
                self._start_value = value
            else:
                self.cache.put(history, value, row.nbytes + state_bytes(state))


def state_bytes(state: Any) -> int:
    """The memory of a state: tensors in tuples of any depth."""
    return state.numel() * state.element_size() if isinstance(state, Tensor) else sum(map(state_bytes, state))
