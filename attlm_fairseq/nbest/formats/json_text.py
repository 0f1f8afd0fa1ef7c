"""JSON as text: values checked with their line numbers, and edits that leave every other byte unchanged."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.score_names import TOTAL, fresh_names
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.numeric import is_number

# for the message where a first list is in none of these
SHAPES = (
    'the JSON that is read: {"id": .., "hyps": [{"text": ..}, ..]} on one line each (jsonl), [{"input": [texts], "output": reference}, ..] '
    '(hyporadise), {"id": {"hyp_1": {"score": .., "text": ..}, ..}, ..} (mlm), and other shapes (json, see docs/formats.md)'
)
_HALF = re.compile("[\ud800-\udfff]")
TOTAL_COLUMN = f"{TOTAL}_score"
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
_SCAN = json.JSONDecoder().raw_decode  # for texts known to be valid: value and end of what begins at a position


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
    return _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text) if _has_half(text) else text  # UTF-8 cannot hold it, an escape can


def exact(value: float, name: str, nbest: NbestList) -> str:
    """Return a score as JSON holds it, exact. Raises InputError if it is not finite: JSON has no such number."""
    if not math.isfinite(value):
        raise InputError(f"list {nbest.id}: the score {name} is {value}: only finite scores can be written")
    return repr(float(value))


def scores_as_members(
    scores: Mapping[str, float], nbest: NbestList, taken: Iterable[str], legal: Callable[[str], str] = str
) -> dict[str, str]:
    """Return scores as members of an object, each under a legal name that is not ``taken``.

    Raises:
        InputError: a score is not finite: JSON has no such number.
    """
    fresh = fresh_names(scores, taken, legal)
    return {fresh[name]: exact(score, name, nbest) for name, score in scores.items()}


def added_members(hypothesis: Hypothesis, nbest: NbestList, taken: Iterable[str], legal: Callable[[str], str] = str) -> dict[str, str]:
    """Return the LM scores and the total of a hypothesis as members of an object.

    Raises:
        InputError: a score or total is not finite: JSON has no such number.
    """
    total = {} if hypothesis.total is None else {TOTAL: exact(hypothesis.total, TOTAL, nbest)}
    return scores_as_members(hypothesis.lm_scores, nbest, [*taken, TOTAL], legal) | total


def added_columns(nbest: NbestList, taken: Iterable[str], legal: Callable[[str], str]) -> dict[str, str]:
    """Return the LM scores and totals of a list as one array of numbers each.

    Raises:
        InputError: a score or total is not finite: JSON has no such number. Or only some hypotheses have it.
    """
    hypotheses = nbest.hypotheses
    for name in dict.fromkeys(name for hypothesis in hypotheses for name in hypothesis.lm_scores):
        _require_all(nbest, f"score {name}", [name in hypothesis.lm_scores for hypothesis in hypotheses])
    _require_all(nbest, TOTAL, [hypothesis.total is not None for hypothesis in hypotheses])
    fresh = fresh_names(hypotheses[0].lm_scores, [*taken, TOTAL_COLUMN, *hypotheses[0].scores], legal)
    columns = {key: [exact(hypothesis.lm_scores[name], name, nbest) for hypothesis in hypotheses] for name, key in fresh.items()}
    totals = [exact(hypothesis.total, TOTAL, nbest) for hypothesis in hypotheses if hypothesis.total is not None]
    return {key: f"[{', '.join(column)}]" for key, column in (columns | ({TOTAL_COLUMN: totals} if totals else {})).items()}


def _require_all(nbest: NbestList, what: str, have: Sequence[bool]) -> None:
    if any(have) and not all(have):
        raise nbest.error(
            f"list {nbest.id!r}: {sum(have)} of {len(have)} hypotheses have the {what}: this format holds one for each or none"
        )


def references_as_value(nbest: NbestList) -> str | list[str]:
    return nbest.references[0] if len(nbest.references) == 1 else list(nbest.references)


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


@dataclass(slots=True)
class Place:
    """The text of one list, for error messages. ``steps`` are the keys and indices that lead to a value.

    ``name`` is what messages call it; ``is_number``: a number, to which they add the id that the text has.
    """

    name: str
    raw: str
    path: str | None
    line: int
    is_number: bool = False

    def error(self, message: str, *steps: str | int) -> InputError:
        """Return the error, with the line on which the value stands (as far as the steps lead)."""
        at = 0
        for step in steps:
            child = next((child for index, child in enumerate(children(self.raw, at)) if step in (child.key, index)), None)
            if child is None:
                break
            at = child.value
        what = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
        line = self.line + self.raw.count("\n", 0, at)
        return InputError(f"{self.name}{self._id()}: {what}{' ' if what else ''}{message}", path=self.path, line=line)

    def _id(self) -> str:
        ids = {child.key: self.raw[child.value : child.end] for child in children(self.raw) if child.key in keys.IDS}
        found = next((ids[key] for key in keys.IDS if key in ids), "") if self.is_number else ""
        return f" (id {found})" if found[:1] == '"' or found.isdecimal() else ""

    def text(self, value: Any, *steps: str | int) -> str:
        """``value`` if it is a text that can be written, else the error."""
        if not isinstance(value, str):
            raise self.error(f"is {quoted(json.dumps(value))}: expected a text", *steps)
        if _has_half(value):
            raise self.error("holds one half of a surrogate pair: not a Unicode text", *steps)
        return value

    def score_name(self, key: str, *steps: str | int) -> str:
        """``key``, of what stands at ``steps``, if it can be written, else the error."""
        if _has_half(key):
            raise self.error(f"has a score named {json.dumps(key)}, which holds one half of a surrogate pair: not a Unicode text", *steps)
        return key

    def number(self, value: Any, *steps: str | int) -> float:
        """``value`` as a float if it is a finite number, else the error."""
        if not is_number(value):
            raise self.error(f"is {quoted(json.dumps(value))}: expected a number", *steps)
        try:
            score = float(value)
        except OverflowError:
            score = math.inf
        if not math.isfinite(score):
            raise self.error(f"is {score}: expected a finite number", *steps)
        return score

    def references(self, value: Any, key: str) -> tuple[str, ...]:
        """One reference, several, or none (null)."""
        if value is None:
            return ()
        if isinstance(value, list):
            return tuple(self.text(text, key, i) for i, text in enumerate(value))
        return (self.text(value, key),)

    def id(self, value: Any, number: int) -> str:
        """Return the id as text; without one, the number of the list."""
        if value is None:
            return str(number)
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.text(value, "id")


def _has_half(text: str) -> bool:
    """Return whether a text holds half a surrogate pair, which JSON can write and UTF-8 cannot."""
    return not text.isascii() and _HALF.search(text) is not None
