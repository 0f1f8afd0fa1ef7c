"""What a decoder's subwords write: their text in bytes, a space wherever a word ends or begins, line ends and tabs among them.

    th  e  </w>-style: the</w> -> "the "      sentencepiece: ▁the -> " the"      WordPiece: the, ##re -> " the", "re"

Bytes, because a unit of a byte-level vocabulary may hold a part of a letter only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from attlm_fairseq.text.subwords import SUBWORD_STYLES, recognise_style

STYLES = (*SUBWORD_STYLES, "characters")
_SEPARATORS = {"|", " ", "▁"}  # units that stand for a space between characters
_WHITE_SPACE = bytes.maketrans(b"\t\n\v\f\r", b" " * 5)  # what separates words for KenLM, too
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # sentencepiece's byte fallback


def token_texts(
    units: Sequence[str], style: str | None = None, special: Collection[int] = (), lowercase: bool = False, ignore: str = ""
) -> list[bytes | None]:
    """The text of each unit; None for those in ``special``, which write nothing and are no text (control and time tokens, blanks).

    ``style`` is how the units mark words, one of STYLES, recognised from the units where it is not given: ``sentencepiece`` ▁ before a
    word; ``byte-level`` the same with Ġ and bytes as letters, as GPT-2, Bart and Whisper have it; ``wordpiece`` ## within a word;
    ``word-end`` </w> after one; ``bpe`` @@ where a word goes on; ``characters`` a unit ``|`` or space. ``lowercase`` and ``ignore``
    (characters to leave out, such as punctuation) turn the decoder's text into the language models'. Raises ValueError where the
    style cannot be told.
    """
    style = style or style_of([unit for index, unit in enumerate(units) if index not in special])
    if style not in STYLES:
        raise ValueError(f"style {style!r} is not one of: {', '.join(STYLES)}")
    texts: list[bytes | None] = []
    for index, unit in enumerate(units):
        if index in special:
            texts.append(None)
            continue
        text = _written(unit, style).translate(_WHITE_SPACE)
        if lowercase or ignore:
            decoded = text.decode("utf-8", "surrogateescape")
            text = "".join(letter for letter in (decoded.lower() if lowercase else decoded) if letter not in ignore)
            text = text.encode("utf-8", "surrogateescape")
        texts.append(text)
    return texts


def style_of(units: Sequence[str]) -> str:
    """Return the style that the units' marks show. Raises ValueError if they show none."""
    if style := recognise_style(units):
        return style
    if not _SEPARATORS.isdisjoint(units):
        return "characters"
    raise ValueError(f"the units {list(units[:8])} .. do not show how they mark words; give the style, one of: {', '.join(STYLES)}")


def _written(unit: str, style: str) -> bytes:
    if style == "byte-level":
        return b"".join(bytes([_BYTES[letter]]) if letter in _BYTES else letter.encode() for letter in unit)
    if style == "sentencepiece":
        byte = _BYTE.fullmatch(unit)
        return bytes([int(byte[1], 16)]) if byte else unit.replace("▁", " ").encode()
    if style == "characters":
        return b" " if unit in _SEPARATORS else unit.encode()
    if style == "wordpiece":
        text = unit[2:] if unit.startswith("##") else f" {unit}"
    elif style == "word-end":
        text = unit.replace("</w>", " ")
    else:
        text = unit[:-2] if unit.endswith("@@") else f"{unit} "
    return text.encode()


def _byte_letters() -> dict[str, int]:
    """The letters by which byte-level vocabularies write bytes: printable Latin-1 as itself, the others from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_letters()
