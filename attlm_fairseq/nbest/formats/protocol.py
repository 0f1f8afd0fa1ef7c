"""The interface of every n-best format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TextIO, TypeVar

from attlm_fairseq import extensions
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.formats.as_read import as_new, current, remembered
from attlm_fairseq.nbest.formats.list_ids import writable
from attlm_fairseq.nbest.nbest_list import NbestList

_Source = TypeVar("_Source")


@dataclass(frozen=True)
class Holds:
    """What lists from other formats keep when they are written in this format."""

    ids: bool = True
    order: bool = True  # whether lists are read back in the order in which they are written
    references: bool = False
    blank_references: bool = True  # whether a reference without words is one, of silence
    sources: bool = False  # whether lists have a source sentence
    blank_sources: bool = True  # whether a source sentence without words is one, or none
    columns: bool = False  # whether there are source sentences only if the first list has one
    scores: bool = False
    decimals: int | None = None  # to which scores are rounded; None: written exactly
    unit: float = 1.0  # of written scores, in natural logs
    score_name: Callable[[str], str] = str  # what a score is called in it
    total_name: str | None = None  # what the total of rescoring is called in it, if a score may not have this name
    lm_name: Callable[[str], str] | None = None  # what the score of an LM is called in it; None: as other scores
    main_score: str | None = None  # what the decoder's own score is called in it; None: as other scores
    sparse: bool = False  # whether it says that a score which a hypothesis does not name is 0
    one_line: bool = False  # whether tabs and line breaks of a text become spaces
    times: bool = False  # whether words have times
    extras: bool = False  # whether what is neither id, text, score nor reference is kept, as in a format's own lists


class _Named:
    """What files and folders of n-best lists have in common."""

    name: ClassVar[str]  # as in ``--format NAME``
    has_scores: ClassVar[bool] = True  # whether a written file has a place for scores
    holds: ClassVar[Holds | None] = None  # None: only lists that were read from this format can be written

    def written_id(self, nbest: NbestList) -> str | None:
        """Return the id of a list as it is read back from a file; None if another list of the file may have it, too."""
        return nbest.id

    def keeps(self, nbest: NbestList) -> bool:
        """Return whether a list of such a file that is expanded (``as_read.is_expanded``) is written with what else its file says of it."""
        return False

    def _remembered(self, parse: Callable[[_Source], Iterable[NbestList]], source: _Source) -> Iterator[NbestList]:
        """Return the lists of a source, with what tells later whether they have changed.

        Raises:
            InputError: the format is of another package, and fails.
        """
        with self._named_failures():
            lists = parse(source)
        return self._each_remembered(lists)

    def _each_remembered(self, lists: Iterable[NbestList]) -> Iterator[NbestList]:
        holds = self.holds or Holds()
        with self._named_failures():
            yield from remembered(lists, holds.references, holds.times, holds.sources)

    def _named_failures(self) -> AbstractContextManager[None]:
        return extensions.failures_named(self, "read lists", "write the lists in another format, and mend it")

    def _to_write(self, lists: Iterable[NbestList]) -> Iterator[NbestList]:
        """Yield the lists as ``put`` needs them: those of other formats as new ones. Raises InputError for what ``writable`` refuses."""
        own = (nbest if self._is_own(nbest) else as_new(nbest) for nbest in current(lists, self.keeps))
        return writable(own, self.name, self.written_id)

    def _is_own(self, nbest: NbestList) -> bool:
        return nbest.verbatim is None or nbest.verbatim.file.format.partition(":")[0] == self.name


class NbestFormat(_Named, ABC):
    """A format of one file. It has no state: one instance serves any number of files."""

    like_text: ClassVar[bool] = False  # whether lines of plain text can be taken for this format

    @abstractmethod
    def matches(self, head: str) -> bool:
        """Return whether a file that begins with ``head`` (up to 64 KiB of text, perhaps cut mid-line) is in this format."""

    def read(self, source: TextSource) -> Iterator[NbestList]:
        """Yield the lists of a file in order.

        Raises:
            InputError: the file cannot be read or is not in this format, or a text, id or score in it is wrong. The
                message has ``source.name`` and the line number.
        """
        return self._remembered(self.parse, source)

    def write(self, lists: Iterable[NbestList], out: TextIO) -> None:
        """Write the lists in the order and with the hypotheses in the order given, with ``lm_scores`` and ``total`` where set.

        Lists that were read in this format and not changed come out byte for byte; changed ones are written like those
        of another format, except those that the format ``keeps``. Raises InputError if the format cannot hold a list.
        """
        self.put(self._to_write(lists), out)

    @abstractmethod
    def parse(self, source: TextSource) -> Iterator[NbestList]:
        """Yield the lists for ``read``, as ``source.lines()`` or ``source.pieces()`` gives the text."""

    @abstractmethod
    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        """Write for ``write``. A list with ``verbatim`` has only hypotheses that were read with it, none twice and none changed.

        A list that the format ``keeps`` also has new hypotheses, without ``verbatim``, and more scores.
        """

    def with_argument(self, argument: str) -> NbestFormat:
        """Return the format that ``--format NAME:ARGUMENT`` means.

        Raises:
            InputError: the format takes no argument, which is so for most, or not this one.
        """
        raise InputError(f"the format {self.name} takes no argument: found {self.name}:{argument}")


class NbestFolderFormat(_Named, ABC):
    """A format that spreads its lists over the files of a folder."""

    @abstractmethod
    def matches_folder(self, folder: Path) -> bool:
        """Return whether the folder holds this format."""

    def read_folder(self, folder: Path) -> Iterator[NbestList]:
        """Yield the lists in order.

        Raises:
            InputError: a file cannot be read or is not in this format, or the files do not fit each other. The
                message has file and line number.
        """
        return self._remembered(self.parse_folder, folder)

    def write_folder(self, lists: Iterable[NbestList], folder: Path) -> None:
        """Fill the empty ``folder``, as ``NbestFormat.write`` does a file."""
        self.put_folder(self._to_write(lists), folder)

    @abstractmethod
    def parse_folder(self, folder: Path) -> Iterator[NbestList]:
        """Yield the lists for ``read_folder``."""

    @abstractmethod
    def put_folder(self, lists: Iterable[NbestList], folder: Path) -> None:
        """Write for ``write_folder``, see ``NbestFormat.put``."""
