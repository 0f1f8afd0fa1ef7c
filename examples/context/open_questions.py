"""Plot the results of open_questions.sh: perplexity by the length of the memory, attention by distance.

usage: open_questions.py RESULTS [DISTANCE.json ..]

Writes memory.png and distance.png into the current folder.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

FARTHEST = 35


def plot_memory(results: Path, output: Path) -> None:
    """Plot each family's perplexity by the number of sentences after which its state and memory are reset."""
    with results.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["skip"] == "0"]
    kept = sorted({row["reset_every"] for row in rows}, key=lambda every: float(every.replace("all", "inf")))
    families = defaultdict(list)
    for row in sorted(rows, key=lambda row: kept.index(row["reset_every"])):
        families[row["family"]].append(row)
    figure, axes = pyplot.subplots(figsize=(5, 3.2))
    for family, found in families.items():
        axes.plot([kept.index(row["reset_every"]) for row in found], [float(row["as_trained"]) for row in found], "o-", label=family)
    axes.set_xticks(range(len(kept)), ["whole document" if every == "all" else every for every in kept])
    axes.set_xlabel("sentences after which state and memory are reset")
    axes.set_ylabel("perplexity, test")
    if families:
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(output, dpi=150, bbox_inches="tight")


def plot_distances(profiles: list[Path], output: Path) -> None:
    """Plot each model's mean attention weight by the distance of the state that it reads, relative to uniform attention."""
    figure, axes = pyplot.subplots(figsize=(5, 3.2))
    for path in profiles:
        rows = json.loads(path.read_text(encoding="utf-8"))["distances"]
        near = [row for row in rows if row["distance"] is not None and row["distance"] <= FARTHEST]
        ratios = [row["mean"] / row["equal"] for row in near]
        axes.plot([row["distance"] for row in near], ratios, label=path.name.split(".")[0])
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xlabel("distance of the state")
    axes.set_ylabel("mean weight / uniform weight")
    axes.legend(fontsize=7, frameon=False)
    figure.savefig(output, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: open_questions.py RESULTS [DISTANCE.json ..]")
    plot_memory(Path(sys.argv[1]), Path("memory.png"))
    if sys.argv[2:]:
        plot_distances([Path(name) for name in sys.argv[2:]], Path("distance.png"))
