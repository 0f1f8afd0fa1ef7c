"""Texts of one line each that carry the id of their utterance, as Kaldi, ESPnet and sclite write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from attlm_fairseq.errors import InputError

_FIRST = re.compile(r"\s*(?P<id>\S+)(?:\s+(?P<text>.*))?", re.DOTALL)  # Kaldi and ESPnet: id text
_LAST = re.compile(r"(?P<text>.*?)(?:^|(?<=\s))\((?P<id>\S+)\)\s*", re.DOTALL)  # sclite: text (id)

Keyed = list[tuple[str, str]]  # (id, text) of each line


def keyed_lines(lines: Sequence[str]) -> list[Keyed]:
    """Ways to take the lines for texts with an id: ``id text``, ``text (id)``; a way that does not fit every line is left out."""
    ways = []
    for way in (_FIRST, _LAST):
        matches = [way.fullmatch(line) for line in lines]
        if all(matches):
            ways.append([(match["id"], (match["text"] or "").strip()) for match in matches])
    return ways


def texts_by_id(lines: Sequence[str], ids: Iterable[str]) -> dict[str, str] | None:
    """The text of each id, without it, in the order of the lines; None where not every line has a different id or none of ``ids`` is there.

    Numbers can be words that begin a text: if the ids are numbers, all the lines have to have one.
    """
    wanted = set(ids)
    for keyed in keyed_lines(lines):
        texts = dict(keyed)
        if len(texts) == len(lines) and not wanted.isdisjoint(texts) and (not all(map(_is_number, wanted)) or all(map(_is_number, texts))):
            return texts
    return None


def texts_of(lines: Sequence[str], ids: Sequence[str], what: str, path: str, *, leave_over: bool = False) -> dict[str, str] | None:
    """The same where all ``ids`` are known, those of ``what``. None where at most half of the lines have one.

    Raises InputError where more have, but not each line a different one and, unless ids may be left over, every id a line.
    """
    wanted = set(ids)
    for keyed in keyed_lines(lines):
        names = [name for name, _ in keyed]
        if 2 * sum(name in wanted for name in names) <= len(lines) or (all(map(_is_number, wanted)) and not all(map(_is_number, names))):
            continue
        require_same_ids(names, wanted.intersection(names) if leave_over else ids, what, path)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"the id {twice!r} is there {names.count(twice)} times: expected each id of {what} once", path=path)
        return dict(keyed)
    return None


def require_same_ids(found: Iterable[str], expected: Iterable[str], what: str, path: str) -> None:
    """InputError, with an example, where the ids are not the same. ``what`` is what has the ids expected."""
    found, expected = dict.fromkeys(found), dict.fromkeys(expected)
    missing = [name for name in expected if name not in found]
    unknown = [name for name in found if name not in expected]
    if missing or unknown:
        parts = [
            *([f"{len(missing)} of the ids of {what} are not there (first: {missing[0]!r})"] if missing else []),
            *([f"{len(unknown)} are there that {what} have not (first: {unknown[0]!r})"] if unknown else []),
        ]
        raise InputError(f"{', and '.join(parts)}: both must have the same ids", path=path)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal()
