"""Recognise, join and warn of subwords, for every style of marking them: @@, U+2581, ##, </w> and Ġ."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attlm_fairseq.text.pipeline import TextPipeline


@dataclass(frozen=True)
class SubwordStyle:
    """A style of marking subwords: ``mark`` stands before or after a token; ``in_text`` finds it in a text of tokens."""

    mark: str
    before: bool
    in_text: re.Pattern[str]

    def marks(self, token: str) -> bool:
        """Return whether the token consists of the mark and at least one other character."""
        return len(token) > len(self.mark) and (token.startswith(self.mark) if self.before else token.endswith(self.mark))


SUBWORD_STYLES = {
    "byte-level": SubwordStyle("\u0120", True, re.compile("\u0120")),  # GPT-2, Bart, Whisper: before a word, bytes as letters
    "wordpiece": SubwordStyle("##", True, re.compile(r"(?:^|\s)##(?=\S)")),  # BERT: within a word
    "word-end": SubwordStyle("</w>", False, re.compile(r"</w>(?:\s|$)")),  # after a word
    "bpe": SubwordStyle("@@", False, re.compile(r"@@(?:\s|$)")),  # subword-nmt: the word continues
    "sentencepiece": SubwordStyle("\u2581", True, re.compile("\u2581")),  # before a word
}
JOINED_STYLES = ("bpe", "sentencepiece", "wordpiece")  # arguments of the text step join-subwords
MARKED_SHARE = 0.03  # of the tokens, at the least: in a vocabulary of words such tokens are accidents


def recognise_style(tokens: Collection[str]) -> str | None:
    """Return the style (a key of SUBWORD_STYLES) whose mark most tokens carry; None if fewer than ``MARKED_SHARE`` carry it."""
    counts = {name: sum(map(style.marks, tokens)) for name, style in SUBWORD_STYLES.items()}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] >= max(1.0, MARKED_SHARE * len(tokens)) else None


def join_subwords(style: str, text: str) -> str:
    """Return a text of subwords in a style of JOINED_STYLES as words; a text without marks is returned unchanged."""
    if style == "bpe":
        return re.sub(r"@@(\s+|$)", "", text)
    if style == "wordpiece":
        return re.sub(r"(?:^|(?<!\s)\s+)##(?=\S)", "", text)
    mark = SUBWORD_STYLES["sentencepiece"].mark
    # the mark says where a word begins: a text without any is in words already, as references are, and would become one word
    return "".join(text.split()).replace(mark, " ") if mark in text else text


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
