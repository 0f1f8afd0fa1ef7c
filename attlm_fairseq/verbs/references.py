"""References as arguments: files, or texts in the order of the lists or by id."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import TypeAlias, cast

from attlm_fairseq.errors import InputError, require_type, shown
from attlm_fairseq.messages import FileNotes, note
from attlm_fairseq.nbest.formats.json_values.records import tell_of_reference_words
from attlm_fairseq.nbest.line_matching import By, check_by
from attlm_fairseq.nbest.metrics.external import with_source
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.reference_files import read_references
from attlm_fairseq.nbest.references import (
    attach_references,
    is_ctm,
    note_silence,
    silent_lists,
    warn_of_repeated_ids,
    with_known_references,
    with_silence,
)
from attlm_fairseq.text.one_form import in_one_form
from attlm_fairseq.verbs.arguments import FilePath, ids_as_texts, require_order
from attlm_fairseq.verbs.sources import SourceFile


@dataclass(frozen=True, init=False)
class ReferenceFiles:
    """Files of references, one line per list. Without files, the lists must have their own references.

    Attributes:
        paths: one file per set of references; a single path is one file.
        by: how lines are matched with lists, see ``attlm_fairseq.nbest.line_matching``.
        source: a file of source sentences, matched in the same way, for translation models and external metrics.
        partial: leave out lists that have no reference, instead of refusing them. With files, they are matched by id.
    """

    paths: tuple[str, ...] = ()
    by: By | None = None
    source: str | None = None
    partial: bool = False

    def __init__(
        self, paths: FilePath | Iterable[FilePath] = (), by: By | None = None, source: FilePath | None = None, partial: bool = False
    ) -> None:
        given = [paths] if isinstance(paths, str | os.PathLike) else paths
        require_type("value of paths", given, Iterable, "a path or several")
        files = list(given)
        for path in files:
            require_type("reference file", path, (str, os.PathLike), "a path")
        require_type("file of source sentences", source, (str, os.PathLike, NoneType), "a path")
        check_by(by)
        # the only way to set attributes of a frozen object
        object.__setattr__(self, "paths", tuple(os.fspath(path) for path in files))
        object.__setattr__(self, "by", by)
        object.__setattr__(self, "source", None if source is None else os.fspath(source))
        object.__setattr__(self, "partial", partial)

    @property
    def files(self) -> tuple[str, ...]:
        """Return the paths of all files: references and source."""
        return (*self.paths, self.source) if self.source else self.paths

    def attach(self, lists: Iterable[NbestList]) -> list[NbestList]:
        """Return the lists with their references.

        Raises:
            InputError: a file cannot be read, its lines do not match the lists, or a list has no reference; if ``partial``, none has.
        """
        read, by = read_references(self.paths) if self.paths else None, self.by
        if not self.partial:
            found = attach_references(lists, read, by)
            return found if self.source is None else SourceFile(self.source, by).attach(found)
        whole = with_silence(list(lists), read[0]) if read and by is None else list(lists)
        problem = None
        if self.source is not None:
            try:
                whole = SourceFile(self.source, by).attach(whole)  # in the order of all lists, or by id
            except InputError as error:
                problem = error
        lists, by = with_known_references(whole, read, by)
        found = attach_references(lists, read, by)
        if problem is None or self.source is None:
            return found
        try:
            return SourceFile(self.source, by).attach(found)  # by id, of these lists alone
        except InputError:
            raise problem from None


# files; or one text (or several alternatives) per list, in the order of the lists or by list id
References: TypeAlias = ReferenceFiles | FilePath | Sequence[str | Sequence[str] | os.PathLike[str]] | Mapping[str, str | Sequence[str]]


def with_references(lists: Iterable[NbestList], references: References | None) -> list[NbestList]:
    """Return the lists with these references; None: every list must have its own. References carry the source sentence.

    Raises:
        InputError: a file cannot be read, the references do not match the lists, or a list has no reference.
    """
    found = _with_references(lists, references)
    if references is not None and reference_files(references) is None:
        note_silence([nbest.references for nbest in found], "the references")
        notes = FileNotes("the references")
        for nbest in found:
            tell_of_reference_words(nbest.references, nbest.hypotheses, notes)
    return [nbest if nbest.source is None else replace(nbest, references=with_source(nbest.references, nbest.source)) for nbest in found]


def _with_references(lists: Iterable[NbestList], references: References | None) -> list[NbestList]:
    if references is None:
        return ReferenceFiles().attach(lists)
    if (files := reference_files(references)) is not None:
        return files.attach(lists)
    if isinstance(references, Mapping):
        lists, references = list(lists), ids_as_texts("references", references)
        warn_of_repeated_ids(lists)
        lists += silent_lists(lists, references) if is_ctm(lists) else []
        ids, names = in_one_form([nbest.id for nbest in lists], list(references))
        texts_of = dict(zip(names, references.values(), strict=True))
        found = [_with_own(nbest, texts_of.get(name), "there is no reference of this id") for nbest, name in zip(lists, ids, strict=True)]
        if left_over := sorted(texts_of.keys() - {*ids}):
            counts = f"{len(found)} lists, {len(references)} references with ids"
            note(f"note: {len(left_over)} references are of no list and left over, the first of id {left_over[0]!r}: {counts}")
        return found
    require_order("references", references, "texts")
    if not isinstance(references, Iterable):
        raise InputError(f"the references are {shown(references)}: expected files, texts in the order of the lists, or texts by id")
    lists, texts = list(lists), list(cast("Iterable[str | Sequence[str]]", references))  # neither files nor a mapping
    if texts and all(isinstance(text, str) and text.strip() and os.path.isfile(text) for text in texts):  # noqa: PTH113 - raises for no text
        raise InputError(f"the references {texts[0]!r}, .. are names of files: give ReferenceFiles(..) of them, or Path objects")
    if len(lists) != len(texts):
        raise InputError(f"{len(texts)} references, but there are {len(lists)} lists: expected one per list, in the same order")
    return [_with_own(nbest, given, "its reference is empty") for nbest, given in zip(lists, texts, strict=True)]


def among(whole: Sequence[NbestList], read: Sequence[NbestList], references: References | None) -> tuple[list[NbestList], list[int]]:
    """Return all lists, those with references in their places, and these places.

    Args:
        whole: the lists without the references.
        read: what ``with_references`` returned for them; if ``partial``, only those that have a reference.
        references: the references.
    """
    files = reference_files(references)
    if files is None or not files.partial:
        return list(read), list(range(len(read)))
    ids, known = {nbest.id for nbest in whole}, {nbest.id for nbest in read}
    everything = [*whole, *(nbest for nbest in read if nbest.id not in ids)]  # silence of CTM
    places = [place for place, nbest in enumerate(everything) if nbest.id in known]
    if len(places) > len(read):  # of lists with one id, those that have references of their own
        places = [place for place in places if everything[place].references]
    for place, nbest in zip(places, read, strict=True):
        everything[place] = nbest
    return everything, places


def reference_files(references: References | None) -> ReferenceFiles | None:
    """Return the reference files; None if the references are texts or not given."""
    if isinstance(references, ReferenceFiles):
        return references
    if isinstance(references, str | os.PathLike):
        return ReferenceFiles(references)
    if isinstance(references, Sequence):
        paths = [given for given in references if isinstance(given, os.PathLike)]
        if paths and len(paths) == len(references):
            return ReferenceFiles(paths)
    return None


def _with_own(nbest: NbestList, given: str | Sequence[str] | None, problem: str) -> NbestList:
    found = (given,) if isinstance(given, str) or not isinstance(given, Iterable | None) else tuple(given or ())
    if wrong := [one for one in found if not isinstance(one, str)]:
        raise nbest.error(f"list {nbest.id!r}: its reference is {shown(wrong[0])}: expected a text or several")
    if not found:
        raise nbest.error(f"list {nbest.id!r}: {problem}")
    return replace(nbest, references=found, unscored=())
