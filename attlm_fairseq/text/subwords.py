"""Hypotheses in subwords: what a metric, a loss or a vote makes of pieces is not what it makes of words, and nothing says so."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attlm_fairseq.text import TextPipeline

# by the argument of the text step join-subwords
_SIGNS = {"bpe": "@@", "sentencepiece": "\u2581", "wordpiece": "##"}
_MARKS = {"bpe": re.compile(r"@@(?:\s|$)"), "sentencepiece": re.compile("\u2581"), "wordpiece": re.compile(r"(?:^|\s)##(?=\S)")}


class SubwordMarks:
    """Counts the lists whose first hypothesis has marks of subwords after the steps ``text``, and those whose references have."""

    def __init__(self, text: TextPipeline) -> None:
        self.text = text
        self.lists = 0
        self.hypotheses = dict.fromkeys(_MARKS, 0)
        self.references = dict.fromkeys(_MARKS, 0)

    def add(self, first: str, references: Sequence[str] = ()) -> None:
        """A list: its first hypothesis and its references."""
        self.lists += 1
        for kind, mark in _MARKS.items():
            self.hypotheses[kind] += self._has(mark, first)
            self.references[kind] += any(self._has(mark, reference) for reference in references)

    def warning(self, metric: str) -> str | None:
        """One line where hypotheses have marks, for the metric of that name: a warning where no reference has them, else a note."""
        for kind, count in self.hypotheses.items():
            if count and self.references[kind]:
                both = f"hypotheses and references are both in subwords ({_SIGNS[kind]})"
                return f"note: {both}: figures are of pieces; --metric-text join-subwords:{kind} measures words"
            if count:
                carry = f"the hypotheses of {count} of {self.lists} lists carry subword marks ({_SIGNS[kind]}), their references do not"
                advice = f"--metric-text join-subwords:{kind} joins them for the metric"
                return f"WARNING: {carry}: {metric} compares pieces with words; {advice}"
        return None

    def warning_of_decision(self, rule: str) -> str | None:
        """One line where hypotheses have marks and the rule takes losses or votes of them."""
        for kind, count in self.hypotheses.items():
            if count:
                carry = f"the hypotheses of {count} of {self.lists} lists carry subword marks ({_SIGNS[kind]})"
                return f"WARNING: {carry}: {rule} decides over pieces; --metric-text join-subwords:{kind} joins them for it"
        return None

    def _has(self, mark: re.Pattern[str], text: str) -> bool:
        return mark.search(text) is not None and mark.search(self.text.prepared(text)) is not None
