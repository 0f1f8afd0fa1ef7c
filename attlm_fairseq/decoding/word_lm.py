"""Language models of words in a decoder that keeps its hypotheses of subwords as a batch, as fairseq's does.

Shapes: N hypotheses, V the decoder's vocabulary.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.reading import is_checkpoint
from attlm_fairseq.checkpoints.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from attlm_fairseq.decoding.cached_kenlm import CachedKenLM
from attlm_fairseq.decoding.cached_lm import CachedLM
from attlm_fairseq.decoding.cached_neural_lm import CachedNeuralLM
from attlm_fairseq.decoding.log_linear_lm import LogLinearLM
from attlm_fairseq.decoding.surfaces import surfaces
from attlm_fairseq.decoding.word_fusion import UNK_OFFSET, WordFusion, WordState
from attlm_fairseq.errors import InputError

NO_WORD = b" \xff "  # a word that no LM knows: no text has this byte

WordStates = tuple[WordState | None, ...]
"""One for each hypothesis, None where it has not even begun."""


class WordLM:
    """A :class:`WordFusion` as a :class:`SteppedLM`: ln p of an LM's words, given to the decoder's subwords as they spell them.

    What ``step`` returns is no distribution: each subword has the difference that it makes to the ln p of the word it belongs to, and
    ``</s>`` also what the sentence end adds. ``<unk>`` and ``<s>`` are words that the LM does not know; ``<pad>`` scores 0.
    """

    def __init__(self, lm: CachedLM, vocabulary: Vocabulary, unk_offset: float = UNK_OFFSET) -> None:
        """Raises ValueError where the vocabulary's symbols do not show how they are put together to words."""
        texts = surfaces(vocabulary.symbols, special=(BOS, PAD, EOS, UNK))
        texts[BOS] = texts[UNK] = NO_WORD
        self.fusion = WordFusion(LogLinearLM([lm]), texts, ends=[EOS], unk_offset=unk_offset)
        self.vocabulary = vocabulary
        self.eos = EOS

    def start(self, rows: int = 1) -> WordStates:
        return (None,) * rows

    def step(self, states: WordStates, tokens: Tensor) -> tuple[Tensor, WordStates]:
        after = tuple(
            self.fusion.start() if state is None else self.fusion.score(state, token)[1]
            for state, token in zip(states, tokens.tolist(), strict=True)
        )
        rows = {state: row for row, state in enumerate(dict.fromkeys(after))}  # hypotheses that spell the same are computed once
        scores = torch.from_numpy(self.fusion.scores(list(rows))).float()
        return scores[[rows[state] for state in after]].to(tokens.device), after

    def select(self, states: WordStates, rows: Tensor) -> WordStates:
        return tuple(states[row] for row in rows.tolist())


def load_word_lm(path: Path, vocabulary: Vocabulary, *, device: str = "cpu", unk_offset: float = UNK_OFFSET) -> WordLM:
    """An LM of words for a decoder with this vocabulary of subwords: a checkpoint or folder of this package, or a KenLM ARPA file.

    Raises InputError: unusable files, a vocabulary that is not of subwords, or an offset that is no finite number: -inf would forbid a
    hypothesis every way to go on.
    """
    if not math.isfinite(unk_offset):
        raise InputError(f"--word-lm-unk-offset {unk_offset}: expected a finite number; -1000 forbids unknown words")
    neural = path.is_dir() or is_checkpoint(path)
    lm = CachedNeuralLM.load(path, device=device) if neural else CachedKenLM(path)
    try:
        return WordLM(lm, vocabulary, unk_offset)
    except ValueError as error:
        raise InputError(f"is to guide subwords, but {error}; give an LM of the decoder's own units with --lms", path=path) from None
