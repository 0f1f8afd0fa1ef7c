"""Linear interpolation over words: the probability of each event is the weighted mean of what several LMs give it.

    p(w | h) = sum_k lambda_k p_k(w | h),    sum_k lambda_k = 1

The weights come from EM on a text that no LM was trained on (Jelinek and Mercer 1980): see :func:`em_weights`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attlm_fairseq.scoring.scorer import Scorer, SentenceScore

ENOUGH = 1e-7  # natural log an event: EM ends with the first iteration that gains less
ITERATIONS = 200


class MixtureScorer:
    """Several LMs, neural and n-gram ones, over the same words as one Scorer: their probabilities of each event, averaged.

    A word is unknown where all of them do not know it. Where only some do not, their ``p(<unk>)`` counts as the word's probability: give
    LMs with different vocabularies an OOV policy that spreads it.
    """

    def __init__(self, scorers: Sequence[Scorer], weights: Sequence[float], name: str = "mix") -> None:
        """``weights`` are divided by their sum. Raises ValueError unless there is one for each LM, none negative, not all zero."""
        if not scorers or len(weights) != len(scorers) or min(weights) < 0 or not 0 < sum(weights) < math.inf:
            raise ValueError(f"{len(scorers)} LMs need as many weights, none negative, not all zero: {list(weights)}")
        self.scorers = tuple(scorers)
        self.weights = np.array(weights, dtype=np.float64) / sum(weights)
        self.name = name

    def score(self, sentences: Sequence[Sequence[str]]) -> list[SentenceScore]:
        if not sentences:
            return []
        columns = [scorer.score(sentences) for scorer in self.scorers]
        values = mix(event_matrix(columns), self.weights).tolist()
        scores, end = [], 0
        for of_sentence in zip(*columns, strict=True):
            begin, end = end, end + len(of_sentence[0].log_probs)
            unknown = tuple(map(all, zip(*(score.oov for score in of_sentence), strict=True)))
            scores.append(SentenceScore(tuple(values[begin:end]), unknown))
        return scores

    def signature(self) -> dict[str, object]:
        return {
            "kind": "mixture",
            "weights": {scorer.name: float(weight) for scorer, weight in zip(self.scorers, self.weights, strict=True)},
            "OOV policy": "unknown where all LMs do not know it, each under its own policy",
            "lm": {scorer.name: scorer.signature() for scorer in self.scorers},
        }


@dataclass(frozen=True, slots=True)
class EMIteration:
    """Weights (K,) and the mean natural-log probability of an event under them."""

    weights: np.ndarray
    log_prob: float

    @property
    def ppl(self) -> float:
        return math.exp(-self.log_prob)


def event_matrix(columns: Sequence[Sequence[SentenceScore]]) -> np.ndarray:
    """The events of all sentences, end to end, for each of K LMs: (K, E) natural logarithms."""
    return np.array([[value for score in column for value in score.log_probs] for column in columns])


def mix(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The log-probabilities (E,) of events under the mixture of (K, E) by weights (K,) that sum to one."""
    used = np.flatnonzero(weights)
    total = log_probs[used[0]] + math.log(weights[used[0]])
    for k in used[1:]:
        total = np.logaddexp(total, log_probs[k] + math.log(weights[k]))
    return total


def em_weights(log_probs: np.ndarray, iterations: int = ITERATIONS, enough: float = ENOUGH) -> Iterator[EMIteration]:
    """Mixture weights of (K, E) event log-probabilities by expectation maximisation, an iteration at a time, the best last.

    Begins with equal weights. An iteration's weight of an LM is the mean, over the events, of the probability that the event came from
    it: the likelihood never falls, and as its logarithm is concave in the weights, it rises to its maximum. Ends after
    ``iterations``, or when the mean log-probability of an event gains less than ``enough``.
    Raises ValueError without events, and for log-probabilities that are not finite.
    """
    lms, events = log_probs.shape
    if not events or not np.isfinite(log_probs).all():
        raise ValueError("EM needs events, all of finite log-probability")
    highest = log_probs.max(axis=0)
    relative = np.exp(log_probs - highest)  # the largest of an event is 1: nothing can underflow in the mixture
    offset = float(highest.mean())
    weights, last = np.full(lms, 1.0 / lms), -math.inf
    for iteration in range(iterations + 1):
        mixed = weights @ relative
        log_prob = float(np.log(mixed).mean()) + offset
        yield EMIteration(weights, log_prob)
        if iteration == iterations or log_prob - last < enough:
            return
        last = log_prob
        weights = weights * (relative / mixed).mean(axis=1)
        weights = weights / weights.sum()
