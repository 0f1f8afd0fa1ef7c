"""The package's neural models as StatefulLM. Each history's distribution is computed once, in batches.

Shapes: N histories, K words, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch

from attlm_fairseq.checkpoints.vocabulary import UNK
from attlm_fairseq.decoding.cache import CACHE_BYTES, HistoryCache, SharedByCopies
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.modules.state import LanguageModelState


class NeuralHistory(SharedByCopies):
    """``<s> w_1 .. w_n``, stored as its last token and the history before it. Equal histories are the same object.

    A sentence that follows others begins after a history that stands for all of them. It holds the LM's ``state`` after them.
    """

    __slots__ = ("__weakref__", "parent", "state", "token")

    def __init__(self, parent: NeuralHistory | None, token: int, state: LanguageModelState | None = None) -> None:
        self.parent = parent
        self.token = token
        self.state = state


class StatefulNeuralLM(SharedByCopies):
    """A DecoderLM as a StatefulLM. A history's distribution is computed at the first query for it, then cached.

    Decoder hypotheses with the same words share one history. Cached values are dropped when the decoder drops the history,
    or, least recently used first, when they exceed ``cache_bytes``. Values of the sentence start are always kept.

    A quarter of the bytes, or enough for two states per distribution, is reserved for LM states. Then recomputing a dropped
    distribution takes one step. If its state was dropped too (memories grow with long sentences), the words since the last
    cached state are read in one pass.
    """

    def __init__(self, lm: DecoderLM, cache_bytes: int = CACHE_BYTES) -> None:
        self.lm = lm
        self.vocabulary = lm.vocabulary
        self.cache_bytes = cache_bytes
        self.states = HistoryCache(0)  # LM states after each history
        self.cache = HistoryCache(0)  # distributions
        self.computed = 0  # distributions computed so far; other queries were answered from the cache
        self._symbols = {symbol: index for index, symbol in enumerate(lm.vocabulary.symbols) if index > UNK}
        self._start = NeuralHistory(None, lm.eos)
        self._start_value: tuple[np.ndarray | None, Any] = None, None
        self._histories: WeakValueDictionary[tuple[NeuralHistory, int], NeuralHistory] = WeakValueDictionary()

    order = None  # a state depends on all words before

    def __reduce__(self) -> tuple:
        return StatefulNeuralLM, (self.lm, self.cache_bytes)

    @classmethod
    def load(
        cls,
        path: Path | str,
        dictionary: Path | str | None = None,
        device: str = "cpu",
        cache_bytes: int = CACHE_BYTES,
        precision: str = "float32",
    ) -> StatefulNeuralLM:
        """Load a model as ``DecoderLM.load`` does. ``cache_bytes`` limits the cache of states and distributions."""
        return cls(DecoderLM.load(path, dictionary, device, precision), cache_bytes)

    @property
    def path(self) -> Path:
        """Return the checkpoint or folder."""
        return self.lm.path

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

    def after(self, start: NeuralHistory, sentences: Sequence[Sequence[int]]) -> NeuralHistory:
        """See ``StatefulLM.after``. Of the state, the next sentence gets what ``DecoderLM.after`` carries on."""
        if not sentences:
            return start
        before = start.parent.state if start.parent is not None else None
        return NeuralHistory(NeuralHistory(None, self.lm.eos, self.lm.after(sentences, before)), self.lm.eos)

    def score(self, history: NeuralHistory, token: int) -> tuple[float, NeuralHistory]:
        log_probs = self._distribution(history)
        if log_probs is None:
            [log_probs] = self._distributions([history])
        return float(log_probs[token]), self._extended(history, token)

    def log_probs(self, histories: Sequence[NeuralHistory], tokens: np.ndarray) -> np.ndarray:
        result = np.empty((len(histories), len(tokens)), dtype=np.float32)
        for row, log_probs in zip(result, self._distributions(histories), strict=True):
            np.take(log_probs, tokens, out=row)
        return result

    def save(self, place: Path) -> None:
        self.lm.save(place)

    def _extended(self, history: NeuralHistory, token: int) -> NeuralHistory:
        extended = self._histories.get((history, token))
        if extended is None:
            extended = self._histories[history, token] = NeuralHistory(history, token)
        return extended

    def _distribution(self, history: NeuralHistory) -> np.ndarray | None:
        return self._start_value[0] if history is self._start else self.cache.get(history)

    def _state(self, history: NeuralHistory) -> Any | None:
        if history.state is not None:
            return history.state
        return self._start_value[1] if history is self._start else self.states.get(history)

    def _distributions(self, histories: Sequence[NeuralHistory]) -> list[np.ndarray]:
        """Return the distributions (V,) after the histories, cached or computed in one batch per length."""
        found: dict[NeuralHistory, np.ndarray] = {}  # includes distributions that do not fit the cache
        missing: list[NeuralHistory] = []
        for history in dict.fromkeys(histories):
            if (log_probs := self._distribution(history)) is None:
                missing.append(history)
            else:
                found[history] = log_probs
        if missing:
            found |= self._compute(missing)
        return [found[history] for history in histories]

    def _compute(self, histories: list[NeuralHistory]) -> dict[NeuralHistory, np.ndarray]:
        """Compute distributions and states, add them to the caches, and return the distributions."""
        parents = {parent: self._state_after(parent) for parent in dict.fromkeys(history.parent for history in histories)}
        before = [parents[history.parent] for history in histories]
        if len(histories) == 1:  # skip joining and splitting
            log_probs, *after = self.lm.step(before[0], torch.tensor([histories[0].token]))
        else:
            log_probs, after = self.lm.step_each(before, [history.token for history in histories])
        self.computed += len(histories)
        self._divide(after[0].bytes, 4 * log_probs.size(1))
        rows = log_probs.float().cpu().numpy()
        found: dict[NeuralHistory, np.ndarray] = {}
        for history, row, state in zip(histories, rows, after, strict=True):
            found[history] = row.copy() if len(rows) > 1 else row  # a view would keep all rows alive
            if history is self._start:
                self._start_value = found[history], state
            else:
                self.cache.put(history, found[history], row.nbytes)
                self.states.put(history, state, state.bytes)
        return found

    def _state_after(self, history: NeuralHistory | None) -> Any:
        """Return the state after a history. If it is not cached, read the words since the last cached state in one pass."""
        words: list[int] = []
        last, state = history, None
        while last is not None and (state := self._state(last)) is None:
            words.append(last.token)
            last = last.parent
        if state is None:
            state = self.lm.start()
        if words and history is not None:
            state = self.lm.read(state, torch.tensor([words[::-1]]))
            self.states.put(history, state, state.bytes)
        return state

    def _divide(self, state: int, distribution: int) -> None:
        """Divide the cache between states and distributions of these sizes in bytes. States may grow with their histories."""
        self.states.max_bytes = max(self.cache_bytes // 4, self.cache_bytes * 2 * state // (2 * state + distribution))
        self.cache.max_bytes = self.cache_bytes - self.states.max_bytes
