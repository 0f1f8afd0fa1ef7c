"""What LMs say of a hypothesis besides its log-probability: named features that weights can be given to.

    NAME_oov       how many of the words that the LM saw it does not know
    NAME_tokens    how many words, or subwords, the LM saw
    A_minus_B      ln p of the LM A less ln p of the LM B

A trained <unk> is probable, where rare words were made unknown before training; the number of unknown words, with a weight of its
own, takes back what that is worth to a hypothesis. The difference is LODR's and domain adaptation's: the LM of the domain less that of the
text the recogniser was trained on. Two weights, one of them negative, say all that it says and more; as one feature instead of two
it leaves a small tuning set less to overfit.
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
    """The features worth tuning, from what each LM sees: its unknown words, and its subwords where it has them."""
    tokens = [f"{lm}_tokens" for lm, text in texts.items() if text.segmentation]
    return [name for name in [*(f"{lm}_oov" for lm in texts), *tokens] if name not in texts]


def is_lm_feature(name: str, lms: Iterable[str]) -> bool:
    """Whether a name is a feature of these LMs. An LM's own name is not: that is its log-probability."""
    return name not in set(lms) and (_count_of(name, lms) is not None or _difference_of(name, lms) is not None)


def lm_feature(name: str, scores: Mapping[str, Sequence[SentenceScore]]) -> list[float]:
    """The values of a feature for every hypothesis, from the scores that each LM gave them. Raises ValueError for another name."""
    if count := _count_of(name, scores):
        lm, value = count
        return [value(score) for score in scores[lm]]
    if difference := _difference_of(name, scores):
        first, second = difference
        return [one.total - other.total for one, other in zip(scores[first], scores[second], strict=True)]
    raise ValueError(f"{name!r} is not a feature of {', '.join(scores)}")


def differing_lms(name: str, lms: Iterable[str]) -> tuple[str, str] | None:
    """The two LMs whose difference this feature is; None for any other name."""
    return _difference_of(name, lms) if name not in set(lms) else None


def _count_of(name: str, lms: Iterable[str]) -> tuple[str, Callable[[SentenceScore], float]] | None:
    return next(((lm, value) for lm in lms for suffix, value in COUNTS.items() if name == lm + suffix), None)


def _difference_of(name: str, lms: Iterable[str]) -> tuple[str, str] | None:
    lms = list(lms)
    return next(((a, b) for a in lms for b in lms if a != b and name == a + MINUS + b), None)
