"""What the commands print: lines on standard error, a bar, tables and JSON on standard output."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attlm_fairseq.errors import visible
from attlm_fairseq.messages import LOGGER
from attlm_fairseq.nbest.metrics import Metric
from attlm_fairseq.nbest.statistics.evaluation import Row

if TYPE_CHECKING:
    from tqdm import tqdm


class NoteHandler(logging.Handler):
    """Prints notes and warnings on standard error, warnings in red on a terminal, above a bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if on_terminal() and record.levelno >= logging.WARNING:
            line = click.style(line, fg="red", bold=True)
        if "tqdm" in sys.modules:
            from tqdm import tqdm

            tqdm.write(line, file=sys.stderr)
        else:
            click.echo(line, err=True)


@contextmanager
def printed_notes() -> Iterator[None]:
    """Print the notes of the library while the block runs."""
    handler, level, propagate = NoteHandler(), LOGGER.level, LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)
        LOGGER.propagate = propagate


def progress(unit: str, total: int | None) -> tqdm:
    """Return a bar with rate and time left, which shows on a terminal alone."""
    from tqdm import tqdm

    return tqdm(total=total, unit=f" {unit}", unit_scale=True, dynamic_ncols=True, smoothing=0.1, disable=None, file=sys.stderr)


def on_terminal() -> bool:
    """Tell whether the user watches: only then is it worth knowing how long the work will take."""
    return sys.stderr.isatty()


def worth_counting(path: str) -> bool:
    """Tell whether to read a file once more first: if the user watches, and never standard input, a pipe or the shell's ``<(..)``."""
    return on_terminal() and path != "-" and (Path(path).is_file() or Path(path).is_dir())


def lines_bar(path: str) -> tqdm:
    """Return a bar for the lines of a text."""
    from attlm_fairseq.scoring.text_file import count_lines

    return progress("lines", count_lines(path) if worth_counting(path) else None)


def hypotheses_bar(path: str, format_name: str | None) -> tqdm:
    """Return a bar for the hypotheses of n-best lists."""
    from attlm_fairseq.messages import silent
    from attlm_fairseq.nbest.formats import open_nbest

    with silent():  # what there is to tell is told when the lists are read
        total = sum(len(found.hypotheses) for found in open_nbest(path, format_name)[1]) if worth_counting(path) else None
    return progress("hypotheses", total)


def echo_fields(*fields: object) -> None:
    """Print a line of fields joined by tabs. Words of the user's files go as they are, but harmless to a terminal."""
    texts = list(map(str, fields))
    # with color, or click takes what looks like a colour out of the words
    click.echo("\t".join(map(visible, texts) if sys.stdout.isatty() else texts), color=True)


def echo_json(value: Any) -> None:
    """Print a result as JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def print_systems(rows: Sequence[Row], metric: Metric, against: str) -> None:
    """Print the table of systems: score, interval and, for those compared, the difference from the first row and its p-value.

    ``against`` heads that column. In place of the p-value of a system tuned on these lists stands that it was.
    """
    from tabulate import tabulate

    head = ("", metric.name.upper(), "95 % interval", against)
    click.echo(tabulate([_cells(row) for row in rows], head, "plain", disable_numparse=True, colalign=("left", "right", "left", "left")))
    if any(row.folds for row in rows):
        click.echo("p of cross-validated rows allows for folds whose weights were tuned on the same lists")


def _cells(row: Row) -> tuple[str, str, str, str]:
    compared = ""
    if row.comparison:
        p_value = "on the lists tuned on" if row.in_sample else f"p = {row.comparison.p_value:.3f}"
        compared = f"{row.comparison.difference.score:+.2f}, {p_value}"
    return row.label, f"{row.interval.score:.2f}", f"{row.interval.low:.2f} .. {row.interval.high:.2f}", compared


def this_command() -> str:
    """Return the command line as a shell takes it: how to get a result again."""
    return shlex.join(["attlm", *sys.argv[1:]])
