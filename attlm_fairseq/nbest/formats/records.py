"""One utterance as a JSON value, whichever tool wrote it: where its hypotheses stand, what their texts and scores are.

Documented in ``docs/formats.md``; the names are in ``keys``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.completions import MESSAGE, text_of_message, token_logprobs
from attlm_fairseq.nbest.formats.json_text import Place
from attlm_fairseq.nbest.formats.json_words import Words, words_of
from attlm_fairseq.nbest.formats.lines import is_number as is_written_number
from attlm_fairseq.nbest.formats.lines import quoted
from attlm_fairseq.nbest.nbest_list import Hypothesis
from attlm_fairseq.numeric import is_number

# a probability of a token that is printed as 0 with 6 decimals, as whisper.cpp does
MIN_PROBABILITY = 5e-7
_TEXTS = frozenset((*keys.ALL_TEXTS, *keys.REFERENCES, *keys.SOURCES))
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
        tokens = any(isinstance(member, list) and _are_texts(member) for member in value)  # a list of lists is several utterances
        return Layout(value) if value and not tokens and all(map(_is_hypothesis, value)) else None
    if not isinstance(value, dict):
        return None
    for key in (*keys.HYPOTHESES, *_like_hypotheses(value)):
        found = value.get(key)
        if key == keys.CHOICES and not value.keys().isdisjoint(keys.ALL_TEXTS):
            continue
        if isinstance(found, list) and found and all(map(_is_hypothesis, found)):
            columns = tuple(other for other, column in value.items() if other != key and _is_column(other, column, len(found)))
            return Layout(found, key, columns)
    return Layout([value], is_row=True) if text_of_value(value) is not None else None


def _like_hypotheses(value: dict[str, Any]) -> list[str]:
    """Return the keys of an object's lists of hypotheses with names like those known."""
    return [key for key in keys.like_hypotheses(value) if value[key] and all(map(_is_hypothesis, value[key]))]


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
    tokens = _tokens_of(value)
    return " ".join(value[tokens]) if tokens is not None else text_of_message(value)


def _tokens_of(value: Mapping[str, Any]) -> str | None:
    """Return the key of a hypothesis' tokens, as texts."""
    found = [key for key in keys.TOKENS if isinstance(value.get(key), list) and _are_texts(value[key])]
    filled = next((key for key in found if value[key]), None)
    if filled is None and value.keys().isdisjoint((*keys.HYPOTHESES, *keys.UTTERANCES, *keys.SEGMENTS)):
        return next(iter(found), None)  # no words are silence, unless the text may stand elsewhere
    return filled


def _text_of_list(value: Sequence[Any]) -> str | None:
    texts = [member for member in value if isinstance(member, str)]
    if len(texts) == 1 and len(value) > 1:  # a text, its numbers, and perhaps more, such as the times of its words
        return texts[0]
    return " ".join(texts) if texts and len(texts) == len(value) else None  # tokens


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def id_key_of(value: Mapping[str, Any]) -> str | None:
    """Return the key of an utterance's id."""
    return next((key for key in keys.IDS if isinstance(value.get(key), str | int) and not isinstance(value[key], bool)), None)


@dataclass(slots=True)
class Record:
    """An utterance as read. ``id`` is None if it has none; ``extras`` are the names of what is neither text, score, reference,
    source nor id.

    ``container`` is the key of the hypotheses; None if the utterance is a list, or has one text (``is_row``).
    """

    id: Any
    references: tuple[str, ...]
    hypotheses: list[Hypothesis]
    extras: set[str]
    is_row: bool
    container: str | None = None
    source: str | None = None


@dataclass(slots=True)
class Reader:
    """Reads the utterances of one file. Logs one line, once, for each score that is read as another number."""

    path: str
    _told: set[str] = field(default_factory=set)
    _counts: frozenset[str] = frozenset()  # names of numbers that count the hypotheses

    def record(self, value: Any, place: Place, first: bool = False) -> Record:
        """Read an utterance.

        Raises:
            InputError: the value has no hypotheses, or a text, score or name of a score is wrong. For a ``first``
                value, the message says what is expected at length.
        """
        layout = layout_of(value)
        if layout is None:
            raise self._not_an_utterance(value, place, first)
        if isinstance(value, dict) and layout.container not in (None, *keys.HYPOTHESES) and len(several := _like_hypotheses(value)) > 1:
            raise place.error(f"has several lists of hypotheses, {' and '.join(several)}: give one the name hyps, and leave the others out")
        whole = value if isinstance(value, dict) else {}
        _require_scores_of_all(whole, layout, place, self._counts)
        steps: tuple[str | int, ...] = () if layout.container is None else (layout.container,)
        columns = {key: whole[key] for key in layout.columns}
        hypotheses, extras = [], set()
        for i, found in enumerate(layout.hypotheses):
            at = () if layout.is_row else (*steps, i)
            members = {key: column[i] for key, column in columns.items()}
            hypothesis, unread = self._hypothesis(
                found, _At(place, at, {key: (key, i) for key in columns}), members, whole, layout.container
            )
            hypothesis.rank = i + 1
            hypotheses.append(hypothesis)
            extras |= unread
        used = {layout.container, *layout.columns} if not layout.is_row else _text_keys(whole)
        references, reference_key = self._references(whole, used, layout.container, place)
        id_key = id_key_of(whole)
        before = keys.IDS if id_key is None else keys.IDS[: keys.IDS.index(id_key)]
        if (fraction := next((key for key in before if isinstance(whole.get(key), float)), None)) is not None:
            raise place.error(f"is {whole[fraction]}: expected an id, a text or a whole number without a point", fraction)
        if not layout.is_row:
            extras |= whole.keys() - used
        source_key = next((key for key in keys.SOURCES if key not in used and isinstance(whole.get(key), str)), None)
        source = place.text(whole[source_key], source_key) if source_key is not None else None
        extras -= {reference_key, source_key, id_key, *keys.NOT_READ}
        return Record(whole.get(id_key or ""), references, hypotheses, extras, layout.is_row, layout.container, source)

    def set_apart_counts(self, lists: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Find the numbers that count hypotheses, in the hypotheses of the first lists that are objects. They are no scores."""
        names = dict.fromkeys(key for of_list in lists for found in of_list for key, value in found.items() if is_number(value))
        values = {name: [[found[name] for found in of_list if found.get(name) is not None] for of_list in lists] for name in names}
        self._counts = frozenset(name for name in names if keys.is_score(name) and keys.is_count(keys.of_header(name), values[name]))
        for name in sorted(self._counts):
            self._tell(f"{quoted(name)} counts the hypotheses or rows: it is not read as a score")

    def scores(
        self, value: Mapping[str, Any], whole: Mapping[str, Any], place: Place, *steps: str | int
    ) -> tuple[dict[str, float], set[str]]:
        """Read the scores of a hypothesis that is an object of the utterance ``whole`` and stands at ``steps``.

        Returns:
            The scores, and the keys that hold them.

        Raises:
            InputError: a score or its name is wrong.
        """
        return self._scores(value, _At(place, steps, {}), whole)

    def _references(
        self, whole: Mapping[str, Any], used: set[str | None], container: str | None, place: Place
    ) -> tuple[tuple[str, ...], str | None]:
        for key in keys.REFERENCES:
            value = whole.get(key)
            is_text = isinstance(value, str) or (isinstance(value, list) and len(value) > 0 and _are_texts(value))
            if is_text and key not in used and keys.is_reference(key, container, whole):
                return place.references(value, key), key
        return (), None

    def _hypothesis(
        self, value: Any, at: _At, columns: Mapping[str, Any], whole: Mapping[str, Any], container: str | None
    ) -> tuple[Hypothesis, set[str]]:
        members = dict(columns)
        if keys.is_of_sockeye(whole) and isinstance(members.get(keys.SCORES), list):  # that of the translation, then those of its factors
            members[keys.SCORES] = next(iter(members[keys.SCORES]), None)
        if isinstance(value, dict):
            members |= value
        elif isinstance(value, list) and not _are_texts(value):
            members |= dict(_named_numbers(value))
        text = at.place.text(text_of_value(value), *at.steps)
        if isinstance(value, dict) and not text and (key := _tokens_of(value)) is not None and _text_keys(value) == {key}:
            self._tell(f"{key} of a hypothesis is an empty list, read as silence (a decoder without a lexicon has no words)")
        tokens = value if isinstance(value, list) and _are_texts(value) and container in keys.OF_CTRANSLATE2 else None
        scores, read = self._scores(members, at, whole, tokens)
        words = words_of(members, text)
        if words is None:
            self._tell("the words with times of a hypothesis are not those of its text: their times and confidences are not read")
            words = Words()
        unread = members.keys() - read - (_text_keys(members) if isinstance(value, dict) else set())
        return Hypothesis(text, scores, times=words.times, confidences=words.confidences), unread

    def _scores(
        self, members: Mapping[str, Any], at: _At, whole: Mapping[str, Any], tokens: Sequence[str] | None = None
    ) -> tuple[dict[str, float], set[str]]:
        """Return the scores among the members of a hypothesis of the utterance ``whole``, and the keys that hold them.

        The hypothesis may be a list of ``tokens``.
        """
        named = members[keys.SCORES] if isinstance(members.get(keys.SCORES), dict) else {}
        scores: dict[str, float] = {}
        read: set[str] = set()
        is_sum = False
        for key, found in members.items():
            if key in keys.TOKEN_LOGPROBS and (of_tokens := token_logprobs(found)):
                if keys.LOGPROB not in scores:
                    scores[keys.LOGPROB] = sum(at.number(score, key, *steps) for steps, score in of_tokens)
                    is_sum = True  # which counts only without a number of this name
            elif key == keys.SCORES and isinstance(found, dict):
                given = found if whole.get("sparse") else {name: score for name, score in found.items() if score is not None}
                scores |= {at.name(name, key): at.number(score, key, name) for name, score in given.items()}
            elif is_number(found) and keys.is_score(key) and key not in self._counts:
                score = at.number(found, key)
                normalised = keys.CTRANSLATE2 if tokens is not None and key == keys.SCORES else keys.NORMALISED.get(keys.of_header(key))
                name = at.name(keys.name_of(key, members))
                if normalised:
                    taken = any(normalised.sum_name in names for names in (members, scores, named))
                    penalty = next((of[keys.LENGTH_PENALTY] for of in (whole, members) if is_number(of.get(keys.LENGTH_PENALTY))), 1.0)
                    name, score = self.sum_of(key, score, normalised, _length(tokens, members), penalty, taken)
                score = -score if keys.of_header(key) in keys.COSTS or self._is_cost_of_sockeye(key, score, whole) else score
                if named.get(name, score) != score:
                    raise at.place.error(f"has two scores {quoted(name)}, next to its text and under scores: keep one", *at.steps)
                if scores.get(name, score) != score and not (is_sum and name == keys.LOGPROB):
                    raise at.place.error(f"has two scores {quoted(name)}, one of them under {quoted(key)}: keep one", *at.steps)
                scores[name] = score
            elif isinstance(found, str) and keys.is_score_column(key) and is_written_number(found):
                scores[key] = at.number(found, key)  # refuses a number in quotes: without a word it would count for nothing
            else:
                if keys.of_header(key) in keys.MEASUREMENTS:
                    self.tell_of_measurement(key)
                elif isinstance(found, str) and key not in _TEXTS and keys.is_score(key) and _is_fraction(found):
                    self._tell(
                        f"{quoted(key)} of a hypothesis is a number in quotes: it is not read as a score; write scores without quotes"
                    )
                elif isinstance(found, list | dict) and keys.is_list_of_scores(key) and "confidence" not in key.lower():
                    kind = "a list" if isinstance(found, list) else "an object"
                    self._tell(f"{quoted(key)} of a hypothesis is {kind}: it is not read as a score, which is one number")
                continue
            read.add(key)
        if keys.LOGPROB not in scores:
            logprob = _probability_of_tokens(members)
            logprob = _probability_of_windows(members) if logprob is None else logprob
            if logprob is not None:
                scores[keys.LOGPROB] = logprob
        if not scores:
            self.tell_of_total(key for key, found in members.items() if is_number(found))
        return scores, read

    def tell_of_measurement(self, name: str) -> None:
        """Log that a number is not read, because its name says that it was measured against the reference."""
        self._tell(
            f"{quoted(name)} of a hypothesis is taken for a measurement against the reference, and is not read as a score; if it is one, "
            "give it another name"
        )

    def tell_of_total(self, names: Iterable[str]) -> None:
        """Log if the only number that may be the decoder's score has the name under which rescoring writes its own total."""
        for name in names:
            if name in keys.TOTALS:
                self._tell(
                    f"{quoted(name)} is what rescoring calls its own total: it is not read as a score, and rescoring replaces it. If it is "
                    "the decoder's, give it another name, such as score"
                )

    def _is_cost_of_sockeye(self, key: str, score: float, whole: Mapping[str, Any]) -> bool:
        found = key in ("score", keys.SCORES) and score >= 0 and keys.is_of_sockeye(whole)
        if found:
            self._tell(f"{key} is taken for Sockeye's negative log-probability: read with the other sign, as score")
        return found

    def sum_of(
        self, key: str, score: float, normalised: keys.Normalised, length: int | None, penalty: Any = 1.0, taken: bool = False
    ) -> tuple[str, float]:
        """Return the name and value of a score that is divided by length: its sum if the length is known.

        If the usual name of the sum is ``taken``, it gets one from that of the score.
        """
        power = float(penalty) if normalised.has_penalty and is_number(penalty) else 1.0
        by = f"(its tokens + {normalised.unlisted})" if normalised.unlisted else "the number of its tokens"
        by += f" to the power {power:g}" if power != 1 else ""
        if length is None:
            told = (
                f"{key} of a hypothesis is divided by {by}, which the file does not give (num_tokens, tokens): used as it is, "
                "a mean and no sum"
            )
            name = key
        else:
            name = f"{key}_sum" if taken else normalised.sum_name
            told = f"{key} of a hypothesis is taken to be divided by {by}, and read as the sum, the score {name}"
            told += "; if it is the sum, add length_penalty 0 to the file" if normalised.has_penalty else ""
            score = self._multiplied(key, score, length + normalised.unlisted, power)
        self._tell(told)
        return name, score

    def _tell(self, told: str) -> None:
        if told not in self._told:
            self._told.add(told)
            note(f"note: {self.path}: {told}")

    def _multiplied(self, key: str, score: float, length: int, power: float) -> float:
        try:
            product = score * float(length) ** power
        except (OverflowError, ZeroDivisionError):
            product = math.inf
        if not math.isfinite(product):
            raise InputError(f"{key} times {quoted(str(length))} tokens to the power {power:g} is not a finite number", path=self.path)
        return product

    def _not_an_utterance(self, value: Any, place: Place, first: bool) -> Exception:
        found = quoted(json.dumps(value, ensure_ascii=False))
        if isinstance(value, dict):
            for key in keys.HYPOTHESES:
                if isinstance(value.get(key), list):
                    return _fault_in(value[key], place, (key,))
        if isinstance(value, list):
            return _fault_in(value, place, ())
        hint = " (texts alone: put the hypotheses of each utterance into a list, [[..], [..]])" if isinstance(value, str) else ""
        return place.error(f"is {found}: {EXPECTED if first else 'expected hypotheses like those before'}{hint}")


def has_scores(hypothesis: Any, counts: Container[str] = ()) -> bool:
    """Return whether a hypothesis has scores of its own, next to its text. Numbers under ``counts`` are none."""
    if isinstance(hypothesis, dict):
        numbers = (key for key, found in hypothesis.items() if is_number(found) and key not in counts)
        return keys.SCORES in hypothesis or any(map(keys.is_score, numbers))
    return isinstance(hypothesis, list) and any(map(is_number, hypothesis))


def are_scores(key: str, values: Any) -> bool:
    """Return whether a list next to hypotheses can only be their scores: numbers, perhaps in quotes, and no numbers of words or tokens."""
    if not isinstance(values, list) or not keys.is_list_of_scores(key):
        return False
    numbers = sum(is_number(value) or (isinstance(value, str) and is_written_number(value)) for value in values)
    return 0 < numbers == len(values) - values.count(None)


def _require_scores_of_all(whole: Mapping[str, Any], layout: Layout, place: Place, counts: Container[str]) -> None:
    """Raise InputError for scores next to the hypotheses that are not one number for each: without a word they would count for nothing."""
    if layout.container is None or len(layout.hypotheses) == 1 or any(has_scores(hypothesis, counts) for hypothesis in layout.hypotheses):
        return
    if any(map(keys.is_score_column, layout.columns)):  # there are scores; this is something else
        return
    for key, values in whole.items():
        if key in (layout.container, *layout.columns) or not are_scores(key, values):
            continue
        if len(values) != len(layout.hypotheses):
            raise place.error(f"has {len(values)} numbers: expected {len(layout.hypotheses)}, one for each hypothesis", key)
        for i, value in enumerate(values):
            if value is not None:
                place.number(value, key, i)


def _fault_in(values: Sequence[Any], place: Place, steps: tuple[str, ...]) -> Exception:
    if not values:
        return place.error("is an empty list: expected at least one hypothesis (an empty text for silence)", *steps)
    at = next((i for i, value in enumerate(values) if (isinstance(value, list) and _are_texts(value)) or not _is_hypothesis(value)), 0)
    found = quoted(json.dumps(values[at], ensure_ascii=False))
    advice = " (a refusal has no text: leave such a choice out)" if steps == (keys.CHOICES,) else ""
    return place.error(f"is {found}: expected a hypothesis: a text, [text, score] or an object with a text{advice}", *steps, at)


@dataclass(slots=True)
class _At:
    """Where a hypothesis stands, for messages: ``columns`` gives the steps to a value that stands in a list next to it."""

    place: Place
    steps: tuple[str | int, ...]
    columns: Mapping[str, tuple[str | int, ...]]

    def number(self, value: Any, key: str, *further: str | int) -> float:
        return self.place.number(value, *self._steps(key), *further)

    def name(self, name: str, *keys_before: str) -> str:
        return self.place.score_name(name, *self.steps, *keys_before)

    def _steps(self, key: str) -> tuple[str | int, ...]:
        return self.columns.get(key, (*self.steps, key))


def _is_fraction(text: str) -> bool:
    """Return whether a text is a number that is no id, count or rank: below 0 or with a point."""
    return is_written_number(text) and ("-" in text or "." in text)


def _named_numbers(value: Sequence[Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a list with a text: one is the score; those of pyctcdecode's beams have names; others are numbered."""
    numbers = [member for member in value if is_number(member)]
    if len(numbers) == 1:
        return iter([("score", numbers[0])])
    if len(numbers) == 2 and any(isinstance(member, list) for member in value):  # text, (state,) frames, logit_score, lm_score
        return iter([("logit_score", numbers[0]), ("score", numbers[1])])
    return ((f"f{i}", number) for i, number in enumerate(numbers, 1))


def _length(tokens: Sequence[str] | None, members: Mapping[str, Any]) -> int | None:
    """Return how many tokens a hypothesis has, if that is known."""
    if tokens is not None:
        return len(tokens)
    for key in keys.LENGTHS:
        value = members.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        if isinstance(value, list) and value:
            return len(value)
    return None


def _probability_of_tokens(members: Mapping[str, Any]) -> float | None:
    """Return the sum of the tokens' log-probabilities, from whisper.cpp's ``p`` in the segments or the hypothesis itself."""
    parts = next((members[key] for key in keys.SEGMENTS if isinstance(members.get(key), list)), [members])
    lists = (part["tokens"] for part in parts if isinstance(part, dict) and isinstance(part.get("tokens"), list))
    tokens = [token for of_part in lists for token in of_part]
    found = [float(token["p"]) for token in tokens if isinstance(token, dict) and is_number(token.get("p")) and 0 <= token["p"] <= 1]
    if not found or len(found) < len(tokens):
        return None
    return sum(math.log(max(p, MIN_PROBABILITY)) for p in found)


def _probability_of_windows(members: Mapping[str, Any]) -> float | None:
    """Return the sum of the tokens' log-probabilities, from Whisper's mean in each segment.

    All segments of a window of 30 s, which begins at ``seek``, have the mean over the window: over its tokens and its end.
    """
    segments: list[Any] = next((members[key] for key in keys.SEGMENTS if isinstance(members.get(key), list)), [])
    tokens: Counter[tuple[Any, float]] = Counter()
    for segment in segments:
        of_segment = segment if isinstance(segment, dict) else {}
        mean: Any = of_segment.get("avg_logprob")
        if not is_number(mean) or not isinstance(of_segment.get("tokens"), list):
            return None
        tokens[str(of_segment.get("seek")), float(mean)] += len(of_segment["tokens"])
    return sum(mean * (count + 1) for (_, mean), count in tokens.items()) if tokens else None


def _text_keys(members: Mapping[str, Any]) -> set[str | None]:
    for key in keys.ALL_TEXTS:
        if isinstance(members.get(key), str):
            return {key}
    found = next((key for key in keys.SEGMENTS if isinstance(members.get(key), list)), None) or _tokens_of(members)
    return {MESSAGE if found is None and text_of_message(members) is not None else found}
