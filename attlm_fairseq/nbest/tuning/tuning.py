"""Tune weights on lists with references so that their 1-best hypotheses score best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.features.combination import alphabetical, weighted_totals
from attlm_fairseq.nbest.metrics.metric import Metric, corpus_score
from attlm_fairseq.nbest.tuning.corpus import Corpus
from attlm_fairseq.nbest.tuning.line_search import best_scoring
from attlm_fairseq.nbest.tuning.risk import least_expected_loss
from attlm_fairseq.nbest.tuning.search_options import DEFAULT_SEARCH, SearchOptions


@dataclass(frozen=True, slots=True)
class TuningResult:
    """Tuned weights. ``score`` (percent) is what exactly these weights give on the lists tuned on.

    ``first_best_score`` is that of the input order. ``influence`` is each feature's share of the decision: |weight|
    times the feature's standard deviation within lists, summing to 1. ``searches`` counts line searches, or evaluations
    of the expected loss.
    """

    weights: dict[str, float]
    score: float
    first_best_score: float
    influence: dict[str, float]
    searches: int


def tune(
    feature_matrices: Sequence[np.ndarray],
    statistics: Sequence[np.ndarray],
    metric: Metric,
    *,
    names: Sequence[str],
    options: SearchOptions = DEFAULT_SEARCH,
) -> TuningResult:
    """Find the weights of the features that are best by ``options.objective``. Deterministic for a seed.

    ``feature_matrices[i]`` is (n_i, F), its columns called ``names``; ``statistics[i]`` is (n_i, S), from
    ``metric.statistics``. See ``line_search.best_scoring`` and ``risk.least_expected_loss``.
    """
    order = alphabetical(names)
    sorted_names = [names[column] for column in order]
    if len(set(names)) != len(names):
        raise ValueError(f"feature names are not distinct: {list(names)}")
    corpus = Corpus(feature_matrices, statistics, order)
    allowed = options.allowed(sorted_names)
    if options.objective == "risk":
        weights, searches = least_expected_loss(corpus, metric, allowed, options)
    else:
        weights, searches = best_scoring(corpus, metric, allowed, options)
    by_name = dict(zip(sorted_names, map(float, weights), strict=True))
    return TuningResult(
        weights={name: by_name[name] for name in names},
        score=corpus_score(metric, corpus.chosen(weights)),
        first_best_score=corpus_score(metric, corpus.chosen(np.zeros(len(names)))),
        influence=influence(by_name, dict(zip(sorted_names, map(float, corpus.scale), strict=True)), names),
        searches=searches,
    )


def influence(weights: Mapping[str, float], spreads: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Return each feature's share of the decision from its weight and its standard deviation within lists; all 0 without any weight."""
    sizes = {name: abs(weights[name]) * spreads[name] for name in names}
    whole = sum(sizes.values()) or 1.0
    return {name: size / whole for name, size in sizes.items()}


def selection(
    feature_matrices: Sequence[np.ndarray],
    statistics: Sequence[np.ndarray],
    weights: Mapping[str, float],
    *,
    names: Sequence[str],
) -> np.ndarray:
    """Return the statistics (N, S) of the hypotheses that these weights put first; without weights, of the first in input order."""
    for name in weights:
        if name not in names:
            raise InputError(f"weight for {name!r}, which is not a feature; features are {', '.join(names)}")
    totals = weighted_totals(feature_matrices, names, weights)
    return np.array([of_list[row.argmax()] for of_list, row in zip(statistics, totals, strict=True)], dtype=np.float64)
