"""Messages to the user: notes and warnings, as records of the logger ``attlm_fairseq``.

The command line prints all of them on standard error. In a program, ``logging`` decides: by default it prints only
warnings.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

LOGGER = logging.getLogger("attlm_fairseq")


_COLLECTING: ContextVar[list[str] | None] = ContextVar("lines collected", default=None)


def note(line: str) -> None:
    """Log one line for the user: level WARNING if it begins with "WARNING", else level INFO."""
    lines = _COLLECTING.get()
    if lines is not None:
        lines.append(line)
        return
    LOGGER.log(logging.WARNING if line.startswith("WARNING") else logging.INFO, "%s", line)


def warnings_are_read() -> bool:
    """Return whether anybody reads what ``note`` is told of warnings: their making may take long."""
    return _COLLECTING.get() is not None or LOGGER.isEnabledFor(logging.WARNING)


@contextlib.contextmanager
def collected() -> Iterator[list[str]]:
    """Yield a list that receives the lines of ``note`` in this thread while the block runs. They are not logged."""
    lines: list[str] = []
    before = _COLLECTING.set(lines)
    try:
        yield lines
    finally:
        _COLLECTING.reset(before)


@dataclass(slots=True)
class FileNotes:
    """Notes on one file, each of which is logged once.

    Attributes:
        path: the file.
        told: the notes so far.
    """

    path: str
    told: set[str] = field(default_factory=set)

    def add(self, text: str) -> None:
        """Log ``note: PATH: text``, unless it was logged before."""
        self._add("note", text)

    def warn(self, text: str) -> None:
        """Log ``WARNING: PATH: text``, unless it was logged before."""
        self._add("WARNING", text)

    def _add(self, kind: str, text: str) -> None:
        if text not in self.told:
            self.told.add(text)
            note(f"{kind}: {self.path}: {text}")
