"""Phrases that the user expects (names, products, places), and how many words of a text are inside them.

A file has one phrase per line. Optional further fields, separated by tabs, are a weight (default 1) and other spellings
that sound like it, separated by ``|``:

    Nguyen          2       win | noo yen
    Kubernetes
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.text.unspaced import WITHOUT_SPACES

MAX_PHRASES = 50_000
MAX_WORDS = 8
SIGNS = ("Po", "Ps", "Pe", "Pi", "Pf")  # Unicode's categories of punctuation, without hyphens and other connections
POSSESSIVES = ("'s", "\u2019s")
MAX_SIGNS = 8  # before or after a word
NOT_PUNCTUATION = frozenset("#%&*@/\\")  # signs that belong to names and terms, which Unicode counts as punctuation
REMEMBERED = 1 << 16
SPACES = re.compile(r"\s")


class Phrase(NamedTuple):
    """A phrase of the list: its words as written, its weight, and the keys (``spelling_key``) of its spellings."""

    words: tuple[str, ...]
    weight: float
    keys: tuple[str, ...]
    line: int


def spelling_key(text: str) -> str:
    """Return the letters and digits of a text: compatibility forms unified, case ignored, without spaces, hyphens and other signs."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if unicodedata.category(c)[0] in "LNM")


def word_parts(text: str) -> list[str]:
    """Return what stands between the word boundaries of a text, without case; ``""`` where there is nothing.

    Boundaries are spaces, and both sides of each character of a script without spaces between words.
    """
    return SPACES.split(WITHOUT_SPACES.sub(r" \g<0> ", text.casefold()))


def folded(text: str) -> tuple[str, ...]:
    """Return the words of a text, without case. A character of a script without spaces between words counts as a word."""
    return tuple(filter(None, word_parts(text)))


def is_sign(character: str) -> bool:
    """Return whether a character is punctuation around words."""
    return unicodedata.category(character) in SIGNS and character not in NOT_PUNCTUATION


@lru_cache(maxsize=REMEMBERED)
def punctuation(word: str) -> tuple[str, str]:
    """Return the punctuation that is written to a word, before and after it; none if there is nothing else, or too much.

    The English possessive ending counts as punctuation.
    """
    places = [place for place, character in enumerate(word) if not is_sign(character)]
    begin, end = (places[0], places[-1] + 1) if places else (0, len(word))
    if word[begin:end].lower().endswith(POSSESSIVES) and end - begin > 2:
        end -= 2
    before, after = word[:begin], word[end:]
    return ("", "") if max(len(before), len(after)) > MAX_SIGNS else (before, after)


Kind = TypeVar("Kind", bound="PhraseList")


@dataclass(frozen=True)
class PhraseList:
    """The phrases of a file."""

    phrases: tuple[Phrase, ...]
    path: Path | None = None

    @classmethod
    def load(cls: type[Kind], path: Path) -> Kind:
        """Read a file of phrases. The spellings of a phrase that is there several times are joined.

        Raises:
            InputError: the file cannot be read, has no phrase or more than MAX_PHRASES lines, or a line is wrong. The
                message names the line.
        """
        phrases: dict[tuple[str, ...], Phrase] = {}
        weighted: dict[tuple[str, ...], Phrase] = {}  # by words without case, as they are counted
        for number, line in enumerate(TextSource(str(path), "one phrase per line").lines(), 1):
            if number > MAX_PHRASES:
                raise InputError(f"has more than {MAX_PHRASES:,} lines: give the phrases that matter for these lists", path=path)
            text = line.rstrip("\r\n").removeprefix("\ufeff" if number == 1 else "")
            if text.strip() and not text.startswith("#"):
                phrase = _phrase(text, path, number)
                same = weighted.setdefault(folded(text.split("\t")[0]), phrase)
                if same.weight != phrase.weight:
                    found = f"the weight of {' '.join(phrase.words)!r} is {phrase.weight:g}, on line {same.line} it is {same.weight:g}"
                    raise InputError(f"{found}: expected one weight for each phrase (1 if it is left out)", path=path, line=number)
                first = phrases.setdefault(phrase.words, phrase)
                phrases[phrase.words] = first._replace(keys=tuple(dict.fromkeys((*first.keys, *phrase.keys))))
        if not phrases:
            raise InputError("has no phrase: expected one per line", path=path)
        return cls(tuple(phrases.values()), path)

    def count(self, words: Sequence[str]) -> float:
        """Return the weighted number of words inside phrases of the list, longest match first.

        Case, and punctuation before and after a phrase, are ignored. Words are those of ``folded``.
        """
        total, place = 0.0, 0
        units = folded(" ".join(words))
        while place < len(units):
            for length in range(min(self.longest, len(units) - place), 0, -1):
                if (phrase := self.standing(units[place : place + length])) is not None:
                    total += self.weights[phrase] * length
                    place += length
                    break
            else:
                place += 1
        return total

    def occurrences(self, words: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the phrases that stand in a text, one entry for each time."""
        units = folded(" ".join(words))
        spans = ((begin, end) for begin in range(len(units)) for end in range(begin + 1, min(begin + self.longest, len(units)) + 1))
        return [phrase for begin, end in spans if (phrase := self.standing(units[begin:end])) is not None]

    def standing(self, stretch: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the phrase that a stretch of words without case is, as it stands or without punctuation before or after it."""
        if stretch in self.weights:
            return stretch
        (before, _), (_, after) = punctuation(stretch[0]), punctuation(stretch[-1])
        if not before and not after:
            return None
        text = " ".join(stretch)
        less = ((begin, end) for begin in range(len(before) + 1) for end in range(len(after) + 1))
        parts = (tuple(text[begin : len(text) - end].split(" ")) for begin, end in less)
        return next((part for part in parts if part in self.weights), None)

    @cached_property
    def longest(self) -> int:
        return max(map(len, self.weights))

    @cached_property
    def weights(self) -> dict[tuple[str, ...], float]:
        return {folded(" ".join(phrase.words)): phrase.weight for phrase in self.phrases}


def _phrase(text: str, path: Path, line: int) -> Phrase:
    fields = text.split("\t")
    if len(fields) > 3:
        raise InputError(f"{len(fields)} fields separated by tabs, expected phrase, weight, other spellings", path=path, line=line)
    phrase, weight, spellings = (*fields, "", "")[:3]
    words = tuple(phrase.split())
    if len(words) > MAX_WORDS:
        raise InputError(f"a phrase of {len(words)} words, expected at most {MAX_WORDS}", path=path, line=line)
    try:
        value = float(weight) if weight.strip() else 1.0
    except ValueError:
        value = math.nan
    if not 0 < value <= 1e6:
        found = f"weight {weight!r}, expected a positive number up to 1e6"
        raise InputError(f"{found}; other spellings are the third field, after another tab", path=path, line=line)
    keys = tuple(filter(None, map(spelling_key, [phrase, *spellings.split("|")])))
    if not words or not spelling_key(phrase) or "\0" in phrase:
        raise InputError(f"phrase {phrase!r} has no letter or digit, or a NUL character: it can never match", path=path, line=line)
    return Phrase(words, value, keys, line)
