"""Print what the commands produce: notes and a progress bar on standard error, tables and JSON on standard output."""

from __future__ import annotations

import json
import logging
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from attlm_fairseq.errors import TURNS, UnknownFormatError, visible
from attlm_fairseq.files.writing import STANDARD_OUTPUT
from attlm_fairseq.messages import LOGGER

if TYPE_CHECKING:
    from tqdm import tqdm


class NoteHandler(logging.Handler):
    """Prints notes and warnings on standard error, above a progress bar if there is one. Warnings are red on a terminal."""

    def emit(self, record: logging.LogRecord) -> None:
        line = _visible_lines(record.getMessage())
        if on_terminal() and record.levelno >= logging.WARNING:
            line = click.style(line, fg="red", bold=True)
        if "tqdm" in sys.modules:
            from tqdm import tqdm

            tqdm.write(line, file=sys.stderr)
        else:
            click.echo(line, err=True)


@contextmanager
def printed_notes() -> Iterator[None]:
    """Print the library's notes while the block runs."""
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
    """Return a progress bar with rate and remaining time. It shows only on a terminal."""
    from tqdm import tqdm

    return tqdm(total=total, unit=f" {unit}", unit_scale=True, dynamic_ncols=True, smoothing=0.1, disable=None, file=sys.stderr)


def on_terminal() -> bool:
    """Return whether standard error is a terminal. Only then is it worth counting the work first, for the remaining time."""
    return sys.stderr.isatty()


def worth_counting(path: str) -> bool:
    """Return whether to read a file once before the work, to count it: only on a terminal, and only if it can be read twice."""
    return on_terminal() and path != "-" and (Path(path).is_file() or Path(path).is_dir())


def lines_bar(path: str) -> tqdm:
    from attlm_fairseq.scoring.text_file import count_lines

    return progress("lines", count_lines(path) if worth_counting(path) else None)


def hypotheses_bar(path: str, format_name: str | None) -> tqdm:
    """Return a progress bar for the hypotheses of n-best lists. In plain text, which `attlm eval` also takes, they are not counted."""
    from attlm_fairseq.messages import collected
    from attlm_fairseq.nbest.formats import open_nbest

    total = None
    with collected(), suppress(UnknownFormatError):  # the run itself reads the lists again and then logs their notes
        if worth_counting(path):
            total = sum(len(found.hypotheses) for found in open_nbest(path, format_name)[1])
    return progress("hypotheses", total)


def echo_fields(*fields: object, file: TextIO | None = None) -> None:
    """Print a line of fields joined by tabs, to a ``file`` that becomes standard output or to standard output itself.

    Words are printed as they are, but control characters are made visible on a terminal.
    """
    texts = list(map(str, fields))
    # color=True: otherwise click removes what looks like a colour code from the words
    click.echo("\t".join(map(visible, texts) if sys.stdout.isatty() else texts), file=file, color=True)


def echo_json(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    # json escapes what is below U+0020 alone; these could control a terminal, too, and are the same text when escaped
    click.echo(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def echo_table(table: object, *outputs: str | Path | None) -> None:
    """Print a table, or another text of several lines, whose names and words may come from files.

    Args:
        table: the table.
        outputs: the files that the command writes; None for one that it does not write. If one of them is standard output, the table
            goes to standard error.
    """
    to_stderr = any(str(path) in STANDARD_OUTPUT for path in outputs)
    click.echo(_visible_lines(str(table)), err=to_stderr)


_CONTROLS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{TURNS}]")  # all but tab and end of line


def _visible_lines(text: str) -> str:
    return _CONTROLS.sub(lambda found: visible(found[0]), text)


def this_command() -> str:
    """Return the command line, quoted for a shell, so that the result can be reproduced."""
    return shlex.join(["attlm", *sys.argv[1:]])
