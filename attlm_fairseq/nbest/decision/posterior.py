"""Turn the totals of a list into posteriors: the probability that each hypothesis is right."""

from __future__ import annotations

import math

import numpy as np


def posteriors(totals: np.ndarray, scale: float) -> np.ndarray:
    """Return ``softmax(scale * totals)``, (.., n) -> (.., n), for n >= 1 hypotheses with natural-log totals.

    Scale 0 makes all hypotheses equally likely; a large scale leaves only the best. Hypotheses with the same text are not
    merged. Raises ValueError if the scale is negative or not finite.
    """
    if not 0 <= scale < math.inf:
        raise ValueError(f"scale is {scale}, expected a finite number that is not negative")
    with np.errstate(over="ignore"):  # minus infinity is right: a share of 0
        shares = np.exp(scale * (totals - totals.max(axis=-1, keepdims=True)))
    return shares / shares.sum(axis=-1, keepdims=True)
