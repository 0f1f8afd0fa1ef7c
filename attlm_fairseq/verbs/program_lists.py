"""N-best lists that a program gives as objects: NbestLists, or lists of strings with or without scores."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import NoneType
from typing import Any, TypeAlias, cast

from attlm_fairseq.batching import peeked
from attlm_fairseq.errors import InputError, require_type, shown
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.verbs.arguments import ids_as_texts, is_real, plain_number, require_order

# the hypotheses of one list, best first: each a text, or a text with the decoder's score or with named scores
Hypotheses: TypeAlias = Sequence[str | Hypothesis | tuple[str, float | Mapping[str, float]]]
JsonValue: TypeAlias = Mapping[str, Any]
ProgramLists: TypeAlias = Iterable[NbestList | Hypotheses | JsonValue] | Mapping[str, Hypotheses | JsonValue]


def of_program(lists: ProgramLists) -> Iterator[NbestList]:
    """Return an iterator over the lists of a program, see ``verbs.lists.opened_lists``.

    Raises InputError if they are not several lists, or are dictionaries that a JSON file could not hold.
    """
    if isinstance(lists, NbestList) or not isinstance(lists, Iterable):
        raise InputError(f"the lists are {shown(lists)}: expected a file or a list of n-best lists")
    require_order("lists", lists, "lists")
    if isinstance(lists, Mapping):
        lists = ids_as_texts("lists", lists)
        for name, one in lists.items():
            if isinstance(one, NbestList) and one.id != name:
                raise InputError(f"the list of the id {name!r} in the dictionary has the id {one.id!r}: expected one id")
        return _of_json(lists) if any(map(_is_json, lists.values())) else _each_of_program(lists.items())
    first, given = peeked(lists)
    return _of_json(list(given)) if _is_json(first) else _each_of_program((str(place), one) for place, one in enumerate(given))


def _is_json(given: object) -> bool:
    """Return whether a list is a dictionary, or a list of dictionaries, as in JSON."""
    return isinstance(given, Mapping) or (isinstance(given, list) and any(isinstance(one, Mapping) for one in given))


def _of_json(lists: object) -> Iterator[NbestList]:
    """Return the lists of a program's dictionaries, read as a file that holds them: one per line if they look like those of jsonl."""
    from attlm_fairseq.files.reading import TextSource
    from attlm_fairseq.nbest.formats import format_of
    from attlm_fairseq.nbest.formats.json_lists import JsonFormat

    values = [lists]
    if isinstance(lists, list) and all(isinstance(one, Mapping) and "hyps" in one for one in lists):
        values = lists
    try:
        text = "".join(json.dumps(value, default=_json_value) + "\n" for value in values)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the lists hold what JSON cannot: {error}") from None
    source = TextSource("the lists", text=text)
    return (format_of(source.head) or JsonFormat()).read(source)


def _json_value(value: object) -> object:
    """Return a value of another library, or a mapping or sequence of Python's, as one that JSON has. Raises TypeError for any other."""
    if isinstance(value, Mapping):
        return dict(value)
    if (number := plain_number(value)) is not value:
        return number
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{shown(value)}")


def _each_of_program(lists: Iterable[tuple[str, Any]]) -> Iterator[NbestList]:
    silent = mistimed = 0
    for name, given in lists:
        nbest = _list_of(name, given)
        if wrong := sum(map(_is_mistimed, nbest.hypotheses)):
            mistimed += wrong
            nbest = replace(nbest, hypotheses=[replace(one, times=()) if _is_mistimed(one) else one for one in nbest.hypotheses])
        if not nbest.hypotheses:
            silent += 1
            nbest = replace(nbest, hypotheses=[Hypothesis("", rank=1)])
        yield nbest
    if silent:
        note(f"note: {silent} lists without hypotheses are read as silence: one hypothesis, an empty text without scores")
    if mistimed:
        note(f"note: {mistimed} hypotheses have times for another number of words than their text has: these times are left out")


def _list_of(name: str, given: NbestList | Hypotheses) -> NbestList:
    if isinstance(given, NbestList):
        nbest = _checked(given)
    else:
        nbest = NbestList(name, [_hypothesis_of(name, one) for one in _sequence(name, given)])
        if any(isinstance(one, Hypothesis) for one in given):
            nbest = _checked(nbest)
    ranks = {hypothesis.rank for hypothesis in nbest.hypotheses}
    return ranked(nbest) if 0 in ranks or len(ranks) < len(nbest.hypotheses) else nbest


def _checked(nbest: NbestList) -> NbestList:
    """Return the list of a program with scores and times that are Python's numbers, as files hold them.

    Raises InputError for an id, hypothesis, text or reference of another type, or a score or time that is not a number.
    """
    require_type("id of a list", nbest.id, str, "a text")
    require_type("source of a list", nbest.source, (str, NoneType), "a text, or None")
    require_type(f"value of hypotheses of list {nbest.id!r}", nbest.hypotheses, Sequence, "a list of attlm.Hypothesis(..)")
    for hypothesis in nbest.hypotheses:
        if not (isinstance(hypothesis, Hypothesis) and isinstance(hypothesis.text, str) and isinstance(hypothesis.scores, Mapping)):
            raise nbest.error(f"list {nbest.id!r} holds {shown(hypothesis)}: expected attlm.Hypothesis(TEXT, {{NAME: NUMBER}})")
    of_type = isinstance(nbest.references, Iterable) and not isinstance(nbest.references, str)
    if not of_type or not all(isinstance(text, str) for text in nbest.references):
        raise nbest.error(f"list {nbest.id!r} has the references {shown(nbest.references)}: expected a tuple of texts")
    if all(map(_is_plain, nbest.hypotheses)):
        return nbest
    return replace(nbest, hypotheses=[_plain_hypothesis(nbest, hypothesis) for hypothesis in nbest.hypotheses])


def _is_mistimed(hypothesis: Hypothesis) -> bool:
    """Return whether a hypothesis has times for another number of words than its text has."""
    return len(hypothesis.times) not in (0, len(hypothesis.text.split()))


def _is_plain(hypothesis: Hypothesis) -> bool:
    """Return whether scores and times of a hypothesis are Python's floats, and times a tuple of tuples, as files hold them."""
    return (
        type(hypothesis.scores) is dict
        and type(hypothesis.lm_scores) is dict
        and type(hypothesis.times) is tuple
        and all(type(name) is str for name in (*hypothesis.scores, *hypothesis.lm_scores))
        and all(map(_is_float, (*hypothesis.scores.values(), *hypothesis.lm_scores.values())))
        and (hypothesis.total is None or _is_float(hypothesis.total))
        and all(type(time) is tuple and [*map(type, time)] == [float, float] and all(map(math.isfinite, time)) for time in hypothesis.times)
    )


def _is_float(value: object) -> bool:
    """Return whether a value is a float of Python, or a whole number that a float can hold."""
    return type(value) is float or (type(value) is int and abs(value) < 1 << 1000)


def _plain_hypothesis(nbest: NbestList, hypothesis: Hypothesis) -> Hypothesis:
    """Return the hypothesis with Python's floats. Raises InputError for a name that is not a text, or a value that is not a number."""

    def plain(value: object, what: str) -> float:
        try:
            if is_real(value):
                return value if _is_float(value) else float(value)
        except OverflowError:
            pass
        raise nbest.error(f"list {nbest.id!r} has {what} {shown(value)}: expected a number")

    def named(scores: Mapping[str, float]) -> dict[str, float]:
        require_type(f"value of lm_scores in list {nbest.id!r}", scores, Mapping, "numbers by name")
        for name in scores:
            require_type(f"name of a score in list {nbest.id!r}", name, str, "a text")
        return {name: plain(score, f"the score {name} =") for name, score in scores.items()}

    given = () if hypothesis.times is None else hypothesis.times
    if not isinstance(given, Iterable) or not all(isinstance(time, Iterable) for time in given):
        raise nbest.error(f"list {nbest.id!r} has the times {shown(given)}: expected begin and end of each word")
    times = [tuple(plain(value, "the time") for value in time) for time in given]
    if wrong := [time for time in times if len(time) != 2 or not all(map(math.isfinite, time))]:
        raise nbest.error(f"list {nbest.id!r} has the time {wrong[0]} of a word: expected its begin and end in seconds")
    total = None if hypothesis.total is None else plain(hypothesis.total, "the total")
    scores, lm_scores = named(hypothesis.scores), named(hypothesis.lm_scores)
    return replace(hypothesis, scores=scores, lm_scores=lm_scores, total=total, times=tuple(cast("list[tuple[float, float]]", times)))


def ranked(nbest: NbestList) -> NbestList:
    """Return the list with its order as the ranks."""
    return replace(nbest, hypotheses=[replace(hypothesis, rank=rank) for rank, hypothesis in enumerate(nbest.hypotheses, 1)])


def _sequence(name: str, given: Hypotheses) -> Hypotheses:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputError(f"list {name} is {given!r}: expected an NbestList or a list of hypotheses")
    return given


def _hypothesis_of(name: str, given: str | Hypothesis | tuple[str, float | Mapping[str, float]]) -> Hypothesis:
    match given:
        case Hypothesis():
            return given
        case str():
            return Hypothesis(given)
        case (str() as text, Mapping() as scores) if all(map(is_real, scores.values())):
            with suppress(OverflowError):
                return Hypothesis(text, {str(name): float(score) for name, score in scores.items()})
        case (str() as text, score) if is_real(score):
            with suppress(OverflowError):
                return Hypothesis(text, {"score": float(score)})
    raise InputError(f"list {name} has the hypothesis {given!r}: expected a text, (text, score) or (text, {{name: score}})")
