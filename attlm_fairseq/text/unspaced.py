"""Scripts that are written without spaces between words, and the characters of a text in them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

CJK = (
    "\u2e80-\u2fdf\u3000-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff01-\uff9f\uffe0-\uffe6\U00020000-\U0003ffff"
)
"""Han, kana and bopomofo, East Asian punctuation, and all full-width forms. Not Hangul: Korean has spaces between words."""

THAI_TO_KHMER = "\u0e00-\u109f\u1780-\u17ff"
"""Thai, Lao, Tibetan, Burmese and Khmer."""

UNSPACED = THAI_TO_KHMER + CJK

_AM = "\u0e33\u0eb3"  # Thai and Lao vowels that are written after a letter as its marks are
_OWN_MARKS = [chr(code) for first, last in ((0x0E00, 0x109F), (0x1780, 0x17FF)) for code in range(first, last + 1)]
_MARKS = _AM + "".join(sign for sign in _OWN_MARKS if unicodedata.category(sign)[0] == "M")
_MARKS += "\u0300-\u036f\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"  # accents, voicing, variants

WITHOUT_SPACES = re.compile(f"[{UNSPACED}]")
"""One code point of these scripts."""

CHARACTER = re.compile(f"[{UNSPACED}][{_MARKS}]*")
"""One character of these scripts, with the vowel signs, tone marks and other marks that are written to it."""

_TWO = re.compile(f"{CHARACTER.pattern}(?![{_MARKS}])[{UNSPACED}]")
_WITH_SPACES = re.compile(rf"\s*({CHARACTER.pattern})\s*")
_BESIDE = re.compile(rf"{CHARACTER.pattern}[^\S\n]+\w|\w[^\S\n]+{CHARACTER.pattern}")
has_unspaced = WITHOUT_SPACES.search
_BETWEEN = re.compile(f"(?<=[{UNSPACED}\u0300-\u036f\ufe00-\ufe0f\U000e0100-\U000e01ef])\\s+(?=[{UNSPACED}])")


def is_unspaced(text: str) -> bool:
    """Return whether two characters of these scripts stand next to each other in a text."""
    return _TWO.search(text) is not None


def divided(text: str) -> str:
    """Return a text with a space on both sides of each character of these scripts."""
    return CHARACTER.sub(r" \g<0> ", text)


def joined(text: str) -> str:
    """Return a text without the spaces between characters of these scripts."""
    return _BETWEEN.sub("", text)


def tightened(text: str) -> str:
    """Return a text without the spaces on either side of characters of these scripts."""
    return _WITH_SPACES.sub(r"\1", text)


def rejoined(text: str, like: Iterable[str]) -> str:
    """Return a ``divided`` text with the spaces that the texts ``like`` have: between characters, beside them, or neither."""
    like = list(like)
    if not any(map(is_unspaced, like)):
        return text
    return joined(text) if any(map(_BESIDE.search, like)) else tightened(text)
