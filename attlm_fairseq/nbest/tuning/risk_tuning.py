"""Weights by minimum expected loss (Smith and Eisner 2006): smooth where the corpus metric has steps.

A list answers hypothesis i with probability ``softmax(total)_i``; what is minimised is the loss to be expected of all lists, by
L-BFGS with the exact gradient. Shapes: N lists of at most n hypotheses, F features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attlm_fairseq.nbest.decision.mbr import sentence_losses
from attlm_fairseq.nbest.features.within_lists import are_outliers
from attlm_fairseq.nbest.metrics import ErrorRate, Metric, corpus_score
from attlm_fairseq.nbest.tuning.tuning import DEFAULT_SEARCH, SearchOptions, TuningResult, selection

RIDGE = 1e-3  # percent points for a weight of 1 standard deviation: keeps weights finite where lists could be decided without doubt


def tune_by_risk(
    feature_matrices: Sequence[np.ndarray],
    statistics: Sequence[np.ndarray],
    metric: Metric,
    *,
    names: Sequence[str],
    options: SearchOptions = DEFAULT_SEARCH,
) -> TuningResult:
    """Find weights as :func:`tuning.tune` does, with the same arguments, for the expected loss instead of the score of the best totals.

    The loss is that of :func:`mbr.sentence_losses`: for an error rate, errors over the references' length. The search begins at 0
    and at ``options.restarts`` random points; of the options only these and the seed are used. Weights keep their size, for which
    posteriors have scale 1. If the input order scores better, all weights are 0. ``searches`` counts evaluations of the gradient.
    """
    from scipy.optimize import minimize

    width = len(names)
    longest = max(len(matrix) for matrix in feature_matrices)
    features = np.zeros((len(feature_matrices), longest, width))
    closed = np.full(features.shape[:2], -np.inf)
    losses = np.zeros(features.shape[:2])
    for i, (matrix, of_list) in enumerate(zip(feature_matrices, statistics, strict=True)):
        features[i, : len(matrix)] = matrix - matrix.mean(axis=0)
        closed[i, : len(matrix)] = 0.0
        losses[i, : len(matrix)] = sentence_losses(of_list, metric)
    squares, sizes = np.square(features), np.array(list(map(len, feature_matrices)))
    apart = np.stack([are_outliers(squares[:, :, column].sum(axis=1) / sizes) for column in range(width)], axis=1)
    squares[apart[:, None, :].repeat(longest, axis=1)] = 0.0
    scale = np.sqrt(squares.sum(axis=(0, 1)) / (sizes[:, None] * ~apart).sum(axis=0))
    features /= np.where(scale > 0, scale, 1.0)
    length = sum(float(of_list[0, 1]) for of_list in statistics) if isinstance(metric, ErrorRate) else 100.0 * len(statistics)
    losses *= 100.0 / (length or 1.0)

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        totals = features @ point + closed
        shares = np.exp(totals - totals.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        risks = (shares * losses).sum(axis=1, keepdims=True)
        gradient = np.tensordot(shares * (losses - risks), features, axes=2)
        return float(risks.sum()) + RIDGE * float(point @ point), gradient + 2 * RIDGE * point

    generator = np.random.default_rng(options.seed)
    starts = [np.zeros(width), *generator.standard_normal((options.restarts, width))]
    ends = [minimize(objective, start, jac=True, method="L-BFGS-B") for start in starts]
    best = min(ends, key=lambda end: end.fun).x
    weights = {
        name: float(f"{value:.6g}")
        for name, value in zip(names, np.where(scale > 0, best / np.where(scale > 0, scale, 1.0), 0.0), strict=True)
    }
    as_read = corpus_score(metric, np.array([of_list[0] for of_list in statistics]))
    score = corpus_score(metric, selection(feature_matrices, statistics, weights, names=names))
    if (score <= as_read) if metric.higher_is_better else (score >= as_read):
        weights, score = dict.fromkeys(names, 0.0), as_read
    influence = np.array([abs(weights[name]) for name in names]) * scale
    influence /= influence.sum() or 1.0
    shares = {name: float(share) for name, share in zip(names, influence, strict=True)}
    return TuningResult(weights, score, as_read, shares, sum(end.nfev for end in ends), options.restarts, options.seed)
