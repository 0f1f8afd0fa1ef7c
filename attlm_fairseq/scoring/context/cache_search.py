"""Find the caches with which an LM predicts documents best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attlm_fairseq.scoring.context.cache import Cache, NeuralCache, UnigramCache, mixed
from attlm_fairseq.scoring.context.document_events import Events, cached_in, under_policy
from attlm_fairseq.scoring.perplexity import perplexity

SIZES = (100, 200, 500, 1000, 2000, 4000)
THETAS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4)
DECAYS = (1.0, 0.999, 0.997, 0.99, 0.97)
MAX_WEIGHT = 0.9

Mixing = Callable[[np.ndarray], np.ndarray]
"""Mixes a cache into the log-probabilities (E,) of all events."""


def not_mixing(log_probs: np.ndarray) -> np.ndarray:
    """Return the log-probabilities as they are."""
    return log_probs


def best_neural(documents: Sequence[Events], afterwards: Mixing) -> tuple[NeuralCache, float]:
    """Return the neural cache with which the documents are most probable, and their perplexity. ``afterwards`` mixes in the unigram cache.

    The search runs over theta at a middle size, then over the size, then over theta again.
    """

    def best(caches: Iterable[NeuralCache]) -> tuple[NeuralCache, float]:
        return min((weighted(cache, documents, afterwards=afterwards) for cache in caches), key=lambda one: one[1])

    cache, _ = best(NeuralCache(500, theta, 0.0) for theta in THETAS)
    cache, _ = best(replace(cache, size=size) for size in SIZES)
    return best(replace(cache, theta=round(cache.theta * factor, 4)) for factor in (0.8, 1.0, 1.25))


def best_unigram(documents: Sequence[Events], before: Mixing) -> tuple[UnigramCache, float]:
    """Return the unigram cache with which the documents are most probable, and their perplexity. ``before`` mixes in the neural cache."""
    tried = (UnigramCache(size, 0.0, decay) for size in SIZES for decay in DECAYS)
    return min((weighted(cache, documents, before) for cache in tried), key=lambda one: one[1])


def weighted(cache: Cache, documents: Sequence[Events], before: Mixing = not_mixing, afterwards: Mixing = not_mixing) -> tuple[Any, float]:
    """Return the cache with its best weight, and the perplexity with it and with the caches before and after it."""
    from scipy.optimize import minimize_scalar

    log_probs = before(np.concatenate([document.log_probs for document in documents]))
    cached = np.concatenate([cached_in(document, cache) for document in documents])

    def loss(weight: float) -> float:
        return -float(under_policy(documents, afterwards(mixed(log_probs, cached, weight))).sum())

    best = minimize_scalar(loss, bounds=(0.0, MAX_WEIGHT), method="bounded", options={"xatol": 1e-4})
    weight = round(float(best.x), 4) if best.fun < loss(0.0) else 0.0
    return replace(cache, weight=weight), perplexity(-loss(weight), len(log_probs))  # type: ignore[type-var]  # Cache is a Protocol, its classes are dataclasses


def mixing(documents: Sequence[Events], cache: Cache | None) -> Mixing:
    """Return what mixes this cache into the log-probabilities of the documents; without a cache, what changes nothing."""
    if cache is None:
        return not_mixing
    cached = np.concatenate([cached_in(document, cache) for document in documents])
    return lambda log_probs: mixed(log_probs, cached, cache.weight)
