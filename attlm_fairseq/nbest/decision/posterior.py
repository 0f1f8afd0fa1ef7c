"""From totals to the probability that each hypothesis of a list is the right one."""

from __future__ import annotations

import math

import numpy as np


def posteriors(totals: np.ndarray, scale: float) -> np.ndarray:
    """``softmax(scale * totals)``, (.., n) -> (.., n): n >= 1 hypotheses of a list, totals on the natural-log scale.

    A scale of 0 makes all hypotheses equally likely, a large one leaves the best alone. Hypotheses with the same text are not
    merged: each has its share. Raises ValueError for a scale that is negative or not finite.
    """
    if not 0 <= scale < math.inf:
        raise ValueError(f"scale is {scale}, expected a finite number that is not negative")
    with np.errstate(over="ignore"):  # minus infinity is right: a share of 0
        shares = np.exp(scale * (totals - totals.max(axis=-1, keepdims=True)))
    return shares / shares.sum(axis=-1, keepdims=True)
