"""Phrases that the user expects (names, products, places), proposed if a part of a hypothesis is spelled like one.

A file has one phrase per line. Optional further fields, separated by tabs, are a weight (default 1) and other spellings
that sound like it, separated by ``|``:

    Nguyen          2       win | noo yen
    Kubernetes
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.files import TextSource
from attlm_fairseq.nbest.corrections.search import Edge

MIN_SIMILARITY = 0.6  # 1 - edits / letters of the longer spelling
SHARPNESS = 10.0  # natural log that a similarity of 0 would cost
MAX_PHRASES = 50_000
MAX_WORDS = 8
OFFERED = 5  # phrases for one stretch
EXTRA_WORDS = 1  # a stretch may have more words than the longest phrase, and
SIGNS = ("Po", "Ps", "Pe", "Pi", "Pf")  # Unicode's categories of punctuation, without hyphens and other connections
POSSESSIVES = ("'s", "\u2019s")
MAX_SIGNS = 8  # before or after a word
MAX_SPELLED = 24  # words of one letter or character, as in acronyms that are spelled and in Chinese in characters
NOT_PUNCTUATION = frozenset("#%&*@/\\")  # signs that belong to names and terms, which Unicode counts as punctuation
REMEMBERED = 1 << 16


class Phrase(NamedTuple):
    """A phrase of the list: its words as written, its weight, and the keys (``spelling_key``) of its spellings."""

    words: tuple[str, ...]
    weight: float
    keys: tuple[str, ...]
    line: int


def spelling_key(text: str) -> str:
    """Return the letters and digits of a text: compatibility forms unified, case ignored, without spaces, hyphens and other signs."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if unicodedata.category(c)[0] in "LNM")


@lru_cache(maxsize=REMEMBERED)
def punctuation(word: str) -> tuple[str, str]:
    """Return the punctuation that is written to a word, before and after it; none if there is nothing else, or too much.

    The English possessive ending counts as punctuation.
    """
    places = [place for place, c in enumerate(word) if unicodedata.category(c) not in SIGNS or c in NOT_PUNCTUATION]
    begin, end = (places[0], places[-1] + 1) if places else (0, len(word))
    if word[begin:end].lower().endswith(POSSESSIVES) and end - begin > 2:
        end -= 2
    before, after = word[:begin], word[end:]
    return ("", "") if max(len(before), len(after)) > MAX_SIGNS else (before, after)


@dataclass(frozen=True)
class PhraseList:
    """The phrases of a file, with what is needed to find them."""

    phrases: tuple[Phrase, ...]
    path: Path | None = None

    @classmethod
    def load(cls, path: Path) -> PhraseList:
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
                folded = tuple(word.casefold() for word in phrase.words)
                same = weighted.setdefault(folded, phrase)
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

        Case, and punctuation before and after a phrase, are ignored.
        """
        total, place = 0.0, 0
        folded = [word.casefold() for word in words]
        while place < len(folded):
            for length in range(min(self._longest, len(folded) - place), 0, -1):
                if (phrase := self._standing(tuple(folded[place : place + length]))) is not None:
                    total += self._exact[phrase] * length
                    place += length
                    break
            else:
                place += 1
        return total

    def occurrences(self, words: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the phrases that stand in a text, one entry for each time."""
        folded = [word.casefold() for word in words]
        spans = ((begin, end) for begin in range(len(folded)) for end in range(begin + 1, min(begin + self._longest, len(folded)) + 1))
        return [phrase for begin, end in spans if (phrase := self._standing(tuple(folded[begin:end]))) is not None]

    def _standing(self, stretch: tuple[str, ...]) -> tuple[str, ...] | None:
        """Return the phrase that a stretch of words without case is, as it stands or without punctuation before or after it."""
        if stretch in self._exact:
            return stretch
        (before, _), (_, after) = punctuation(stretch[0]), punctuation(stretch[-1])
        if not before and not after:
            return None
        text = " ".join(stretch)
        less = ((begin, end) for begin in range(len(before) + 1) for end in range(len(after) + 1))
        parts = (tuple(text[begin : len(text) - end].split(" ")) for begin, end in less)
        return next((part for part in parts if part in self._exact), None)

    def edges(self, words: Sequence[str], begin: int, last: int) -> Iterator[Edge]:
        """Yield the phrases that may stand in the place of what begins at a word. ``words`` are bounded, ``last`` is the place of END.

        A phrase keeps the punctuation around what it replaces.
        """
        for end in range(begin + 1, min(begin + MAX_SPELLED, last) + 1):
            stretch = tuple(words[begin:end])
            if len(stretch) > self._longest + EXTRA_WORDS and not all(len(word) == 1 for word in stretch):
                break
            for place, similarity in self._similar(stretch):
                phrase = _in_place_of(stretch, self.phrases[place].words)
                if phrase is not None and phrase != stretch:
                    yield Edge(begin, end, phrase, SHARPNESS * (similarity - 1.0), ("list", " ".join(stretch), " ".join(phrase)))

    def _similar(self, stretch: tuple[str, ...]) -> Iterable[tuple[int, float]]:
        """Return the phrases that are spelled like a stretch, with or without what is written before and after it."""
        text = " ".join(stretch)
        (before, _), (_, after) = punctuation(stretch[0]), punctuation(stretch[-1])
        found = dict(self._close(text[len(before) : len(text) - len(after)]))
        for place, similarity in self._close(text):
            found[place] = max(similarity, found.get(place, 0.0))
        return found.items()

    def never_matching(self, texts: Iterable[str]) -> list[Phrase]:
        """Return the phrases that cannot match anything in lists of these texts: too many of their letters are in none of them."""
        letters: set[str] = set()
        for text in texts:
            letters.update(spelling_key(text))

        def possible(key: str) -> bool:
            return sum(letter in letters for letter in key) >= MIN_SIMILARITY * len(key)

        return [phrase for phrase in self.phrases if not any(map(possible, phrase.keys))]

    @cached_property
    def _longest(self) -> int:
        return max(len(phrase.words) for phrase in self.phrases)

    @cached_property
    def _exact(self) -> dict[tuple[str, ...], float]:
        return {tuple(word.casefold() for word in phrase.words): phrase.weight for phrase in self.phrases}

    @cached_property
    def _keys(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Return all keys by length, the phrase of each, and their lengths."""
        keys = sorted({(len(key), key, place) for place, phrase in enumerate(self.phrases) for key in phrase.keys})
        return [key for _, key, _ in keys], np.array([place for *_, place in keys]), np.array([length for length, *_ in keys])

    @cached_property
    def _close(self) -> Callable[[str], tuple[tuple[int, float], ...]]:
        return lru_cache(maxsize=REMEMBERED)(self._closest)

    def _closest(self, stretch: str) -> tuple[tuple[int, float], ...]:
        """Return the OFFERED closest phrases with their similarity, at least MIN_SIMILARITY."""
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist

        key = spelling_key(stretch)
        keys, places, lengths = self._keys
        low = int(np.searchsorted(lengths, math.ceil(MIN_SIMILARITY * len(key))))
        high = int(np.searchsorted(lengths, math.floor(len(key) / MIN_SIMILARITY), side="right"))
        if not key or low >= high:
            return ()
        similar = cdist([key], keys[low:high], scorer=Levenshtein.normalized_similarity, score_cutoff=MIN_SIMILARITY, dtype=np.float64)[0]
        best: dict[int, float] = {}
        for row in np.argsort(-similar, kind="stable")[: 4 * OFFERED]:
            if similar[row] >= MIN_SIMILARITY:
                best.setdefault(int(places[low + row]), float(similar[row]))
        return tuple(list(best.items())[:OFFERED])


def _in_place_of(stretch: tuple[str, ...], phrase: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return a phrase with the punctuation around a stretch, or None if it would swallow a word that is nothing but punctuation."""
    ends = (stretch[0], phrase[0]), (stretch[-1], phrase[-1])
    if any(word != own and not spelling_key(word) for word, own in ends):
        return None
    (before, _), (_, after) = punctuation(stretch[0]), punctuation(stretch[-1])
    (own_before, _), (_, own_after) = punctuation(phrase[0]), punctuation(phrase[-1])  # as in "U.S."
    more_before = next(before[:place] for place in range(len(before) + 1) if own_before.startswith(before[place:]))
    more_after = next(after[place:] for place in reversed(range(len(after) + 1)) if own_after.endswith(after[:place]))
    return tuple(f"{more_before}{' '.join(phrase)}{more_after}".split(" "))


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
