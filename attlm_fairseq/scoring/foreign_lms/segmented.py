"""An LM over subwords as an LM over words, so that it can be mixed word by word with an LM over words."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from attlm_fairseq.scoring.scorer import ComposedScorer, Scorer, Sentence, SentenceScore


class SegmentedScorer(ComposedScorer):
    """A Scorer whose LM sees each word as pieces: the probability of a word is the product of those of its pieces.

    This is the probability of one segmentation, that of the training, so the words' probabilities sum to at most one. A word
    is unknown if one of its pieces is. A word without pieces (a character that the segmentation drops) has probability 1.
    """

    def __init__(self, scorer: Scorer, pieces: Callable[[str], Sequence[str]], segmentation: str) -> None:
        """``pieces`` gives those of a word; ``segmentation`` says how, for the signature."""
        self.members = (scorer,)
        self.name = scorer.name
        self.segmentation = segmentation
        self._pieces = lru_cache(maxsize=1 << 16)(lambda word: tuple(pieces(word)))

    def seen(self, sentences: Sequence[Sentence]) -> Sequence[Sentence]:
        return [[piece for word in words for piece in self._pieces(word)] for words in sentences]

    def combined(self, columns: Sequence[Sequence[SentenceScore]], sentences: Sequence[Sentence]) -> list[SentenceScore]:
        pairs = zip(columns[0], sentences, strict=True)
        return [joined(score, [len(self._pieces(word)) for word in words]) for score, words in pairs]

    def with_members(self, members: Sequence[Scorer]) -> Scorer:
        same = copy.copy(self)  # with its cache
        same.members = (members[0],)
        return same

    def signature(self) -> dict[str, object]:
        return self.members[0].signature() | {"words": f"products over {self.segmentation}"}


def joined(score: SentenceScore, lengths: Sequence[int]) -> SentenceScore:
    """Return the score of a sentence of pieces, as one of words made of so many pieces each."""
    log_probs, oov, end = [], [], 0
    for length in lengths:
        begin, end = end, end + length
        log_probs.append(math.fsum(score.log_probs[begin:end]))
        oov.append(any(score.oov[begin:end]))
    return SentenceScore((*log_probs, score.log_probs[-1]), tuple(oov))
