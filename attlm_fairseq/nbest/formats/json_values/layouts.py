"""Where the hypotheses of an utterance stand in a JSON value, and what their texts are.

Documented in ``docs/formats.md``; the names are in ``keys``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.json_values.completions import MESSAGE, text_of_message
from attlm_fairseq.nbest.formats.json_values.place import Place
from attlm_fairseq.nbest.formats.json_values.text import letters
from attlm_fairseq.numeric import is_number

EXPECTED = (
    "expected hypotheses: a list of texts, of [text, score] or of objects with a text; or an object with such a list "
    "(hyps, nbest, texts, ..) or with one text (text, hyp, ..)"
)


@dataclass(slots=True)
class Layout:
    """Where the hypotheses of an utterance stand.

    Attributes:
        hypotheses: their values.
        container: the key of their list in the utterance's object; None if the utterance is the list itself.
        columns: the keys of the lists next to it that have one value per hypothesis.
        is_row: the utterance is an object with one text.
    """

    hypotheses: Sequence[Any]
    container: str | None = None
    columns: tuple[str, ...] = ()
    is_row: bool = False


def layout_of(value: Any) -> Layout | None:
    """Return where the hypotheses stand; None if the value is no utterance."""
    if isinstance(value, list):
        tokens = any(isinstance(member, list) and are_texts(member) for member in value)  # a list of lists is several utterances
        return Layout(value) if value and not tokens and all(map(_is_hypothesis, value)) else None
    if not isinstance(value, dict):
        return None
    for key in (*keys.HYPOTHESES, *lists_like_hypotheses(value)):
        found = value.get(key)
        if key == keys.CHOICES and not value.keys().isdisjoint(keys.ALL_TEXTS):
            continue
        if isinstance(found, list) and found and all(map(_is_hypothesis, found)):
            columns = tuple(other for other, column in value.items() if other != key and _is_column(other, column, len(found)))
            return Layout(found, key, columns)
    return Layout([value], is_row=True) if text_of_value(value) is not None else None


def lists_like_hypotheses(value: dict[str, Any]) -> list[str]:
    """Return the keys of an object's lists of hypotheses with names like those known."""
    return [key for key in keys.like_hypotheses(value) if value[key] and all(map(_is_hypothesis, value[key]))]


def is_pair(value: Any) -> bool:
    """Return whether it is an id and the hypotheses of its utterance, rather than a text and its words."""
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str) or not isinstance(value[1], list):
        return False

    def is_hypothesis(member: Any) -> bool:
        if isinstance(member, list):
            return len(member) == 2 and isinstance(member[0], str) and is_number(member[1])
        return isinstance(member, str) or (isinstance(member, dict) and not member.keys().isdisjoint(keys.ALL_TEXTS))

    if not value[1] or not all(map(is_hypothesis, value[1])):
        return False
    texts = [text_of_value(member) or "" for member in value[1]]
    bare = [member for member in value[1] if isinstance(member, str)]
    return letters("".join(texts)) != letters(value[0]) and (not bare or any(" " in text for text in bare))


def _is_hypothesis(value: Any) -> bool:
    return text_of_value(value) is not None


def _is_column(key: str, values: Any, count: int) -> bool:
    """Return whether a list has one value per hypothesis, and so goes with them."""
    if not isinstance(values, list) or len(values) != count or key == keys.CONFIDENCES:
        return False
    numbers = all(value is None or is_number(value) for value in values)
    return (numbers and (keys.is_score_column(key) or not keys.is_score(key))) or all(isinstance(value, list) for value in values)


def text_of_value(value: Any) -> str | None:
    """Return the text of a hypothesis; None if the value is no hypothesis."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _text_of_list(value)
    if not isinstance(value, dict):
        return None
    for key in keys.ALL_TEXTS:
        if isinstance(value.get(key), str):
            return str(value[key])
    for key in keys.SEGMENTS:
        parts = value.get(key)
        if isinstance(parts, list) and parts and all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts):
            return " ".join(part["text"].strip() for part in parts)
    tokens = key_of_tokens(value)
    return " ".join(value[tokens]) if tokens is not None else text_of_message(value)


def key_of_tokens(value: Mapping[str, Any]) -> str | None:
    """Return the key of a hypothesis' tokens, as texts."""
    found = [key for key in keys.TOKENS if isinstance(value.get(key), list) and are_texts(value[key])]
    filled = next((key for key in found if value[key]), None)
    if filled is None and value.keys().isdisjoint((*keys.HYPOTHESES, *keys.UTTERANCES, *keys.SEGMENTS)):
        return next(iter(found), None)  # no words are silence, unless the text may stand elsewhere
    return filled


def _text_of_list(value: Sequence[Any]) -> str | None:
    texts = [member for member in value if isinstance(member, str)]
    if len(texts) == 1 and len(value) > 1:  # a text, its numbers, and perhaps more, such as the times of its words
        return texts[0]
    return " ".join(texts) if texts and len(texts) == len(value) else None  # tokens


def are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def id_key_of(value: Mapping[str, Any]) -> str | None:
    """Return the key of an utterance's id."""
    return next((key for key in keys.IDS if isinstance(value.get(key), str | int) and not isinstance(value[key], bool)), None)


def text_keys(members: Mapping[str, Any]) -> set[str | None]:
    for key in keys.ALL_TEXTS:
        if isinstance(members.get(key), str):
            return {key}
    found = next((key for key in keys.SEGMENTS if isinstance(members.get(key), list)), None) or key_of_tokens(members)
    return {MESSAGE if found is None and text_of_message(members) is not None else found}


def not_an_utterance(value: Any, place: Place, first: bool) -> InputError:
    """Return the error for a value that has no layout. For a ``first`` value, it says at length what is expected."""
    found = quoted(json.dumps(value, ensure_ascii=False))
    if isinstance(value, dict):
        for key in keys.HYPOTHESES:
            if isinstance(value.get(key), list):
                return _fault_in(value[key], place, (key,))
    if is_pair(value):
        return place.error(f"is {found}, a pair of an id and a list: expected an object by id, {{id: [..], ..}}")
    if isinstance(value, list):
        return _fault_in(value, place, ())
    hint = " (texts alone: put the hypotheses of each utterance into a list, [[..], [..]])" if isinstance(value, str) else ""
    return place.error(f"is {found}: {EXPECTED if first else 'expected hypotheses like those before'}{hint}")


def _fault_in(values: Sequence[Any], place: Place, steps: tuple[str, ...]) -> InputError:
    if not values:
        return place.error("is an empty list: expected at least one hypothesis (an empty text for silence)", *steps)
    at = next((i for i, value in enumerate(values) if (isinstance(value, list) and are_texts(value)) or not _is_hypothesis(value)), 0)
    found = quoted(json.dumps(values[at], ensure_ascii=False))
    advice = " (a refusal has no text: leave such a choice out)" if steps == (keys.CHOICES,) else ""
    return place.error(f"is {found}: expected a hypothesis: a text, [text, score] or an object with a text{advice}", *steps, at)
