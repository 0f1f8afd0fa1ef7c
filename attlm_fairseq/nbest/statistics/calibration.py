"""Measure how well word confidences match reality, and fit them: normalised cross entropy, calibration error.

A word of an answer is right if the edit-distance alignment pairs it with the same word of the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from attlm_fairseq.nbest.decision.confidence import AlignedAnswer, Confidence
from attlm_fairseq.nbest.decision.decision import STEPS, Decision, decide
from attlm_fairseq.nbest.decision.posterior import posteriors
from attlm_fairseq.nbest.features.within_lists import standard_deviation
from attlm_fairseq.nbest.nbest_list import NbestList

BINS = 10
DRAWS = 200  # of right words, for the calibration error of exact confidences
MIN_PROBABILITY = 1e-7  # a confidence of 0 or 1 counts as so far from it: one wrong word would otherwise cost infinitely much


@dataclass
class JudgedWords:
    """The words of the answers of N lists: ``agreement[i]`` (W_i, n_i), ``totals[i]`` (n_i,), ``right[i]`` (W_i,) bool."""

    agreement: list[np.ndarray] = field(default_factory=list)
    totals: list[np.ndarray] = field(default_factory=list)
    right: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(cls, lists: Iterable[NbestList], weights: Mapping[str, float], decision: Decision) -> JudgedWords:
        """Decide on scored lists with references, and judge each word of the answers."""
        judged = cls()
        for nbest in lists:
            answer = AlignedAnswer.of(nbest, decide(nbest, weights, decision), weights, decision)
            judged.agreement.append(answer.agreement)
            judged.totals.append(answer.totals)
            judged.right.append(right_words(answer.words, [decision.text.prepared(text).split() for text in nbest.references]))
        return judged

    @classmethod
    def joined(cls, parts: Sequence[JudgedWords]) -> JudgedWords:
        """Return the words of all parts as one."""
        return cls(*([of_list for part in parts for of_list in getattr(part, column)] for column in ("agreement", "totals", "right")))

    def of_lists(self, places: Sequence[int]) -> JudgedWords:
        return JudgedWords(*([column[i] for i in places] for column in (self.agreement, self.totals, self.right)))

    def posteriors(self, scale: float) -> np.ndarray:
        shares = [of_list @ posteriors(totals, scale) for of_list, totals in zip(self.agreement, self.totals, strict=True)]
        return np.minimum(1.0, np.concatenate(shares))

    @property
    def all_right(self) -> np.ndarray:
        return np.concatenate(self.right)


def right_words(words: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """Return which words (W,) are right against the closest reference."""
    from rapidfuzz.distance import Levenshtein

    right = np.zeros(len(words), dtype=bool)
    reference = min(references, key=lambda reference: Levenshtein.distance(words, reference))
    for tag, begin, end, *_ in Levenshtein.opcodes(words, reference):
        right[begin:end] = tag == "equal"
    return right


def fit_confidence(words: JudgedWords) -> Confidence:
    """Return the scale and coverage with the highest normalised cross entropy on these words; Confidence() if there is none.

    One right and one wrong word on which all hypotheses agree are added, so that no confidence becomes 0 or 1.
    """
    from scipy.optimize import minimize_scalar

    right = words.all_right
    if not len(right):
        return Confidence()

    def loss(log_scale: float) -> float:
        shares = words.posteriors(float(np.exp(log_scale)))
        coverage = _best_coverage(shares, right)
        return -_log_likelihood(coverage * shares, right) - float(np.log(coverage) + np.log1p(-coverage))

    unit = standard_deviation(words.totals)
    if not unit:
        return Confidence(1.0, _best_coverage(words.posteriors(1.0), right))
    steps = np.log(np.array(STEPS) / unit)
    best = int(np.argmin([loss(step) for step in steps]))
    bounds = steps[max(0, best - 1)], steps[min(len(steps) - 1, best + 1)]
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.01})
    scale = float(f"{np.exp(found.x if found.fun < loss(steps[best]) else steps[best]):.4g}")
    return Confidence(scale, float(f"{_best_coverage(words.posteriors(scale), right):.6g}"))


def _best_coverage(shares: np.ndarray, right: np.ndarray) -> float:
    """Return the coverage with the highest likelihood: where its derivative, which falls, is 0."""
    from scipy.optimize import brentq

    wrong = shares[~right]
    count = float(right.sum()) + 1.0

    def slope(coverage: float) -> float:
        return count / coverage - float((wrong / (1.0 - coverage * wrong)).sum()) - 1.0 / (1.0 - coverage)

    return float(brentq(slope, 1e-12, 1.0 - 1e-12))


def _log_likelihood(confidences: np.ndarray, right: np.ndarray) -> float:
    clipped = np.clip(confidences, MIN_PROBABILITY, 1.0 - MIN_PROBABILITY)
    return float(np.log(clipped[right]).sum() + np.log1p(-clipped[~right]).sum())


def normalised_cross_entropy(confidences: np.ndarray, right: np.ndarray) -> float | None:
    """Return NIST's normalised cross entropy of confidences c: 1 if all are 0 or 1 and right; at most 1.

    It is 0 if every confidence is the share of right words p, and below 0 for worse confidences:
    ``(H + sum over right words of ln c + sum over wrong words of ln (1 - c)) / H`` with ``H = -n ln p - (N - n) ln (1 - p)``
    for n right words of N, p = n / N. None if all words are right or all are wrong: then H is 0.
    """
    share = float(right.mean()) if len(right) else 0.0
    if not 0 < share < 1:
        return None
    entropy = -len(right) * (share * np.log(share) + (1 - share) * np.log1p(-share))
    return float((entropy + _log_likelihood(confidences, right)) / entropy)


@dataclass(frozen=True, slots=True)
class Bin:
    """The words with confidences of one tenth of the range: how many, their mean confidence, the share of them that is right."""

    count: int
    confidence: float
    right: float


def reliability(confidences: np.ndarray, right: np.ndarray) -> list[Bin]:
    """Return the BINS of equal width that have any words, from the lowest confidence to the highest."""
    place = np.minimum((confidences * BINS).astype(int), BINS - 1)
    members = [place == number for number in range(BINS)]
    return [Bin(int(of_bin.sum()), float(confidences[of_bin].mean()), float(right[of_bin].mean())) for of_bin in members if of_bin.any()]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: the mean distance between confidence and share of right words, over words, bin by bin."""
    count = sum(of_bin.count for of_bin in bins)
    return sum(of_bin.count * abs(of_bin.confidence - of_bin.right) for of_bin in bins) / count if count else 0.0


@dataclass(frozen=True)
class Calibration:
    """Whether the confidences of the words of some answers can be believed.

    ``confidence`` is what made them; None if each fold of the lists has what was fitted on the others, or if they are of the file itself
    (``folds`` is 0). ``nce`` is None if all words are right or all wrong. ``ece_if_exact`` is the mean of ``ece`` if each word were
    right with the probability of its confidence: by chance alone it is not 0. ``in_sample``: whether weights were tuned on these
    lists or corrections learned from them, so that the answers are surer here than elsewhere.
    """

    words: int
    right: float
    nce: float | None
    ece: float
    ece_if_exact: float
    bins: list[Bin] = field(repr=False)
    confidence: Confidence | None
    folds: int = 0
    in_sample: bool = False

    @classmethod
    def of(
        cls, confidences: np.ndarray, right: np.ndarray, confidence: Confidence | None, folds: int = 0, *, in_sample: bool = False
    ) -> Calibration:
        """Measure confidences (N,) of words that are ``right`` (N,) or not."""
        bins = reliability(confidences, right)
        generator = np.random.default_rng(1)
        drawn = [calibration_error(reliability(confidences, generator.random(len(right)) < confidences)) for _ in range(DRAWS)]
        nce, share = normalised_cross_entropy(confidences, right), float(right.mean()) if len(right) else 0.0
        return cls(len(right), share, nce, calibration_error(bins), float(np.mean(drawn)), bins, confidence, folds, in_sample)

    @property
    def source(self) -> str:
        """Return where the confidences come from."""
        if self.confidence is None and not self.folds:
            return "as the file gives them"
        if self.confidence is None:
            return f"scale and coverage of each list fitted on the other folds, {self.folds} in all"
        return f"scale {self.confidence.scale:g}, coverage {self.confidence.coverage:g}, as configured"

    def __str__(self) -> str:
        nce = "none (all words are alike)" if self.nce is None else f"{self.nce:.3f}"
        ece = f"ECE {self.ece:.4f} ({self.ece_if_exact:.4f} if they were exact)"
        saw = "; the weights or corrections saw these lists: expect other figures elsewhere" if self.in_sample else ""
        return f"confidence of {self.words:,} words, {self.right:.1%} of them right: NCE {nce}, {ece} ({self.source}{saw})"

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON can hold it."""
        bins = [{"words": of.count, "confidence": round(of.confidence, 6), "right": round(of.right, 6)} for of in self.bins]
        found = {
            "words": self.words,
            "right": round(self.right, 6),
            "nce": self.nce and round(self.nce, 6),
            "ece": round(self.ece, 6),
            "ece_if_exact": round(self.ece_if_exact, 6),
            **({"in_sample": True} if self.in_sample else {}),
        }
        fitted: dict[str, Any] = {"folds": self.folds} if self.confidence is None else asdict(self.confidence)
        return found | fitted | {"bins": bins}
