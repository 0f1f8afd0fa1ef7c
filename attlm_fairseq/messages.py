"""Messages to the user: notes and warnings, as records of the logger ``attlm_fairseq``.

The command line prints all of them on standard error. In a program, ``logging`` decides: by default it prints only
warnings.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar

LOGGER = logging.getLogger("attlm_fairseq")


_COLLECTING: ContextVar[list[str] | None] = ContextVar("lines collected", default=None)


def note(line: str) -> None:
    """Log one line for the user: level WARNING if it begins with "WARNING", else level INFO."""
    lines = _COLLECTING.get()
    if lines is not None:
        lines.append(line)
        return
    LOGGER.log(logging.WARNING if line.startswith("WARNING") else logging.INFO, "%s", line)


@contextlib.contextmanager
def collected() -> Iterator[list[str]]:
    """Yield a list that receives the lines of ``note`` in this thread while the block runs. They are not logged."""
    lines: list[str] = []
    before = _COLLECTING.set(lines)
    try:
        yield lines
    finally:
        _COLLECTING.reset(before)
