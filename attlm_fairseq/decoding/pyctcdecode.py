"""The language models inside pyctcdecode's decoder.

lm = PyctcdecodeLM(LogLinearLM.load({"checkpoint_best.pt": 1.0}), alpha=0.5, beta=1.5)
decoder = BeamSearchDecoderCTC(Alphabet.build_alphabet(labels), lm)
decoder.decode(log_probs)
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection

from pyctcdecode.constants import AVG_TOKEN_LEN, DEFAULT_ALPHA, DEFAULT_BETA, DEFAULT_UNK_LOGP_OFFSET
from pyctcdecode.language_model import AbstractLanguageModel

from attlm_fairseq.decoding.log_linear_lm import LogLinearLM, State

LN_10 = math.log(10.0)
WHOLE_HISTORY = 1 << 30  # as the order of an n-gram model: hypotheses that differ anywhere stay apart


class PyctcdecodeLM(AbstractLanguageModel):
    """What pyctcdecode's own LanguageModel does with KenLM, with any of the package's LMs: a word scores ``alpha ln p(word | ..) + beta``.

    ``unk_score_offset`` is a log10, as there. It is added once to the log-probability of a word that is not in ``unigrams`` or that an
    LM does not know; and to a partial word with which no unigram begins, then not times alpha, but times length / 6 from 6 letters on.
    ``unigrams`` are by default all words that every LM knows, and none where an LM is of subwords. When empty, each partial word
    gets the offset, as in pyctcdecode.

    An empty last word, which is what a hypothesis that ends in a space has, is no word and scores the sentence end alone.
    pyctcdecode's LanguageModel scores it as an unknown word: so does this with ``score_empty_word``.
    """

    def __init__(
        self,
        lms: LogLinearLM,
        unigrams: Collection[str] | None = None,
        alpha: float = DEFAULT_ALPHA,
        beta: float = DEFAULT_BETA,
        unk_score_offset: float = DEFAULT_UNK_LOGP_OFFSET,
        score_boundary: bool = True,
        score_empty_word: bool = False,
    ) -> None:
        """Without ``score_boundary`` the sentence end is not scored; where the sentence begins, it still begins.

        Raises InputError where an LM cannot list its words and none are given.
        """
        self.lms = lms
        self.alpha = alpha
        self.beta = beta
        self.unk_score_offset = unk_score_offset
        self.score_boundary = score_boundary
        self.score_empty_word = score_empty_word
        if unigrams is None:  # of an LM of subwords the words cannot be listed, and its pieces are none
            unigrams = set() if any(lms.segment) else {word for lm in lms.lms for word in lm.words()}
        self._unigrams = {word for word in unigrams if lms.knows(word)}
        self._sorted = sorted(self._unigrams)

    def reset_params(self, **params: float | bool) -> None:
        """Change alpha, beta, unk_score_offset or score_boundary, as ``BeamSearchDecoderCTC.reset_params`` asks; else ValueError."""
        for name, value in params.items():
            if name not in ("alpha", "beta", "unk_score_offset", "score_boundary"):
                raise ValueError(f"{name} is no parameter of this language model")
            setattr(self, name, value)

    @property
    def order(self) -> int:
        return WHOLE_HISTORY

    def get_start_state(self) -> State:
        return self.lms.start()

    def score_partial_token(self, partial_token: str) -> float:
        """0 where a unigram begins so, else the offset of an unknown word."""
        if not self.lms.lms:
            return 0.0
        place = bisect_left(self._sorted, partial_token)
        if place < len(self._sorted) and self._sorted[place].startswith(partial_token):
            return 0.0
        return self.unk_score_offset * max(1.0, len(partial_token) / AVG_TOKEN_LEN)

    def score(self, prev_state: State, word: str, is_last_word: bool = False) -> tuple[float, State]:
        """The score of a word, with the sentence end after the last one, and the state after the word alone."""
        if not word and not self.score_empty_word:
            return (self.alpha * self.lms.end(prev_state) if is_last_word and self.score_boundary else 0.0), prev_state
        log_prob, state = self.lms.score(prev_state, word)
        if (self._unigrams and word not in self._unigrams) or not self.lms.knows(word):
            log_prob += self.unk_score_offset * LN_10
        if is_last_word and self.score_boundary:
            log_prob += self.lms.end(state)
        return self.alpha * log_prob + self.beta, state
