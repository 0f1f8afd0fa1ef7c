"""The text before a prediction, with the words highlighted that the prediction reads: Figure 2 of Liu et al. (2016)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from unicodedata import category

from attlm_fairseq.attention.weights import SentenceAttention


@dataclass(frozen=True)
class Highlight:
    """A prediction that reads at least one state with a weight at or above the threshold."""

    row: int  # row of the prediction in the attention
    columns: tuple[int, ...]  # the inputs before the prediction, and h_0 if the model has it in memory
    highlighted: tuple[bool, ...]  # for each column, whether its weight is at or above the threshold


def highlights(attention: SentenceAttention, threshold: float) -> Iterator[Highlight]:
    """Yield the predictions with something to highlight, in the order of the text."""
    shown = set(attention.columns)
    for row, weights in enumerate(attention.weights):
        columns = tuple(column for column in range(row + 2) if column > 0 or column in shown)
        above = tuple(bool(weights[column] >= threshold) for column in columns)
        if any(above):
            yield Highlight(row, columns, above)


def as_text(attention: SentenceAttention, found: Highlight, marked: str = "[{word} {weight:.2f}]") -> str:
    """Return one line: the text so far with highlighted words in the form ``marked``, an arrow, the predicted word."""
    words = []
    for column, highlighted in zip(found.columns, found.highlighted, strict=True):
        word = shown_word(attention.inputs[column], attention.unknown_input(column))
        words.append(marked.format(word=word, weight=attention.weights[found.row, column]) if highlighted else word)
    return " ".join([*words, "->", shown_word(attention.predicted[found.row], attention.unknown_prediction(found.row))])


def shown_word(word: str, unknown: bool) -> str:
    """Return a word for a line of plain text; a word that the LM does not know is marked."""
    word = printable(word)
    return f"<unk:{word}>" if unknown else word


def printable(word: str) -> str:
    """Return the word without what could control a terminal or is not allowed in XML. Joiners, which many scripts need, stay."""
    return "".join("\ufffd" if category(character) in _NOT_SHOWN or character in _NOT_TEXT else character for character in word)


_NOT_SHOWN = ("Cc", "Cs", "Zl", "Zp")  # control characters, halves of surrogate pairs, separators of lines and paragraphs
_NOT_TEXT = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufffe\uffff"  # what turns the direction of other text; no characters
