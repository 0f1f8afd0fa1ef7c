"""Times and confidences of words in the JSON of speech recognisers: one object for each word, in the hypothesis or in its segments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.word_times import Time, filled
from attlm_fairseq.numeric import is_number

WORDS = ("words", "Words", "chunks")  # the last of Hugging Face's pipeline
TEXTS = ("word", "punctuated_word", "Word", "text")
BEGIN_AND_END = (("start", "end"), ("start_time", "end_time"), ("startTime", "endTime"), ("begin", "end"))  # in seconds
BEGIN_AND_DURATION = (("offsetInTicks", "durationInTicks"), ("Offset", "Duration"))  # in ticks of 100 ns, of Azure
CONFIDENCES = ("confidence", "Confidence", "probability", "score")
TICKS = 1e7  # in a second
LONGEST_WORD = 10.0  # seconds, on average: longer words are in milliseconds


class Words(NamedTuple):
    """What is known of each word of a text; ``()`` if it is not known of all."""

    times: tuple[Time, ...] = ()
    confidences: tuple[float, ...] = ()


class _Entry(NamedTuple):
    text: str
    time: Time | None
    confidence: float | None


def words_of(members: Mapping[str, Any], text: str) -> Words | None:
    """Return times and confidences of the words of a hypothesis; None if its entries are not the words of the text.

    An entry is compared without case and punctuation. One that does not begin with a space continues the word before it, if others do.
    Words without a time get one from their neighbours (``word_times.filled``).
    """
    values = _entries(members)
    if not values:
        return Words()
    entries = [entry for value in values if (entry := _entry(value)) is not None]
    if len(entries) < len(values):
        return None
    if any(len(entry.text.split()) > 1 for entry in entries):  # phrases with times
        return Words()
    spaced = any(entry.text[:1].isspace() for entry in entries)
    groups: list[list[_Entry]] = []
    for entry in entries:
        if not groups or not spaced or entry.text[:1].isspace():
            groups.append([])
        groups[-1].append(entry)
    words = text.split()
    if [_letters("".join(entry.text for entry in group)) for group in groups] != list(map(_letters, words)):
        return None
    times = _in_seconds([_span([entry.time for entry in group if entry.time is not None]) for group in groups])
    confidences = [entry.confidence for group in groups for entry in group]
    if any(confidence is None for confidence in confidences):
        return Words(times)
    return Words(times, tuple(min(entry.confidence for entry in group if entry.confidence is not None) for group in groups))


def _entries(members: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the objects of the words of a hypothesis; those of its segments if all of them have some."""
    for holders in ([members], *(members.get(key) for key in keys.SEGMENTS)):
        if isinstance(holders, list) and holders and all(isinstance(holder, Mapping) for holder in holders):
            lists = [next((holder[key] for key in WORDS if isinstance(holder.get(key), list)), None) for holder in holders]
            found = [value for of_holder in lists if of_holder is not None for value in of_holder]
            if found and None not in lists and all(isinstance(value, Mapping) for value in found):
                return found
    return []


def _entry(value: Mapping[str, Any]) -> _Entry | None:
    """Return the entry of a word; None if it has no text."""
    text = next((value[key] for key in TEXTS if isinstance(value.get(key), str)), None)
    confidence = next((float(value[key]) for key in CONFIDENCES if is_number(value.get(key))), None)
    time = next(_times(value), None)
    return None if text is None else _Entry(text, time, confidence)


def _times(value: Mapping[str, Any]) -> Iterator[Time]:
    for begin, end in BEGIN_AND_END:
        found = _seconds(value.get(begin)), _seconds(value.get(end))
        if found[0] is not None and found[1] is not None and 0 <= found[0] <= found[1]:
            yield found[0], found[1]
    match value.get("timestamp"):
        case [begin, end] if is_number(begin) and is_number(end) and 0 <= begin <= end:
            yield float(begin), float(end)
    for begin, duration in BEGIN_AND_DURATION:
        if is_number(value.get(begin)) and is_number(value.get(duration)) and value[begin] >= 0 and value[duration] >= 0:
            yield value[begin] / TICKS, (value[begin] + value[duration]) / TICKS


def _seconds(value: Any) -> float | None:
    """Return a number, or one that is written as a text, such as ``1.5`` and Google's ``1.5s``."""
    if isinstance(value, str):
        try:
            value = float(value.removesuffix("s"))
        except ValueError:
            return None
    return float(value) if is_number(value) and math.isfinite(value) else None


def _span(times: Sequence[Time]) -> Time | None:
    return (times[0][0], max(times[0][0], times[-1][1])) if times else None


def _in_seconds(times: Sequence[Time | None]) -> tuple[Time, ...]:
    lengths = [time[1] - time[0] for time in times if time is not None]
    unit = 1000.0 if sum(lengths) > LONGEST_WORD * len(lengths) else 1.0
    return tuple(filled([None if time is None else (time[0] / unit, time[1] / unit) for time in times]))


def _letters(word: str) -> str:
    return "".join(filter(str.isalnum, word.casefold())) or word.strip()
