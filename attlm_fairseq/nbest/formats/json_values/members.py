"""The members of a JSON text: where they stand, and edits that leave every other byte unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attlm_fairseq.nbest.formats.json_values.text import after_space, dumped

_SCAN = json.JSONDecoder().raw_decode  # for texts known to be valid: value and end of what begins at a position


@dataclass(slots=True)
class Child:
    """The position of a value inside an array or object: ``[begin`` key and colon ``[value`` the value ``end[``."""

    key: str | None
    begin: int
    value: int
    end: int


def children(text: str, at: int = 0) -> list[Child]:
    """Return the values directly inside the array or object that stands at ``at`` of a valid JSON text; none for any other value."""
    found: list[Child] = []
    if text[at] not in "[{":
        return found
    is_object = text[at] == "{"
    at = after_space(text, at + 1)
    while text[at] not in "]}":
        if text[at] == ",":
            at = after_space(text, at + 1)
        begin, key = at, None
        if is_object:
            key, at = _SCAN(text, at)
            at = after_space(text, after_space(text, at) + 1)
        _, end = _SCAN(text, at)
        found.append(Child(key, begin, at, end))
        at = after_space(text, end)
    return found


def values_of(text: str) -> list[str]:
    """Return the texts of the values directly inside an array or object."""
    return [text[child.value : child.end] for child in children(text)]


def with_values(
    text: str,
    values: Sequence[str],
    is_slot: Callable[[Child], bool] = lambda child: True,
    order: Callable[[Child], Any] = lambda child: 0,
) -> str:
    """Return the text of an array or object with new values (at least one) in its slots; further slots are removed.

    Values for which an array has no slot are added last, with the spacing of the others.
    The slots are filled in the order of the text, or in the order of the keys that ``order`` returns.
    """
    found = children(text)
    slots = sorted((i for i, child in enumerate(found) if is_slot(child)), key=lambda i: order(found[i]))
    new = dict(zip(slots, values, strict=False))
    gone = set(slots) - new.keys()
    kept = [i for i in range(len(found)) if i not in gone]
    between = text[found[-2].end : found[-1].begin] if len(found) > 1 else ", "
    pieces = [text[: found[0].begin]]
    for i in kept:
        child = found[i]
        if i > kept[0]:
            pieces.append(text[found[i - 1].end : child.begin])  # what stands before it; what stands before a removed slot goes with it
        pieces += [text[child.begin : child.value], new[i] if i in new else text[child.value : child.end]]
    pieces += [between + value for value in values[len(slots) :]]
    return "".join((*pieces, text[found[-1].end :]))


def member(text: str, key: str) -> str | None:
    """Return the text of an object's value for a key; None if it has none."""
    return next((text[child.value : child.end] for child in children(text) if child.key == key), None)


def own_member(text: str, key: str) -> str:
    """Return the text of a value that the object is known to have."""
    found = member(text, key)
    if found is None:
        raise KeyError(key)
    return found


def with_members(text: str, members: Mapping[str, str]) -> str:
    """Return the text of an object with members replaced, or added last with the spacing of the others."""
    found = children(text)
    separator, colon, end = ", ", ": ", 1
    if found:
        last = found[-1]
        end = last.end
        colon = text[last.begin : last.value].rpartition('"')[2]
        separator = text[found[-2].end : last.begin] if len(found) > 1 else separator
    present = {child.key for child in found}
    added = [dumped(key) + colon + value for key, value in members.items() if key not in present]
    if added:
        text = text[:end] + (separator if found else "") + separator.join(added) + text[end:]
    pieces, at = [], 0
    for child in found:
        if child.key is not None and child.key in members:
            pieces += [text[at : child.value], members[child.key]]
            at = child.end
    return "".join((*pieces, text[at:]))


def without_member(text: str, key: str) -> str:
    """Return the text of an object without a member, if it has that one and others."""
    found = children(text)
    at = next((i for i, child in enumerate(found) if child.key == key), None)
    if at is None or len(found) < 2:
        return text
    return text[: found[at - 1].end] + text[found[at].end :] if at else text[: found[0].begin] + text[found[1].begin :]
