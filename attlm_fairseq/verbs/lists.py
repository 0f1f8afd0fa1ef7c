"""N-best lists as arguments: files, NbestLists, or lists of strings, with their source sentences."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeAlias, TypeGuard, cast

import numpy as np

from attlm_fairseq.batching import peeked
from attlm_fairseq.errors import UnknownFormatError, require_type
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import NbestFolderFormat, NbestFormat, open_nbest
from attlm_fairseq.nbest.formats.ctm import CtmFormat
from attlm_fairseq.nbest.line_matching import By
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.other_systems import read_texts
from attlm_fairseq.nbest.reference_files import TEXT
from attlm_fairseq.scoring.context.conversations import ContextSpec, parse_context
from attlm_fairseq.verbs.arguments import FilePath, check_file, require_order
from attlm_fairseq.verbs.program_lists import (
    ProgramLists,
    of_program,
    ranked,
)


@dataclass(frozen=True)
class NbestFile:
    """A file or folder of n-best lists.

    Attributes:
        path: the file or folder; ``-`` is standard input.
        format: name of the format, as in ``--format``; None recognises it by content.
    """

    path: FilePath
    format: str | None = None

    def __post_init__(self) -> None:
        check_file(self.path, self.format)

    def open(self) -> tuple[NbestFormat | NbestFolderFormat, Iterator[NbestList]]:
        """Return the format, and an iterator that reads the lists on demand.

        Raises:
            InputError: the file cannot be read, its format is unknown or not recognised, or a list is wrong. Errors
                after the first 64 KiB come from the iterator.
        """
        return open_nbest(os.fspath(self.path), self.format)

    def __str__(self) -> str:
        return os.fspath(self.path)


Lists: TypeAlias = NbestFile | FilePath | ProgramLists


def is_file(lists: Lists) -> TypeGuard[NbestFile | FilePath]:
    return isinstance(lists, str | os.PathLike | NbestFile)


def opened_lists(lists: Lists) -> tuple[NbestFormat | NbestFolderFormat | None, Iterator[NbestList]]:
    """Return the format, if the lists are in a file, and an iterator over the lists.

    A list of strings becomes an ``NbestList`` whose id is its position from 0, or its key in a dictionary. A single number
    next to a hypothesis becomes its score ``score``. Dictionaries are read as in a JSON file. The ranks of a program's lists
    are their present order, as if they had been written to a file: rescored lists count as rescored.

    Raises:
        InputError: as in ``NbestFile.open``. From the iterator: a list of Python objects has no hypotheses, or one
            that is not a text with or without scores.
    """
    if isinstance(lists, str | os.PathLike):
        lists = NbestFile(lists)
    if isinstance(lists, NbestFile):
        return lists.open()
    return None, map(ranked, of_program(cast(Iterable, lists)))


def lists_to_write(lists: Lists) -> Iterable[NbestList]:
    """Return lists to write, as a sequence if they are one. Ranks of a program's lists stay, because formats may write them.

    Raises:
        InputError: as in ``opened_lists``.
    """
    if is_file(lists):
        return lists_of(lists)
    given = of_program(cast(Iterable, lists))
    return list(given) if isinstance(lists, Sequence) else given


def lists_of(lists: Lists) -> Iterator[NbestList]:
    """Yield the lists of ``opened_lists``.

    Raises:
        InputError: as in ``opened_lists``.
    """
    return opened_lists(lists)[1]


def title_of(what: str, lists: Lists) -> str:
    """Return ``what`` followed by the file name, if the lists come from a file."""
    return f"{what} on {lists}" if is_file(lists) else what


def lists_or_texts(lists: Lists, by: By | None = None) -> Iterable[NbestList]:
    """Return the lists; the lines of a file as texts if its format is not recognised; texts of a program as lists of one hypothesis.

    Raises InputError if the file cannot be read, or if it is standard input and its format is not recognised.
    """
    if not is_file(lists):
        return lists_of(_of_texts(lists))
    file = lists if isinstance(lists, NbestFile) else NbestFile(lists)
    if file.format != TEXT:
        try:
            form, opened = file.open()
            if isinstance(form, CtmFormat) and file.format is None:
                note(f"note: {file} is read as CTM: the ids are those of the recordings; if it has one text per line, say --format {TEXT}")
            if form.name == "plain" and file.format is None:
                note(f"note: {file} is read as lists of several texts (plain); if it has one text per line, say --format {TEXT}")
            return opened
        except UnknownFormatError:
            if str(file) == "-":
                raise
        note(f"note: {file} is not an n-best list: read as one text per line")
    return read_texts(str(file), by)


def _of_texts(lists: Any) -> Lists:
    """Return texts, or texts by id, as lists of one hypothesis each; anything else as it is."""
    if isinstance(lists, Mapping):
        is_text = all(isinstance(given, str) for given in lists.values())
        return {name: [text] for name, text in lists.items()} if is_text else lists
    if not isinstance(lists, Iterable) or isinstance(lists, NbestList):
        return lists  # refused where lists are read
    require_order("lists", lists, "lists")
    first, given = peeked(lists)
    if isinstance(first, str):
        return [[text] if isinstance(text, str) else text for text in given]
    return lists if isinstance(lists, Sequence) else given


def groups_of(lists: Iterable[NbestList], folds_by: str | ContextSpec | None, name: str = "folds_by") -> np.ndarray | None:
    """Return the group number (N,) of each list, such as ``id:REGEX`` makes them; None without ``folds_by``, called ``name``.

    Raises:
        InputError: ``folds_by`` has another form or does not fit the ids of the lists, or there is only one group.
    """
    require_type(f"value of {name}", folds_by, (str, ContextSpec, NoneType), "'id:REGEX' or 'file:FILE'")
    spec = parse_context(folds_by) if isinstance(folds_by, str) else folds_by
    return None if spec is None else spec.groups([nbest.id for nbest in lists])
