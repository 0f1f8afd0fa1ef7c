"""Scores of single tokens of a decoder's vocabulary under an n-gram model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import kenlm

from attlm_fairseq.checkpoints.vocabulary import EOS, UNK, Vocabulary
from attlm_fairseq.numeric import LN_10
from attlm_fairseq.scoring.ngrams.kenlm import KenLM, require_log_prob
from attlm_fairseq.text.symbols import UNKNOWN

CACHED_SCORES = 1 << 16  # about 270 bytes each: more than a batch asks for, and a miss costs microseconds
CACHED_STATES = 1 << 9

Context = tuple[int, ...]
"""The last n - 1 tokens of a hypothesis, on which an n-gram score depends. A hypothesis begins with ``</s>``."""


class NgramTokens:
    """Computes ln p of tokens after contexts of tokens, with a cache of recent scores (about 18 MB).

    Symbols that the model does not know score its whole ln p(``<unk>``). So do ``<s>``, ``<pad>`` and ``<unk>``. ``</s>`` is
    the model's ``</s>``; at the beginning of a hypothesis it is the model's ``<s>``.
    """

    def __init__(self, lm: KenLM, vocabulary: Vocabulary) -> None:
        self.lm = lm
        self.symbols = lm_symbols(vocabulary)
        self._words = [lm.token(symbol) for symbol in self.symbols]
        self._words[EOS] = lm.end
        # one cache per object, freed together with the object
        self._state = lru_cache(CACHED_STATES)(self._make_state)
        self.score = lru_cache(CACHED_SCORES)(self._score)

    @property
    def missing(self) -> int:
        """Return the number of symbols of the vocabulary, without special ones, that the model does not know."""
        return self._words[UNK + 1 :].count(UNKNOWN)

    def context(self, tokens: Sequence[int]) -> Context:
        """Return the context after ``</s> w_1 .. w_n``."""
        return tuple(tokens[-max(1, self.lm.order - 1) :])

    def sequence(self, tokens: Sequence[int]) -> list[float]:
        """Return ln p (natural log) of each token of a hypothesis ``w_1 .. w_n </s>``."""
        hypothesis = [EOS, *tokens]
        return [self.score(self.context(hypothesis[:place]), hypothesis[place]) for place in range(1, len(hypothesis))]

    def _score(self, context: Context, token: int) -> float:
        """Return ln p(token | context). Cached. Raises InputError if it is above 0."""
        log_prob = self.lm.model.BaseScore(self._state(context), self._words[token], kenlm.State()) * LN_10
        return require_log_prob(log_prob, self.lm.path)

    def _make_state(self, context: Context) -> kenlm.State:
        """Return KenLM's state after a context. It depends on the last n - 1 words only."""
        state, following = kenlm.State(), kenlm.State()
        self.lm.model.NullContextWrite(state)
        for place, token in enumerate(context):
            if token == EOS and place == 0:
                self.lm.model.BeginSentenceWrite(state)
            else:
                self.lm.model.BaseScore(state, self._words[token], following)
                state, following = following, state
        return state


def lm_symbols(vocabulary: Vocabulary) -> list[str]:
    """Return the symbol that an LM looks up for each token of a decoder. Special tokens become ``<unk>``."""
    return [UNKNOWN if token <= UNK else symbol for token, symbol in enumerate(vocabulary.symbols)]
