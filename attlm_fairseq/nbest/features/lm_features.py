"""LM features of a hypothesis besides the log-probability, by name:

    NAME_oov       number of words that the LM saw and does not know
    NAME_tokens    number of words, or subwords, that the LM saw
    A_minus_B      ln p of the LM A minus ln p of the LM B

If rare words were replaced by <unk> in training, <unk> is probable, and hypotheses with unknown words score too high. A
weight for NAME_oov corrects that. The difference A_minus_B is that of LODR and domain adaptation: the LM of the domain
minus an LM of the recogniser's training text. Two separate weights can express more, but one feature overfits less on a
small tuning set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from attlm_fairseq.scoring.scorer import SentenceScore
from attlm_fairseq.text import TextPipeline

COUNTS: dict[str, Callable[[SentenceScore], float]] = {
    "_oov": lambda score: float(score.oov_count),
    "_tokens": lambda score: float(score.words),
}
MINUS = "_minus_"


def default_features(texts: Mapping[str, TextPipeline]) -> list[str]:
    """Return the features worth tuning: the unknown words of each LM, and the subwords of each LM that uses subwords."""
    tokens = [f"{lm}_tokens" for lm, text in texts.items() if text.segmentation]
    return [name for name in [*(f"{lm}_oov" for lm in texts), *tokens] if name not in texts]


def all_features(lms: Iterable[str]) -> set[str]:
    """Return the names of all features that these LMs can have."""
    lms = list(lms)
    return {f"{lm}{suffix}" for lm in lms for suffix in COUNTS} | {f"{a}{MINUS}{b}" for a in lms for b in lms if a != b}


def is_lm_feature(name: str, lms: Iterable[str]) -> bool:
    """Return whether a name is a feature of these LMs. An LM's own name is not: that is its log-probability."""
    names = set(lms)
    return name not in names and name in all_features(names)


def lm_feature(name: str, scores: Mapping[str, Sequence[SentenceScore]]) -> list[float]:
    """Return the values of a feature for every hypothesis, from the scores that each LM gave them. Raises ValueError for another name."""
    if count := _count_of(name, scores):
        lm, value = count
        return [value(score) for score in scores[lm]]
    if difference := _difference_of(name, scores):
        first, second = difference
        return [one.total - other.total for one, other in zip(scores[first], scores[second], strict=True)]
    raise ValueError(f"{name!r} is not a feature of {', '.join(scores)}")


def differing_lms(name: str, lms: Iterable[str]) -> tuple[str, str] | None:
    """Return the two LMs whose difference this feature is; None for any other name."""
    return _difference_of(name, lms) if name not in set(lms) else None


def _count_of(name: str, lms: Iterable[str]) -> tuple[str, Callable[[SentenceScore], float]] | None:
    return next(((lm, value) for lm in lms for suffix, value in COUNTS.items() if name == lm + suffix), None)


def _difference_of(name: str, lms: Iterable[str]) -> tuple[str, str] | None:
    lms = list(lms)
    return next(((a, b) for a in lms for b in lms if a != b and name == a + MINUS + b), None)
