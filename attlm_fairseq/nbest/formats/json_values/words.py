"""Times and confidences of words in the JSON of speech recognisers: one object for each word, in the hypothesis or in its segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.json_values.text import letters
from attlm_fairseq.nbest.word_times import Time, filled
from attlm_fairseq.numeric import is_number

WORDS = ("words", "Words", "chunks")  # the last of Hugging Face's pipeline
TEXTS = ("word", "punctuated_word", "Word", "text")
BEGIN_AND_END = (  # in seconds
    *(("start", "end"), ("start_time", "end_time"), ("startTime", "endTime"), ("startOffset", "endOffset"), ("begin", "end")),
)
BEGIN_AND_DURATION = (("offsetInTicks", "durationInTicks"), ("Offset", "Duration"))  # in ticks of 100 ns, of Azure
CONFIDENCES = ("confidence", "Confidence", "probability", "score")
TICKS = 1e7  # in a second
LATEST = 1e9  # no time and no confidence is greater
LONGEST_WORD = 20.0  # seconds, on average: longer words with whole numbers are in milliseconds


class Words(NamedTuple):
    """What is known of each word of a text; ``()`` if it is not known of all."""

    times: tuple[Time, ...] = ()
    confidences: tuple[float, ...] = ()


class _Entry(NamedTuple):
    letters: str
    time: Time | None
    confidence: float | None


def words_of(members: Mapping[str, Any], text: str) -> Words | None:
    """Return times and confidences of the words of a hypothesis; None if its entries are not the words of the text.

    Entries are compared without case and punctuation. Several may make a word, such as the characters of a text without spaces. Words
    without a time, or whose time is before that of an earlier word, get one from their neighbours (``word_times.filled``).
    """
    values = _entries(members)
    if any(len(written.split()) > 1 for value in values if (written := _text_of(value))):  # phrases with times
        return Words()
    entries = [_Entry(letters(_text_of(value) or ""), _time_of(value), _confidence_of(value)) for value in values]
    if all(entry.time is None and entry.confidence is None for entry in entries):
        return Words()
    groups = _groups(entries, text.split())
    if groups is None:
        return None
    times = _in_order([_span([entry.time for entry in group if entry.time is not None]) for group in groups], _unit(values, entries))
    confidences = [[entry.confidence for entry in group if entry.confidence is not None] for group in groups]
    if not all(map(len, confidences)) or any(entry.letters and entry.confidence is None for entry in entries):
        return Words(times)
    return Words(times, tuple(map(min, confidences)))


def _groups(entries: Sequence[_Entry], words: Sequence[str]) -> list[list[_Entry]] | None:
    """Return the entries of each word; None if they are others. Entries without letters are of no word."""
    left = iter(entry for entry in entries if entry.letters)
    groups = []
    for word in words:
        wanted, found = letters(word), ""
        group: list[_Entry] = []
        while found != wanted:
            entry = next(left, None)
            if entry is None or not wanted.startswith(found + entry.letters):
                return None
            found += entry.letters
            group.append(entry)
        groups.append(group)
    return None if next(left, None) is not None else groups


def _entries(members: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the objects of the words of a hypothesis; those of its segments if all of them have some."""
    for holders in ([members], *(members.get(key) for key in keys.SEGMENTS)):
        if isinstance(holders, list) and holders and all(isinstance(holder, Mapping) for holder in holders):
            lists = [next((holder[key] for key in WORDS if isinstance(holder.get(key), list)), None) for holder in holders]
            found = [value for of_holder in lists if of_holder is not None for value in of_holder]
            if found and None not in lists and all(isinstance(value, Mapping) for value in found):
                return found
    return []


def _text_of(value: Mapping[str, Any]) -> str | None:
    return next((value[key] for key in TEXTS if key in value and isinstance(value[key], str)), None)


def _confidence_of(value: Mapping[str, Any]) -> float | None:
    return next((number for key in CONFIDENCES if key in value and (number := _number(value[key])) is not None), None)


def _time_of(value: Mapping[str, Any]) -> Time | None:
    """Return the first time of an entry that is one."""
    for begin, end in _times(value):
        if begin is not None and end is not None and 0 <= begin <= end:
            return begin, end
    return None


def _times(value: Mapping[str, Any]) -> Iterator[tuple[float | None, float | None]]:
    for begin, end in BEGIN_AND_END:
        if begin in value:
            yield _seconds(value[begin]), _seconds(value.get(end))
    match value.get("timestamp"):
        case [begin, end]:
            yield _number(begin), _number(end)
    for begin, duration in BEGIN_AND_DURATION:
        if begin in value:
            start, length = _number(value[begin], LATEST * TICKS), _number(value.get(duration), LATEST * TICKS)
            yield None if start is None else start / TICKS, None if start is None or length is None else (start + length) / TICKS


def _seconds(value: Any) -> float | None:
    """Return a number, or one that is written as a text, such as ``1.5`` and Google's ``1.5s``."""
    if isinstance(value, str):
        try:
            value = float(value.removesuffix("s"))
        except ValueError:
            return None
    return _number(value)


def _number(value: Any, most: float = LATEST) -> float | None:
    """Return a finite number that is not greater than others of its kind."""
    return float(value) if is_number(value) and abs(value) <= most else None


def _span(times: Sequence[Time]) -> Time | None:
    return (times[0][0], max(times[0][0], times[-1][1])) if times else None


def _unit(values: Sequence[Mapping[str, Any]], entries: Sequence[_Entry]) -> float:
    """Return how many units of the times a second has: 1,000 if they are whole numbers, and too large for seconds."""
    lengths = [entry.time[1] - entry.time[0] for entry in entries if entry.time is not None]
    whole = all(isinstance(value.get("start"), int) and isinstance(value.get("end"), int) for value in values)
    return 1000.0 if whole and sum(lengths) > LONGEST_WORD * len(lengths) else 1.0


def _in_order(times: Sequence[Time | None], unit: float) -> tuple[Time, ...]:
    known: list[Time | None] = []
    latest = 0.0
    for time in times:
        is_later = time is not None and time[0] >= latest
        known.append((time[0] / unit, time[1] / unit) if time is not None and is_later else None)
        latest = time[0] if time is not None and is_later else latest
    return tuple(filled(known))
