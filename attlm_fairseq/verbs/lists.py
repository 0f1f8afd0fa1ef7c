"""N-best lists as arguments: files, NbestLists, or lists of strings, with their source sentences."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import NoneType
from typing import TypeAlias, TypeGuard, cast

import numpy as np

from attlm_fairseq.errors import InputError, UnknownFormatError, require_type, shown
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import NbestFolderFormat, NbestFormat, open_nbest
from attlm_fairseq.nbest.formats.ctm import CtmFormat
from attlm_fairseq.nbest.line_matching import By, check_by, match_lines
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.other_systems import read_texts
from attlm_fairseq.nbest.reference_files import REFS_BY, TEXT, read_text_file
from attlm_fairseq.scoring.conversations import ContextSpec, parse_context
from attlm_fairseq.verbs.arguments import FilePath, check_file, is_real

# the hypotheses of one list, best first: each a text, or a text with the decoder's score or with named scores
Hypotheses: TypeAlias = Sequence[str | tuple[str, float | Mapping[str, float]]]


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


Lists: TypeAlias = NbestFile | FilePath | Iterable[NbestList | Hypotheses]


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


def has_labels(values: object) -> bool:
    """Return whether values are a pandas.Series or the like, whose labels would not be looked at."""
    return any(hasattr(values, name) and not callable(getattr(values, name)) for name in ("index", "columns"))


def is_file(lists: Lists) -> TypeGuard[NbestFile | FilePath]:
    return isinstance(lists, str | os.PathLike | NbestFile)


def opened_lists(lists: Lists) -> tuple[NbestFormat | NbestFolderFormat | None, Iterator[NbestList]]:
    """Return the format, if the lists are in a file, and an iterator over the lists.

    A list of strings becomes an ``NbestList`` whose id is its position from 0. A single number next to a hypothesis
    becomes its score ``score``. The ranks of a program's lists are their present order, as if they had been written to a
    file: rescored lists count as rescored.

    Raises:
        InputError: as in ``NbestFile.open``. From the iterator: a list of Python objects has no hypotheses, or one
            that is not a text with or without scores.
    """
    if isinstance(lists, str | os.PathLike):
        lists = NbestFile(lists)
    if isinstance(lists, NbestFile):
        return lists.open()
    return None, map(_ranked, _of_program(cast(Iterable, lists)))


def lists_to_write(lists: Lists) -> Iterable[NbestList]:
    """Return lists to write, as a sequence if they are one. Ranks of a program's lists stay, because formats may write them.

    Raises:
        InputError: as in ``opened_lists``.
    """
    if is_file(lists):
        return lists_of(lists)
    given = _of_program(cast(Iterable, lists))
    return list(given) if isinstance(lists, Sequence) else given


def _of_program(lists: Iterable[NbestList | Hypotheses]) -> Iterator[NbestList]:
    if isinstance(lists, NbestList) or not isinstance(lists, Iterable):
        raise InputError(f"the lists are {shown(lists)}: expected a file or a list of n-best lists")
    return _each_of_program(lists)


def _each_of_program(lists: Iterable[NbestList | Hypotheses]) -> Iterator[NbestList]:
    silent = mistimed = 0
    for place, given in enumerate(lists):
        nbest = _list_of(place, given)
        if wrong := sum(map(_is_mistimed, nbest.hypotheses)):
            mistimed += wrong
            nbest = replace(nbest, hypotheses=[replace(one, times=()) if _is_mistimed(one) else one for one in nbest.hypotheses])
        if not nbest.hypotheses:
            silent += 1
            nbest = replace(nbest, hypotheses=[Hypothesis("", rank=1)])
        yield nbest
    if silent:
        note(f"note: {silent} lists without hypotheses are read as silence: one hypothesis, an empty text without scores")
    if mistimed:
        note(f"note: {mistimed} hypotheses have times for another number of words than their text has: these times are left out")


def lists_of(lists: Lists) -> Iterator[NbestList]:
    """Yield the lists of ``opened_lists``.

    Raises:
        InputError: as in ``opened_lists``.
    """
    return opened_lists(lists)[1]


def title_of(what: str, lists: Lists) -> str:
    """Return ``what`` followed by the file name, if the lists come from a file."""
    return f"{what} on {lists}" if is_file(lists) else what


def _list_of(place: int, given: NbestList | Hypotheses) -> NbestList:
    if isinstance(given, NbestList):
        nbest = _checked(given)
    else:
        nbest = NbestList(str(place), [_hypothesis_of(place, one) for one in _sequence(place, given)])
    ranks = {hypothesis.rank for hypothesis in nbest.hypotheses}
    return _ranked(nbest) if 0 in ranks or len(ranks) < len(nbest.hypotheses) else nbest


def _checked(nbest: NbestList) -> NbestList:
    """Return the list of a program with scores and times that are Python's numbers, as files hold them.

    Raises InputError for an id, hypothesis, text or reference of another type, or a score or time that is not a number.
    """
    require_type("id of a list", nbest.id, str, "a text")
    require_type("source of a list", nbest.source, (str, NoneType), "a text, or None")
    require_type(f"value of hypotheses of list {nbest.id!r}", nbest.hypotheses, Sequence, "a list of attlm.Hypothesis(..)")
    for hypothesis in nbest.hypotheses:
        if not (isinstance(hypothesis, Hypothesis) and isinstance(hypothesis.text, str) and isinstance(hypothesis.scores, Mapping)):
            raise nbest.error(f"list {nbest.id!r} holds {shown(hypothesis)}: expected attlm.Hypothesis(TEXT, {{NAME: NUMBER}})")
    of_type = isinstance(nbest.references, Iterable) and not isinstance(nbest.references, str)
    if not of_type or not all(isinstance(text, str) for text in nbest.references):
        raise nbest.error(f"list {nbest.id!r} has the references {shown(nbest.references)}: expected a tuple of texts")
    if all(map(_is_plain, nbest.hypotheses)):
        return nbest
    return replace(nbest, hypotheses=[_plain_hypothesis(nbest, hypothesis) for hypothesis in nbest.hypotheses])


def _is_mistimed(hypothesis: Hypothesis) -> bool:
    """Return whether a hypothesis has times for another number of words than its text has."""
    return len(hypothesis.times) not in (0, len(hypothesis.text.split()))


def _is_plain(hypothesis: Hypothesis) -> bool:
    """Return whether scores and times of a hypothesis are Python's floats, and times a tuple of tuples, as files hold them."""
    return (
        type(hypothesis.scores) is dict
        and type(hypothesis.lm_scores) is dict
        and type(hypothesis.times) is tuple
        and all(type(name) is str for name in (*hypothesis.scores, *hypothesis.lm_scores))
        and all(map(_is_float, (*hypothesis.scores.values(), *hypothesis.lm_scores.values())))
        and (hypothesis.total is None or _is_float(hypothesis.total))
        and all(type(time) is tuple and [*map(type, time)] == [float, float] and all(map(math.isfinite, time)) for time in hypothesis.times)
    )


def _is_float(value: object) -> bool:
    """Return whether a value is a float of Python, or a whole number that a float can hold."""
    return type(value) is float or (type(value) is int and abs(value) < 1 << 1000)


def _plain_hypothesis(nbest: NbestList, hypothesis: Hypothesis) -> Hypothesis:
    """Return the hypothesis with Python's floats. Raises InputError for a name that is not a text, or a value that is not a number."""

    def plain(value: object, what: str) -> float:
        try:
            if is_real(value):
                return value if _is_float(value) else float(value)
        except OverflowError:
            pass
        raise nbest.error(f"list {nbest.id!r} has {what} {shown(value)}: expected a number")

    def named(scores: Mapping[str, float]) -> dict[str, float]:
        require_type(f"value of lm_scores in list {nbest.id!r}", scores, Mapping, "numbers by name")
        for name in scores:
            require_type(f"name of a score in list {nbest.id!r}", name, str, "a text")
        return {name: plain(score, f"the score {name} =") for name, score in scores.items()}

    given = () if hypothesis.times is None else hypothesis.times
    if not isinstance(given, Iterable) or not all(isinstance(time, Iterable) for time in given):
        raise nbest.error(f"list {nbest.id!r} has the times {shown(given)}: expected begin and end of each word")
    times = [tuple(plain(value, "the time") for value in time) for time in given]
    if wrong := [time for time in times if len(time) != 2 or not all(map(math.isfinite, time))]:
        raise nbest.error(f"list {nbest.id!r} has the time {wrong[0]} of a word: expected its begin and end in seconds")
    total = None if hypothesis.total is None else plain(hypothesis.total, "the total")
    scores, lm_scores = named(hypothesis.scores), named(hypothesis.lm_scores)
    return replace(hypothesis, scores=scores, lm_scores=lm_scores, total=total, times=tuple(cast("list[tuple[float, float]]", times)))


def _ranked(nbest: NbestList) -> NbestList:
    """Return the list with its order as the ranks."""
    return replace(nbest, hypotheses=[replace(hypothesis, rank=rank) for rank, hypothesis in enumerate(nbest.hypotheses, 1)])


def lists_or_texts(lists: Lists, by: By | None = None) -> Iterable[NbestList]:
    """Return the lists; the lines of a file as texts if its format is not recognised.

    Raises InputError if the file cannot be read, or if it is standard input and its format is not recognised.
    """
    if not is_file(lists):
        return lists_of(lists)
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


def _sequence(place: int, given: Hypotheses) -> Hypotheses:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputError(f"list {place} is {given!r}: expected an NbestList or a list of hypotheses")
    return given


def _hypothesis_of(place: int, given: str | tuple[str, float | Mapping[str, float]]) -> Hypothesis:
    match given:
        case str():
            return Hypothesis(given)
        case (str() as text, Mapping() as scores) if all(map(is_real, scores.values())):
            return Hypothesis(text, {str(name): float(score) for name, score in scores.items()})
        case (str() as text, score) if is_real(score):
            return Hypothesis(text, {"score": float(score)})
    raise InputError(f"list {place} has the hypothesis {given!r}: expected a text, (text, score) or (text, {{name: score}})")


def groups_of(lists: Iterable[NbestList], folds_by: str | ContextSpec | None, name: str = "folds_by") -> np.ndarray | None:
    """Return the group number (N,) of each list, such as ``id:REGEX`` makes them; None without ``folds_by``, called ``name``.

    Raises:
        InputError: ``folds_by`` has another form or does not fit the ids of the lists, or there is only one group.
    """
    require_type(f"value of {name}", folds_by, (str, ContextSpec, NoneType), "'id:REGEX' or 'file:FILE'")
    spec = parse_context(folds_by) if isinstance(folds_by, str) else folds_by
    return None if spec is None else spec.groups([nbest.id for nbest in lists])
