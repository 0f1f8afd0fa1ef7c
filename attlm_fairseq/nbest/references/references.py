"""References from plain text files, one line a list, joined to the lists they belong to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Literal

from attlm_fairseq.errors import InputError
from attlm_fairseq.files import TextSource
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.references.line_ids import keyed_lines, texts_by_id

_LIKE_AN_ID = re.compile(r"(?![0-9]+$)[!-~]*[0-9_-][!-~]*")
_NUMBERED = re.compile(r"(?P<before>.*?)(?P<number>[0-9]{1,18})(?P<after>[^0-9]*)", re.DOTALL)  # by its last number


def read_references(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """The references of each line, one from each file. Files may be gzip; ``-`` is standard input.

    An empty line is an empty reference, or none where another file has one (:func:`attach_references`). Raises InputError for a
    file that cannot be read or is empty, text that is not UTF-8, and files of different length.
    """
    if not paths:
        raise InputError("no reference file is given")
    files = [_lines(path) for path in paths]
    for path, lines in zip(paths[1:], files[1:], strict=True):
        if len(lines) != len(files[0]):
            raise InputError(f"{len(lines)} lines, but {paths[0]} has {len(files[0])}: every reference file needs a line a list", path=path)
    return list(zip(*files, strict=True))


def attach_references(
    lists: Iterable[NbestList],
    references: Sequence[tuple[str, ...]] | None,
    *,
    by: Literal["order", "number", "id"] | None = None,
    paths: Sequence[str] = (),
    tell: Callable[[str], None] = lambda line: None,
) -> Iterator[NbestList]:
    """The same lists with their references, one at a time; the lists given are not changed.

    Without ``references`` every list must have brought its own. With them they replace what a list brought: by ``order``
    line i belongs to the i-th list and there are as many lines as lists; by ``number`` a list's id is the number of its line, from
    0, and lines may be left over; by ``id`` every line carries the id of its list, ``id text`` or ``text (id)``, which is taken off,
    and lines may be left over, of which ``tell`` is told: not all that was recorded has to be decoded.
    Without ``by`` it is by id where every line carries a different one and the first list's is among them, else by order; nothing may be
    left over then.
    Of several references those that are empty are left out, unless all are: such files have blank lines where there is none.

    Raises InputError for a list without references, for wrong counts, for an id that is no line, for lines of no list,
    and, unless ``by`` is given, where the order is in doubt: ids that are the line numbers in another order, or that most lines carry
    but not all as they should. Lists sorted by their numbered ids as text, as the files of a folder are, are a warning to ``tell``.
    ``paths`` are the files, for messages.
    Errors of order, count and lines left over come when the last list has been seen, so write nothing under its final name before.
    """
    if references is None:
        for nbest in lists:
            if not nbest.references:
                raise nbest.error(f"list {nbest.id!r} has no reference: give a file with one line a list")
            yield nbest
        return
    if by == "number":
        for nbest in lists:
            line = _line_number(nbest, len(references))
            if line is None:
                raise nbest.error(f"list {nbest.id!r}: its id is no line number, expected 0 to {len(references) - 1}")
            yield replace(nbest, references=_given(references[line]))
        return
    if by == "order" or not references:
        yield from _by_order(lists, references, [], tell)
        return
    names = paths or [f"reference file {i}" for i, _ in enumerate(references[0], 1)]
    files = list(zip(names, zip(*references, strict=True), strict=True))
    lists = iter(lists)
    first = next(lists, None)
    lists = chain([first] if first is not None else [], lists)
    texts = [(path, texts_by_id(lines, [first.id]) if first is not None else None) for path, lines in files]
    without_ids = [path for path, found in texts if found is None]
    if not without_ids:
        yield from _by_id(lists, texts, tell if by == "id" else None)
        return
    if by == "id" or len(without_ids) < len(files):
        message = f"not every line carries a different id, that of list {first.id if first else ''!r} among them"
        others = "" if by == "id" else ", as in the other files"
        raise InputError(f"{message}{others}; expected 'id text' or 'text (id)', or say --refs-by order", path=without_ids[0])
    yield from _by_order(lists, references, files, tell)


def _by_id(
    lists: Iterable[NbestList], files: Sequence[tuple[str, dict[str, str]]], tell: Callable[[str], None] | None
) -> Iterator[NbestList]:
    """Each list with the lines of its id. What is left over is told to ``tell``, without it an error."""
    seen = set()
    for nbest in lists:
        for path, texts in files:
            if nbest.id not in texts:
                message = f"no line has the id {nbest.id!r} of the list in line {nbest.line}, as other lines have (see --refs-by)"
                raise InputError(message, path=path)
        seen.add(nbest.id)
        yield replace(nbest, references=_given(tuple(texts[nbest.id] for _, texts in files)))
    for path, texts in files:
        left_over = [(line, name) for line, name in enumerate(texts, 1) if name not in seen]
        if left_over:
            line, name = left_over[0]
            counts = f"{len(seen)} lists, {len(texts)} references with ids"
            if tell is None:
                raise InputError(f"no list has the id {name!r}: {counts} (--refs-by id leaves such over)", path=path, line=line)
            tell(f"note: {path}: {len(left_over)} references are of no list and left over, the first of id {name!r}: {counts}")


def _by_order(
    lists: Iterable[NbestList],
    references: Sequence[tuple[str, ...]],
    doubtful: Sequence[tuple[str, Sequence[str]]],
    tell: Callable[[str], None],
) -> Iterator[NbestList]:
    """Line by line. ``doubtful`` are the files if the user has not said that it is to be so."""
    last, sorted_as_text, falling = "", True, None
    count, unseen, in_order = 0, set(range(len(references))), True
    ids_of_lines = [(path, {name for name, _ in keyed}) for path, lines in doubtful for keyed in keyed_lines(lines)]
    found = [0] * len(ids_of_lines)
    for nbest in lists:
        found = [so_far + (nbest.id in names) for so_far, (_, names) in zip(found, ids_of_lines, strict=True)]
        sorted_as_text = sorted_as_text and last <= nbest.id
        falling = falling or ((last, nbest.id) if _number_falls(last, nbest.id) else None)
        last = nbest.id
        if count < len(references):
            line = _line_number(nbest, len(references))
            unseen.discard(-1 if line is None else line)
            in_order = in_order and line == count
            yield replace(nbest, references=_given(references[count]))
        count += 1
    for (path, _), matches in zip(ids_of_lines, found, strict=True):
        if 2 * matches > count:
            message = (
                f"{matches} lines carry the id of one of the {count} lists, the others none, or one twice:"
                " every line must have the id of a different list (or say --refs-by order)"
            )
            raise InputError(message, path=path)
    if count != len(references):
        raise InputError(
            f"there are {count} lists and {len(references)} lines of references: line by line they must correspond"
            " (if the ids are line numbers, and some are missing, assign references by number)"
        )
    if doubtful and not unseen and not in_order:
        raise InputError(
            f"the lists' ids are the numbers 0 to {count - 1} in another order:"
            " say whether references are to be assigned by order or by number"
        )
    if doubtful and sorted_as_text and falling:
        tell(
            f"WARNING: the lists are sorted by their ids as text ({falling[0]} before {falling[1]}), and references go by order: if "
            "theirs is that of the numbers, they are other lists'. Give references with ids, or say --refs-by order"
        )


def _number_falls(before: str, after: str) -> bool:
    """Whether two ids differ in their last number alone, and the greater one comes first."""
    first, second = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(after)
    if first is None or second is None or first.group("before", "after") != second.group("before", "after"):
        return False
    return int(first["number"]) > int(second["number"])


def ids_of_references(references: Sequence[tuple[str, ...]], *, certain: bool = False) -> list[str] | None:
    """The ids that the lines of the first file carry, each a different one, None where they do not.

    A line may begin with any word. ``certain`` asks for two lines at least, for ids that few words look like (ASCII, with a digit, dash or
    underscore in each of them, and more than a number), and for something to be left of the lines without them.
    """
    for keyed in keyed_lines([row[0] for row in references]):
        ids = [name for name, _ in keyed]
        like_ids = len(ids) > 1 and all(map(_LIKE_AN_ID.fullmatch, ids)) and any(text for _, text in keyed)
        if len(set(ids)) == len(ids) and (like_ids or not certain):
            return ids
    return None


def _given(references: Sequence[str]) -> tuple[str, ...]:
    """Without the empty ones, unless there are only such."""
    return tuple(text for text in references if text.strip()) or tuple(references)


def _lines(path: str) -> list[str]:
    lines = [line.removesuffix("\n").removesuffix("\r") for line in TextSource(path, "a reference a line").lines()]
    lines[0] = lines[0].removeprefix("\ufeff")
    return lines


def _line_number(nbest: NbestList, lines: int) -> int | None:
    if not (nbest.id.isascii() and nbest.id.isdecimal()) or len(nbest.id) > 18:
        return None
    line = int(nbest.id)
    return line if line < lines else None
