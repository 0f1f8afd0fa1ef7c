"""The text of a decoder's subwords, in bytes. A space marks the beginning or end of a word; line ends and tabs become spaces.

    th  e  </w>-style: the</w> -> "the "      sentencepiece: ▁the -> " the"      WordPiece: the, ##re -> " the", "re"

The text is in bytes, because a token of a byte-level vocabulary may be only a part of a letter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from attlm_fairseq.text.subwords import SUBWORD_STYLES, recognise_style

NO_WORD = b" \xff "  # a word that no LM knows: 0xff is not a byte of valid UTF-8
STYLES = (*SUBWORD_STYLES, "characters")
_SEPARATORS = {"|", " ", "▁"}  # tokens that stand for a space between characters
_WHITE_SPACE = bytes.maketrans(b"\t\n\v\f\r", b" " * 5)  # the same characters separate words in KenLM
_CONTROL = re.compile(r"<.+>|\[.+\]")
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")  # sentencepiece's byte fallback


def token_texts(
    tokens: Sequence[str], style: str | None = None, special: Collection[int] = (), lowercase: bool = False, ignore: str = ""
) -> list[bytes | None]:
    """Return the text of each token.

    The styles, in which tokens mark words, are:

    - ``sentencepiece``: ▁ before a word.
    - ``byte-level``: Ġ before a word and one letter per byte, as in GPT-2, Bart and Whisper.
    - ``wordpiece``: ## at the beginning of a token that continues a word.
    - ``word-end``: </w> at the end of a word.
    - ``bpe``: @@ at the end of a token if the word continues.
    - ``characters``: a token ``|``, ▁ or space between words.

    Args:
        tokens: the decoder's tokens.
        style: one of STYLES; by default recognised from the tokens.
        special: indexes of tokens that are not text (control tokens, time tokens, blanks); their text is None.
        lowercase: convert the text to lower case, if the language models are lower case.
        ignore: characters to remove, such as punctuation that the language models do not have.

    Raises:
        ValueError: the style is not recognised.
    """
    style = style or style_of([token for index, token in enumerate(tokens) if index not in special])
    if style not in STYLES:
        raise ValueError(f"style {style!r} is not one of: {', '.join(STYLES)}")
    texts: list[bytes | None] = []
    for index, token in enumerate(tokens):
        if index in special:
            texts.append(None)
            continue
        text = _written(token, style).translate(_WHITE_SPACE)
        if lowercase or ignore:
            decoded = text.decode("utf-8", "surrogateescape")
            kept = "".join(letter for letter in (decoded.lower() if lowercase else decoded) if letter not in ignore)
            text = kept.encode("utf-8", "surrogateescape")
        texts.append(text)
    return texts


def style_of(tokens: Sequence[str]) -> str:
    """Recognise the style from the tokens' word marks. Raises ValueError if there are none."""
    if style := recognise_style(tokens):
        return style
    written = [token for token in tokens if not _CONTROL.fullmatch(token)]
    if not _SEPARATORS.isdisjoint(tokens) and 2 * sum(len(token) == 1 for token in written) > len(written):
        return "characters"
    raise ValueError(f"the tokens {list(tokens[:8])} .. do not show how they mark words; give the style, one of: {', '.join(STYLES)}")


def _written(token: str, style: str) -> bytes:
    if style == "byte-level":
        return b"".join(bytes([_BYTES[letter]]) if letter in _BYTES else letter.encode() for letter in token)
    if style == "sentencepiece":
        byte = _BYTE.fullmatch(token)
        return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()
    if style == "characters":
        return b" " if token in _SEPARATORS else token.encode()
    if style == "wordpiece":
        text = token[2:] if token.startswith("##") else f" {token}"
    elif style == "word-end":
        text = token.replace("</w>", " ")
    else:
        text = token[:-2] if token.endswith("@@") else f"{token} "
    return text.encode()


def _byte_letters() -> dict[str, int]:
    """Return the byte of each letter in byte-level vocabularies: printable Latin-1 is itself, others are from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + place): byte for place, byte in enumerate(others)}


_BYTES = _byte_letters()
