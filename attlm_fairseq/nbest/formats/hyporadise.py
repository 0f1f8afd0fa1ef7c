"""HyPoradise: a JSON array of utterances."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, TextIO

from attlm_fairseq.errors import InputWarning, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import FileNotes
from attlm_fairseq.nbest.formats.as_read import is_expanded
from attlm_fairseq.nbest.formats.json_values.added_scores import TOTAL_COLUMN, added_columns, exact, references_as_value
from attlm_fairseq.nbest.formats.json_values.document import Item, stream_items, write_document
from attlm_fairseq.nbest.formats.json_values.edits import is_in_input_order, unmoved_lists
from attlm_fairseq.nbest.formats.json_values.members import own_member, values_of, with_members, with_values, without_member
from attlm_fairseq.nbest.formats.json_values.place import Place
from attlm_fairseq.nbest.formats.json_values.silence import SilenceReader
from attlm_fairseq.nbest.formats.json_values.text import DECODER, SHAPES, dumped, first_value, letters
from attlm_fairseq.nbest.formats.keys import is_list_of_scores
from attlm_fairseq.nbest.formats.own_text import added_scores, is_as_read, is_own, own_text, place_of, text_of
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFormat
from attlm_fairseq.nbest.formats.score_names import fresh_names
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import FileText, ListText
from attlm_fairseq.numeric import is_number

AM_SCORE = "am_score"
_MATCHES = re.compile(r"\s*\[\s*\{")
_IS_SCORE = re.compile(r"score\d*$")  # with a number if an LM has scored the lists under the same name before


class HyporadiseFormat(NbestFormat):
    """``[{"input": [hypotheses, best first], "output": reference, "am_score": [...], ...}, ...]``. All other keys are kept."""

    name = "hyporadise"
    holds = Holds(references=True, scores=True, score_name=lambda name: score_key(name), total_name=TOTAL_COLUMN)

    def matches(self, head: str) -> bool:
        if _MATCHES.match(head) is None:
            return False
        first = first_value(head)
        return isinstance(first.get("input"), list) if isinstance(first, dict) else '"input"' in head

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        file = FileText(self.name)
        silence = SilenceReader(source.name)
        notes = FileNotes(source.name)
        for number, item in enumerate(stream_items(source, file, "[")):
            unfilled = ""
            if (filled := silence.filled_input(item.raw, item.value)) != item.raw:
                unfilled, item = item.raw, replace(item, raw=filled, value=DECODER.decode(filled))
            nbest = _nbest_list(item, number, source.name)
            for key in _other_lists_of_scores(item.value):
                notes.add(f"{key} is not read: a list of scores is called ..score and has a number for each hypothesis, not in quotes")
            extras = item.value.keys() - {"id", "input", "output", TOTAL_COLUMN, *nbest.hypotheses[0].scores}
            nbest.verbatim = ListText(file, item.before, item.raw, len(nbest.hypotheses), extras=tuple(sorted(extras)), unfilled=unfilled)
            yield nbest

    def written_id(self, nbest: NbestList) -> None:
        """Return None: each item is a list of its own."""

    def keeps(self, nbest: NbestList) -> bool:
        names = nbest.hypotheses[0].scores.keys()
        same_scores = all(hypothesis.scores.keys() == names for hypothesis in nbest.hypotheses)
        return text_of(nbest, self.name) is not None and is_expanded(nbest) and same_scores

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        repeating: dict[str, None] = {}
        unmoved: dict[str, None] = {}

        def text(nbest: NbestList) -> str:
            best = nbest.hypotheses[0]
            if not repeating and not (is_own(best) and place_of(nbest, best) == 0):
                repeating.update(dict.fromkeys(_repeating_keys(nbest)))
            if not unmoved and not is_in_input_order(nbest):
                value = DECODER.decode(own_text(nbest, self.name).own)
                unmoved.update(dict.fromkeys(unmoved_lists(value, "input", _score_keys(value))))
            return _text(nbest)

        write_document(lists, out, self.name, text, "[]", _new_item)
        if repeating:
            message = f"{', '.join(repeating)} of the lists repeat the hypotheses in input order, and stay as they are: `input` has the new"
            warnings.warn(InputWarning(f"{message} order"), stacklevel=2)
        if unmoved:
            message = f"{', '.join(unmoved)}: not reordered, although these lists may have one value per hypothesis of `input`"
            warnings.warn(InputWarning(message), stacklevel=2)


def _nbest_list(item: Item, number: int, path: str) -> NbestList:
    value = item.value
    place = Place(f"item {number + 1}", item.raw, path, item.line, is_number=True)
    if not isinstance(value, dict) or "input" not in value:
        shapes = "" if number else f"; {SHAPES}"
        raise place.error(f'is {quoted(item.raw)}: expected {{"input": [hypotheses], "output": reference}}{shapes}')
    texts = value["input"]
    if not isinstance(texts, list) or not texts:
        raise place.error(f'is {quoted(json.dumps(texts))}: expected a list of at least one hypothesis ("" for silence)', "input")
    hypotheses = [Hypothesis(place.text(text, "input", i), rank=i + 1) for i, text in enumerate(texts)]
    for key in _score_keys(value):
        scores = value[place.score_name(key)]
        if not isinstance(scores, list) or len(scores) != len(texts):
            raise place.error(f"is {quoted(json.dumps(scores))}: expected a list of {len(texts)} numbers, one per hypothesis", key)
        for i, score in enumerate(scores):
            checked = place.number(score, key, i)
            if key != TOTAL_COLUMN:
                hypotheses[i].scores[key] = checked
    return NbestList(place.id(value.get("id"), number), hypotheses, place.references(value.get("output"), "output"), item.line, path=path)


def _score_keys(value: dict[str, Any]) -> list[str]:
    """Return the keys that hold one number per hypothesis (``am_score`` must)."""
    count = len(value["input"])

    def is_column(key: str, scores: Any) -> bool:
        return _IS_SCORE.search(key) is not None and isinstance(scores, list) and len(scores) == count and all(map(is_number, scores))

    return [key for key, scores in value.items() if key == AM_SCORE or is_column(key, scores)]


def _other_lists_of_scores(value: dict[str, Any]) -> list[str]:
    """Return the keys of lists with a score's name that ``_score_keys`` leaves out."""
    read = {*_score_keys(value), TOTAL_COLUMN}
    return [key for key, found in value.items() if isinstance(found, list) and is_list_of_scores(key) and key not in read]


def _repeating_keys(nbest: NbestList) -> list[str]:
    """Return the fields of a list that hold the words of its first hypothesis as read, or of all others one after the other."""
    value = DECODER.decode(own_text(nbest, HyporadiseFormat.name).own)
    first, *others = map(letters, value["input"])
    repeated = {first, "".join(others)} - {""}
    return [key for key, text in value.items() if key != "output" and isinstance(text, str) and letters(text) in repeated]


def _text(nbest: NbestList) -> str:
    own = own_text(nbest, HyporadiseFormat.name)
    text = own.own
    if is_as_read(nbest, own):
        return own.as_read
    hypotheses = nbest.hypotheses
    if (hypotheses[0].lm_scores and hypotheses[0].total is None) or not all(map(is_own, hypotheses)):
        text = without_member(text, TOTAL_COLUMN)  # that of an earlier rescoring, which a new hypothesis has not
    value = DECODER.decode(text)
    new = {}
    for key in ["input", *_score_keys(value)]:
        column = own_member(text, key)
        texts = values_of(column)
        now = [texts[place_of(nbest, one)] if is_own(one) else _value_of_new(one, key, nbest) for one in hypotheses]
        new[key] = with_values(column, now)
    for name, key in fresh_names(added_scores(next(filter(is_own, hypotheses))), [*value, TOTAL_COLUMN], score_key).items():
        new[key] = f"[{', '.join(exact(hypothesis.scores[name], name, nbest) for hypothesis in hypotheses)}]"
    return with_members(with_members(text, new), added_columns(nbest, [*value, *new], score_key))


def _value_of_new(hypothesis: Hypothesis, key: str, nbest: NbestList) -> str:
    """Return what stands for a new hypothesis in the list under a key, that of the texts or of scores."""
    return dumped(hypothesis.text) if key == "input" else exact(hypothesis.scores[key], key, nbest)


def _new_item(nbest: NbestList) -> str:
    """Return the utterance of a list that was read from another format."""
    hypotheses = nbest.hypotheses
    text = dumped(
        {
            "id": nbest.id,
            "input": [hypothesis.text for hypothesis in hypotheses],
            "output": references_as_value(nbest) if nbest.references else None,
        }
    )
    rows = [hypothesis.scores for hypothesis in hypotheses]
    if any(row.keys() != rows[0].keys() for row in rows):
        raise nbest.error(f"list {nbest.id}: its hypotheses do not have the same scores, which hyporadise needs; write jsonl instead")
    columns = {}
    for name, key in fresh_names(rows[0], [TOTAL_COLUMN], score_key).items():
        columns[key] = f"[{', '.join(exact(row[name], name, nbest) for row in rows)}]"
    return with_members(with_members(text, columns), added_columns(nbest, columns, score_key))


def score_key(name: str) -> str:
    """Return the key under which a score is written."""
    return name if name.endswith("score") else f"{name}_score"
