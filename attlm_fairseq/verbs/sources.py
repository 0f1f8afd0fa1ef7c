"""Source sentences of n-best lists as arguments: a file, or texts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import NoneType
from typing import TypeAlias

from attlm_fairseq.errors import InputError, require_type, shown
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.line_matching import By, check_by, match_lines
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.reference_files import REFS_BY, read_text_file
from attlm_fairseq.verbs.arguments import FilePath, has_labels


@dataclass(frozen=True)
class SourceFile:
    """A file of source sentences, one per line, matched with the lists by the same rule as references.

    Attributes:
        path: the file.
        by: how lines are matched with lists, see ``attlm_fairseq.nbest.line_matching``.
        option: the command-line option that sets ``by``, named in error messages.
    """

    path: str
    by: By | None = None
    option: str = REFS_BY

    def __post_init__(self) -> None:
        """Raise InputError for an unknown way to match lines."""
        check_by(self.by)

    def attach(self, lists: Iterable[NbestList]) -> list[NbestList]:
        """Return the lists with their source sentences.

        Raises:
            InputError: the file cannot be read, or its lines do not match the lists.
        """
        lists = list(lists)
        file = read_text_file(self.path, "one source sentence per line", self.option)
        return _with_sources(lists, match_lines([nbest.id for nbest in lists], file, self.by).texts)


# a file, or the source sentences as strings: in the order of the lists, or by list id
Sources: TypeAlias = SourceFile | FilePath | Sequence[str] | Mapping[str, str]


def with_sources(lists: Iterable[NbestList], sources: Sources | None) -> Iterable[NbestList]:
    """Return the lists with these source sentences, which replace their own; None leaves what a list has.

    Raises:
        InputError: the file cannot be read, or the source sentences do not match the lists.
    """
    if sources is None:
        return lists
    if isinstance(sources, str | os.PathLike):
        sources = SourceFile(os.fspath(sources))
    if isinstance(sources, SourceFile):
        return sources.attach(lists)
    lists = list(lists)
    if isinstance(sources, Mapping):
        if missing := [nbest for nbest in lists if nbest.id not in sources]:
            raise missing[0].error(f"list {missing[0].id!r}: there is no source sentence of this id")
        ids = {nbest.id for nbest in lists}
        if left_over := [name for name in sources if name not in ids]:
            note(f"note: {len(left_over)} source sentences are of no list and left over, the first of id {left_over[0]!r}")
        sources = [sources[nbest.id] for nbest in lists]
    if isinstance(sources, Set) or has_labels(sources) or not isinstance(sources, Iterable):
        raise InputError(f"the source sentences are {shown(sources)}: expected a file, or texts in the order of the lists or by id")
    texts = list(sources)
    for text in texts:
        require_type("source sentence", text, (str, NoneType), "a text")
    if len(lists) != len(texts):
        raise InputError(f"{len(texts)} source sentences, but there are {len(lists)} lists: expected one per list, in the same order")
    return _with_sources(lists, texts)


def _with_sources(lists: Sequence[NbestList], sources: Sequence[str | None]) -> list[NbestList]:
    given = zip(lists, sources, strict=True)
    return [nbest if source is None else replace(nbest, source=source, source_of_run=source) for nbest, source in given]
