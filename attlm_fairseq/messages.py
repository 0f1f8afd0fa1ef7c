"""Messages to the user: notes and warnings, as records of the logger ``attlm_fairseq``.

The command line prints all of them on standard error. In a program, ``logging`` decides: by default it prints only
warnings.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator

from attlm_fairseq.scoring.oov import OOVCount
from attlm_fairseq.text import TextPipeline, describe_pipelines, remarks

LOGGER = logging.getLogger("attlm_fairseq")


def note(line: str) -> None:
    """Log one line for the user: level WARNING if it begins with "WARNING", else level INFO."""
    LOGGER.log(logging.WARNING if line.startswith("WARNING") else logging.INFO, "%s", line)


@contextlib.contextmanager
def collected() -> Iterator[list[str]]:
    """Yield a list that receives the lines of ``note`` while the block runs. They are not logged."""
    lines: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        lines.append(record.getMessage())
        return False

    level = LOGGER.level
    LOGGER.filters.insert(0, keep)  # before those of the blocks around this one
    LOGGER.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        LOGGER.removeFilter(keep)
        LOGGER.setLevel(level)


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
