"""One utterance as a JSON value, whichever tool wrote it: its hypotheses with their scores, its references, source and id.

Documented in ``docs/formats.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attlm_fairseq.errors import quoted
from attlm_fairseq.messages import FileNotes
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.hypothesis_scores import At, ScoreReader, is_fraction, named_numbers, require_scores_of_all
from attlm_fairseq.nbest.formats.json_values.layouts import (
    Layout,
    are_texts,
    id_key_of,
    key_of_tokens,
    layout_of,
    lists_like_hypotheses,
    not_an_utterance,
    text_keys,
    text_of_value,
)
from attlm_fairseq.nbest.formats.json_values.place import Place
from attlm_fairseq.nbest.formats.json_values.text import letters
from attlm_fairseq.nbest.formats.json_values.words import Words, words_of
from attlm_fairseq.nbest.nbest_list import Hypothesis
from attlm_fairseq.numeric import is_number


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


class Reader:
    """Reads the utterances of one file.

    Attributes:
        notes: what is told of the file, each note once.
        scores: reads the scores.
    """

    def __init__(self, path: str) -> None:
        self.notes = FileNotes(path)
        self.scores = ScoreReader(self.notes)

    def record(self, value: Any, place: Place, first: bool = False) -> Record:
        """Read an utterance.

        Raises:
            InputError: the value has no hypotheses, or a text, score or name of a score is wrong. For a ``first``
                value, the message says what is expected at length.
        """
        layout = layout_of(value)
        if layout is None:
            raise not_an_utterance(value, place, first)
        if (
            isinstance(value, dict)
            and layout.container not in (None, *keys.HYPOTHESES)
            and len(several := lists_like_hypotheses(value)) > 1
        ):
            raise place.error(f"has several lists of hypotheses, {' and '.join(several)}: give one the name hyps, and leave the others out")
        pairs = [found for found in layout.hypotheses if isinstance(found, list) and len(found) == 2 and are_texts(found)]
        in_words = any(" " in text for text, _ in pairs)  # a token has no space
        if in_words and len(pairs) == len(layout.hypotheses) and all(is_fraction(number) for _, number in pairs):
            steps = (0, 1) if layout.container is None else (layout.container, 0, 1)
            raise place.error(f"is {quoted(json.dumps(pairs[0][1]))}: expected a score without quotes", *steps)
        whole = value if isinstance(value, dict) else {}
        require_scores_of_all(whole, layout, place, self.scores.counts)
        hypotheses, extras = self._hypotheses(layout, whole, place)
        if not any(hypothesis.scores for hypothesis in hypotheses):
            self.scores.tell_of_other_lists(whole, layout)
        used = {layout.container, *layout.columns} if not layout.is_row else text_keys(whole)
        references, reference_key = _references(whole, used, layout.container, place)
        tell_of_reference_words(references, hypotheses, self.notes)
        self._tell_of_best_apart(whole, layout, hypotheses)
        id_key = _id_key(whole, place)
        if not layout.is_row:
            extras |= {key for key, found in whole.items() if found is not None} - used
        source_key = next((key for key in keys.SOURCES if key not in used and isinstance(whole.get(key), str)), None)
        source = place.text(whole[source_key], source_key) if source_key is not None else None
        extras -= {reference_key, source_key, id_key, *keys.NOT_READ}
        return Record(whole.get(id_key or ""), references, hypotheses, extras, layout.is_row, layout.container, source)

    def _tell_of_best_apart(self, whole: Mapping[str, Any], layout: Layout, hypotheses: Sequence[Hypothesis]) -> None:
        """Warn if an utterance has a text next to its hypotheses that is none of them: perhaps the decoder's best."""
        if layout.container is None:
            return
        for key in (key for key in keys.ALL_TEXTS if isinstance(whole.get(key), str) and key != layout.container):
            is_reference = key in keys.REFERENCES and keys.is_reference(key, layout.container, whole)
            if not is_reference and letters(whole[key]) not in {"", *(letters(hypothesis.text) for hypothesis in hypotheses)}:
                text = f"{quoted(key)} is not read: it is none of the hypotheses of {quoted(layout.container)} in some list"
                self.notes.warn(f"{text}; if it is the decoder's best, add it to them, as the first; if it is the reference, call it ref")

    def _hypotheses(self, layout: Layout, whole: Mapping[str, Any], place: Place) -> tuple[list[Hypothesis], set[str]]:
        """Return the hypotheses, and the names of their members that are not read."""
        steps: tuple[str | int, ...] = () if layout.container is None else (layout.container,)
        hypotheses: list[Hypothesis] = []
        extras: set[str] = set()
        for i, found in enumerate(layout.hypotheses):
            at = At(place, () if layout.is_row else (*steps, i), {key: (key, i) for key in layout.columns})
            of_columns = {key: whole[key][i] for key in layout.columns}
            hypothesis, unread = self._hypothesis(found, at, of_columns, whole, layout.container)
            hypothesis.rank = i + 1
            hypotheses.append(hypothesis)
            extras |= unread
        return hypotheses, extras

    def _hypothesis(
        self, value: Any, at: At, of_columns: Mapping[str, Any], whole: Mapping[str, Any], container: str | None
    ) -> tuple[Hypothesis, set[str]]:
        members = dict(of_columns)
        if keys.is_of_sockeye(whole) and isinstance(members.get(keys.SCORES), list):
            if len(members[keys.SCORES]) > 1:
                self.notes.add(
                    "scores: only the first number of each hypothesis is read, the score of the translation; others are of its factors"
                )
            members[keys.SCORES] = next(iter(members[keys.SCORES]), None)
        sums = [key for key in keys.SUMS if is_number(members.get(key)) and members[key] <= 0]
        # rescoring adds NAME_score; with other scores these may be of the tokens of one text
        if sums and isinstance(value, str) and not any(keys.is_score_column(key) and not key.endswith("_score") for key in members):
            members[keys.LOGPROB] = members[sums[0]]
        if isinstance(value, dict):
            members |= value
        elif isinstance(value, list) and not are_texts(value):
            members |= dict(named_numbers(value))
            if any(isinstance(found, list) and found and all(map(is_number, found)) for found in value):
                self.notes.add("a list of numbers next to the text of a hypothesis is not read: expected one score, [text, score]")
        text = at.place.text(text_of_value(value), *at.steps)
        if isinstance(value, dict) and not text and (key := key_of_tokens(value)) is not None and text_keys(value) == {key}:
            self.notes.add(f"{key} of a hypothesis is an empty list, read as silence (a decoder without a lexicon has no words)")
        tokens = value if isinstance(value, list) and are_texts(value) and container in keys.OF_CTRANSLATE2 else None
        scores, read = self.scores.read(members, at, whole, tokens)
        words = words_of(members, text)
        if words is None:
            self.notes.add("the words with times of a hypothesis are not those of its text: their times and confidences are not read")
            words = Words()
        read |= {*sums} if keys.LOGPROB in read else set()
        unread = members.keys() - read - (text_keys(members) if isinstance(value, dict) else set())
        return Hypothesis(text, scores, times=words.times, confidences=words.confidences), unread


def _references(whole: Mapping[str, Any], used: set[str | None], container: str | None, place: Place) -> tuple[tuple[str, ...], str | None]:
    """Return the references of an utterance, and their key."""
    for key in keys.REFERENCES:
        value = whole.get(key)
        is_text = isinstance(value, str) or (isinstance(value, list) and len(value) > 0 and are_texts(value))
        if is_text and key not in used and keys.is_reference(key, container, whole):
            return place.references(value, key), key
    for key in keys.SURE_REFERENCES:
        if key not in used and is_number(whole.get(key)) and not math.isnan(whole[key]):  # pandas writes NaN where there is none
            raise place.error(f"is {quoted(json.dumps(whole[key]))}: expected a text", key)
    return (), None


def tell_of_reference_words(references: Sequence[str], hypotheses: Sequence[Hypothesis], notes: FileNotes) -> None:
    """Warn if the references of an utterance are rather the words of one."""
    if len(references) < 2:
        return
    words = hypotheses[0].text.split()
    of_one = sum(reference in words for reference in references)
    if len(words) > 1 and 2 * of_one > len(references) and not any(" " in text for text in references):
        notes.warn("a list of words is read as that many references: if they are the words of one, write it as one text")


def _id_key(whole: Mapping[str, Any], place: Place) -> str | None:
    """Return the key of an utterance's id. Raises InputError if a number with a point has a name that comes before it."""
    id_key = id_key_of(whole)
    before = keys.IDS if id_key is None else keys.IDS[: keys.IDS.index(id_key)]
    if (fraction := next((key for key in before if isinstance(whole.get(key), float)), None)) is not None:
        raise place.error(f"is {whole[fraction]}: expected an id, a text or a whole number without a point", fraction)
    return id_key
