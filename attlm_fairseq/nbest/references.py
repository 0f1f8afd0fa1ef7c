"""References from plain text files, one line a list, joined to the lists they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from attlm_fairseq.errors import InputError
from attlm_fairseq.files import TextSource
from attlm_fairseq.nbest.nbest_list import NbestList


def read_references(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """The references of each line, one from each file. Files may be gzip; ``-`` is standard input.

    An empty line is an empty reference. Raises InputError for a file that cannot be read or is empty, text that is not UTF-8, and files
    of different length.
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
    by: Literal["order", "number"] | None = None,
) -> Iterator[NbestList]:
    """The same lists with their references, one at a time; the lists given are not changed.

    Without ``references`` every list must have brought its own. With them they replace what a list brought: by ``order`` (the default)
    line i belongs to the i-th list and there are as many lines as lists; by ``number`` a list's id is the number of its line, from
    0, and lines may be left over. Raises InputError for a list without references, for wrong counts, for an id that is no line,
    and, unless ``by`` is given, where the order is in doubt: ids that are the line numbers in another order.
    The last two errors of order and count come when the last list has been seen, so write nothing under its final name before.
    """
    if references is None:
        for nbest in lists:
            if not nbest.references:
                raise InputError(f"list {nbest.id!r} (line {nbest.line}) has no reference: give a file with one line a list")
            yield nbest
        return
    if by == "number":
        for nbest in lists:
            line = _line_number(nbest, len(references))
            if line is None:
                raise InputError(f"list {nbest.id!r} (line {nbest.line}): its id is no line number, expected 0 to {len(references) - 1}")
            yield replace(nbest, references=tuple(references[line]))
        return
    count, unseen, in_order = 0, set(range(len(references))), True
    for nbest in lists:
        if count < len(references):
            line = _line_number(nbest, len(references))
            unseen.discard(-1 if line is None else line)
            in_order = in_order and line == count
            yield replace(nbest, references=tuple(references[count]))
        count += 1
    if count != len(references):
        raise InputError(
            f"there are {count} lists and {len(references)} lines of references: line by line they must correspond"
            " (if the ids are line numbers, and some are missing, assign references by number)"
        )
    if by is None and not unseen and not in_order:
        raise InputError(
            f"the lists' ids are the numbers 0 to {count - 1} in another order:"
            " say whether references are to be assigned by order or by number"
        )


def _lines(path: str) -> list[str]:
    lines = [line.removesuffix("\n").removesuffix("\r") for line in TextSource(path, "a reference a line").lines()]
    lines[0] = lines[0].removeprefix("\ufeff")
    return lines


def _line_number(nbest: NbestList, lines: int) -> int | None:
    if not (nbest.id.isascii() and nbest.id.isdecimal()) or len(nbest.id) > 18:
        return None
    line = int(nbest.id)
    return line if line < lines else None
