"""The text of JSON lists as it is written: their own text with changes, or that of lists from elsewhere."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any

from attlm_fairseq.errors import InputWarning
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.json_values.added_scores import added_columns, added_members, exact, references_as_value, scores_as_members
from attlm_fairseq.nbest.formats.json_values.layouts import Layout, id_key_of, layout_of, text_of_value
from attlm_fairseq.nbest.formats.json_values.members import own_member, values_of, with_members, with_values, without_member
from attlm_fairseq.nbest.formats.json_values.text import DECODER, dumped, letters
from attlm_fairseq.nbest.formats.lines import split_end
from attlm_fairseq.nbest.formats.own_text import added_scores, is_as_read, is_own, is_rescored, own_text, place_of
from attlm_fairseq.nbest.formats.score_names import TOTAL
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

FORMAT = "json"


class ListWriter:
    """Writes lists in the place where they stood; says once if scores have no place there."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def lines(self, nbest: NbestList) -> list[str]:
        """Return the lines of a list of JSON lines: one, or one for each hypothesis if these are rows."""
        own = own_text(nbest, FORMAT)
        if are_rows(nbest):
            self.tell_of_confidences(nbest)
            row = _row_of(nbest)
            return [self._row(nbest, hypothesis, row) for hypothesis in nbest.hypotheses]
        if is_as_read(nbest, own) and nbest.sausage is None:
            return [own.as_read]
        body, end = split_end(own.own)
        text = body.lstrip(" \t\r")
        return [body[: len(body) - len(text)] + self.edited(text, nbest) + end]

    def _row(self, nbest: NbestList, hypothesis: Hypothesis, row: str) -> str:
        if hypothesis.verbatim is None:
            return _with_scores(_filled(row, hypothesis), nbest, hypothesis) + "\n"
        own = hypothesis.verbatim.own
        begin = own.index("{")
        body, end = split_end(own[begin:])
        return own[:begin] + _with_scores(body, nbest, hypothesis) + end

    def item(self, nbest: NbestList) -> str:
        """Return the text of a list within a document, or of its rows."""
        own = own_text(nbest, FORMAT)
        if is_as_read(nbest, own) and nbest.sausage is None:
            return own.as_read
        if not are_rows(nbest):
            return self.edited(own.own, nbest)
        self.tell_of_confidences(nbest)
        row = _row_of(nbest)
        rows = values_of(f"[{own.own}]")
        now = [rows[place_of(nbest, one)] if is_own(one) else _filled(row, one) for one in nbest.hypotheses]
        changed = [_with_scores(value, nbest, hypothesis) for value, hypothesis in zip(now, nbest.hypotheses, strict=True)]
        return with_values(f"[{own.own}]", changed)[1:-1]

    def edited(self, text: str, nbest: NbestList) -> str:
        """Return the text of an utterance with its hypotheses as they are now, and with the word confidences of the first."""
        new = self.with_hypotheses(text, nbest)
        layout = layout_of(DECODER.decode(new))
        if not new.startswith("{") or layout is None or layout.is_row:
            self.tell_of_confidences(nbest)
            return new
        if nbest.sausage is not None:
            return with_members(new, confidences(nbest))
        if any(map(is_rescored, nbest.hypotheses)):  # they were of another rescoring, perhaps of another first hypothesis
            return without_member(new, keys.CONFIDENCES)
        return new

    def with_hypotheses(self, text: str, nbest: NbestList) -> str:
        """Return the text of an utterance with its hypotheses as they are now."""
        utterance = DECODER.decode(text)
        layout = layout_of(utterance)
        if layout is None:
            raise nbest.error(f"list {nbest.id} is not what was read")
        hypotheses = nbest.hypotheses
        if layout.is_row:
            return _with_scores(text, nbest, hypotheses[0])
        values = text if layout.container is None else own_member(text, layout.container)
        are_objects = all(isinstance(value, dict) for value in layout.hypotheses)
        found = values_of(values)
        if layout.container is not None and not is_in_input_order(nbest):
            for key in unmoved_lists(utterance, layout.container, layout.columns):
                self._tell(f"{key}: not reordered, although this list may have one value per hypothesis of `{layout.container}`", nbest)
        if layout.container is not None and not (is_own(hypotheses[0]) and place_of(nbest, hypotheses[0]) == 0):
            for key in repeating_fields(utterance, layout):
                self._warn(
                    f"`{key}` is not changed: it repeats the decoder's best hypothesis; the new best is the first of `{layout.container}`",
                    nbest,
                )
        if any(not is_own(hypothesis) or added_scores(hypothesis) for hypothesis in hypotheses):
            return _expanded(text, values, layout, nbest)
        now = [found[place_of(nbest, hypothesis)] for hypothesis in hypotheses]
        if are_objects:
            now = [_with_scores(value, nbest, hypothesis) for value, hypothesis in zip(now, hypotheses, strict=True)]
        values = with_values(values, now)
        if layout.container is None:
            if not are_objects and any(map(is_rescored, hypotheses)):
                self._tell("lists of texts have no place for scores: only the order of the hypotheses changes; see --to jsonl", nbest)
            return values
        new = {layout.container: values}
        for key in layout.columns:
            column = own_member(text, key)
            found = values_of(column)
            new[key] = with_values(column, [found[place_of(nbest, hypothesis)] for hypothesis in hypotheses])
        return with_members(text, new if are_objects else new | added_columns(nbest, layout.columns, keys.as_column))

    def tell_of_confidences(self, nbest: NbestList) -> None:
        """Log that the word confidences of a list are not written, if it has any."""
        if nbest.sausage is not None:
            self._tell("lists of this shape have no place for word confidences; see --to jsonl", nbest)

    def _tell(self, what: str, nbest: NbestList) -> None:
        if what not in self._told:
            self._told.add(what)
            note(f"note: {nbest.path}: {what}")

    def _warn(self, what: str, nbest: NbestList) -> None:
        if what not in self._told:
            self._told.add(what)
            warnings.warn(InputWarning(f"{nbest.path}: {what}"), stacklevel=2)


def is_in_input_order(nbest: NbestList) -> bool:
    """Return whether the hypotheses of a list are those that were read, in their order."""
    return all(is_own(one) and place_of(nbest, one) == place for place, one in enumerate(nbest.hypotheses))


def unmoved_lists(value: Mapping[str, Any], container: str, moving: Collection[str]) -> list[str]:
    """Return the keys of lists that may have one value per hypothesis but are not reordered with them: as many values, at least two."""
    known = {container, *moving, keys.CONFIDENCES, *keys.REFERENCES}
    count = len(value[container])
    return [key for key, found in value.items() if key not in known and isinstance(found, list) and len(found) == count > 1]


def repeating_fields(value: Mapping[str, Any], layout: Layout) -> list[str]:
    """Return the keys of texts and scores of an utterance, next to the list of hypotheses, that are those of its first hypothesis."""
    texts = {key for key in keys.ALL_TEXTS if key not in keys.REFERENCES or not keys.is_reference(key, layout.container, value)}
    text = letters(text_of_value(layout.hypotheses[0]) or "")
    firsts = [value[key][0] for key in layout.columns]
    scores = [first[0] if isinstance(first, list) and first else first for first in firsts]

    def repeats(key: str, found: Any) -> bool:
        if isinstance(found, str):
            return key in texts and text == letters(found) != ""
        return isinstance(found, float) and keys.is_score_column(key) and found in scores

    return [key for key, found in value.items() if key not in (layout.container, *layout.columns) and repeats(key, found)]


def are_rows(nbest: NbestList) -> bool:
    """Return whether the hypotheses of a list stood in rows of their own."""
    return any(hypothesis.verbatim is not None and hypothesis.verbatim.own for hypothesis in nbest.hypotheses)


def _row_of(nbest: NbestList) -> str:
    """Return a row of a list without its scores, for new hypotheses; "" if there are none.

    Next to the id and the references, it has what is the same text in all rows of the list, if there are several.
    """
    if all(map(is_own, nbest.hypotheses)):
        return ""
    rows = [DECODER.decode(one.verbatim.own.strip().removeprefix(",")) for one in nbest.hypotheses if one.verbatim and one.verbatim.own]
    first = rows[0]
    text_key = _text_key(first)
    of_list = {id_key_of(first), text_key, *keys.REFERENCES}
    if len(rows) > 1:
        of_list.update(key for key, value in first.items() if isinstance(value, str) and all(row.get(key) == value for row in rows))
    return dumped({key: value for key, value in first.items() if key in of_list}, allow_nan=True)


def _filled(row: str, hypothesis: Hypothesis) -> str:
    """Return ``row`` with the text of a hypothesis."""
    return with_members(row, {_text_key(DECODER.decode(row)): dumped(hypothesis.text)})


def _text_key(hypothesis: Any) -> str:
    """Return the key of a hypothesis' text, by which a new one has its text, too."""
    known = hypothesis if isinstance(hypothesis, dict) else {}
    return next((key for key in keys.ALL_TEXTS if isinstance(known.get(key), str)), "text")


def _expanded(text: str, values: str, layout: Layout, nbest: NbestList) -> str:
    """Return the text of an utterance that new hypotheses or scores have joined: all of its hypotheses are objects.

    ``values`` is the text of the list of its hypotheses.
    """
    first = layout.hypotheses[0]
    are_objects = all(isinstance(value, dict) for value in layout.hypotheses)
    nested: dict[str, Any] = {keys.SCORES: {}} if are_objects and isinstance(first.get(keys.SCORES), dict) else {}
    found = values_of(values)
    now = []
    for hypothesis in nbest.hypotheses:
        if are_objects and is_own(hypothesis):
            value = _with_added(found[place_of(nbest, hypothesis)], added_scores(hypothesis), nbest)
        else:
            value = _with_added(dumped({_text_key(first): hypothesis.text} | nested), hypothesis.scores, nbest)
        now.append(_with_lm_scores(value, nbest, hypothesis))
    values = with_values(values, now)
    if layout.container is None:
        return values
    for key in layout.columns:
        text = without_member(text, key)
    return with_members(text, {layout.container: values})


def _with_added(text: str, added: Mapping[str, float], nbest: NbestList) -> str:
    """Return the text of a hypothesis that is an object, with scores that it has got.

    They stand where the others stand: under ``scores``, if there is such an object, or next to the text. A score that would be
    read there as another one, or as a text, stands under ``scores``.
    """
    if not added:
        return text
    value = DECODER.decode(text)
    nested = value.get(keys.SCORES)
    next_to_text: dict[str, str] = {}
    within: dict[str, str] = {}
    for name, score in added.items():
        is_next = not isinstance(nested, dict) and name not in value and keys.as_member(name) == name
        (next_to_text if is_next else within)[name] = exact(score, name, nbest)
    if within:
        next_to_text[keys.SCORES] = with_members(own_member(text, keys.SCORES) if isinstance(nested, dict) else "{}", within)
    return with_members(text, next_to_text)


def _with_scores(text: str, nbest: NbestList, hypothesis: Hypothesis) -> str:
    """Return the text of a hypothesis that is an object, with the scores that it has got, those of LMs, and its total."""
    return _with_lm_scores(_with_added(text, added_scores(hypothesis), nbest), nbest, hypothesis)


def _with_lm_scores(text: str, nbest: NbestList, hypothesis: Hypothesis) -> str:
    if not is_rescored(hypothesis):
        return text
    if hypothesis.total is None:
        text = without_member(text, TOTAL)  # that of an earlier rescoring
    value = DECODER.decode(text)
    nested = value.get(keys.SCORES)
    if not isinstance(nested, dict) or not hypothesis.lm_scores:
        return with_members(text, added_members(hypothesis, nbest, [*value, *hypothesis.scores], keys.as_member))
    added = scores_as_members(hypothesis.lm_scores, nbest, [*nested, *hypothesis.scores])
    total = {} if hypothesis.total is None else {TOTAL: exact(hypothesis.total, TOTAL, nbest)}
    return with_members(text, {keys.SCORES: with_members(own_member(text, keys.SCORES), added)} | total)


def new_item(nbest: NbestList) -> str:
    """Return the utterance, with its id, of a list that was read from another format."""
    hypotheses = []
    for hypothesis in nbest.hypotheses:
        scores = scores_as_members(hypothesis.scores, nbest, ["text", TOTAL], keys.as_member)
        hypotheses.append(_with_lm_scores(with_members(dumped({"text": hypothesis.text}), scores), nbest, hypothesis))
    told = ({"source": nbest.source} if nbest.source is not None else {}) | (
        {"ref": references_as_value(nbest)} if nbest.references else {}
    )
    value = with_members(
        dumped(told),
        {"nbest": f"[{', '.join(hypotheses)}]"} | confidences(nbest),
    )
    return f"{dumped(nbest.id)}: {value}"


def confidences(nbest: NbestList) -> dict[str, str]:
    """Return the word confidences as a member of the list, if it has any."""
    if nbest.sausage is None:
        return {}
    return {keys.CONFIDENCES: dumped([[word, round(share, 6)] for word, share in nbest.sausage.answer])}
