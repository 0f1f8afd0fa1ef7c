"""Shallow fusion in a decoder that keeps its hypotheses as a batch, as fairseq's does.

Shapes: N hypotheses, V the decoder's vocabulary.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attlm_fairseq.checkpoints.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.look_ahead_word_lm import UNK_OFFSET, LookAheadWordLM
from attlm_fairseq.decoding.ngram_tokens import lm_symbols
from attlm_fairseq.decoding.phrase_fusion import PhraseFusion
from attlm_fairseq.decoding.shallow_fusion import ShallowFusion
from attlm_fairseq.decoding.stateful_lm import StatefulLM
from attlm_fairseq.decoding.token_fusion import TokenFusion
from attlm_fairseq.decoding.token_texts import NO_WORD, token_texts

NGRAM_ROWS = 1 << 9  # contexts of an n-gram model come again

States = tuple[Any, ...]
"""The fusion's state of each hypothesis, None for one that has not begun."""


class FusionLM:
    """A ShallowFusion as an ``IncrementalLM``.

    ``step`` returns what the fusion adds for each token, which is a distribution only if the fusion is one LM of the decoder's tokens.
    """

    def __init__(self, fusion: ShallowFusion, vocabulary: Vocabulary, kept_rows: int = 0) -> None:
        """Take a fusion for this vocabulary; the scores after the last ``kept_rows`` states are kept, 4 bytes for each symbol and state."""
        self.fusion = fusion
        self.kept_rows = kept_rows
        self.vocabulary = vocabulary
        self.eos = EOS
        self._rows: OrderedDict[Any, np.ndarray] = OrderedDict()  # state -> scores (V,), least recently used first

    @classmethod
    def of_tokens(cls, lm: StatefulLM, vocabulary: Vocabulary) -> FusionLM:
        """Score the decoder's own symbols, subwords or words: the LM must be of text in these symbols.

        Those that it does not have score ln p(``<unk>``), each with the whole of it, and so do ``<s>``, ``<pad>`` and ``<unk>``.
        """
        return cls(TokenFusion(LogLinearLM([lm]), lm_symbols(vocabulary), ends=[EOS]), vocabulary, NGRAM_ROWS)

    @classmethod
    def of_words(cls, lm: StatefulLM, vocabulary: Vocabulary, unk_offset: float = UNK_OFFSET) -> FusionLM:
        """Score subwords by an LM of words, see ``LookAheadWordLM``.

        ``<unk>`` and ``<s>`` are words that the LM does not know; ``<pad>`` scores 0. Raises ValueError if the vocabulary's symbols do
        not show how they are put together to words.
        """
        texts = token_texts(vocabulary.symbols, special=(BOS, PAD, EOS, UNK))
        texts[BOS] = texts[UNK] = NO_WORD
        return cls(LookAheadWordLM(LogLinearLM([lm]), texts, ends=[EOS], unk_offset=unk_offset), vocabulary)

    @classmethod
    def of_phrases(cls, path: Path, vocabulary: Vocabulary) -> FusionLM:
        """Prefer the phrases of a file, see ``PhraseFusion``. Symbols that do not show how they make up words are whole words.

        Raises:
            InputError: the file is missing, a line is wrong, or the symbols can spell none of the phrases.
        """
        special = (BOS, PAD, EOS, UNK)
        try:
            texts = token_texts(vocabulary.symbols, special=special)
        except ValueError:
            texts = [None if token in special else f"{symbol} ".encode() for token, symbol in enumerate(vocabulary.symbols)]
        texts[BOS] = texts[UNK] = NO_WORD
        return cls(PhraseFusion.load(path, texts, 1.0, ends=[EOS]), vocabulary)

    def start(self, rows: int = 1) -> States:
        """Return the states of ``rows`` hypotheses that have not begun: the first step feeds them ``eos``."""
        return (None,) * rows

    def step(self, states: States, tokens: Tensor) -> tuple[Tensor, States]:
        """Return the scores (N, V) of the next tokens, natural log, and the new states."""
        after = tuple(
            self.fusion.start() if state is None else self.fusion.score(state, token)[1]
            for state, token in zip(states, tokens.tolist(), strict=True)
        )
        if not after:
            return torch.empty(0, len(self.vocabulary), device=tokens.device), after
        distinct = {state: row for row, state in enumerate(dict.fromkeys(after))}
        scores = torch.from_numpy(np.stack(self._scores(list(distinct))))
        return scores[[distinct[state] for state in after]].to(tokens.device), after

    def select(self, states: States, rows: Tensor) -> States:
        return tuple(states[row] for row in rows.tolist())

    def _scores(self, states: list[Any]) -> list[np.ndarray]:
        """Return the scores (V,) after each state, float32: kept ones, and all others computed together."""
        found = {state: row for state in dict.fromkeys(states) if (row := self._rows.get(state)) is not None}
        if missing := [state for state in dict.fromkeys(states) if state not in found]:
            found |= zip(missing, self.fusion.scores(missing).astype(np.float32), strict=True)
        for state, row in found.items() if self.kept_rows else ():
            self._rows.pop(state, None)  # the last now; another thread may have taken it out
            self._rows[state] = row
        while len(self._rows) > self.kept_rows:
            with contextlib.suppress(KeyError):  # another thread has taken out the last
                self._rows.popitem(last=False)
        return [found[state] for state in states]
