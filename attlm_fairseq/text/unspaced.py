"""Scripts that are written without spaces between words, and the characters of a text in them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import pairwise

CJK = "\u2e80-\u2fdf\u3001-\u30ff\u3105-\u312f\u3190-\u9fff\uf900-\ufaff\uff01-\uff9f\uffe0-\uffe6\U00020000-\U0003ffff"
"""Han, kana and bopomofo, East Asian punctuation, and all full-width forms. Not Hangul: Korean has spaces between words."""

THAI_TO_KHMER = "\u0e00-\u109f\u1780-\u17ff"
"""Thai, Lao, Tibetan, Burmese and Khmer."""

UNSPACED = THAI_TO_KHMER + CJK

ZERO_WIDTH_SPACE = "\u200b"  # between words of Khmer, also of Thai, Lao and Burmese
_AM = "\u0e33\u0eb3"  # Thai and Lao vowels that are written after a letter as its marks are
_OWN_MARKS = [chr(code) for first, last in ((0x0E00, 0x109F), (0x1780, 0x17FF)) for code in range(first, last + 1)]
_MARKS = _AM + "".join(sign for sign in _OWN_MARKS if unicodedata.category(sign)[0] == "M")
_MARKS += "\u0300-\u036f\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"  # accents, voicing, variants

WITHOUT_SPACES = re.compile(f"[{UNSPACED}]")
"""One code point of these scripts."""

CHARACTER = re.compile(f"[{UNSPACED}][{_MARKS}]*")
"""One character of these scripts, with the vowel signs, tone marks and other marks that are written to it."""

PARTS = re.compile(f"{CHARACTER.pattern}|{ZERO_WIDTH_SPACE}+|[^\\s{UNSPACED}{ZERO_WIDTH_SPACE}]+")
"""What ``divided`` divides: a character, zero-width spaces, or anything else up to the next of them."""

has_unspaced = WITHOUT_SPACES.search
_SPACES = re.compile(r"(\s+)")
_WITH_SPACE = re.compile(f" ?({CHARACTER.pattern}) ?")


def is_unspaced(text: str) -> bool:
    """Return whether two characters of these scripts stand next to each other in a text."""
    return any(before.end() == after.start() for before, after in pairwise(CHARACTER.finditer(text)))


def joins_words(text: str) -> bool:
    """Return whether a character of these scripts stands next to a letter or digit of another one, as in Chinese with Latin names."""
    ends = (
        sign
        for found in CHARACTER.finditer(text)
        for sign in (text[max(found.start() - 1, 0) : found.start()], text[found.end() : found.end() + 1])
    )
    return any(sign.isalnum() and not has_unspaced(sign) for sign in ends)


def divided(text: str) -> str:
    """Return a text with a space on both sides of each character of these scripts, and for each zero-width space."""
    return CHARACTER.sub(r" \g<0> ", text.replace(ZERO_WIDTH_SPACE, " "))


def joined(text: str) -> str:
    """Return a text without the spaces between characters of these scripts."""
    first, *others = _SPACES.split(text)
    parts = [first]
    for spaces, part in zip(others[::2], others[1::2], strict=True):
        ending = parts[-1].rstrip(_MARKS)[-1:] or parts[-1][-1:]
        between = has_unspaced(ending) and has_unspaced(part[:1])
        parts += ["" if between else spaces, part]
    return "".join(parts)


def tightened(text: str) -> str:
    """Return a text without the spaces on either side of characters of these scripts, and with single spaces elsewhere."""
    return _WITH_SPACE.sub(r"\1", " ".join(text.split()))


def rejoined(text: str, like: Iterable[str]) -> str:
    """Return a ``divided`` text with the spaces that the texts ``like`` have.

    If characters stand next to each other in one of them, the spaces between characters are removed. If characters also stand
    next to words of other scripts there, the spaces beside these words are removed, too.
    """
    like = list(like)
    if not any(map(is_unspaced, like)):
        return text
    return tightened(text) if any(map(joins_words, like)) else joined(text)
