"""Weights by minimum expected loss (Smith and Eisner 2006), which is smooth, unlike the corpus metric.

A list answers hypothesis i with probability ``softmax(total)_i``. The expected loss of all lists is minimised by L-BFGS
with the exact gradient. Shapes as in ``corpus``.
"""

from __future__ import annotations

import numpy as np

from attlm_fairseq.nbest.decision.mbr import sentence_losses
from attlm_fairseq.nbest.features.within_lists import standard_deviation
from attlm_fairseq.nbest.metrics.external import ExternalMetric
from attlm_fairseq.nbest.metrics.metric import ErrorRate, Metric, corpus_score
from attlm_fairseq.nbest.tuning.corpus import Corpus
from attlm_fairseq.nbest.tuning.search_options import SearchOptions

RIDGE = 1e-3  # percent points for a weight of 1 standard deviation: keeps weights finite where lists could be decided without doubt

SPREAD = 10.0  # percent points: taken for the standard deviation, within lists, of the answers of an external metric


def least_expected_loss(corpus: Corpus, metric: Metric, allowed: np.ndarray, options: SearchOptions) -> tuple[np.ndarray, int]:
    """Return the weights (F,) with the least expected loss, and the number of gradient evaluations.

    ``allowed`` (2, F) are the lowest and highest weights, in the order of the corpus; 0 must be between them. The loss is
    that of ``mbr.sentence_losses``; for an error rate, errors over the references' length. The search begins at 0 and at
    ``options.restarts`` random points. The weights are not rescaled: posteriors have scale 1. If the input order scores
    better, all weights are 0.
    """
    from scipy.optimize import minimize

    starts, sizes, features = corpus.starts, corpus.sizes, corpus.standardised
    losses = sentence_losses(corpus.statistics, metric)
    if isinstance(metric, ExternalMetric) and (spread := standard_deviation(np.split(losses, starts[1:]))):
        losses = losses * (SPREAD / spread)  # the program's unit is not known
    length = float(corpus.statistics[starts, 1].sum()) if isinstance(metric, ErrorRate) else 100.0 * len(starts)
    losses = losses * (100.0 / (length or 1.0))

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        totals = point @ features
        shares = np.exp(totals - np.repeat(np.maximum.reduceat(totals, starts), sizes))
        shares /= np.repeat(np.add.reduceat(shares, starts), sizes)
        risks = np.add.reduceat(shares * losses, starts)
        gradient = features @ (shares * (losses - np.repeat(risks, sizes)))
        return float(risks.sum()) + RIDGE * float(point @ point), gradient + 2 * RIDGE * point

    generator = np.random.default_rng(options.seed)
    points = [np.zeros(len(features)), *generator.standard_normal((options.restarts, len(features)))]
    bounds = np.multiply(allowed, corpus.scale, out=np.zeros_like(allowed), where=corpus.scale > 0).T
    ends = [minimize(objective, point, jac=True, method="L-BFGS-B", bounds=bounds) for point in points]
    best = min(ends, key=lambda end: end.fun).x
    weights = np.divide(best, corpus.scale, out=np.zeros(len(best)), where=corpus.scale > 0)
    weights = np.array([float(f"{weight:.6g}") for weight in weights])
    scores = [corpus_score(metric, corpus.chosen(tried)) for tried in (weights, np.zeros(len(weights)))]
    better = scores[0] > scores[1] if metric.higher_is_better else scores[0] < scores[1]
    return (weights if better else np.zeros(len(weights))), sum(end.nfev for end in ends)
