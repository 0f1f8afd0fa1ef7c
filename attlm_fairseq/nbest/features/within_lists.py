"""The standard deviation of a feature within lists: the unit in which weights of different features can be compared.

Outlier lists do not count: otherwise one logarithm of 0, written as -1e10, would determine the deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

OUTLIER_RATIO = 1000.0  # times the usual standard deviation
USUAL_QUANTILE = 0.5  # of the lists whose values differ at all


def are_outliers(variances: np.ndarray) -> np.ndarray:
    """Return which lists (N,) are outliers, from the variance of the values in each."""
    differing = variances[variances > 0]
    usual = np.quantile(differing, USUAL_QUANTILE, method="lower") if len(differing) else 0.0
    return variances > OUTLIER_RATIO**2 * usual


def standard_deviation(columns: Sequence[np.ndarray]) -> float:
    """Return the standard deviation within lists of values (n_i,), list by list, without outliers; 0 if values never differ."""
    return pooled(_squares(columns), np.array(list(map(len, columns))))


def pooled(squares: np.ndarray, sizes: np.ndarray) -> float:
    """Return the same from sums (N,) of squared distances from each list's mean and numbers (N,) of values."""
    usual = ~are_outliers(squares / sizes)
    return math.sqrt(float(squares[usual].sum() / sizes[usual].sum()))


def outliers(columns: Sequence[np.ndarray]) -> list[tuple[int, int, float]]:
    """Return lists in which the values are outliers: (list, row of the most extreme value, range / standard deviation within lists)."""
    apart = np.flatnonzero(are_outliers(_squares(columns) / list(map(len, columns))))
    if not len(apart):
        return []
    middle, unit = np.median(np.concatenate(columns)), standard_deviation(columns)
    return [(int(i), int(np.abs(columns[i] - middle).argmax()), float(np.ptp(columns[i])) / unit) for i in apart]


def _squares(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sums (N,) of squared distances from each list's mean; 0 for equal values, whose mean may be another number."""
    return np.array([float(np.square(values - values.mean()).sum()) if values.min() < values.max() else 0.0 for values in columns])
