"""Grouping of a file's sentences into conversations or documents, as ``--context`` specifies it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.text.one_form import in_one_form

SIDE_BY_SIDE = 32  # conversations scored together; fixed, so that scores do not depend on devices or the order of a file
SEGMENT = 4  # fields of a line of Kaldi's segments: utterance, recording, begin, end
BY_TABS = "; if an id has spaces, separate the fields by tabs"
EXPECTED = "expected all, id:REGEX, file:FILE or blank"

Kind = Literal["all", "id", "file", "blank"]


class DocumentLine(NamedTuple):
    """A line of a document: its place among the lines that are scored, from 0, its number in the file, from 1, and its text."""

    place: int
    number: int
    text: str


@dataclass(frozen=True)
class ContextSpec:
    """How sentences are grouped into conversations.

    - ``all``: all sentences of the file are one conversation, in the order of the file.
    - ``id``: lists whose ids match the regular expression ``argument`` with the same groups (without groups: the same text).
    - ``file``: the file ``argument`` has a line ``list-id conversation [time]`` for each list, or Kaldi's ``list-id recording begin
      end``. Without times, a conversation has the order of the lists.
    - ``blank``: blank lines separate the documents of a text.
    """

    kind: Kind
    argument: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.argument}" if self.argument else self.kind

    def conversations(self, ids: Sequence[str]) -> dict[str, list[int]]:
        """Return, by the name of each conversation, the indexes of its n-best lists in order.

        Raises:
            InputError: the kind is ``blank``, the expression does not match an id, or the file cannot be read, is
                wrong or has no line for a list.
        """
        if self.kind == "blank":
            raise InputError(
                "the context is blank (--context, or [context] of attlm.toml): blank lines separate documents of text; for lists give "
                "--context all, id:REGEX or file:FILE"
            )
        found: dict[str, list[int]] = {}
        if self.kind == "all":
            return {"": list(range(len(ids)))}
        if self.kind == "id":
            for place, list_id in enumerate(ids):
                found.setdefault(self._name_in(list_id), []).append(place)
            return found
        as_written = read_conversation_file(Path(self.argument))
        keys, names = in_one_form(ids, list(as_written))
        known = dict(zip(names, as_written.values(), strict=True))
        for place, (list_id, key) in enumerate(zip(ids, keys, strict=True)):
            if key not in known:
                expected = "expected one line `list-id conversation [time]` for each list"
                raise InputError(f"names no conversation for list {list_id!r}: {expected}", path=self.argument)
            found.setdefault(known[key][0], []).append(place)
        for places in found.values():
            places.sort(key=lambda place: (known[keys[place]][1], place))
        return found

    def numbers(self, ids: Sequence[str]) -> np.ndarray:
        """Return the number (N,) of each list's conversation.

        Raises:
            InputError: as in ``conversations``.
        """
        numbers = np.empty(len(ids), dtype=np.int64)
        for number, places in enumerate(self.conversations(ids).values()):
            numbers[places] = number
        return numbers

    def groups(self, ids: Sequence[str]) -> np.ndarray:
        """Return the number (N,) of each list's group, for folds that keep groups whole. Raises InputError if there is only one."""
        numbers = self.numbers(ids)
        if not numbers.any():
            raise InputError(f"{self}: all lists are in one group, which cannot be divided; expected two groups or more")
        return numbers

    def documents(self, lines: Iterable[str]) -> Iterator[list[Iterable[DocumentLine]]]:
        """Yield groups of documents to score together. Blank lines that separate documents are left out.

        Raises:
            InputError: the kind is ``id`` or ``file``, since lines of text have no ids.
        """
        if self.kind == "all":
            yield [(DocumentLine(place, place + 1, line) for place, line in enumerate(lines))]
            return
        if self.kind != "blank":
            raise InputError(f"--context {self}: lines of text have no ids: all, or blank for documents that blank lines separate")
        kept: list[DocumentLine] = []
        documents: dict[str, list[int]] = {}
        same: Counter[str] = Counter()  # by text, the number of documents so far
        for blank, run in groupby(enumerate(lines, 1), key=lambda numbered: not numbered[1].strip()):
            if blank:
                continue
            document = [DocumentLine(place, number, line) for place, (number, line) in enumerate(run, len(kept))]
            name = "\n".join(line.text for line in document)
            same[name] += 1
            if same[name] > 1:
                name += f"\n\n{same[name]}"  # no document has a blank line
            documents[name] = [line.place for line in document]
            kept += document
        for group in groups_of(documents):
            yield [[kept[place] for place in places] for _, places in group]

    def _name_in(self, list_id: str) -> str:
        match = re.search(self.argument, list_id)
        if match is None:
            raise InputError(f"{self}: the expression does not match the list id {list_id!r}: it must match every id")
        return "\0".join(part or "" for part in match.groups()) if match.re.groups else match[0]


def parse_context(text: str, folder: Path = Path()) -> ContextSpec:
    """Return ``all``, ``id:REGEX``, ``file:FILE`` (relative to ``folder``) or ``blank`` as a ContextSpec.

    Raises:
        InputError: the kind is unknown, an argument is missing or not expected, or REGEX is not a regular expression.
    """
    kind, colon, argument = text.partition(":")
    if kind not in get_args(Kind) or bool(argument) != (kind in ("id", "file")) or (colon and not argument):
        raise InputError(f"found {text!r}, {EXPECTED}")
    if kind == "id":
        try:
            re.compile(argument)
        except re.error as error:
            raise InputError(f"{argument!r} is not a regular expression: {error}") from None
    return ContextSpec(cast(Kind, kind), str(folder / argument) if kind == "file" else argument)


def read_conversation_file(path: Path) -> dict[str, tuple[str, float]]:
    """Return conversation and time by list id, from lines ``list-id conversation [time]``; time is 0 if absent.

    In a line of Kaldi's ``segments``, ``list-id recording begin end``, the time is that of its begin. White space separates the
    fields. If the lines have such fields between tabs alone, tabs do, and ids may hold spaces.

    Raises:
        InputError: the file cannot be read, a line has too few or too many fields, only some lines have a time, a
            time is not a finite number, or a list is there twice.
    """
    source = TextSource(str(path), "list-id conversation [time]")
    lines = {number: line.strip() for number, line in enumerate(source.lines(), 1) if line.strip()}
    rows = {number: line.split() for number, line in lines.items()}
    by_tabs = {number: [field.strip() for field in line.split("\t")] for number, line in lines.items()}
    if not _is_regular(rows.values()) and _is_regular(by_tabs.values()):
        rows = by_tabs
    found: dict[str, tuple[str, float]] = {}
    timed: bool | None = None
    if all(len(fields) == SEGMENT and math.isfinite(_number(fields[3])) for fields in rows.values()):
        rows = {number: fields[:3] for number, fields in rows.items()}
    for number, fields in rows.items():
        if len(fields) not in (2, 3) or (timed is not None and timed != (len(fields) == 3)):
            expected = "list-id conversation time" if timed else "list-id conversation, with a time on every line or on none"
            raise InputError(f"found {lines[number]!r}, expected {expected}{BY_TABS}", path=path, line=number)
        if fields[0] in found:
            raise InputError(f"has the list {fields[0]!r} a second time", path=path, line=number)
        timed = len(fields) == 3
        found[fields[0]] = (fields[1], _time(fields[2], path, number) if timed else 0.0)
    return found


def _number(text: str) -> float:
    """Return a number; nan for another text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _is_regular(rows: Collection[Sequence[str]]) -> bool:
    """Return whether all rows are a list id and a conversation, or all have a time, too."""
    lengths = {len(fields) for fields in rows}
    return lengths == {2} or (lengths == {3} and all(math.isfinite(_number(fields[2])) for fields in rows))


def _time(text: str, path: Path, line: int) -> float:
    time = _number(text)
    if not math.isfinite(time):
        told = f"found the time {text!r}, expected a number after list id and conversation{BY_TABS}"
        raise InputError(told, path=path, line=line)
    return time


def groups_of(conversations: Mapping[str, list[int]]) -> Iterator[list[tuple[str, list[int]]]]:
    """Yield groups of conversations of similar length to score together. They do not depend on the order of the file."""
    in_order = iter(sorted(conversations.items(), key=lambda named: (-len(named[1]), named[0])))
    while group := list(islice(in_order, SIDE_BY_SIDE)):
        yield group
