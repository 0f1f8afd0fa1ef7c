"""Match the lines of a file of texts with n-best lists.

The rule for a file with one text per line:

| ``by`` | line of a list |
|---|---|
| ``"order"`` | line i belongs to list i; there are as many lines as lists |
| ``"number"`` | the list's id is the line number, counted from 0; some lines may match no list |
| ``"id"`` | every line carries an utterance id, ``id text`` or ``text (id)``; some lines may match no list |
| None | by id if the lines carry distinct ids, exactly those of the lists; else by order, and ids in that order are no words |

Without ``by``, an ambiguous file is refused, and the message names the option that decides. A file is ambiguous if only
some lines carry ids of the lists, if the lines carry other ids, or if the lists' ids are the line numbers in another
order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, get_args

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.formats.text import doubtful_numbers, keyed, like_ids, repeated
from attlm_fairseq.nbest.reference_files import TextFile, positions
from attlm_fairseq.text.one_form import in_one_form

By = Literal["order", "number", "id"]
_NUMBERED = re.compile(r"(?P<before>.*?)(?P<number>[0-9]{1,18})(?P<after>[^0-9]*)", re.DOTALL)  # the last number of an id


def check_by(by: By | None) -> None:
    """Raise InputError for an unknown way to match lines with lists."""
    if by is not None and by not in get_args(By):
        raise InputError(f"by {by!r}: expected one of {', '.join(get_args(By))}, or None")


@dataclass(frozen=True)
class MatchedLines:
    """The text of each list, in the order of the lists, and the ids of lines that belong to no list.

    ``in_order``: line i has the id of list i, and some lists have the same id.
    """

    file: TextFile
    texts: list[str]
    by_id: bool = False
    left_over: Sequence[str] = ()
    in_order: bool = False


def match_lines(ids: Sequence[str], file: TextFile, by: By | None = None) -> MatchedLines:
    """Find the line of each list by the rule in the module docstring.

    Raises:
        InputError: the numbers of lines and lists differ, ids are missing, repeated or of no list, an id is not a
            line number (``by`` is "number"), or the file is ambiguous.
    """
    if file.sparse:
        return _match_sparse(ids, file, by)
    if by is None and file.ids is not None and list(file.ids) == positions(file.lines) and not {*ids} & {*file.ids}:
        file = replace(file, ids=None)  # they number the rows
    if by == "number":
        numbers = [_line_number(name, file) for name in ids]
        left_over = sorted({*range(len(file.lines))}.difference(numbers))
        return MatchedLines(file, [file.lines[number] for number in numbers], left_over=list(map(str, left_over)))
    if by != "order":
        found = _match_ids(ids, file, by)
        if found is not None:
            return found
    if len(file.lines) != len(ids):
        raise InputError(
            f"{len(file.lines)} lines, but there are {len(ids)} lists: in this order they must correspond one to one "
            f"({file.option} number: the lists' ids are line numbers; {file.option} id: lines carry ids)",
            path=file.path,
        )
    places = positions(ids)
    if by is None and ids != places and set(ids) == set(places):
        raise InputError(
            f"the lists' ids are the numbers 0 to {len(ids) - 1} in another order, and the lines have no ids: "
            f"say {file.option} number (the id is the line number) or {file.option} order",
            path=file.path,
        )
    return MatchedLines(file, list(file.lines))


def _match_sparse(ids: Sequence[str], file: TextFile, by: By | None) -> MatchedLines:
    """Match by ids; lists without a line have no words. Raises InputError if the file has none of the ids, or others."""
    names, ids = in_one_form(file.ids or (), ids)
    known, texts = set(ids), dict(zip(names, file.lines, strict=True))
    left_over = [name for name in names if name not in known]
    if not known.intersection(names) or (left_over and by is None):
        more = "" if len(left_over) == len(names) else f"; {file.option} id ignores such lines"
        raise InputError(f"no list has the id {left_over[0]!r} (the first list is {ids[0] if ids else ''!r}){more}", path=file.path)
    return MatchedLines(file, [texts.get(name, "") for name in ids], True, left_over)


def _match_ids(ids: Sequence[str], file: TextFile, by: By | None) -> MatchedLines | None:
    """Match by the ids that the lines carry; None if they carry none.

    Raises InputError if only some lines carry ids, or if ``by`` is "id" and they do not.
    """
    problem = ""
    for as_written in keyed_of(file):
        ids, names = in_one_form(ids, [name for name, _ in as_written])
        lines = [(name, text) for name, (_, text) in zip(names, as_written, strict=True)]
        known = set(ids).intersection(names)
        texts = dict(lines)
        if names == list(ids) and len(texts) < len(names) > 1:
            return MatchedLines(file, [text for _, text in lines], True, in_order=True)
        if by is None and all(map(str.isdecimal, ids)) and not all(map(str.isdecimal, names)):
            known = set()  # a number may be the first word of a text
        if len(texts) == len(names) and len(known) == len(set(ids)) and ids:
            left_over = [name for name in names if name not in known]
            if left_over and by is None:
                raise InputError(
                    f"no list has the id {left_over[0]!r}: {len(ids)} lists, {len(names)} lines with ids; {file.option} id "
                    "ignores such lines",
                    path=file.path,
                    line=names.index(left_over[0]) + 1 if file.ids is None else None,
                )
            return MatchedLines(file, [texts[name] for name in ids], True, left_over)
        if 2 * sum(name in known for name in names) > len(names) or (known and by == "id"):
            problem = problem or _why_not(ids, names)
        elif by is None and (file.ids is not None or like_ids(lines) or doubtful_numbers(file.lines, [lines]) or _same_numbers(ids, names)):
            strange = next(name for name in names if name not in known)
            problem = problem or f"its lines carry ids such as {strange!r}, which no list has (the first is {ids[0] if ids else ''!r})"
    if by == "id" or problem:
        expected = "expected 'id text' or 'text (id)' in every line, each id once"
        raise InputError(f"{problem or 'its lines do not carry the ids of the lists'}; {expected}; {file.force_order}", path=file.path)
    return None


def _same_numbers(ids: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether the lines begin with the numbers of the lists in another form, such as 001 for 1."""
    if not all(name.isascii() and name.isdecimal() and len(name) <= 18 for name in (*ids, *names)):
        return False
    return 1 < len(names) == len(ids) and len({*map(int, names)}) == len(names) and {*map(int, names)} == {*map(int, ids)}


def _why_not(ids: Sequence[str], names: Sequence[str]) -> str:
    """Return why lines with these ids do not give each list exactly one line."""
    if (twice := repeated(names)) is not None:
        return twice
    known = set(names)
    missing = [name for name in ids if name not in known]
    counts = f"{len(set(ids)) - len(set(missing))} of {len(ids)} lists have a line with their id, list {missing[0]!r} has none"
    return f"{counts} (--partial-refs leaves such lists out)"


def keyed_of(file: TextFile) -> list[list[tuple[str, str]]]:
    """Return (id, text) of each line, once for each way in which the file can be read. An id with spaces stands before a tab."""
    if file.ids is not None:
        return [list(zip(file.ids, file.lines, strict=True))]
    ways = keyed(file.lines)
    if all(line.count("\t") == 1 for line in file.lines):
        parts = [line.partition("\t") for line in file.lines]
        ways.append([(name.strip(), text.strip()) for name, _, text in parts])
    return ways


def line_number(name: str, file: TextFile) -> int | None:
    """Return the number of a line of the file that an id is; None if it is none."""
    return int(name) if name.isascii() and name.isdecimal() and len(name) <= 18 and int(name) < len(file.lines) else None


def _line_number(name: str, file: TextFile) -> int:
    if (number := line_number(name, file)) is not None:
        return number
    raise InputError(f"list {name!r}: its id is not a line number from 0 to {len(file.lines) - 1}; see {file.option}", path=file.path)


def sorted_as_text(ids: Sequence[str]) -> str | None:
    """Return a warning if numbered ids are sorted as text (utt_10 before utt_2), as files in a folder are; else None."""
    if list(ids) != sorted(ids):
        return None
    for first, second in pairwise(ids):
        before, after = _NUMBERED.fullmatch(first), _NUMBERED.fullmatch(second)
        alike = before and after and before.group("before", "after") == after.group("before", "after")
        if before and after and alike and int(before["number"]) > int(after["number"]):
            return (
                f"WARNING: the lists are sorted by their ids as text ({first} before {second}), and references go by order: if "
                "theirs is that of the numbers, they are other lists'. Give references with ids, or say --refs-by order"
            )
    return None
