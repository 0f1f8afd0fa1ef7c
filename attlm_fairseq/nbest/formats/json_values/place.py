"""Checked values of a JSON text, with the line numbers of those that are wrong."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.json_values.members import children
from attlm_fairseq.nbest.formats.json_values.text import has_half
from attlm_fairseq.numeric import is_number


@dataclass(slots=True)
class Place:
    """The text of one list, for error messages. ``steps`` are the keys and indices that lead to a value.

    ``name`` is what messages call it; ``is_number``: a number, to which they add the id that the text has.
    """

    name: str
    raw: str
    path: str | None
    line: int
    is_number: bool = False

    def error(self, message: str, *steps: str | int) -> InputError:
        """Return the error, with the line on which the value stands (as far as the steps lead)."""
        at = 0
        for step in steps:
            child = next((child for index, child in enumerate(children(self.raw, at)) if step in (child.key, index)), None)
            if child is None:
                break
            at = child.value
        what = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
        line = self.line + self.raw.count("\n", 0, at)
        return InputError(f"{self.name}{self._id()}: {what}{' ' if what else ''}{message}", path=self.path, line=line)

    def _id(self) -> str:
        ids = {child.key: self.raw[child.value : child.end] for child in children(self.raw) if child.key in keys.IDS}
        found = next((ids[key] for key in keys.IDS if key in ids), "") if self.is_number else ""
        return f" (id {found})" if found[:1] == '"' or found.isdecimal() else ""

    def text(self, value: Any, *steps: str | int) -> str:
        """``value`` if it is a text that can be written, else the error."""
        if not isinstance(value, str):
            raise self.error(f"is {quoted(json.dumps(value))}: expected a text", *steps)
        if has_half(value):
            raise self.error("holds one half of a surrogate pair: not a Unicode text", *steps)
        return value

    def score_name(self, key: str, *steps: str | int) -> str:
        """``key``, of what stands at ``steps``, if it can be written, else the error."""
        if has_half(key):
            raise self.error(f"has a score named {json.dumps(key)}, which holds one half of a surrogate pair: not a Unicode text", *steps)
        return key

    def number(self, value: Any, *steps: str | int) -> float:
        """``value`` as a float if it is a finite number, else the error."""
        if not is_number(value):
            raise self.error(f"is {quoted(json.dumps(value))}: expected a number", *steps)
        try:
            score = float(value)
        except OverflowError:
            score = math.inf
        if not math.isfinite(score):
            raise self.error(f"is {score}: expected a finite number", *steps)
        return score

    def references(self, value: Any, key: str) -> tuple[str, ...]:
        """One reference, several, or none (null)."""
        if value is None:
            return ()
        if isinstance(value, list):
            return tuple(self.text(text, key, i) for i, text in enumerate(value))
        return (self.text(value, key),)

    def id(self, value: Any, number: int) -> str:
        """Return the id as text; without one, the number of the list."""
        if value is None:
            return str(number)
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.text(value, "id")
