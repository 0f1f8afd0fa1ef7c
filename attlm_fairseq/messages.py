"""Lines to the user: notes and warnings of a run are records of the logger ``attlm_fairseq``.

The command line prints every line on standard error. In a program, ``logging`` decides: by default it prints warnings alone.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator

from attlm_fairseq.scoring.oov import OOVCount
from attlm_fairseq.text import TextPipeline, describe_pipelines, remarks

LOGGER = logging.getLogger("attlm_fairseq")


def note(line: str) -> None:
    """Tell the user one line, at level WARNING if it begins so, else at level INFO."""
    LOGGER.log(logging.WARNING if line.startswith("WARNING") else logging.INFO, "%s", line)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Tell nothing within the block, such as when a file is read a second time."""
    before, LOGGER.disabled = LOGGER.disabled, True
    try:
        yield
    finally:
        LOGGER.disabled = before


def note_texts(pipelines: dict[str, TextPipeline]) -> None:
    """Tell which text steps stand before each LM, and what is questionable about them."""
    for line in (*describe_pipelines(pipelines), *remarks(pipelines.values())):
        note(line)


def warn_of_oov(counts: Iterable[OOVCount], advise: Callable[[OOVCount], str | None] | None = None) -> None:
    """Warn for each LM that does not know many of the words, with the advice of ``advise``."""
    for count in counts:
        if warning := count.warning():
            advice = advise(count) if advise else None
            note(f"{warning}. {advice}" if advice else warning)
