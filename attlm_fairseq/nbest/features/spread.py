"""How far apart a feature's values lie within lists: the unit in which the weights of different features can be compared.

It is the standard deviation within lists, but for lists that lie apart beyond comparison: a logarithm of 0 written as -1e10, in one
list of a thousand, would otherwise be all that there is to see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

OUTLYING = 1000.0  # times what is usual
USUAL = 0.9  # of the lists whose values differ at all


def outlying(variances: np.ndarray) -> np.ndarray:
    """Which lists (N,) lie apart beyond comparison with the others, from the variance of the values in each."""
    differing = variances[variances > 0]
    usual = np.quantile(differing, USUAL, method="lower") if len(differing) else 0.0
    return variances > OUTLYING**2 * usual


def spread(columns: Sequence[np.ndarray]) -> float:
    """The standard deviation within lists of values (n_i,) list by list, outlying lists left out; 0 where values never differ."""
    return pooled(_squares(columns), np.array(list(map(len, columns))))


def pooled(squares: np.ndarray, sizes: np.ndarray) -> float:
    """The same from the sums (N,) of the squared distances from each list's mean and the numbers (N,) of its values."""
    usual = ~outlying(squares / sizes)
    return math.sqrt(float(squares[usual].sum() / sizes[usual].sum()))


def outliers(columns: Sequence[np.ndarray]) -> list[tuple[int, int, float]]:
    """The outlying lists: each with the row of the value farthest from the median of all, and the list's range in spreads."""
    apart = np.flatnonzero(outlying(_squares(columns) / list(map(len, columns))))
    if not len(apart):
        return []
    middle, unit = np.median(np.concatenate(columns)), spread(columns)
    return [(int(i), int(np.abs(columns[i] - middle).argmax()), float(np.ptp(columns[i])) / unit) for i in apart]


def _squares(columns: Sequence[np.ndarray]) -> np.ndarray:
    """The sums (N,) of the squared distances from each list's mean."""
    return np.array([float(np.square(values - values.mean()).sum()) for values in columns])
