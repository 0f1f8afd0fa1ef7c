"""Find where a hypothesis and its reference differ: blocks of words between their common words."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline
from attlm_fairseq.text.symbols import END as END
from attlm_fairseq.text.symbols import START

BEGIN = START  # the sentence boundaries, which are context like any word
MARK = "\0"  # of words that only look like a boundary


class Block(NamedTuple):
    """The reference has its words ``[target_begin, target_end)`` in place of the hypothesis' words ``[begin, end)``."""

    begin: int
    end: int
    target_begin: int
    target_end: int


def bounded(text: str) -> list[str]:
    """Return the words of a text between BEGIN and END.

    A word of the text that equals a boundary gets a NUL character, which occurs in no rule and no vocabulary.
    """
    return [BEGIN, *(f"{word}{MARK}" if word.rstrip(MARK) in (BEGIN, END) else word for word in text.split()), END]


def unbounded(words: Sequence[str]) -> str:
    """Return the text of the words between BEGIN and END, as ``bounded`` makes them."""
    return " ".join(word[:-1] if word.endswith(MARK) and word.rstrip(MARK) in (BEGIN, END) else word for word in words)


def differing_blocks(hypothesis: Sequence[str], reference: Sequence[str]) -> list[Block]:
    """Return the blocks of one cheapest alignment (Levenshtein), in order; two blocks have at least one shared word between them."""
    from rapidfuzz.distance import Levenshtein

    alphabet: dict[str, str] = {}

    def encoded(words: Sequence[str]) -> str:  # rapidfuzz compares strings exactly, and lists by hash
        return "".join([alphabet.setdefault(word, chr(len(alphabet) + 1)) for word in words])

    blocks: list[Block] = []
    for step in Levenshtein.opcodes(encoded(hypothesis), encoded(reference)):
        if step.tag == "equal":
            continue
        block = Block(step.src_start, step.src_end, step.dest_start, step.dest_end)
        if blocks and (blocks[-1].end, blocks[-1].target_end) == (block.begin, block.target_begin):
            block = Block(blocks[-1].begin, block.end, blocks[-1].target_begin, block.target_end)
            blocks.pop()
        blocks.append(block)
    return blocks


def edits(words: Sequence[str], reference: Sequence[str]) -> int:
    return sum(max(block.end - block.begin, block.target_end - block.target_begin) for block in differing_blocks(words, reference))


def closest_reference(hypothesis: Sequence[str], references: Sequence[Sequence[str]]) -> Sequence[str]:
    """Return the reference with the fewest edits; the first of equally close ones."""
    return references[0] if len(references) == 1 else min(references, key=partial(edits, hypothesis))


class AlignedPair(NamedTuple):
    """One distinct hypothesis of a list with its reference, both ``bounded``. ``weight``: its share of the list's hypotheses."""

    hypothesis: Sequence[str]
    reference: Sequence[str]
    blocks: Sequence[Block]
    weight: float


MAX_WORDS = 1000  # longer texts are neither learned from nor corrected: alignment and search take quadratic time


def align_list(hypotheses: Sequence[str], references: Sequence[str], steps: TextPipeline = NO_STEPS) -> list[AlignedPair]:
    """Return each distinct hypothesis of a list with its closest reference, as they are after text steps.

    Texts of more than MAX_WORDS words are left out.
    """
    targets = [words for words in map(_interned, map(steps.prepared, references)) if len(words) <= MAX_WORDS]
    counts = Counter(" ".join(steps.words(text)) for text in hypotheses)
    pairs = []
    for text, count in counts.items():
        words = _interned(text)
        if targets and len(words) <= MAX_WORDS:
            reference = closest_reference(words, targets)
            pairs.append(AlignedPair(words, reference, differing_blocks(words, reference), count / len(hypotheses)))
    return pairs


def _interned(text: str) -> list[str]:
    """Return ``bounded`` with one object for each distinct word: pairs of all lists are held together."""
    return [sys.intern(word) for word in bounded(text)]
