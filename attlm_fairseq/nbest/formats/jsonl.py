"""The project's own lossless format: one JSON object per line, one line per list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import FileNotes
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.as_read import is_expanded
from attlm_fairseq.nbest.formats.hypothesis_scores import At, ScoreReader, are_scores, has_scores
from attlm_fairseq.nbest.formats.json_values.added_scores import exact, references_as_value, scores_as_members
from attlm_fairseq.nbest.formats.json_values.edits import confidences
from attlm_fairseq.nbest.formats.json_values.members import member, own_member, values_of, with_members, with_values, without_member
from attlm_fairseq.nbest.formats.json_values.place import Place
from attlm_fairseq.nbest.formats.json_values.records import tell_of_reference_words
from attlm_fairseq.nbest.formats.json_values.silence import SilenceReader
from attlm_fairseq.nbest.formats.json_values.text import DECODER, SHAPES, dumped, first_value, members_in
from attlm_fairseq.nbest.formats.keys import NOT_READ, OF_HYPOTHESES_TOO, REFERENCES, SCORES, TEXTS_OR_REFERENCES, is_score, is_score_column
from attlm_fairseq.nbest.formats.lines import filled_lines, split_end, write_lines
from attlm_fairseq.nbest.formats.own_text import added_scores, is_as_read, is_own, place_of, text_of
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFormat
from attlm_fairseq.nbest.formats.score_names import TOTAL
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import FileText, ListText
from attlm_fairseq.numeric import is_number

_MATCHES = re.compile(r'\s*\{\s*["}]')
_OF_LIST = frozenset(("id", "source", "ref", "sparse", "hyps"))
NAMES_OF_REFERENCES = frozenset(REFERENCES).difference(OF_HYPOTHESES_TOO, TEXTS_OR_REFERENCES)  # that are nothing else
_OF_HYPOTHESIS = frozenset(("text", SCORES, "times", *NOT_READ))


class JsonlFormat(NbestFormat):
    """One line per list: ``{"id": .., "source": "..", "ref": "..", "hyps": [{"text": "..", "scores": {name: value}}, ..]}``.

    Numbers next to the text are scores, too, as in ``JsonFormat``. Scores are written exactly. Lists from any format can be
    written.
    """

    name = "jsonl"
    holds = Holds(references=True, sources=True, scores=True, sparse=True, times=True)

    def matches(self, head: str) -> bool:
        if _MATCHES.match(head) is None:
            return False
        first = first_value(head)
        # the first line is cut or broken: an object by id may have hyps, too, within the lists
        return _is_own(first) if isinstance(first, dict) else any(key == "hyps" for key, _, _ in members_in(head))

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        file = FileText(self.name)
        reader, silence = ScoreReader(FileNotes(source.name)), SilenceReader(source.name)
        count = 0
        for count, (before, line, line_number) in enumerate(filled_lines(source, file), 1):
            filled = silence.filled_line(line)
            nbest, extras, numbered = _nbest_list(split_end(filled)[0], count - 1, reader, line_number)
            nbest.verbatim = ListText(file, before, filled, len(nbest.hypotheses), extras=tuple(sorted(extras)), numbered=numbered)
            nbest.verbatim.unfilled = line if filled != line else ""
            yield nbest
        if not count:
            raise InputError("no n-best list in it", path=source.name)

    def keeps(self, nbest: NbestList) -> bool:
        return text_of(nbest, self.name) is not None and is_expanded(nbest)

    def written_id(self, nbest: NbestList) -> None:
        """Return None: each line is a list of its own."""

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        write_lines(lists, out, self.name, lambda nbest: [_line(nbest)])


def _is_own(value: dict[str, Any]) -> bool:
    """Return whether a first list is of this format: its hypotheses are objects with their scores, if any, under ``scores``, and its
    references, if any, are called ``ref``."""
    if "ref" not in value and not NAMES_OF_REFERENCES.isdisjoint(value):
        return False
    hypotheses = value.get("hyps")
    first = hypotheses[0] if isinstance(hypotheses, list) and hypotheses else None
    if not isinstance(first, dict) or "text" not in first or _column(value) is not None:
        return False
    return SCORES in first or not any(is_number(number) and is_score(key) for key, number in first.items())


def _column(value: dict[str, Any]) -> str | None:
    """Return the key of a list of scores next to the hypotheses; None if there is none or they have ``scores``."""
    hypotheses = value["hyps"]
    if any(isinstance(hypothesis, dict) and SCORES in hypothesis for hypothesis in hypotheses):
        return None
    lists = {key: column for key, column in value.items() if is_score_column(key) and isinstance(column, list)}
    own = any(map(has_scores, hypotheses))

    def is_column(key: str, column: list[Any]) -> bool:
        fits = len(column) == len(hypotheses) and all(score is None or is_number(score) for score in column)
        return fits or (not own and are_scores(key, column))

    return next((key for key, column in lists.items() if is_column(key, column)), None)


def _nbest_list(body: str, count: int, reader: ScoreReader, line: int) -> tuple[NbestList, set[str], bool]:
    """Return the list, the names of its fields and its hypotheses' that only this format keeps, and whether it has no id."""
    path = reader.notes.path
    shapes = "" if count else f"; {SHAPES}"
    try:
        value = DECODER.decode(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON ({error}): expected one whole object per line{shapes}", path=path, line=line) from None
    place = Place(f"list {count}", body.lstrip(" \t\r"), path, line, is_number=True)
    if not isinstance(value, dict) or not isinstance(value.get("hyps"), list) or not value["hyps"]:
        at_least = 'with at least one hypothesis ({"text": ""} for silence)'
        raise place.error(f'is {quoted(body)}: expected {{"id": ..., "hyps": [{{"text": ...}}, ...]}} {at_least}{shapes}')
    if (column := _column(value)) is not None:
        expected = 'expected the scores of a hypothesis within it, {"text": ..., "scores": {...}}; --format json reads both'
        raise place.error(f"is {quoted(json.dumps(value[column]))}: {expected}", column)
    extras = {key for key, found in value.items() if found is not None} - _OF_LIST
    hypotheses = [_hypothesis(found, i, place, reader, value, extras) for i, found in enumerate(value["hyps"])]
    if count < keys.COUNTED_LISTS:
        reader.warn_of_other_order([value["hyps"]])
    sparse = value.get("sparse", False)
    if not isinstance(sparse, bool):
        raise place.error(f"is {quoted(json.dumps(sparse))}: expected true or false", "sparse")
    references = place.references(value.get("ref"), "ref")
    tell_of_reference_words(references, hypotheses, reader.notes)
    source = None if value.get("source") is None else place.text(value["source"], "source")
    name = place.id(value.get("id"), count)
    return NbestList(name, hypotheses, references, line, sparse=sparse, path=path, source=source), extras, value.get("id") is None


def _hypothesis(value: Any, index: int, place: Place, reader: ScoreReader, whole: dict[str, Any], extras: set[str]) -> Hypothesis:
    """Return the hypothesis, and add the names of its fields that are not read to ``extras``."""
    if not isinstance(value, dict) or "text" not in value:
        raise place.error(f'is {quoted(json.dumps(value))}: expected {{"text": ..., "scores": {{...}}}}', "hyps", index)
    if not isinstance(value.get(SCORES, {}), dict):
        raise place.error(f"is {quoted(json.dumps(value[SCORES]))}: expected {{name: value}}", "hyps", index, SCORES)
    scores, read = reader.read(value, At(place, ("hyps", index)), whole)
    extras |= value.keys() - _OF_HYPOTHESIS - read
    text = place.text(value["text"], "hyps", index, "text")
    return Hypothesis(text, scores, index + 1, times=_times(value.get("times"), len(text.split()), index, place))


def _times(value: Any, words: int, index: int, place: Place) -> tuple[tuple[float, float], ...]:
    if value is None:
        return ()
    pairs = isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    if not pairs or len(value) != words:
        raise place.error(f"is {quoted(json.dumps(value))}: expected [begin, end] for each of the {words} words", "hyps", index, "times")
    times: list[tuple[float, float]] = []
    for word, pair in enumerate(value):
        begin, end = (place.number(time, "hyps", index, "times", word, side) for side, time in enumerate(pair))
        if not 0 <= begin <= end:
            raise place.error(f"is {quoted(json.dumps(pair))}: expected 0 <= begin <= end", "hyps", index, "times", word)
        if times and begin < times[-1][0]:
            expected = f"expected a begin of at least {times[-1][0]}, that of the word before"
            raise place.error(f"is {quoted(json.dumps(pair))}: {expected}", "hyps", index, "times", word)
        times.append((begin, end))
    return tuple(times)


def _line(nbest: NbestList) -> str:
    own = text_of(nbest, JsonlFormat.name)
    if own is None:
        return _new_line(nbest)
    if is_as_read(nbest, own) and nbest.sausage is None:
        return own.as_read
    body, end = split_end(own.own)
    text = body.lstrip(" \t\r")
    column = own_member(text, "hyps")
    texts = values_of(column)
    now = [texts[place_of(nbest, one)] if is_own(one) else dumped(_new_hypothesis(nbest, one)) for one in nbest.hypotheses]
    changed = [_changed(nbest, hypothesis, found) for hypothesis, found in zip(nbest.hypotheses, now, strict=True)]
    new = with_members(text, {"hyps": with_values(column, changed)} | confidences(nbest))
    if nbest.sausage is None and keys.CONFIDENCES in own.extras:
        new = without_member(new, keys.CONFIDENCES)  # they were of another rescoring, perhaps of another first hypothesis
    return body[: len(body) - len(text)] + new + end


def _changed(nbest: NbestList, hypothesis: Hypothesis, text: str) -> str:
    """Return the text of a hypothesis with the scores that it has got, those of LMs, and its total."""
    new = {}
    added = added_scores(hypothesis) if is_own(hypothesis) else {}  # a new one has all of its scores in its text
    scores = {name: exact(score, name, nbest) for name, score in added.items()}
    scores |= scores_as_members(hypothesis.lm_scores, nbest, hypothesis.scores)
    if scores:
        new[SCORES] = with_members(member(text, SCORES) or "{}", scores)
    if hypothesis.total is not None:
        new[TOTAL] = exact(hypothesis.total, TOTAL, nbest)
    elif hypothesis.lm_scores:
        text = without_member(text, TOTAL)  # that of an earlier rescoring
    return with_members(text, new) if new else text


def _new_hypothesis(nbest: NbestList, hypothesis: Hypothesis) -> dict[str, Any]:
    """Return a hypothesis that was not read from this format. Raises InputError if a score is not finite."""
    for name, score in hypothesis.scores.items():
        exact(score, name, nbest)
    return {"text": hypothesis.text, SCORES: hypothesis.scores} | ({"times": hypothesis.times} if hypothesis.times else {})


def _new_line(nbest: NbestList) -> str:
    """Return the line of a list that was read from another format."""
    value: dict[str, Any] = {"id": nbest.id}
    if nbest.source is not None:
        value["source"] = nbest.source
    if nbest.references:
        value["ref"] = references_as_value(nbest)
    if nbest.sparse:
        value["sparse"] = True
    value["hyps"] = [_new_hypothesis(nbest, hypothesis) for hypothesis in nbest.hypotheses]
    texts = [_changed(nbest, hypothesis, dumped(found)) for hypothesis, found in zip(nbest.hypotheses, value["hyps"], strict=True)]
    return with_members(dumped(value), {"hyps": f"[{', '.join(texts)}]"} | confidences(nbest)) + "\n"
