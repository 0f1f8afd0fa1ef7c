"""Hypotheses in subwords beside references in words: a metric of the two measures nothing, and says so nowhere."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attlm_fairseq.nbest.metrics import Metric

# by the argument of the text step join-subwords
_SIGNS = {"bpe": "@@", "sentencepiece": "\u2581", "wordpiece": "##"}
_MARKS = {"bpe": re.compile(r"@@(?:\s|$)"), "sentencepiece": re.compile("\u2581"), "wordpiece": re.compile(r"(?:^|\s)##(?=\S)")}


class SubwordMarks:
    """Counts the lists whose first hypothesis has marks of subwords as the metric sees it, and those whose references have."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.lists = 0
        self.hypotheses = dict.fromkeys(_MARKS, 0)
        self.references = dict.fromkeys(_MARKS, 0)

    def add(self, first: str, references: Sequence[str]) -> None:
        """A list: its first hypothesis and its references."""
        self.lists += 1
        for kind, mark in _MARKS.items():
            self.hypotheses[kind] += self._has(mark, first)
            self.references[kind] += any(self._has(mark, reference) for reference in references)

    def warning(self) -> str | None:
        """One line where hypotheses have marks that no reference has."""
        for kind, count in self.hypotheses.items():
            if count and not self.references[kind]:
                carry = f"the hypotheses of {count} of {self.lists} lists carry subword marks ({_SIGNS[kind]}), their references do not"
                advice = f"--metric-text join-subwords:{kind} joins them for the metric"
                return f"WARNING: {carry}: {self.metric.name} compares pieces with words; {advice}"
        return None

    def _has(self, mark: re.Pattern[str], text: str) -> bool:
        return mark.search(text) is not None and mark.search(self.metric.prepared(text)) is not None
