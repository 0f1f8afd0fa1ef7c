"""Which lines of a text are one sample of intervals and p-values, because they are about the same things."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from attlm_fairseq.nbest.statistics.bootstrap import summed

BLOCK_LINES = 20  # so many neighbouring lines are one sample, at the least
MIN_SAMPLES = 20  # of shorter texts fewer lines are one sample
MIN_CORRELATED = 40  # samples that are left when lines are put together because neighbouring samples are correlated
BY_CHANCE = 0.025  # how often samples that are independent count as correlated


def document_numbers(line_numbers: Sequence[int]) -> np.ndarray:
    """Return the document number (L,) of each line of a text, of which blank lines between documents have no number."""
    lines = np.asarray(line_numbers, dtype=np.int64)
    return np.cumsum(np.diff(lines, prepend=lines[:1]) > 1)


def lines_together(series: Sequence[np.ndarray]) -> tuple[int, float]:
    """Return how many neighbouring lines are one sample, and how much neighbouring samples are correlated; 0 if they are not.

    20 lines (fewer in a text of less than 400) are put together, and twice as many as long as neighbouring samples are
    correlated and 40 samples are left.

    Args:
        series: ln p and events of each line, (L, 2), for all figures that are to have an interval.
    """
    lines = len(series[0])
    together = max(1, min(BLOCK_LINES, lines // MIN_SAMPLES))
    while (correlation := neighbours_correlation(series, together)) and lines >= 2 * together * MIN_CORRELATED:
        together *= 2
    return together, correlation


def neighbours_correlation(series: Sequence[np.ndarray], together: int) -> float:
    """Return the greatest correlation of neighbouring samples of lines; 0 if it is no more than chance makes of so many series.

    What is correlated is by how much the ln p of a sample is above that which its events have on average in the text.
    """
    from scipy.stats import norm

    samples = np.arange(len(series[0])) // together
    found = []
    for of_lines in series:
        log_probs, events = summed(of_lines, samples).T
        above = log_probs - events * (log_probs.sum() / events.sum())
        alike = np.allclose(above, 0.0, atol=1e-9 * float(np.abs(log_probs).max()))  # lines that repeat, but for rounding
        found.append(0.0 if alike else float(above[:-1] @ above[1:]) / float(above @ above))
    chance = norm.isf(BY_CHANCE / len(series)) / math.sqrt(samples[-1] + 1)
    return max(found) if max(found) > chance else 0.0
