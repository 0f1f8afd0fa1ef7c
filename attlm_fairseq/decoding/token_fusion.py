"""Shallow fusion of language models whose symbols are the decoder's tokens.

Shapes: N states, U tokens of the decoder.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from attlm_fairseq.decoding.doubts import warn_of_unknown
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM, State, require_log_linear
from attlm_fairseq.decoding.shallow_fusion import check_options, with_lms


class TokenState(NamedTuple):
    """The LMs' state, or None after the sentence end, where every score is 0."""

    lms: State | None


class TokenFusion:
    """A ShallowFusion in which each token is one symbol of the LMs: a word of a lexicon decoder, or a shared subword.

    Tokens that are None (special tokens, time tokens, blanks) score 0 and do not change the state. Tokens in ``ends`` are the
    sentence end. A token that an LM does not know scores the LM's ln p(``<unk>``) plus ``unk_offset``.
    """

    def __init__(self, lms: LogLinearLM, tokens: Sequence[str | None], ends: Collection[int] = (), unk_offset: float = 0.0) -> None:
        """Look the tokens up.

        Args:
            lms: language models over the decoder's tokens.
            tokens: the symbol that the LMs look up for each token, None for a token that they skip.
            ends: the tokens that end a sentence.
            unk_offset: added to ln p(``<unk>``) for a token that an LM does not know.

        Raises:
            ValueError: a token is not a string, an end is not a token, or the offset is nan or inf.
            TypeError: ``lms`` is no LogLinearLM.
        """
        require_log_linear(lms)
        check_options(ends, len(tokens), unk_offset)
        for place, symbol in enumerate(tokens):
            if not isinstance(symbol, str | None):
                raise ValueError(f"token {place} is {symbol!r}, expected a string that the LMs look up, or None")
        self.lms = lms
        self.tokens = list(tokens)
        self.size = len(self.tokens)
        self.ends = frozenset(ends)
        self.unk_offset = unk_offset
        seen = {token: symbol for token, symbol in enumerate(self.tokens) if symbol is not None and token not in self.ends}
        self._seen = np.array(list(seen), dtype=int)
        found = [(lm.tokens(list(seen.values())), lm.end) for lm in lms.lms]
        self._words = [np.append(words, end) if isinstance(words, np.ndarray) else [*words, end] for words, end in found]
        self._offsets = np.zeros(len(self._seen))
        for lm, weight, segment in zip(lms.lms, lms.weights, lms.segment, strict=True):
            unknown = np.array([not lm.knows(symbol) for symbol in seen.values()], dtype=bool)
            self._offsets[unknown] += weight * lms.unknown_offset(weight, unk_offset)
            if segment is None:
                warn_of_unknown(lm, list(seen.values()), len(seen) - int(unknown.sum()))

    def start(self) -> TokenState:
        return TokenState(self.lms.start())

    def after(self, history: Sequence[Sequence[str]]) -> TokenFusion:
        """Return the fusion for sentences that follow those of ``history``, sequences of words of the LMs. See ``LogLinearLM.after``."""
        return with_lms(self, self.lms.after(history))

    def score(self, state: TokenState, token: int) -> tuple[float, TokenState]:
        if not 0 <= token < self.size:
            raise IndexError(f"token {token}: expected 0 to {self.size - 1}")
        if token in self.ends:
            return self.end(state), TokenState(None)
        symbol = self.tokens[token]
        if state.lms is None or symbol is None:
            return 0.0, state
        score, after = self.lms.score(state.lms, symbol, self.unk_offset)
        return score, TokenState(after)

    def scores(self, states: Sequence[TokenState]) -> np.ndarray:
        """Return the scores (N, U). Raises ValueError for LMs with ``segment``: each symbol must be one token of the LM."""
        if any(self.lms.segment):
            raise ValueError("the scores of all tokens at once need LMs of the decoder's own tokens, none of which breaks them up")
        total = np.zeros((len(states), self.size))
        opened = {place: state.lms for place, state in enumerate(states) if state.lms is not None}
        if opened:
            sums = np.tile(self._offsets, (len(opened), 1))
            ends = np.zeros(len(opened))
            for place, (lm, weight, words) in enumerate(zip(self.lms.lms, self.lms.weights, self._words, strict=True)):
                log_probs = lm.log_probs([of_lms[place] for of_lms in opened.values()], words)
                sums += weight * log_probs[:, :-1]
                ends += weight * log_probs[:, -1]
            rows = np.array(list(opened))[:, None]
            total[rows, self._seen] = sums
            total[rows, sorted(self.ends)] = ends[:, None]
        return total

    def end(self, state: TokenState) -> float:
        return 0.0 if state.lms is None else self.lms.end(state.lms)
