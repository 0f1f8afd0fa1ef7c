"""The table of a comparison as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attlm_fairseq.nbest.metrics.edit_rates import Edits
from attlm_fairseq.nbest.metrics.metric import ScoreOfSums
from attlm_fairseq.nbest.statistics.evaluation import Row, of_holm, signed


def as_table(rows: Sequence[Row], metric: ScoreOfSums, against: str) -> str:
    """Return the table of systems: score, interval, difference from the first row with its interval and p-value.

    ``against`` heads the column of differences. A system that was tuned on these lists has a note instead of a p-value.
    """
    from tabulate import tabulate

    decimals = 4 if metric.bounds == (-math.inf, math.inf) else 2  # of a scale that is not known, such as COMET's from 0 to 1
    head = ("", metric.name.upper(), "95 % interval", against)
    table = tabulate(
        [_cells(row, decimals) for row in rows], head, "plain", disable_numparse=True, colalign=("left", "right", "left", "left")
    )
    if any(row.folds for row in rows):
        table += "\nthe p of cross-validated rows accounts for folds that share the lists they are tuned on"
    corrected = of_holm({row.label: row.comparison.p_value if row.comparison else None for row in rows})
    return "\n".join(filter(None, (table, corrected)))


@dataclass(frozen=True)
class ErrorCounts:
    """The errors of a system.

    Attributes:
        edits: the sums over its answers: substitutions, deletions, insertions and length of the references.
        wrong: number of lists with errors.
        lists: number of lists.
    """

    edits: Edits
    wrong: int
    lists: int

    @staticmethod
    def of(edits: Sequence[Edits]) -> ErrorCounts:
        """Sum the edits of the answers to each list."""
        return ErrorCounts(Edits(*map(sum, zip(*edits, strict=True))), sum(each.errors > 0 for each in edits), len(edits))

    def as_dict(self) -> dict[str, int]:
        """Return the counts as a JSON-serialisable dictionary."""
        return {**self.edits._asdict(), "lists_with_errors": self.wrong}


def error_table(counts: Mapping[str, ErrorCounts], unit: str) -> str:
    """Return the table of the systems' errors as text. ``unit``: what the references are counted in, such as words."""
    from tabulate import tabulate

    head = ("", "sub", "del", "ins", f"of {unit}", "lists with errors")
    rows = []
    for label, found in counts.items():
        rows.append((label, *map(str, found.edits), f"{found.wrong} of {found.lists} ({found.wrong / found.lists:.1%})"))
    return tabulate(rows, head, "plain", disable_numparse=True, colalign=("left", "right", "right", "right", "right", "right"))


def _cells(row: Row, decimals: int) -> tuple[str, str, str, str]:
    compared = ""
    if row.comparison:
        difference = row.comparison.difference
        compared = signed(difference.score, decimals)
        if row.in_sample:
            compared += ", in-sample"
        else:
            if row.is_bounded:
                compared += f" ({signed(difference.low, decimals)} .. {signed(difference.high, decimals)})"
            compared += f", p {'' if row.p_text.startswith('<') else '= '}{row.p_text}"
    low, high = f"{row.interval.low:.{decimals}f}", f"{row.interval.high:.{decimals}f}"
    return row.label, f"{row.interval.score:.{decimals}f}", f"{low} .. {high}", compared
