"""Which texts a decoder's tokens can write."""

from __future__ import annotations

import re
from collections.abc import Iterable

from attlm_fairseq.text.phrases import SPACES
from attlm_fairseq.text.unspaced import WITHOUT_SPACES

SPACE = b" "
SPACES_AROUND = re.compile(rf" *({WITHOUT_SPACES.pattern}) *")


class Spelling:
    """What tokens can write, case ignored. A word may follow any other, so it need not begin or end as its first or last token."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        """Take the texts of the tokens, which may be parts of letters."""
        self._tokens = set(map(_without_case, texts))
        self._longest = max(map(len, self._tokens), default=0)

    def can_write(self, text: str) -> bool:
        """Return whether tokens can write a text, as words of their own."""
        wanted, free = _with_boundaries(text)
        reached = {0}
        for end in range(1, len(wanted) + 1):
            for begin in range(max(0, end - self._longest), end):
                if begin in reached and self._writes(wanted[begin:end], begin in free, end in free):
                    reached.add(end)
                    break
        return len(wanted) in reached

    def _writes(self, part: bytes, after_boundary: bool, before_boundary: bool) -> bool:
        """Return whether a token is a part, perhaps with a space where there is a boundary anyway."""
        begins = (part, SPACE + part) if after_boundary else (part,)
        return any(one in self._tokens or (before_boundary and one + SPACE in self._tokens) for one in begins)


def _without_case(text: bytes) -> bytes:
    try:
        return _joined(text.decode().casefold()).encode()
    except UnicodeDecodeError:
        return text


def _joined(text: str) -> str:
    """Return a text with single spaces, and none around characters of scripts without spaces between words."""
    return SPACES_AROUND.sub(r"\1", SPACES.sub(" ", text))


def _with_boundaries(text: str) -> tuple[bytes, set[int]]:
    """Return the bytes of a text, and the places at which a space more changes nothing."""
    wanted, free = bytearray(), {0}
    for letter in _joined(text):
        alone = letter == " " or WITHOUT_SPACES.match(letter)
        if alone:
            free.add(len(wanted))
        wanted += letter.encode()
        if alone:
            free.add(len(wanted))
    return bytes(wanted), {*free, len(wanted)}
