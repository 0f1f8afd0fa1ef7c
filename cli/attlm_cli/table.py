"""The table of systems that ``tune`` and ``eval`` print."""

from __future__ import annotations

from collections.abc import Sequence

import click

from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.statistics.evaluation import Row


def print_table(rows: Sequence[Row], metric: Metric, against: str) -> None:
    """Score, interval and, for those compared, the difference from the first row and its p-value; ``against`` heads that column.

    In place of the p-value of a system tuned on these lists stands that it was. A last line says what cross-validated ones allow for.
    """
    width = max(16, *(len(row.label) + 2 for row in rows))
    click.echo(f"{'':{width}}{metric.name.upper():>7}  95 % interval   {against}")
    for row in rows:
        interval = f"{row.interval.low:.2f} .. {row.interval.high:.2f}"
        line = f"{row.label:{width}}{row.interval.score:7.2f}  {interval}"
        if row.comparison:
            p_value = row.comparison.p_value
            line += f"   {row.comparison.difference.score:+.2f}, {'on the lists tuned on' if row.in_sample else f'p = {p_value:.3f}'}"
        click.echo(line)
    if any(row.folds for row in rows):
        click.echo("p of cross-validated rows allows for folds whose weights were tuned on the same lists")
