"""Options of the search for weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search for weights.

    Attributes:
        objective: ``metric`` optimises the metric of the best totals (``line_search``). ``risk`` optimises the expected
            loss and uses only ``restarts``, ``seed`` and ``intervals``, which must contain 0.
        restarts: number of random starting points, in addition to the fixed ones.
        seed: random seed of the points and directions.
        random_directions: number of random directions per round, in addition to the F features; None: F.
        leaders: number of best end points; the last search also runs along the lines that join them.
        intervals: lowest and highest weight by name, both included; -inf and inf for none. Equal ends fix the weight.
    """

    objective: Literal["metric", "risk"] = "metric"
    restarts: int = 10
    seed: int = 1
    random_directions: int | None = None
    leaders: int = 5
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, (low, high) in self.intervals.items():
            if not low <= high or low == math.inf or high == -math.inf:
                raise ValueError(f"interval of {name!r} is {low} to {high}, expected the lower end first")

    def allowed(self, names: Sequence[str]) -> np.ndarray:
        """Return the lowest and highest weights allowed, (2, F)."""
        return np.array([self.intervals.get(name, (-math.inf, math.inf)) for name in names], dtype=np.float64).T


DEFAULT_SEARCH = SearchOptions()
