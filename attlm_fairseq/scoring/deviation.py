"""The effect of a lower precision on the scores of sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Protocol, TypeVar

from attlm_fairseq.numeric import ceil_div

SAMPLE_SENTENCES = 64


class SizedKey(Hashable, Sized, Protocol):
    """A sentence of tokens that can be a key of a dict."""


Sentence = TypeVar("Sentence", bound=SizedKey)


@dataclass(frozen=True)
class Deviation:
    """Differences, in nats, of sentence scores (sum over words and ``</s>``) from float32, on a sample of the sentences.

    ``words`` are the tokens that stand for these sentences, one or more for each word.
    """

    sentences: int
    words: int
    mean: float
    largest: float

    def __str__(self) -> str:
        return (
            f"a sentence's score differs from float32 by {self.mean:.4f} nats on average, {self.largest:.4f} at most "
            f"(measured on {self.sentences} of the first sentences)"
        )


def measured_on(
    distinct: Sequence[Sentence], log_probs: Callable[[Sequence[Sentence], str], Mapping[Sentence, Sequence[float]]], precision: str
) -> Deviation:
    """Score a sample of sentences in float32 and in ``precision``; ``log_probs(sentences, precision)`` scores them."""
    sample = distinct[:: ceil_div(len(distinct), SAMPLE_SENTENCES)]
    exact, rounded = (log_probs(sample, one) for one in ("float32", precision))
    differences = [abs(math.fsum(exact[sentence]) - math.fsum(rounded[sentence])) for sentence in sample]
    return Deviation(len(sample), sum(map(len, sample)), math.fsum(differences) / len(sample), max(differences))
