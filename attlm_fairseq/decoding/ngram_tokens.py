"""An n-gram model asked for single tokens of a decoder's vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import kenlm

from attlm_fairseq.checkpoints.vocabulary import EOS, UNK, Vocabulary
from attlm_fairseq.numeric import LN_10
from attlm_fairseq.scoring.kenlm import KenLM, require_log_prob
from attlm_fairseq.text.symbols import UNKNOWN

CACHED_SCORES = 1 << 16  # about 270 bytes each: more than a batch asks for, and a miss costs microseconds
CACHED_STATES = 1 << 9

Context = tuple[int, ...]
"""The last n - 1 tokens of a hypothesis, all that an n-gram model knows; fewer at its beginning, which ``</s>`` precedes."""


class NgramTokens:
    """ln p of tokens after contexts of tokens, the last scores kept (about 18 MB).

    Symbols that the model does not have are scored as its ``<unk>``, each with the whole of its probability, and so are ``<s>``,
    ``<pad>`` and ``<unk>``. ``</s>`` is the model's ``</s>``, and at the beginning of a hypothesis its ``<s>``.
    """

    def __init__(self, lm: KenLM, vocabulary: Vocabulary) -> None:
        self.lm = lm
        self.symbols = lm_symbols(vocabulary)
        self._words = [lm.token(symbol) for symbol in self.symbols]
        self._words[EOS] = lm.end
        # caches of this object's own, which go when it goes
        self._state = lru_cache(CACHED_STATES)(self._make_state)
        self.score = lru_cache(CACHED_SCORES)(self._score)

    @property
    def missing(self) -> int:
        """How many symbols of the vocabulary the model does not have; the special ones are not counted."""
        return self._words[UNK + 1 :].count(UNKNOWN)

    def context(self, tokens: Sequence[int]) -> Context:
        """Return the context after ``</s> w_1 .. w_n``."""
        return tuple(tokens[-max(1, self.lm.order - 1) :])

    def sequence(self, tokens: Sequence[int]) -> list[float]:
        """Return ln p of each token of a hypothesis ``w_1 .. w_n </s>``."""
        hypothesis = [EOS, *tokens]
        return [self.score(self.context(hypothesis[:place]), hypothesis[place]) for place in range(1, len(hypothesis))]

    def _score(self, context: Context, token: int) -> float:
        """Return ln p(token | context). Cached. Raises InputError if it is above 0."""
        log_prob = self.lm.model.BaseScore(self._state(context), self._words[token], kenlm.State()) * LN_10
        return require_log_prob(log_prob, self.lm.path)

    def _make_state(self, context: Context) -> kenlm.State:
        """Return KenLM's own state, which depends on no more than the last n - 1 words."""
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
    """Return what an LM looks up for each token of a decoder; the special ones are its unknown word."""
    return [UNKNOWN if token <= UNK else symbol for token, symbol in enumerate(vocabulary.symbols)]
