"""Linear interpolation: the probability of each event is the weighted mean of its probabilities under several LMs.

    p(w | h) = sum_k lambda_k p_k(w | h),    sum_k lambda_k = 1

The weights come from EM on a text that no LM was trained on (Jelinek and Mercer 1980): see ``em_weights``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.scorer import ComposedScorer, Scorer, Sentence, SentenceScore
from attlm_fairseq.scoring.unknown_words.oov_policy import OOVPolicyScorer

MAX_REMAINING_GAIN = 1e-6  # nats per event: EM stops if no weights could gain more than this
ITERATIONS = 10_000  # the limit; some dozens are usual
DISPUTED = (
    "there p(<unk>), which stands for many words, is mixed with the probability of one. --oov spread:TYPES shares it among the unseen words"
)
"""What is wrong with words that are unknown to some LMs of a mixture only."""
MIN_WEIGHT = 1e-15  # the smallest weight
MAX_STEP_POWER = 1e6  # the largest power of a step


class MixtureScorer(ComposedScorer):
    """A Scorer that averages the probabilities of several LMs, neural or n-gram, for each event.

    A word is unknown if no LM knows it. If only some LMs do not know it, their ``p(<unk>)`` counts as the word's
    probability. So give LMs with different vocabularies the OOV policy ``spread``.
    """

    def __init__(self, scorers: Sequence[Scorer], weights: Sequence[float], name: str = "mix") -> None:
        """Mix LMs with ``weights``, which are divided by their sum.

        Raises ValueError if the weights do not fit, and InputError for a member that is not ``left_to_right`` or does not
        score the sentence end.
        """
        for scorer in scorers:
            if not scorer.left_to_right:
                raise InputError(
                    f"{scorer.name} is a masked LM or a translation model that does not read from left to right: its scores are not "
                    "probabilities of words after the words before them; give it a weight, do not mix it"
                )
            if not scorer.scores_end:
                raise InputError(
                    f"{scorer.name} does not score the sentence end (--sentence-end), which other LMs of a mixture do; name its end, or "
                    "give it a weight instead of mixing it"
                )
        if not scorers or len(weights) != len(scorers) or min(weights) < 0 or not 0 < sum(weights) < math.inf:
            raise ValueError(f"{len(scorers)} LMs need as many weights, none negative, not all zero: {list(weights)}")
        self.members = tuple(scorers)
        self.weights = np.array(weights, dtype=np.float64) / sum(weights)
        self.name = name
        self._disputed: list[str] = []  # a word that is unknown to some members, which give it p(<unk>), not to all

    def combined(self, columns: Sequence[Sequence[SentenceScore]], sentences: Sequence[Sentence]) -> list[SentenceScore]:
        if not sentences:
            return []
        values = mix(event_matrix(columns), self.weights).tolist()
        scores, end = [], 0
        as_unk = [k for k, member in enumerate(self.members) if not isinstance(member, OOVPolicyScorer)]
        for words, *of_sentence in zip(sentences, *columns, strict=True):
            begin, end = end, end + len(of_sentence[0].log_probs)
            flags = list(zip(*(score.oov for score in of_sentence), strict=True))
            unknown = tuple(map(all, flags))
            if not self._disputed:
                self._disputed += _first_disputed(words, flags, as_unk)
            scores.append(SentenceScore(tuple(values[begin:end]), unknown))
        return scores

    def notes(self) -> list[str]:
        if not self._disputed:
            return super().notes()
        return [*super().notes(), f"WARNING: words are unknown to some LMs of {self.name} only, such as {self._disputed[0]!r}: {DISPUTED}"]

    def with_members(self, members: Sequence[Scorer]) -> Scorer:
        mixture = MixtureScorer(members, self.weights.tolist(), self.name)
        mixture._disputed = self._disputed
        return mixture

    def signature(self) -> dict[str, object]:
        return {
            "kind": "mixture",
            "weights": {scorer.name: float(weight) for scorer, weight in zip(self.members, self.weights, strict=True)},
            "OOV policy": "unknown where all LMs do not know it, each under its own policy",
            "lm": {scorer.name: scorer.signature() for scorer in self.members},
        }


def _first_disputed(words: Sentence, flags: Sequence[tuple[bool, ...]], as_unk: Sequence[int]) -> list[str]:
    """Return the first word that is unknown to an LM of those ``as_unk``, but not to all LMs; empty if there is none."""
    return [word for word, of_word in zip(words, flags, strict=True) if not all(of_word) and any(of_word[k] for k in as_unk)][:1]


@dataclass(frozen=True, slots=True)
class EMIteration:
    """Weights (K,), the mean natural-log probability of an event under them, and by how much the best weights may exceed it."""

    weights: np.ndarray
    log_prob: float
    gap: float

    @property
    def ppl(self) -> float:
        return math.exp(-self.log_prob)


def event_matrix(columns: Sequence[Sequence[SentenceScore]]) -> np.ndarray:
    """Return ln p of the concatenated events of all sentences for each of K LMs, (K, E)."""
    return np.array([[value for score in column for value in score.log_probs] for column in columns])


def mix(log_probs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return ln p (E,) of events under the mixture, given ln p (K, E) under each LM and weights (K,) that sum to one."""
    used = np.flatnonzero(weights)
    total = log_probs[used[0]] + math.log(weights[used[0]])
    for k in used[1:]:
        total = np.logaddexp(total, log_probs[k] + math.log(weights[k]))
    return total


def em_weights(log_probs: np.ndarray, iterations: int = ITERATIONS, enough: float = MAX_REMAINING_GAIN) -> Iterator[EMIteration]:
    """Estimate mixture weights by expectation maximisation (EM), beginning with equal weights.

    An iteration multiplies an LM's weight by the mean over events of p(event | LM) / p(event | mixture). The likelihood
    never falls, and its logarithm is concave in the weights, so it rises to its maximum. If LMs are alike, this takes
    thousands of iterations. Therefore the factors are raised to a power that doubles with each iteration. If the
    likelihood would fall, the step is repeated with the power 1, which is EM's (overrelaxed EM, Salakhutdinov and Roweis
    2003). By concavity, no weights are better by more than ``gap``, the logarithm of the largest factor.

    Args:
        log_probs: ln p (K, E) of E events under K LMs.
        iterations: maximum number of iterations.
        enough: end when ``gap`` is below this, in nats per event.

    Yields:
        One value per iteration, the best last.

    Raises:
        ValueError: there are no events, or a log-probability is not finite.
    """
    lms, events = log_probs.shape
    if not events or not np.isfinite(log_probs).all():
        raise ValueError("EM needs events, all of finite log-probability")
    highest = log_probs.max(axis=0)
    relative = np.exp(log_probs - highest)  # the largest value of each event is 1, so the mixture cannot underflow
    offset = float(highest.mean())
    weights = plain = np.full(lms, 1.0 / lms)
    power, best = 1.0, -math.inf
    for _ in range(iterations):
        mixed = weights @ relative
        log_prob = float(np.log(mixed).mean()) + offset
        if power > 1 and log_prob < best:
            weights, power = plain, 1.0
            continue
        factors = relative @ (1.0 / mixed) / events
        gap = max(0.0, math.log(factors.max()))
        yield EMIteration(weights, log_prob, gap)
        if gap < enough:
            return
        best, power = log_prob, min(2 * power, MAX_STEP_POWER)
        plain, weights = _multiplied(weights, factors, 1.0), _multiplied(weights, factors, power)


def _multiplied(weights: np.ndarray, factors: np.ndarray, power: float) -> np.ndarray:
    """Return weights times factors to a power, normalised. No weight becomes 0, since a factor could never raise it again."""
    with np.errstate(divide="ignore"):
        logarithms = np.log(weights) + power * np.log(factors)
    weights = np.maximum(np.exp(logarithms - logarithms.max()), MIN_WEIGHT)
    return weights / weights.sum()
