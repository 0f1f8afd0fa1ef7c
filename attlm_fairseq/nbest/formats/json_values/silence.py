"""Utterances without hypotheses are read as silence: as if one hypothesis stood there, an empty text."""

from __future__ import annotations

import re
from typing import Any

from attlm_fairseq.messages import FileNotes
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.json_values.layouts import layout_of
from attlm_fairseq.nbest.formats.json_values.members import with_members, without_member
from attlm_fairseq.nbest.formats.json_values.text import DECODER
from attlm_fairseq.nbest.formats.lines import split_end

_EMPTY = re.compile(r"\[\s*\]")
_EMPTY_HYPS = re.compile(r'"hyps"\s*:\s*\[\s*\]')


class SilenceReader:
    """Puts an empty hypothesis into the text of the utterances of one file that have none. Logs one line, once."""

    def __init__(self, path: str) -> None:
        self._notes = FileNotes(path)

    def filled(self, text: str, value: Any) -> str:
        """Return the JSON text of an utterance with its empty hypothesis, given its value; or as it is."""
        if value == [] and _EMPTY.search(text):
            return self._tell(_EMPTY.sub('[""]', text, count=1))
        if not isinstance(value, dict) or "{" not in text or (key := _without_hypotheses(value)) is None:
            return text
        return self._filled(text, key, '[{"text": ""}]')

    def filled_line(self, line: str) -> str:
        """Return a line of ``jsonl`` with its empty hypothesis, or as it is."""
        return self._filled(line, "hyps", '[{"text": ""}]') if _EMPTY_HYPS.search(line) and _value(line).get("hyps") == [] else line

    def filled_input(self, text: str, value: Any) -> str:
        """Return the text of an utterance of HyPoradise with its empty hypothesis, or as it is. Empty lists of scores go."""
        if not isinstance(value, dict) or value.get("input") != []:
            return text
        for key in [key for key, scores in value.items() if scores == [] and key != "input"]:
            text = without_member(text, key)
        return self._filled(text, "input", '[""]')

    def _filled(self, text: str, key: str, hypotheses: str) -> str:
        begin = text.index("{")
        body, end = split_end(text[begin:])
        return self._tell(text[:begin] + with_members(body, {key: hypotheses}) + end)

    def _tell(self, text: str) -> str:
        self._notes.add("utterances without hypotheses are read as silence: one hypothesis, an empty text without scores")
        return text


def _value(line: str) -> dict[str, Any]:
    """Return the object of a line; an empty one for anything else."""
    try:
        value = DECODER.decode(line)
    except (ValueError, RecursionError):  # its reader says what is wrong
        return {}
    return value if isinstance(value, dict) else {}


def _without_hypotheses(value: dict[str, Any]) -> str | None:
    """Return the key of an utterance's empty list of hypotheses; None if there is none, or if the object itself is a hypothesis."""
    key = next((key for key in keys.HYPOTHESES if value.get(key) == []), None)
    layout = None if key is None else layout_of(value)
    of_manifest = layout is not None and layout.is_row and "text" in value and keys.is_reference("text", key, value)
    return key if layout is None or of_manifest else None
