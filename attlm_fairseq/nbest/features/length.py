"""Detect scores divided by hypothesis length: weights expect sums, not means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attlm_fairseq.nbest.nbest_list import NbestList

MIN_LISTS = 30  # with fewer, a correlation is chance
MIN_SPREAD = 0.2  # standard deviation / mean of the numbers of words: without long and short lists nothing can be seen
MIN_CORRELATION_OF_COUNTS = 0.9  # of numbers of tokens with those of words
MAX_CORRELATION = 0.3  # of a mean, which may even fall with the length; log-probabilities that are sums have 0.7 and more


def correlation_with_length(lists: Sequence[NbestList], name: str) -> float | None:
    """Return the correlation of minus a score with the number of words, over the 1-best of each list.

    None if it cannot be told: too few lists have the score, or the numbers of words, or the scores, hardly differ.
    """
    found = [(h.scores[name], len(h.text.split())) for h in (nbest.hypotheses[0] for nbest in lists) if name in h.scores]
    if len(found) < MIN_LISTS:
        return None
    scores, words = np.array(found, dtype=float).T
    if words.std() < MIN_SPREAD * words.mean() or scores.std() == 0 or not np.isfinite(scores).all():
        return None
    return float(np.corrcoef(-scores, words)[0, 1])


def is_sum_of(lists: Sequence[NbestList], name: str, mean: str) -> bool:
    """Return whether a score is another one times something that grows as the number of words does: the sum, of which that is the mean."""
    best = [nbest.hypotheses[0] for nbest in lists]
    found = [(h.scores[name] / h.scores[mean], len(h.text.split())) for h in best if name in h.scores and h.scores.get(mean)]
    if len(found) < MIN_LISTS:
        return False
    ratios, words = np.array(found, dtype=float).T
    return bool(ratios.std() and words.std() and np.corrcoef(ratios, words)[0, 1] > MIN_CORRELATION_OF_COUNTS)


def note_of_means(lists: Sequence[NbestList]) -> list[str]:
    """Return a line for each of the lists' own log-probabilities that seems to be divided by length.

    Only scores that are never positive can be log-probabilities. Whole numbers are ranks or counts.
    """
    names = dict.fromkeys(name for nbest in lists for name in nbest.hypotheses[0].scores)
    lines = []
    for name in names:
        of_best = [nbest.hypotheses[0].scores.get(name, 0.0) for nbest in lists]
        if any(score > 0 for score in of_best) or all(float(score).is_integer() for score in of_best):
            continue
        found = correlation_with_length(lists, name)
        if found is not None and found < MAX_CORRELATION and not any(is_sum_of(lists, other, name) for other in names):
            lines.append(
                f"note: {name} does not grow with the length of a hypothesis (correlation {found:.2f} with its words): it seems to be "
                "divided by length, and LM scores are sums; if the lists say how many tokens a hypothesis has (docs/formats.md), it is "
                "read as a sum"
            )
    return lines
