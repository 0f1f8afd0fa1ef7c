"""What every n-best format provides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, TextIO, runtime_checkable

from attlm_fairseq.nbest.nbest_list import NbestList


class NbestFormat(Protocol):
    """A format that is one stream of text. It has no state: one instance serves any number of files.

    ``by_line`` says what :meth:`read` wants: the lines of the text, or (JSON documents, often one line of many megabytes)
    pieces of any size.
    """

    name: str  # as in ``--format NAME``
    has_scores: bool  # whether a written file has a place for scores
    by_line: bool

    def matches(self, head: str) -> bool:
        """Whether a file that begins with ``head`` (up to 64 KiB of text, perhaps cut mid-line) is in this format."""
        ...

    def read(self, lines: Iterable[str], path: str) -> Iterator[NbestList]:
        """Yield the lists of a file in order. ``lines`` keep their line ends. Raises InputError with file and line number."""
        ...

    def write(self, lists: Iterable[NbestList], out: TextIO) -> None:
        """Write the lists in the order and with the hypotheses in the order given, with ``lm_scores`` and ``total`` where set.

        Lists that were read in this format and not changed come out byte for byte. Raises InputError where the format cannot
        hold a list.
        """
        ...


@runtime_checkable
class NbestFolderFormat(Protocol):
    """A format that spreads its lists over the files of a folder."""

    name: str
    has_scores: bool

    def matches_folder(self, folder: Path) -> bool:
        """Whether the folder holds this format."""
        ...

    def read_folder(self, folder: Path) -> Iterator[NbestList]:
        """Yield the lists in order. Raises InputError with file and line number."""
        ...

    def write_folder(self, lists: Iterable[NbestList], folder: Path) -> None:
        """Fill the empty ``folder``, as :meth:`NbestFormat.write` does a file."""
        ...
