"""Times of the words of a text: divided among parts of a word, and filled in for words that have none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias, cast

import numpy as np

Time: TypeAlias = tuple[float, float]
"""Begin and end in seconds."""
SHORTEST_WORD = 0.05  # seconds: words without a time are not put into shorter gaps


def shared(time: Time, count: int) -> list[Time]:
    """Divide a time evenly among ``count`` words."""
    if count == 1:
        return [time]
    bounds = np.linspace(*time, count + 1).tolist() if count else [0.0]
    return list(pairwise(bounds))


def filled(times: Sequence[Time | None]) -> list[Time]:
    """Return the times of all words; [] if none has a time.

    Words without one divide the gap before the next word that has one. If it is too short for them, and at the end, they share the time
    of the word before them, at the beginning that of the first word that has one.
    """
    if None not in times:
        return [*cast("Sequence[Time]", times)]
    known = [place for place, time in enumerate(times) if time is not None]
    found: list[Time] = []
    for place, until in zip(known, [*known[1:], len(times)] if known else [], strict=True):
        time = cast("Time", times[place])
        start, others = len(found), until - place - 1
        gap = (time[1], cast("Time", times[until])[0]) if until < len(times) else time[1:] * 2
        if others and gap[1] - gap[0] >= others * SHORTEST_WORD:
            found += [*shared(time, place + 1 - start), *shared(gap, others)]
        else:
            found += shared(time, until - start)
    return found
