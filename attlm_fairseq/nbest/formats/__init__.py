"""Every n-best format, one a file, behind one door.

A format reads text lines into :class:`NbestList` one list at a time and writes them back the same way, so that a file may be
larger than memory. What a format does not understand it carries along verbatim. Scores are converted here and nowhere
else: inside the program they are natural logarithms and sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TextIO

from attlm_fairseq.nbest.nbest_list import NbestList


class NbestFormat(Protocol):
    """What a format provides. It has no state: one instance serves any number of files."""

    name: str  # as in ``--format NAME``
    has_scores: bool  # whether a written file has a place for scores

    def matches(self, head: str) -> bool:
        """Whether a file that begins with ``head`` (up to 64 KiB of text, perhaps cut mid-line) is in this format."""
        ...

    def read(self, lines: Iterable[str], path: str) -> Iterator[NbestList]:
        """Yield the lists of a file in order. ``lines`` keep their line ends. Raises InputError with file and line number."""
        ...

    def write(self, lists: Iterable[NbestList], out: TextIO) -> None:
        """Write the lists in the order and with the hypotheses in the order given, with ``lm_scores`` and ``total`` where set."""
        ...
