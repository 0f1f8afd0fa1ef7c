"""JSON as text: decoding of whole texts and of their beginnings, and encoding."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

# for the message where a first list is in none of these
SHAPES = (
    'the JSON that is read: {"id": .., "hyps": [{"text": ..}, ..]} on one line each (jsonl), [{"input": [texts], "output": reference}, ..] '
    '(hyporadise), {"id": {"hyp_1": {"score": .., "text": ..}, ..}, ..} (mlm), and other shapes (json, see docs/formats.md)'
)
_HALF = re.compile("[\ud800-\udfff]")
SPACE = re.compile(r"[ \t\r\n]*")


def after_space(text: str, at: int) -> int:
    """Return where the white space that begins at a position ends."""
    match = SPACE.match(text, at)
    return match.end() if match else at


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in names if names.count(key) > 1)!r} is there twice in one object")
    return members


DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys)


def first_value(head: str) -> Any:
    """Return the value with which a text begins, or the first one in its array; None if it is cut short or broken."""
    at = after_space(head, 0)
    if head[at : at + 1] == "[":
        at = after_space(head, at + 1)
    try:
        return DECODER.raw_decode(head, at)[0]
    except (ValueError, RecursionError):
        return None


def members_in(head: str) -> Iterator[tuple[str, str, Any]]:
    """Yield key, first character and value of each member of the object with which a text begins, perhaps cut short.

    The last one's value is None if it is cut short or broken.
    """
    at = after_space(head, 0)
    more = head[at : at + 1] == "{"
    while more:
        try:
            key, at = DECODER.raw_decode(head, after_space(head, at + 1))
        except (ValueError, RecursionError):
            return
        at = after_space(head, at)
        if not isinstance(key, str) or head[at : at + 1] != ":":
            return
        begin = after_space(head, at + 1)
        try:
            value, at = DECODER.raw_decode(head, begin)
        except (ValueError, RecursionError):
            value, at = None, len(head)
        yield key, head[begin : begin + 1], value
        at = after_space(head, at)
        more = head[at : at + 1] == ","


def dumped(value: Any, allow_nan: bool = False) -> str:
    """JSON with the text readable and floats exact. ``allow_nan``: values as read, of which Python's NaN and Infinity stay."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=allow_nan)
    return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text) if has_half(text) else text  # UTF-8 cannot hold it, an escape can


def has_half(text: str) -> bool:
    """Return whether a text holds half a surrogate pair, which JSON can write and UTF-8 cannot."""
    return not text.isascii() and _HALF.search(text) is not None


def letters(text: str) -> str:
    """Return the letters and digits of a text, in one case: what stays of it in other spellings."""
    folded = text.casefold()
    return folded if folded.isalnum() else "".join(filter(str.isalnum, folded))
