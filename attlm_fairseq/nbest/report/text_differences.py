"""How a text differs from its reference, unit by unit of the metric."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from attlm_fairseq.nbest.metrics.metric import Metric

VISIBLE_SPACE = "\u2423"  # in what is marked


def confusions(reference: str, text: str, metric: Metric) -> list[tuple[str, str]]:
    """Return (unit of the reference, unit of the text) for each error of a prepared text; "" for a unit that is missing or extra."""
    from rapidfuzz.distance import Levenshtein

    ours, theirs = metric.units(text), metric.units(reference)
    found: list[tuple[str, str]] = []
    for edit in Levenshtein.opcodes(ours, theirs):
        if edit.tag != "equal":
            found += zip_longest(theirs[edit.dest_start : edit.dest_end], ours[edit.src_start : edit.src_end], fillvalue="")
    return found


@dataclass(slots=True)
class Part:
    """A part of a text against the reference: right, wrong, extra (``other`` is empty) or missing (``text`` is empty)."""

    kind: str
    text: str
    other: str  # of the reference
    space: str = ""  # white space before it


def differences(reference: str, text: str, metric: Metric) -> list[Part]:
    """Return how a prepared text differs from its prepared reference: Levenshtein over the metric's units, neighbours joined."""
    from rapidfuzz.distance import Levenshtein

    (ours, spaces), (theirs, their_spaces) = _units(text, metric), _units(reference, metric)
    found: list[Part] = []
    for edit in Levenshtein.opcodes(ours, theirs):
        kind = {"equal": "right", "replace": "wrong", "delete": "extra", "insert": "missing"}[edit.tag]
        for place in range(max(edit.src_end - edit.src_start, edit.dest_end - edit.dest_start)):
            i, j = edit.src_start + place, edit.dest_start + place
            unit, other = ours[i] if i < edit.src_end else "", theirs[j] if j < edit.dest_end else ""
            space = spaces[i] if unit and (i or not other) else their_spaces[j]  # at its own start a text has none
            if kind != "right":
                unit, other = unit.replace(" ", VISIBLE_SPACE), other.replace(" ", VISIBLE_SPACE)
            if found and found[-1].kind == kind and not space:
                found[-1].text += unit
                found[-1].other += (their_spaces[j] if other else "") + other
            else:
                found.append(Part(kind, unit, other, space))
    return found


def _units(text: str, metric: Metric) -> tuple[list[str], list[str]]:
    """Return the units of a text, and the white space before each that is not a unit itself."""
    text = " ".join(text.split())
    units, spaces, at = list(metric.units(text)), [], 0
    for unit in units:
        begin = text.find(unit, at)
        if begin < 0 or text[at:begin].strip():  # a token that does not stand in the text, as BLEU's for "&amp;"
            return units, [" "] * len(units)
        spaces.append(text[at:begin])
        at = begin + len(unit)
    return units, spaces
