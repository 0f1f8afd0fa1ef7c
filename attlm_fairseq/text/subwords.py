"""Recognise and join subwords, for every style of marking them: @@, U+2581, ##, </w> and Ġ."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass


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
