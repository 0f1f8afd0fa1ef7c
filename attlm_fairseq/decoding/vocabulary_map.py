"""Adaptation of a language model to the decoder's vocabulary: equal vocabularies, or a mapping symbol by symbol.

Shapes: N hypotheses, V the decoder's vocabulary.
"""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.vocabulary import EOS, UNK, Vocabulary
from attlm_fairseq.decoding.incremental_lm import IncrementalLM
from attlm_fairseq.errors import InputError
from attlm_fairseq.text.subwords import SUBWORD_STYLES, recognise_style

SPECIAL = UNK + 1  # number of special symbols before the first word
SAME_UNITS = (
    "train the LM on text in the decoder's units; one of words can guide a decoder of subwords at word ends (in fairseq --word-lms, "
    "elsewhere LookAheadWordLM)"
)


class MappedLM:
    """An ``IncrementalLM`` that maps an LM to another vocabulary.

    A symbol that both vocabularies have keeps its score, even if its ids differ. The LM reads any other symbol as ``<unk>``.
    Such symbols, ``<unk>`` included, share p(``<unk>``) equally. So the probabilities of the whole vocabulary sum to one, or
    to less if the LM has symbols that the vocabulary lacks.
    """

    def __init__(self, lm: IncrementalLM, vocabulary: Vocabulary) -> None:
        self.lm = lm
        self.vocabulary = vocabulary
        self.eos = EOS
        self.ids = torch.tensor([*range(SPECIAL), *lm.vocabulary.symbol_ids(vocabulary.symbols[SPECIAL:])])
        unknown = self.ids == UNK
        self.missing = int(unknown.sum()) - 1
        """The number of symbols of the vocabulary that the LM lacks."""
        self.share = unknown.float() * math.log(self.missing + 1)

    def start(self, rows: int = 1) -> Any:
        return self.lm.start(rows)

    def step(self, states: Any, tokens: Tensor) -> tuple[Tensor, Any]:
        if self.ids.device != tokens.device:
            self.ids, self.share = self.ids.to(tokens.device), self.share.to(tokens.device)
        log_probs, states = self.lm.step(states, self.ids[tokens])
        log_probs = log_probs.to(tokens.device)
        return log_probs[:, self.ids] - self.share, states

    def select(self, states: Any, rows: Tensor) -> Any:
        return self.lm.select(states, rows)


def fit_vocabulary(lm: IncrementalLM, vocabulary: Vocabulary, name: object, by_symbol: bool = False) -> IncrementalLM:
    """Return the LM for a decoder with this vocabulary.

    Args:
        lm: the language model.
        vocabulary: the decoder's vocabulary.
        name: the name of the LM in messages.
        by_symbol: map an LM with a different vocabulary, see ``MappedLM``.

    Raises:
        InputError: a row of the LM's vocabulary differs and ``by_symbol`` is off: the LM would score the wrong words without
            any visible error. Or the LM has none of the decoder's symbols.
    """
    if lm.vocabulary == vocabulary:
        return lm
    if by_symbol:
        if ordinary(vocabulary) and not ordinary(vocabulary) & ordinary(lm.vocabulary):
            raise InputError(f"has none of the decoder's {len(ordinary(vocabulary))} symbols: {SAME_UNITS}", path=name)
        return MappedLM(lm, vocabulary)
    if units(lm.vocabulary) != units(vocabulary):
        # units differ (for example words and subwords), so symbols that occur in both do not mean the same
        raise InputError(f"its symbols are {units(lm.vocabulary)}, the decoder's {units(vocabulary)}: {SAME_UNITS}", path=name)
    rows = zip_longest(lm.vocabulary.symbols, vocabulary.symbols, fillvalue=None)
    row, (own, other) = next((row, symbols) for row, symbols in enumerate(rows) if symbols[0] != symbols[1])
    raise InputError(
        f"its dictionary has {len(lm.vocabulary)} symbols, the decoder's {len(vocabulary)}; the first difference is row {row}, "
        f"{'missing' if own is None else repr(own)} in the LM and {'missing' if other is None else repr(other)} in the decoder; "
        "train the LM with the decoder's dictionary, or have it mapped by symbol (in fairseq --lm-map-symbols)",
        path=name,
    )


def ordinary(vocabulary: Vocabulary) -> set[str]:
    """Return the symbols, without special ones and without those that fairseq-preprocess adds as padding."""
    return {symbol for symbol in vocabulary.symbols[SPECIAL:] if not symbol.startswith("madeupword")}


def units(vocabulary: Vocabulary) -> str:
    """Return the kind of a dictionary's symbols, recognised from their word marks."""
    style = recognise_style(ordinary(vocabulary))
    return f"subwords marked by {SUBWORD_STYLES[style].mark}" if style else "words, without marks of subwords"
