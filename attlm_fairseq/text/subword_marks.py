"""Count the lists whose texts carry subword marks, and warn of them."""

from __future__ import annotations

from collections.abc import Sequence

from attlm_fairseq.text.pipeline import TextPipeline
from attlm_fairseq.text.subwords import JOINED_STYLES, SUBWORD_STYLES


class SubwordMarks:
    """Counts the lists whose 1-best carries subword marks after the steps ``text``, and those whose references do.

    A metric, loss or vote over subwords differs from one over words, and nothing else would tell the user.
    """

    def __init__(self, text: TextPipeline) -> None:
        self.text = text
        self.lists = 0
        self.hypotheses = dict.fromkeys(JOINED_STYLES, 0)
        self.references = dict.fromkeys(JOINED_STYLES, 0)

    def add(self, first: str, references: Sequence[str] = ()) -> None:
        """Count a list: its 1-best hypothesis and its references."""
        self.lists += 1
        for style in JOINED_STYLES:
            self.hypotheses[style] += self._has(style, first)
            self.references[style] += any(self._has(style, reference) for reference in references)

    def warning(self, metric: str) -> str | None:
        """Return one line if hypotheses carry marks, else None: a warning if no reference carries them, else a note."""
        for style, count in self.hypotheses.items():
            mark = SUBWORD_STYLES[style].mark
            if count and self.references[style]:
                both = f"hypotheses and references are both in subwords ({mark})"
                return f"note: {both}: figures are of pieces; --metric-text join-subwords:{style} measures words"
            if count:
                advice = f"--metric-text join-subwords:{style} joins them for the metric"
                return f"WARNING: {self._carry(style)}, their references do not: {metric} compares pieces with words; {advice}"
        return None

    def warning_of_decision(self, rule: str) -> str | None:
        """Return one line if hypotheses carry marks, so that the losses or votes of the rule are over subwords; else None."""
        for style, count in self.hypotheses.items():
            if count:
                return f"WARNING: {self._carry(style)}: {rule} decides over pieces; --metric-text join-subwords:{style} joins them for it"
        return None

    def warning_of_corrections(self) -> str | None:
        """Return one line if hypotheses carry marks, so that corrections would learn to join them; else None."""
        for style, count in self.hypotheses.items():
            if count:
                return f"WARNING: {self._carry(style)}: corrections are of words; `attlm convert --text join-subwords:{style}` joins them"
        return None

    def _carry(self, style: str) -> str:
        mark = SUBWORD_STYLES[style].mark
        return f"the hypotheses of {self.hypotheses[style]} of {self.lists} lists carry subword marks ({mark})"

    def _has(self, style: str, text: str) -> bool:
        mark = SUBWORD_STYLES[style].in_text
        return mark.search(text) is not None and mark.search(self.text.prepared(text)) is not None
