"""Plots of the score differences of one LM against the differences in loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

POINTS = 1500  # of a scatter plot, at most
SPREAD = 1.6  # percent of the height of a plot: how far dots of one loss are spread


@dataclass
class Scatter:
    """One LM's score differences from the input 1-best against the differences in loss; every ``step``-th pair is shown."""

    points: list[tuple[float, float, bool]] = field(default_factory=list)
    step: int = 1
    seen: int = 0
    agreed: int = 0  # pairs with a different loss in which the LM prefers the lesser
    compared: int = 0

    def add(self, score: float, loss: float, chosen: bool) -> None:
        if loss and score:
            self.compared += 1
            self.agreed += (score > 0) == (loss < 0)
        if self.seen % self.step == 0:
            self.points.append((score, loss, chosen))
            if len(self.points) > POINTS:
                del self.points[1::2]
                self.step *= 2
        self.seen += 1


def plot(name: str, scatter: Scatter) -> dict[str, Any]:
    """Places of the dots in a plot of 100 x 100, with the ticks of both axes. The most extreme stand at the edge."""
    scores, losses = np.array([(score, loss) for score, loss, _ in scatter.points]).T
    low, high = np.quantile(scores, [0.005, 0.995])
    low, high = min(float(low), -1.0), max(float(high), 1.0)
    bottom, top = np.quantile(losses, [0.005, 0.99])
    bottom, top = min(float(bottom), -1.0), max(float(top), 1.0)
    spread = np.random.default_rng(1).uniform(-SPREAD, SPREAD, len(losses))

    def across(score: float) -> float:
        return round(2 + 96 * (min(max(score, low), high) - low) / (high - low), 2)

    def down(loss: float) -> float:
        return round(4 + 92 * (min(max(loss, bottom), top) - bottom) / (top - bottom), 2)

    dots = [
        (across(score), round(down(loss) + jitter, 2), chosen) for (score, loss, chosen), jitter in zip(scatter.points, spread, strict=True)
    ]
    return {
        "name": name,
        "dots": sorted(dots, key=lambda dot: dot[2]),
        "x_ticks": [(across(tick), f"{tick:+g}" if tick else "0") for tick in _ticks(low, high)],
        "y_ticks": [(down(tick), f"{tick:+g}" if tick else "0") for tick in _ticks(bottom, top)],
        "seen": scatter.seen,
        "shown": len(scatter.points),
        "compared": scatter.compared,
        "agreed": scatter.agreed / scatter.compared if scatter.compared else None,
    }


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers within the range, 0 among them, about five."""
    raw = (high - low) / 5
    size = 10.0 ** np.floor(np.log10(raw))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= raw)
    return [float(round(k * step, 10)) for k in range(int(np.ceil(low / step)), int(np.floor(high / step)) + 1)]
