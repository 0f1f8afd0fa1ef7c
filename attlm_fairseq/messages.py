"""Messages to the user: notes and warnings, as records of the logger ``attlm_fairseq``.

The command line prints all of them on standard error. In a program, ``logging`` decides: by default it prints only
warnings.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar

from attlm_fairseq.scoring.oov import OOVCount
from attlm_fairseq.text import TextPipeline, describe_pipelines, remarks

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


def note_texts(pipelines: dict[str, TextPipeline]) -> None:
    """Log the text steps of each LM, and doubts about them."""
    for line in (*describe_pipelines(pipelines), *remarks(pipelines.values())):
        note(line)


def warn_of_oov(counts: Iterable[OOVCount], advise: Callable[[OOVCount], str | None] | None = None) -> None:
    """Warn of each LM that does not know many of the words, with the advice that ``advise`` gives for it."""
    for count in counts:
        if warning := count.warning():
            advice = advise(count) if advise else None
            note(f"{warning}. {advice}" if advice else warning)
