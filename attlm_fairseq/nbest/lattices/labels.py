"""The words of lattices whose files have numbers for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.lattices.lattice import Lattice
from attlm_fairseq.numeric import whole_number

EPSILON = 0  # the number of no word
_FIELD = re.compile(r"[^ \t\r\n\f\v]+")  # as Kaldi splits lines: other kinds of spaces may be in a word


def fields_of(text: str) -> list[str]:
    return _FIELD.findall(text)


def read_symbols(path: str) -> dict[int, str]:
    """Read Kaldi's ``words.txt``: lines of a word and its number.

    Raises:
        InputError: the file cannot be read, or a line is not a word and a number.
    """
    symbols: dict[int, str] = {}
    for line, text in enumerate(TextSource(path, "one word and its number per line").lines(), 1):
        fields = fields_of(text)
        if not fields:
            continue
        symbol = whole_number(fields[1]) if len(fields) == 2 else None
        if symbol is None:
            raise InputError(f"found {quoted(text.rstrip())}: expected a word and its number", path=path, line=line)
        if symbols.setdefault(symbol, fields[0]) != fields[0]:
            raise InputError(f"{fields[0]!r} has the number of {symbols[symbol]!r}, too", path=path, line=line)
    return symbols


def word_of(label: int, symbols: Mapping[int, str], lattice: Lattice, no_words: Collection[str]) -> str:
    """Return the word with a number; "" for no word. Raises InputError if there is none."""
    if label == EPSILON:
        return ""
    if label not in symbols:
        raise lattice.error(f"has the word number {label}, which --words does not have: is it that of another graph?")
    return "" if symbols[label] in no_words else symbols[label]


def labels_of(lattice: Lattice) -> set[str]:
    return {arc.word for arcs in lattice.arcs for arc in arcs}


def texts_among(labels: Collection[str], no_words: Collection[str]) -> list[str]:
    """Return the labels that are words as they are, not numbers."""
    return sorted(label for label in labels if whole_number(label) is None and label not in no_words)


def put_words(lattice: Lattice, symbols: Mapping[int, str] | None, no_words: Collection[str]) -> None:
    """Put words in place of a lattice's labels: those of their numbers, or without ``symbols`` the labels themselves.

    Raises:
        InputError: a label is no number, or is the number of no word.
    """
    labels = labels_of(lattice)
    if symbols is None:
        words = {label: "" if label in no_words else label for label in labels}
    else:
        if texts := texts_among(labels, no_words):
            raise lattice.error(f"has words, such as {texts[0]!r}, not their numbers: leave --words out")
        words = {label: "" if label in no_words else word_of(int(label), symbols, lattice, no_words) for label in labels}
    changed = {label: word for label, word in words.items() if word != label}
    of_several = {label for label, word in words.items() if len(word.split()) > 1}
    for state, arcs in enumerate(lattice.arcs[:]):
        if any(arc.word in of_several for arc in arcs):
            lattice.arcs[state] = []
            for arc in arcs:
                lattice.add(state, arc._replace(word=words[arc.word]))
        elif changed:
            lattice.arcs[state] = [arc._replace(word=changed[arc.word]) if arc.word in changed else arc for arc in arcs]
