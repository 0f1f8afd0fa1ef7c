"""The scores of a hypothesis in JSON or a table: which of its numbers are scores, and what they are called.

Documented in ``docs/formats.md``; the names are in ``keys``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.messages import FileNotes
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.json_values.completions import has_no_tokens, token_logprobs
from attlm_fairseq.nbest.formats.json_values.layouts import Layout, text_of_value
from attlm_fairseq.nbest.formats.json_values.place import Place
from attlm_fairseq.nbest.formats.json_values.token_probabilities import logprob_of_parts
from attlm_fairseq.nbest.formats.number_texts import is_written_number
from attlm_fairseq.nbest.formats.ranks import warn_of_other_order
from attlm_fairseq.numeric import is_number

_TEXTS = frozenset((*keys.ALL_TEXTS, *keys.REFERENCES, *keys.SOURCES))


@dataclass(slots=True)
class At:
    """Where a hypothesis stands, for messages: ``columns`` gives the steps to a value that stands in a list next to it."""

    place: Place
    steps: tuple[str | int, ...] = ()
    columns: Mapping[str, tuple[str | int, ...]] = field(default_factory=dict)

    def number(self, value: Any, key: str, *further: str | int) -> float:
        return self.place.number(value, *self.columns.get(key, (*self.steps, key)), *further)

    def name(self, name: str, *keys_before: str) -> str:
        return self.place.score_name(name, *self.steps, *keys_before)


@dataclass(slots=True)
class ScoreReader:
    """Reads the scores of one file. A note, once, tells of each that is read as another number, or looks like one and is not read.

    Attributes:
        notes: what is told.
        counts: names of numbers that count the hypotheses.
    """

    notes: FileNotes
    counts: frozenset[str] = frozenset()

    def set_apart_counts(self, lists: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Find the numbers that count hypotheses, in the hypotheses of the first lists that are objects. They are no scores."""
        values = _numbers(lists)
        self.counts = frozenset(name for name in values if keys.is_score(name) and keys.is_count(keys.of_header(name), values[name]))
        for name in sorted(self.counts):
            self.notes.add(f"{quoted(name)} counts the hypotheses or rows: it is not read as a score")
        self.warn_of_other_order(lists)

    def warn_of_other_order(self, lists: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Warn if ranks contradict the order of the hypotheses that are objects, of the first lists, see ``ranks``."""
        values = _numbers(lists)
        warn_of_other_order(values, self.counts, values, self.notes)

    def read(
        self, members: Mapping[str, Any], at: At, whole: Mapping[str, Any], tokens: Sequence[str] | None = None
    ) -> tuple[dict[str, float], set[str]]:
        """Return the scores of a hypothesis, and the keys that hold them.

        Args:
            members: of the hypothesis.
            at: where it stands.
            whole: the members of its utterance.
            tokens: the hypothesis, if it is a list of tokens.

        Raises:
            InputError: a score or its name is wrong, or two scores have one name.
        """
        named = members[keys.SCORES] if isinstance(members.get(keys.SCORES), dict) else {}
        scores: dict[str, float] = {}
        read: set[str] = set()
        sum_name = None  # of a sum over tokens, which counts only without a number of this name
        for key, found in members.items():
            if key in keys.TOKEN_LOGPROBS and (of_tokens := token_logprobs(found)):
                if keys.LOGPROB not in scores:
                    sum_name = keys.LOGPROB
                    scores[sum_name] = sum(at.number(score, key, *steps) for steps, score in of_tokens)
            elif key == keys.SCORES and isinstance(found, dict):
                given = found if whole.get("sparse") else {name: score for name, score in found.items() if score is not None}
                scores |= {at.name(name, key): at.number(score, key, name) for name, score in given.items()}
                self._tell_of_costs(given)
            elif is_number(found) and keys.is_score(key) and key not in self.counts:
                name, score = self._score(key, at, members, whole, tokens, {*scores, *named})
                if named.get(name, score) != score:
                    raise at.place.error(f"has two scores {quoted(name)}, next to its text and under scores: keep one", *at.steps)
                if name != sum_name and scores.get(name, score) != score:
                    raise at.place.error(f"has two scores {quoted(name)}, one of them under {quoted(key)}: keep one", *at.steps)
                scores[name] = score
            elif isinstance(found, str) and keys.is_score_column(key) and is_written_number(found):
                scores[key] = at.number(found, key)  # refuses a number in quotes: without a word it would count for nothing
            else:
                self._tell_of_unread(key, found)
                continue
            read.add(key)
        silent = [key for key in keys.TOKEN_LOGPROBS if key in members and has_no_tokens(members[key])]
        if silent and keys.LOGPROB not in scores and not (text_of_value(dict(members)) or "").strip():
            scores[keys.LOGPROB] = 0.0  # the sum over no tokens
            read |= {*silent}
        if keys.LOGPROB not in scores and (logprob := logprob_of_parts(members)) is not None:
            scores[keys.LOGPROB] = logprob
        if not scores:
            self.tell_of_total(key for key, found in members.items() if is_number(found))
        return scores, read

    def _score(
        self,
        key: str,
        at: At,
        members: Mapping[str, Any],
        whole: Mapping[str, Any],
        tokens: Sequence[str] | None,
        names: Container[str],
    ) -> tuple[str, float]:
        """Return name and value of the score under a key, if ``names`` are those of other scores."""
        score = at.number(members[key], key)
        name = at.name(keys.name_of(key, members))
        normalised = keys.CTRANSLATE2 if tokens is not None and key == keys.SCORES else keys.NORMALISED.get(keys.of_header(key))
        if normalised:
            taken = normalised.sum_name in members or normalised.sum_name in names
            penalty = next((of[keys.LENGTH_PENALTY] for of in (whole, members) if is_number(of.get(keys.LENGTH_PENALTY))), 1.0)
            name, score = self.sum_of(key, score, normalised, _length(tokens, members), penalty, taken)
        return name, -score if keys.is_cost(keys.of_header(key)) or self._is_cost_of_sockeye(key, score, whole) else score

    def _is_cost_of_sockeye(self, key: str, score: float, whole: Mapping[str, Any]) -> bool:
        found = key in ("score", keys.SCORES) and score >= 0 and keys.is_of_sockeye(whole)
        if found:
            self.notes.add(f"{key} is taken for Sockeye's negative log-probability: read with the other sign, as score")
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
        self.notes.add(told)
        return name, score

    def _multiplied(self, key: str, score: float, length: int, power: float) -> float:
        try:
            product = score * float(length) ** power
        except (OverflowError, ZeroDivisionError):
            product = math.inf
        if not math.isfinite(product):
            by = f"{quoted(str(length))} tokens to the power {power:g}"
            raise InputError(f"{key} times {by} is not a finite number", path=self.notes.path)
        return product

    def _tell_of_costs(self, scores: Mapping[str, float]) -> None:
        for name, score in scores.items():
            if score > 0 and keys.is_cost(keys.of_header(name)):
                self.notes.warn(f"under scores, larger is better: {quoted(name)} keeps its sign there; if smaller is better, negate it")

    def tell_of_other_lists(self, whole: Mapping[str, Any], layout: Layout) -> None:
        """Tell of lists of numbers next to hypotheses without scores, one for each, that are not read because of their names."""
        count = len(layout.hypotheses)
        for key, values in whole.items() if layout.container is not None and count > 1 else ():
            may_be = isinstance(values, list) and len(values) == count and all(map(is_number, values))
            if may_be and keys.is_score(key) and not keys.is_score_column(key) and not keys.is_counter(keys.of_header(key)):
                advice = f"If it is one for each hypothesis, call it {quoted(f'{key}_score')}"
                self.notes.add(f"{quoted(key)} is not read: its name is not that of a score. {advice}")

    def _tell_of_unread(self, key: str, found: Any) -> None:
        """Tell of a member that is not read as a score although its name is like those of scores."""
        if keys.is_measurement(key):
            self.tell_of_measurement(key)
        elif isinstance(found, str) and key not in _TEXTS and keys.is_score(key) and is_fraction(found):
            self.notes.add(f"{quoted(key)} of a hypothesis is a number in quotes: it is not read as a score; write scores without quotes")
        elif isinstance(found, list | dict) and keys.is_list_of_scores(key) and "confidence" not in key.lower():
            kind = "a list" if isinstance(found, list) else "an object"
            self.notes.add(f"{quoted(key)} of a hypothesis is {kind}: it is not read as a score, which is one number")

    def tell_of_measurement(self, name: str) -> None:
        """Tell that a number is not read, because its name says that it was measured against the reference."""
        self.notes.add(
            f"{quoted(name)} of a hypothesis is taken for a measurement against the reference, and is not read as a score; if it is one, "
            "give it another name"
        )

    def tell_of_total(self, names: Iterable[str]) -> None:
        """Tell if the only number that may be the decoder's score has the name under which rescoring writes its own total."""
        for name in names:
            if name in keys.TOTALS:
                self.notes.add(
                    f"{quoted(name)} is what rescoring calls its own total: it is not read as a score, and rescoring replaces it. If it is "
                    "the decoder's, give it another name, such as score"
                )


def _numbers(lists: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, list[list[Any]]]:
    """Return what hypotheses have under each key with a number in any of them, for each list."""
    names = dict.fromkeys(key for of_list in lists for found in of_list for key, value in found.items() if is_number(value))
    return {name: [[found[name] for found in of_list if found.get(name) is not None] for of_list in lists] for name in names}


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


def require_scores_of_all(whole: Mapping[str, Any], layout: Layout, place: Place, counts: Container[str]) -> None:
    """Raise InputError for scores next to the hypotheses that are not one number for each: without a word they would count for nothing."""
    if layout.container is None or len(layout.hypotheses) == 1 or any(has_scores(hypothesis, counts) for hypothesis in layout.hypotheses):
        return
    if any(map(keys.is_score_column, layout.columns)):  # there are scores; this is something else
        return
    named = whole.get(keys.SCORES)
    count = len(layout.hypotheses)
    columns = [found for found in named.values() if isinstance(found, list) and len(found) == count] if isinstance(named, dict) else []
    if any(all(map(is_number, column)) for column in columns):
        found = quoted(json.dumps(named))
        raise place.error(f'is {found}: expected the scores in each hypothesis, {{"text": .., "scores": {{name: value}}}}', keys.SCORES)
    for key, values in whole.items():
        if key in (layout.container, *layout.columns) or not are_scores(key, values):
            continue
        if len(values) != len(layout.hypotheses):
            raise place.error(f"has {len(values)} numbers: expected {len(layout.hypotheses)}, one for each hypothesis", key)
        for i, value in enumerate(values):
            if value is not None:
                place.number(value, key, i)


def named_numbers(value: Sequence[Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a list with a text.

    Those of an object have its names. Of the others one is the score; those of pyctcdecode's beams have names; else they are numbered.
    """
    if named := [member for member in value if isinstance(member, dict)]:
        return ((name, number) for member in named for name, number in member.items() if is_number(number))
    numbers = [member for member in value if is_number(member)]
    if len(numbers) == 1:
        return iter([("score", numbers[0])])
    if len(numbers) == 2 and any(isinstance(member, list) for member in value):  # text, (state,) frames, logit_score, lm_score
        return iter([("logit_score", numbers[0]), ("score", numbers[1])])
    return ((f"f{i}", number) for i, number in enumerate(numbers, 1))


def is_fraction(text: str) -> bool:
    """Return whether a text is a number that is no id, count or rank: below 0 or with a point."""
    return is_written_number(text) and ("-" in text or "." in text)


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
