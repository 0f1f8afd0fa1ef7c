"""Find ``<s>``, ``<pad>`` and ``</s>`` among the words of a text: fairseq-preprocess does not distinguish them from symbols."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from fairseq.data import ConcatDataset
from fairseq.data.indexed_dataset import MMapIndexedDataset
from torch import Tensor

from attlm_fairseq.checkpoints.vocabulary import EOS, SPECIAL_SYMBOLS
from attlm_fairseq.errors import InputError


def refuse_other_words(lines: Sequence[Tensor], symbols: int, name: str) -> None:
    """Raise InputError if a text has ids that a dictionary of so many symbols lacks, as far as this is quick to see."""
    for part in filter(lambda part: isinstance(part, MMapIndexedDataset), lines.datasets if isinstance(lines, ConcatDataset) else [lines]):
        words = int(part.sizes.sum())
        if len(part._bin_buffer) != words * part._index.dtype().itemsize:
            raise InputError(f"has other words than the {words} of its .idx: is the .bin cut short? Preprocess the text again", path=name)
        largest = int(tokens_of(part).max(initial=0))
        if largest >= symbols:
            raise InputError(
                f"has the word number {largest}, and dict.txt has {symbols} symbols, special ones included: preprocess the text with "
                "--srcdict and this dict.txt",
                path=name,
            )


def refuse_special_words(lines: Sequence[Tensor], numbers: Iterable[int], name: str) -> None:
    """Raise InputError for the first of these lines that has ``<s>``, ``<pad>`` or ``</s>`` among its words.

    As a target, ``<pad>`` would be counted but left out of the loss, and ``</s>`` would end a sentence in the middle.
    ``lines`` are token ids (n + 1,) ending in ``</s>``; ``name`` is the text's.
    """
    if all(map(has_line_ends_alone, lines.datasets if isinstance(lines, ConcatDataset) else [lines])):
        return
    for number in numbers:
        if word := special_word(lines[int(number)]):
            raise InputError(
                f"found the word {word!r}, which fairseq keeps for itself: take it out of the text or write it "
                "otherwise (fairseq-preprocess marks the ends of sentences itself), and preprocess again",
                path=name,
                line=int(number) + 1,
            )


def special_word(line: Tensor) -> str | None:
    """Return the first ``<s>``, ``<pad>`` or ``</s>`` among the words of a line (token ids (n + 1,) ending in ``</s>``), or None."""
    words = line[:-1]
    special = words[words <= EOS]
    return SPECIAL_SYMBOLS[int(special[0])] if len(special) else None


def has_line_ends_alone(lines: Sequence[Tensor]) -> bool:
    """Return whether a dataset surely has no special symbol but one ``</s>`` per line; quick if fairseq maps its file to memory."""
    if not isinstance(lines, MMapIndexedDataset):
        return False
    return int((tokens_of(lines) <= EOS).sum()) == len(lines)


def tokens_of(lines: MMapIndexedDataset) -> np.ndarray:
    """Return the ids of all lines, one after the other."""
    return np.frombuffer(lines._bin_buffer, dtype=lines._index.dtype)
