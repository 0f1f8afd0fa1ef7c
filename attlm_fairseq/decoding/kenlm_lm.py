"""KenLM as a decoder component.

Shapes: N hypotheses, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import kenlm
import torch
from torch import Tensor

from attlm_fairseq.checkpoints.vocabulary import EOS, UNK, Vocabulary
from attlm_fairseq.scoring.kenlm import LN_10, UNKNOWN, as_looked_up, load_kenlm

EMPTY = -1  # no token yet, in a state
CACHED_SCORES = 1 << 16  # of single tokens, about 270 bytes each: more than a batch asks for, and a miss costs microseconds
CACHED_DISTRIBUTIONS = 1 << 9  # of V numbers each


class KenLMDecoderLM:
    """An n-gram model over a decoder's symbols, a :class:`SteppedLM`: the n-gram model must be of text in these symbols, subwords too.

    A state is the last n - 1 tokens (N, n - 1), all that an n-gram model knows. KenLM scores one token at a time, a microsecond or
    more each: a decoder that can say which tokens it needs should call :meth:`score`. The last scores are kept, about 18 MB, and of
    :meth:`step` the last 512 distributions, 2 kB for each symbol of the vocabulary. Symbols that the model does not have are scored as
    its ``<unk>``, each with the whole of its probability, and so are ``<s>``, ``<pad>`` and ``<unk>``; ``</s>`` is its ``</s>``.
    """

    def __init__(self, path: Path, vocabulary: Vocabulary) -> None:
        """Load an ARPA or binary file. Raises InputError where it is missing or broken."""
        self.path = path
        self.vocabulary = vocabulary
        self.eos = EOS
        self._model = load_kenlm(path)
        self.context = max(1, self._model.order - 1)
        self._words = [lookup(symbol) if token > UNK else UNKNOWN for token, symbol in enumerate(vocabulary.symbols)]
        self._words[EOS] = "</s>"
        # caches of this object's own, which go when it goes
        self._state = lru_cache(CACHED_DISTRIBUTIONS)(self._make_state)
        self._distribution = lru_cache(CACHED_DISTRIBUTIONS)(self._make_distribution)
        self.score = lru_cache(CACHED_SCORES)(self._score)

    @property
    def missing(self) -> int:
        """How many symbols of the vocabulary the model does not have; the special ones are not counted."""
        state, following = kenlm.State(), kenlm.State()
        self._model.NullContextWrite(state)
        return sum(self._model.BaseFullScore(state, word, following).oov for word in self._words[UNK + 1 :])

    def start(self, rows: int = 1) -> Tensor:
        return torch.full((rows, self.context), EMPTY)

    def step(self, states: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        states = torch.cat((states[:, 1:], tokens.cpu().unsqueeze(1)), dim=1)
        return torch.stack([self._distribution(tuple(state)) for state in states.tolist()]).to(tokens.device), states

    def select(self, states: Tensor, rows: Tensor) -> Tensor:
        return states[rows.cpu()]

    def sequence(self, tokens: Sequence[int]) -> list[float]:
        """ln p of each token of a hypothesis ``w_1 .. w_n`` that ``</s>`` precedes; ``</s>`` at its end is scored as the end."""
        before = [EMPTY] * (self.context - 1) + [EOS]
        scores = []
        for token in tokens:
            scores.append(self.score(tuple(before), token))
            before = [*before[1:], token]
        return scores

    def _score(self, context: tuple[int, ...], token: int) -> float:
        """ln p of a token after the last tokens read, as many as a state has. Cached."""
        return self._model.BaseScore(self._state(context), self._words[token], kenlm.State()) * LN_10

    def _make_state(self, context: tuple[int, ...]) -> kenlm.State:
        """KenLM's own state. It too depends on the last n - 1 words alone, so it may begin with them."""
        state, following = kenlm.State(), kenlm.State()
        self._model.NullContextWrite(state)
        for place, token in enumerate(context):
            begins = token == EOS and (place == 0 or context[place - 1] == EMPTY)
            if begins:
                self._model.BeginSentenceWrite(state)
            elif token != EMPTY:
                self._model.BaseScore(state, self._words[token], following)
                state, following = following, state
        return state

    def _make_distribution(self, context: tuple[int, ...]) -> Tensor:
        state, following = self._state(context), kenlm.State()
        return torch.tensor([self._model.BaseScore(state, word, following) for word in self._words]) * LN_10


def lookup(symbol: str) -> str:
    """The symbol as KenLM's word; what cannot be one (a space within) is unknown."""
    try:
        return as_looked_up(symbol)
    except ValueError:
        return UNKNOWN
