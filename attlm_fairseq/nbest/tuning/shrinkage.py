"""How far to trust tuned weights: between the input order and the weights as found, as cross-validation confirms.

The strength s pulls the weights towards the input order by giving more weight to the rank. With features in units of
their standard deviation within lists, the direction of the weights becomes ``s * w / |w| - (1 - s) * rank``. Strength 1
keeps the weights as found; strength 0 keeps the input order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from attlm_fairseq.nbest.metrics.metric import Metric, corpus_score
from attlm_fairseq.nbest.statistics.bootstrap import SCORE_DIGITS, cross_validation_factor

STRENGTHS = (0.25, 0.5, 0.75, 1.0)  # tried; 0 is what they are compared with
CAUTION = 0.5  # standard errors that a gain must have to count: more throws away real gains, less follows noise


def pulled(weights: Mapping[str, float], strength: float, spreads: Mapping[str, float]) -> dict[str, float]:
    """Return the weights at a strength. If any weight is not 0, only that of ``rank`` changes.

    ``spreads`` are the features' standard deviations within lists, including that of the rank.
    """
    size = math.sqrt(sum((weight * spreads[name]) ** 2 for name, weight in weights.items()))
    if strength == 1.0 or not size:
        return dict(weights)
    if strength == 0.0:
        return dict.fromkeys(weights, 0.0)
    pull = (1.0 - strength) / strength * size / spreads["rank"]
    return {**weights, "rank": float(f"{weights.get('rank', 0.0) - pull:.6g}")}


def gain_of(answers: np.ndarray, first: np.ndarray, metric: Metric) -> float:
    """Return how much better the answers are than the first hypotheses, statistics (N, S) each, in percent points."""
    sign = 1.0 if metric.higher_is_better else -1.0
    return round(sign * (corpus_score(metric, answers) - corpus_score(metric, first)), SCORE_DIGITS)


def trusted_gain(answers: np.ndarray, first: np.ndarray, metric: Metric, folds: int) -> float:
    """Return the gain of held-out answers over the first hypotheses, statistics (N, S) each, beyond chance.

    It is the smallest gain if any one list is left out, so that a single list is not enough, minus CAUTION standard errors.
    The error is the jackknife's, times ``cross_validation_factor``. In percent points; positive is better.
    """
    without, error = _jackknife(answers, first, metric, folds)
    return round(float(without.min()) - CAUTION * error, SCORE_DIGITS)


def is_as_good(answers: np.ndarray, best: np.ndarray, metric: Metric, folds: int) -> bool:
    """Return whether the held-out answers are at most one standard error worse than the best ones; statistics (N, S) each."""
    return -gain_of(answers, best, metric) <= _jackknife(answers, best, metric, folds)[1]


def _jackknife(answers: np.ndarray, others: np.ndarray, metric: Metric, folds: int) -> tuple[np.ndarray, float]:
    """Return the gains (N,) of answers over others without each of the lists, and the standard error of the cross-validated gain."""
    sign = 1.0 if metric.higher_is_better else -1.0
    without = sign * (metric.score(answers.sum(axis=0) - answers) - metric.score(others.sum(axis=0) - others))
    count = len(without)
    error = math.sqrt((count - 1) / count * float(np.square(without - without.mean()).sum()))
    return without, cross_validation_factor(folds) * error
