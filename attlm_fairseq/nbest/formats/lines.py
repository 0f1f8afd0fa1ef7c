"""Reading and writing files of lines: their ends, and the lines of a list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TextIO

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import HEAD, TextSource
from attlm_fairseq.nbest.formats.list_ids import SeenIds
from attlm_fairseq.nbest.formats.own_text import text_of
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import FileText, HypothesisText, ListText


def whole_lines(head: str) -> str:
    """Return the beginning of a file (``TextSource.head``) without its last line, if that may be cut short."""
    return head[: head.rindex("\n") + 1] if len(head.encode()) > HEAD - 8 and "\n" in head else head


def one_line(text: str) -> str:
    """Return the text with tabs and line breaks, which no line-based format can hold, as spaces."""
    return re.sub(r"[\t\r\n]", " ", text)


def split_end(line: str) -> tuple[str, str]:
    """Return a line without its end, and the end. Several carriage returns are of the end: a file that was converted twice has them."""
    body = line.removesuffix("\n").rstrip("\r")
    return body, line[len(body) :]


def numbered(source: TextSource, file: FileText) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers from 1; a byte order mark goes to ``file.start``."""
    for line_number, line in enumerate(source.lines(keep_mark=True), 1):
        if line_number == 1 and line.startswith("\ufeff"):
            file.start = "\ufeff"
            line = line[1:]
        if line:
            yield line_number, line


def filled_lines(source: TextSource, file: FileText) -> Iterator[tuple[str, str, int]]:
    """Yield the lines that are not blank with the blank lines before them and their numbers; ``file.end`` gets the last blank lines."""
    before = ""
    for line_number, line in numbered(source, file):
        if line.strip(" \t\r\n"):
            yield before, line, line_number
            before = ""
        else:
            before += line
    file.end = before


def grouped(source: TextSource, format_name: str, parse: Callable[[str, int, bool], tuple[str, Hypothesis]]) -> Iterator[NbestList]:
    """Yield the lists of a file with one hypothesis per line; the lines of a list are consecutive.

    ``parse(line, line number, comes after a blank line)`` returns the list's id and the hypothesis; its rank and verbatim
    text are set here if ``parse`` has not set them. Blank lines may stand only between lists. An id that returns after other
    ids is an error: merging would reorder the file, and a second list would lose its reference.
    """
    file = FileText(format_name)
    path = source.name
    seen = SeenIds()
    current: NbestList | None = None
    text = ListText(file)
    blank = ""
    blank_line = 0
    for line_number, line in numbered(source, file):
        if not line.strip(" \r\n"):
            blank_line = blank_line if blank else line_number
            blank += line
            continue
        name, hypothesis = parse(line, line_number, bool(blank))
        if current is not None and current.id == name:
            if blank:
                raise InputError(f"blank line inside the list of id {name}: remove it", path=path, line=blank_line)
        else:
            if not seen.add(name):
                message = f"the list of id {name} continues here after other ids: put its lines together (sort by id, keeping the order)"
                raise InputError(message, path=path, line=line_number)
            if current is not None:
                yield current
            text = ListText(file, blank)
            current = NbestList(name, [], line=line_number, path=path, verbatim=text)
        blank = ""
        current.hypotheses.append(hypothesis)
        hypothesis.rank = hypothesis.rank or len(current.hypotheses)
        hypothesis.verbatim = hypothesis.verbatim or HypothesisText(line)
        text.size += 1
    if current is None:
        raise InputError("no n-best list in it", path=path)
    file.end = blank
    yield current


class WholeLines:
    """Writes lines to a file. A line without an end, the last of its own file, gets one if another line follows."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._unfinished = False

    def put(self, text: str) -> None:
        """Write one or more lines, or nothing."""
        if text:
            self._out.write("\n" + text if self._unfinished else text)
            self._unfinished = not text.endswith("\n")


def write_lines(
    lists: Iterable[NbestList],
    out: TextIO,
    format_name: str,
    lines_of: Callable[[NbestList], Iterable[str]],
    separator: Callable[[NbestList], str] = lambda nbest: "",
) -> None:
    """Write lists that consist of whole lines, ``lines_of(list)``, with the known text around them.

    ``separator(list)`` is written before a list, except the first, that has no text of its own before it.
    """
    file: FileText | None = None
    lines = WholeLines(out)
    for i, nbest in enumerate(lists):
        text = text_of(nbest, format_name)
        if text is not None:
            file = text.file
            if not i:
                out.write(file.start)
        before = (text.before if text is not None else "") or (separator(nbest) if i else "")
        lines.put(before)
        for place, line in enumerate(lines_of(nbest)):
            if not i and not place and not before and line.startswith("\ufeff") and not (file is not None and file.start):
                line = f"\ufeff{line}"  # a first line that begins with this character needs a mark before it, or its own is taken for one
            lines.put(line)
    lines.put(file.end if file is not None else "")
