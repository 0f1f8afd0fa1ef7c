"""How the n-best lists stand in a JSON file: on lines, in an array, by id, or within an object."""

from __future__ import annotations

from typing import Any

from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.json_values.batch import Batch
from attlm_fairseq.nbest.formats.json_values.completions import OF_BATCH
from attlm_fairseq.nbest.formats.json_values.layouts import is_pair, layout_of
from attlm_fairseq.nbest.formats.json_values.text import DECODER, after_space, members_in

LINES = "lines"  # one JSON value per line
ARRAY = "["  # the items of one array
OBJECT = "{"  # the values of one object, by id
WRAPPED = "wrapped"  # the items of an array or object that is a value of an object
ONE = "one"  # the document is one list
BATCH = "batch"  # one object, whose members are lists with one value per utterance


def framing_of(head: str) -> str:
    """Return how the lists stand in a file that begins with ``head``, perhaps cut short."""
    at = after_space(head, 0)
    opening = head[at : at + 1]
    try:
        value, end = DECODER.raw_decode(head, at)
    except (ValueError, RecursionError):  # cut short, or broken: who reads it says where
        return _framing_of_first_member(head)
    after = after_space(head, end)
    if is_line_of_batch(value):
        return LINES
    if head[after : after + 1] in ("{", "[") and "\n" in head[end:after]:
        return LINES
    if isinstance(value, list) and value and all(map(is_pair, value)):
        return ARRAY  # whose reader refuses them
    if layout_of(value) is not None and not (isinstance(value, list) and all(isinstance(item, str | dict) for item in value)):
        return ONE
    if isinstance(value, dict) and (Batch.of(value) is not None or wrapping_keys(value) or _is_faulty_list(value)):
        return ONE
    return ARRAY if opening == "[" else OBJECT


def is_line_of_batch(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= {*OF_BATCH} and layout_of(value) is None


def is_several_lines(text: str) -> bool:
    """Return whether the first of several lines is a whole JSON value."""
    first, _, rest = text.removeprefix("\ufeff").lstrip().partition("\n")
    try:
        return bool(rest.strip()) and DECODER.decode(first.rstrip()) is not None
    except (ValueError, RecursionError):
        return False


def _framing_of_first_member(head: str) -> str:
    first = next(members_in(head), None)
    if first is None:
        return _framing_of_first_value(head)
    key, opening, value = first
    known = key in (*keys.HYPOTHESES, *keys.UTTERANCES, *keys.SEGMENTS, *keys.REFERENCES, *keys.IDS, *OF_BATCH)
    if not known and opening in ("[", "{"):
        # a value that is whole and no utterance, such as Deepgram's metadata, stands next to what holds the utterances
        is_utterance = value is None or layout_of(value) is not None or (isinstance(value, dict) and _is_faulty_list(value))
        return OBJECT if is_utterance else ONE
    first_line, line_end, _ = head.lstrip().partition("\n")
    return LINES if line_end and first_line.rstrip().endswith("}") else ONE


def _framing_of_first_value(head: str) -> str:
    """Return how the lists stand in an array that is cut short: as they would if its first value were the only one."""
    at = after_space(head, 0)
    try:
        begin = after_space(head, at + 1)
        _, end = DECODER.raw_decode(head, begin)
    except (ValueError, RecursionError):
        return ARRAY
    return framing_of(f"[{head[begin:end]}]") if head[at : at + 1] == "[" else ARRAY


def _is_faulty_list(value: dict[str, Any]) -> bool:
    """Return whether an object has a list where hypotheses stand, so that it is one utterance, which its reader refuses with the reason."""
    return any(isinstance(value.get(key), list) for key in keys.HYPOTHESES)


def _wrapping_key(value: dict[str, Any]) -> str | None:
    for key in (*keys.UTTERANCES, *keys.SEGMENTS):
        found = value.get(key)
        members = list(found.values()) if isinstance(found, dict) else found
        if isinstance(members, list) and members and layout_of(members[0]) is not None:
            return key
    return None


def wrapping_keys(value: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys that lead to the utterances of a document, one or two (Amazon's results.segments); none if it has none.

    Several objects with hypotheses are utterances by id, whatever their names.
    """
    if len(value) > 1 and all(isinstance(member, dict) and layout_of(member) is not None for member in value.values()):
        return ()
    for key in keys.UTTERANCES:
        found = value.get(key)
        if isinstance(found, dict) and not _is_by_id(found) and (inner := _wrapping_key(found)) is not None:
            return key, inner
    found = _wrapping_key(value)
    return () if found is None else (found,)


def _is_by_id(value: dict[str, Any]) -> bool:
    """Return whether an object has utterances by id: all members are utterances, and not all keys are names of what holds utterances."""
    return not value.keys() <= {*keys.UTTERANCES, *keys.SEGMENTS} and all(layout_of(member) is not None for member in value.values())
