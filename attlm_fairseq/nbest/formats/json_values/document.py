"""A JSON array or object of lists, read and written item by item, in constant memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from attlm_fairseq.batching import peeked
from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.formats.json_values.text import DECODER, after_space
from attlm_fairseq.nbest.formats.own_text import own_text, text_of
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.verbatim import FileText

_LONGEST_ESCAPE = len("\\ud83d\\ude00")  # a value cut inside one of these fails where the escape begins


def write_document(
    lists: Iterable[NbestList],
    out: TextIO,
    format_name: str,
    item_text: Callable[[NbestList], str],
    brackets: str = "",
    new_item: Callable[[NbestList], str] | None = None,
) -> None:
    """Write lists that were read with ``stream_items``, with ``item_text(list)`` as the text of each item.

    Lists of another format are written with ``new_item(list)``, if there is one, in a document of these ``brackets``.
    """
    first, lists = peeked(lists)
    if first is None:
        return
    if new_item is not None and text_of(first, format_name) is None:
        _write_new_document(lists, out, brackets, new_item)
        return
    file: FileText | None = None
    for nbest in lists:
        own = own_text(nbest, format_name)
        before = own.before
        has_comma = before.lstrip().startswith(",")
        if file is None:
            file = own.file
            out.write(file.start)
            before = before.lstrip()[1:] if has_comma else before
        elif not has_comma:  # it was the first of the file
            before = "," + (before if before[:1].isspace() else " " + before)
        out.write(before + item_text(nbest))
    out.write(file.end if file is not None else "")


def _write_new_document(lists: Iterable[NbestList], out: TextIO, brackets: str, item_text: Callable[[NbestList], str]) -> None:
    """Write lists of another format as a document, one item per line."""
    for count, nbest in enumerate(lists):
        out.write(f"{',' if count else brackets[0]}\n{item_text(nbest)}")
    out.write(f"\n{brackets[1]}\n")


@dataclass(slots=True)
class Item:
    """A value directly inside the document, with its key (None in an array), its text, the text before it and its first line."""

    key: str | None
    before: str
    raw: str
    value: Any
    line: int


def whole_item(source: TextSource, file: FileText) -> Item:
    """Return the one value that a document is; ``file`` gets the text around it."""
    text = _Window(source)
    at = text.skip_space(1 if text.peek(0) == "\ufeff" else 0)
    line = text.line_at(at)
    value, end = text.value(at, "the document")
    file.start = text.take(at)
    raw = text.take(end - at)
    file.end = text.take_end(0)
    return Item(None, "", raw, value, line)


def stream_items(source: TextSource, file: FileText, opening: str, start: int = 0) -> Iterator[Item]:
    """Yield the items of a JSON array (``opening`` is ``[``) or object (``{``), one at a time; ``file`` gets the text around them.

    The array or object begins the document, but for white space, or stands at ``start``.
    """
    text = _Window(source)
    closing = {"[": "]", "{": "}"}[opening]
    text.peek(start)  # so that it is there
    at = text.skip_space(start or (1 if text.peek(0) == "\ufeff" else 0))
    if text.peek(at) != opening:
        raise text.error(f"found {quoted(text.peek(at))}: expected a JSON document that begins with '{opening}'", at)
    file.start = text.take(at + 1)
    file.end = closing  # until the true one is reached
    count = 0
    while True:
        at = text.skip_space(0)
        if text.peek(at) == closing:
            break
        if count:
            if text.peek(at) != ",":
                raise text.error(f"expected ',' or '{closing}' after item {count}", at)
            at = text.skip_space(at + 1)
        count += 1
        key = None
        if opening == "{":
            key, at = text.value(at, f"the key of item {count}")
            at = text.skip_space(at)
            if not isinstance(key, str) or text.peek(at) != ":":
                raise text.error(f"expected a key in quotes and ':' for item {count}", at)
            at = text.skip_space(at + 1)
        line = text.line_at(at)
        value, end = text.value(at, f"item {count}")
        before = text.take(at)
        yield Item(key, before, text.take(end - at), value, line)
    if not count:
        raise text.error("no n-best list in it: the JSON document is empty", at)
    file.end = text.take_end(at + 1)


class _Window:
    """The part of the text that is being looked at. Positions count from what was last taken."""

    def __init__(self, source: TextSource) -> None:
        self._pieces = source.pieces()
        self._path = source.name
        self._text = ""
        self._taken = 0
        self._line = 1  # of what was last taken

    def _grow(self) -> bool:
        """Read on, at least as much again as is waiting, so that a long value is not decoded too often. False at the end."""
        waiting = self._text[self._taken :]
        self._taken = 0
        parts = [waiting]
        missing = max(len(waiting), 1)
        for piece in self._pieces:
            parts.append(piece)
            missing -= len(piece)
            if missing <= 0:
                break
        self._text = "".join(parts)
        return len(self._text) > len(waiting)

    def take(self, length: int) -> str:
        taken = self._text[self._taken : self._taken + length]
        self._taken += length
        self._line += taken.count("\n")
        return taken

    def peek(self, at: int) -> str:
        """Return the character at a position, or nothing at the end."""
        while self._taken + at >= len(self._text):
            if not self._grow():
                return ""
        return self._text[self._taken + at]

    def skip_space(self, at: int) -> int:
        while True:
            end = after_space(self._text, self._taken + at)
            at = end - self._taken
            if end < len(self._text) or not self._grow():
                return at

    def value(self, at: int, what: str) -> tuple[Any, int]:
        """Return the value that begins at a position, and where it ends."""
        while True:
            try:
                value, end = DECODER.raw_decode(self._text, self._taken + at)
            except json.JSONDecodeError as error:
                fault = error.pos - self._taken
                rest = self._text[error.pos :].strip()
                cut = error.msg.startswith("Unterminated string") or error.pos >= len(self._text) - _LONGEST_ESCAPE
                if cut and self._grow():
                    continue
                ends = "the file ends too early: " if not rest or error.msg.startswith("Unterminated string") else ""
                found = error.msg.removesuffix(" at")  # the message names the line first
                raise self.error(f"{what} is not valid JSON: {ends}{found}", fault) from None
            except (ValueError, RecursionError) as error:
                raise self.error(f"{what} is not usable JSON: {error}", at) from None
            return value, end - self._taken

    def take_end(self, at: int) -> str:
        """Return what is left from here on, in which there must be nothing but white space after ``at``."""
        at = self.skip_space(at)
        if self.peek(at):
            raise self.error(f"found {quoted(self.peek(at))} after the end of the JSON document", at)
        return self.take(at)

    def line_at(self, at: int) -> int:
        return self._line + self._text.count("\n", self._taken, self._taken + at)

    def error(self, message: str, at: int) -> InputError:
        return InputError(message, path=self._path, line=self.line_at(at))
