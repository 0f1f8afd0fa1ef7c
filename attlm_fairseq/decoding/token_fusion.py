"""Fusion where the decoder's units are the language models' words or subwords, symbol by symbol.

Shapes: N states, U units of the decoder.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from attlm_fairseq.decoding.fusion import check_options
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM, State


class TokenState(NamedTuple):
    """The language models' state, or None behind the sentence end, where nothing has a score any more."""

    lms: State | None


class TokenFusion:
    """Each unit is one symbol that the LMs look up: words under a lexicon decoder, or subwords that decoder and LM share.

    Units that are None are none of the LMs' business (special and time tokens, blanks): they score 0 and change no state. Those
    in ``ends`` are the sentence end. A unit that an LM does not know scores its ln p(``<unk>``) plus ``unk_offset``.
    """

    def __init__(self, lms: LogLinearLM, units: Sequence[str | None], ends: Collection[int] = (), unk_offset: float = 0.0) -> None:
        """Raises ValueError for ends that are no units, and for an offset that is nan or inf."""
        check_options(ends, len(units), unk_offset)
        self.lms = lms
        self.units = list(units)
        self.size = len(self.units)
        self.ends = frozenset(ends)
        self.unk_offset = unk_offset
        self._seen = np.array([unit for unit, symbol in enumerate(self.units) if symbol is not None and unit not in self.ends], dtype=int)
        self._symbols = [self.units[unit] for unit in self._seen]
        self._tokens = [lm.tokens(self._symbols) for lm in lms.lms]
        self._offsets = np.zeros(len(self._seen))
        for lm, weight in zip(lms.lms, lms.weights, strict=True):
            unknown = np.array([not lm.knows(symbol) for symbol in self._symbols], dtype=bool)
            self._offsets[unknown] += weight * lms.unknown_offset(weight, unk_offset)

    def start(self) -> TokenState:
        return TokenState(self.lms.start())

    def score(self, state: TokenState, unit: int) -> tuple[float, TokenState]:
        if state.lms is None or (self.units[unit] is None and unit not in self.ends):
            return 0.0, state
        if unit in self.ends:
            return self.lms.end(state.lms), TokenState(None)
        score, after = self.lms.score(state.lms, self.units[unit], self.unk_offset)
        return score, TokenState(after)

    def scores(self, states: Sequence[TokenState]) -> np.ndarray:
        """As :class:`Fusion`. Raises ValueError for LMs that break words up: a symbol must be one token of theirs."""
        if any(self.lms.segment):
            raise ValueError("the scores of all units at once need LMs of the decoder's own units, none of which breaks them up")
        total = np.zeros((len(states), self.size))
        open_ = [place for place, state in enumerate(states) if state.lms is not None]
        if open_:
            sums = np.tile(self._offsets, (len(open_), 1))
            ends = np.zeros(len(open_))
            for place, (lm, weight, tokens) in enumerate(zip(self.lms.lms, self.lms.weights, self._tokens, strict=True)):
                histories = [states[row].lms[place] for row in open_]
                sums += weight * lm.log_probs(histories, tokens)
                if self.ends:
                    ends += weight * np.array([lm.score(history, lm.end)[0] for history in histories])
            total[np.ix_(open_, self._seen)] = sums
            total[np.ix_(open_, sorted(self.ends))] = ends[:, None]
        return total

    def end(self, state: TokenState) -> float:
        return 0.0 if state.lms is None else self.lms.end(state.lms)
