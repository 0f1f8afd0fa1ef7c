"""Pictures: the heat map of a sentence (Salton et al. 2017, Figures 2 and 3) and attention by distance (Daniluk et al. 2017, Figure 3b)."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from attlm_fairseq.attention.distance import DistanceProfile
from attlm_fairseq.attention.highlight import printable
from attlm_fairseq.attention.weights import SentenceAttention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg", ".pdf")
CELL = 0.36  # inches: room for two decimals in the smallest legible type
MAX_CELLS_WITH_VALUES = 64  # rows or columns; in a larger picture the cells are smaller and have no text
MAX_SIDE = 40.0  # inches: 4,800 pixels
LABEL_LENGTH = 24  # maximum number of characters of a word
DISTANCES = 40  # number of distances in a chart
DOTS_PER_INCH = 120
FONT_SETTINGS = ("font.family", "font.sans-serif", "font.serif", "font.monospace")  # of the user's matplotlibrc
NOT_IN_MEMORY, UNKNOWN, COLOUR = "#e9e9e9", "#b3261e", "Blues"


class Picture(NamedTuple):
    """A picture file, and one line for each problem that matplotlib had with its text."""

    content: bytes
    notes: tuple[str, ...]


def draw(figure: Callable[[], Figure], suffix: str) -> Picture:
    """Draw a figure in a format of ``PICTURES``. The same fonts give the same bytes.

    The fonts are those of the user's matplotlibrc, since matplotlib's own font has no Chinese. Its other settings are ignored.
    """
    import matplotlib

    fonts = {name: value for name, value in matplotlib.rcParams.items() if name in FONT_SETTINGS}
    with matplotlib.rc_context(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                **fonts,
                "text.parse_math": False,  # a word may be "$x$"
                "svg.hashsalt": "attlm",
                "svg.fonttype": "path",  # readable without our fonts
            }
        )
        output = io.BytesIO()
        dateless = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[suffix]
        figure().savefig(output, format=suffix[1:], dpi=DOTS_PER_INCH, bbox_inches="tight", pad_inches=0.15, metadata=dateless)
    return Picture(output.getvalue(), notes_of([str(warning.message) for warning in told]))


def notes_of(told: Sequence[str]) -> tuple[str, ...]:
    """Return matplotlib's warnings about text, one line for all missing characters and one for each script it cannot shape."""
    missing = "".join(sorted({chr(int(found[1])) for line in told if (found := re.match(r"Glyph (\d+) .*missing from", line))}))
    notes = []
    if missing:
        notes.append(
            f"note: the fonts lack {missing[:20]}{'..' * (len(missing) > 20)} ({len(missing)} characters, drawn as boxes); set font.family "
            "in your matplotlibrc to fonts that have them, such as the Noto Sans of their script, or write .html, which needs none"
        )
    unshaped = dict.fromkeys(line for line in told if line.startswith("Matplotlib currently does not support"))
    return (*notes, *(f"note: {line.rstrip('.')}; write .html, which browsers show as it should be" for line in unshaped))


def heat_map(attention: SentenceAttention, lm: str) -> Figure:
    """Draw a cell per input (column) and predicted word (row): the weight of the state after the input."""
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    columns = attention.columns
    weights: np.ma.MaskedArray = np.ma.masked_array(attention.weights[:, columns], ~attention.in_memory[:, columns])
    cell = cell_size(max(weights.shape))
    figure = Figure(figsize=(max(weights.shape[1], 1) * cell, weights.shape[0] * cell))
    axes = figure.add_axes((0, 0, 1, 1), facecolor=NOT_IN_MEMORY)
    # the square root keeps small weights distinguishable: in a long sentence all are small
    image = axes.imshow(weights, cmap=COLOUR, norm=PowerNorm(0.5, 0, 1), aspect="auto", interpolation="nearest")
    if max(weights.shape) <= MAX_CELLS_WITH_VALUES:
        for row, column in np.argwhere(~np.ma.getmaskarray(weights)):
            if text := cell_text(weights[row, column]):
                colour = "white" if weights[row, column] > 0.35 else "black"
                axes.text(column, row, text, ha="center", va="center", fontsize=7, color=colour)
    size = min(9.0, cell * 72 * 0.8)
    every = max(1, round(4.5 / size))  # labels that would be smaller than that are thinned out
    axes.set_xticks(range(0, len(columns), every), [label(attention.inputs[column]) for column in columns[::every]], rotation=90)
    axes.set_yticks(range(0, len(weights), every), [label(word) for word in attention.predicted[::every]])
    axes.tick_params(labelsize=max(size, 4.5), length=0)
    for tick, column in zip(axes.get_xticklabels(), columns[::every], strict=True):
        tick.set_color(UNKNOWN if attention.unknown_input(column) else "black")
    for row, tick in zip(range(0, len(weights), every), axes.get_yticklabels(), strict=True):
        tick.set_color(UNKNOWN if attention.unknown_prediction(row) else "black")
    right, bottom = len(columns) - 0.5, len(weights) - 0.5
    axes.vlines(np.arange(1, len(columns)) - 0.5, -0.5, bottom, color="white", linewidth=cell)
    axes.hlines(np.arange(1, len(weights)) - 0.5, -0.5, right, color="white", linewidth=cell)
    axes.set(xlim=(-0.5, max(right, 0.5)), ylim=(bottom, -0.5))
    axes.set_xlabel("word in memory" if attention.of == "word" else "state in memory: the one after reading this input", fontsize=9)
    axes.set_ylabel("predicted", fontsize=9)
    remarks = ["grey: not in memory"] + ["red: unknown to the LM"] * any(attention.oov)
    remarks += ["empty: below 0.005"] * (max(weights.shape) <= MAX_CELLS_WITH_VALUES)
    axes.set_title(f"Attention of {lm}\n{'; '.join(remarks)}", fontsize=8, loc="left")
    width, height = figure.get_size_inches()
    bar_height = min(1.0, 4.0 / height)
    bar = figure.add_axes((1 + 0.15 / width, 1 - bar_height, 0.12 / width, bar_height))
    figure.colorbar(image, cax=bar, ticks=[0, 0.02, 0.1, 0.25, 0.5, 1], format="%g").set_label("weight", fontsize=8)
    bar.tick_params(labelsize=7)
    return figure


def distance_chart(profile: DistanceProfile, lm: str) -> Figure:
    """Draw the mean weight by distance as bars, the most recent state rightmost as in the paper, with dots for equal weights."""
    from matplotlib.figure import Figure

    rows = [row for row in profile.rows() if row.distance is None or row.distance <= DISTANCES][::-1]
    figure = Figure(figsize=(max(4.0, 1.2 + 0.26 * len(rows)), 3.2))
    axes = figure.add_subplot()
    places = range(len(rows))
    axes.bar(places, [row.mean for row in rows], width=0.8, color="#3b78b5", label="mean weight")
    axes.plot(
        places, [row.equal for row in rows], "o", color="#d9822b", markersize=4, label=f"if all {profile.of}s in memory were read alike"
    )
    if profile.persistence:
        shares = [math.nan if row.contribution is None else row.contribution for row in rows]
        axes.plot(
            places, shares, "^", color="#2e7d32", markeredgecolor="white", markersize=7, label="share of the input there in the LSTM's cell"
        )
    axes.set_xticks(places, ["h_0" if row.distance is None else str(-row.distance) for row in rows], rotation=90)
    axes.tick_params(labelsize=8)
    axes.set_xlabel(f"{profile.of} in memory, counted back from the current one", fontsize=9)
    axes.set_ylabel("weight", fontsize=9)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
    axes.set_title(f"Attention by distance of {lm}\n{summary(profile, DISTANCES)}", fontsize=8, loc="left")
    return figure


def summary(profile: DistanceProfile, shown: int | None = None) -> str:
    """Return in one line what was counted, and the share of the attention beyond ``shown`` distances."""
    text = f"{profile.sentences:,} sentences, {profile.predictions:,} predictions"
    if profile.without_memory:
        text += f", {profile.without_memory:,} of them with an empty memory"
    text += f"; {profile.start_share:.1%} of the attention is on <s>"
    beyond = [row for row in profile.rows() if shown is not None and row.distance is not None and row.distance > shown]
    return text + (f", {sum(row.share for row in beyond):.1%} lies beyond {shown}" if beyond else "")


def cell_size(cells: int) -> float:
    """Return the size of a cell in inches, given the number of cells in a row."""
    return CELL if cells <= MAX_CELLS_WITH_VALUES else min(0.2, MAX_SIDE / cells)


def cell_text(weight: float) -> str:
    """Return the weight with two decimals and no leading zero: empty if it rounds to 0, ``1`` if it rounds to 1."""
    return "" if weight < 0.005 else "1" if weight >= 0.995 else f"{weight:.2f}"[1:]


def label(word: str) -> str:
    word = printable(word)
    return word if len(word) <= LABEL_LENGTH else word[: LABEL_LENGTH - 1] + "…"
