"""The phrases of a list that parts of a hypothesis are spelled like, as candidates in their place."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from attlm_fairseq.nbest.corrections.search import Edge
from attlm_fairseq.text.phrases import Phrase, PhraseList, punctuation, spelling_key
from attlm_fairseq.text.unspaced import CHARACTER, divided

FROM_LIST = "list"  # the kind of a rule that a phrase of the list makes
MIN_SIMILARITY = 0.6  # 1 - edits / letters of the longer spelling is more
SHARPNESS = 10.0  # natural log that a similarity of 0 would cost
OFFERED = 5  # phrases for one stretch
EXTRA_WORDS = 1  # a stretch may have more words than the longest phrase, and
MAX_SPELLED = 24  # words of one letter or character, as in acronyms that are spelled and in Chinese in characters
REMEMBERED = 1 << 16


@dataclass(frozen=True)
class SimilarPhrases(PhraseList):
    """The phrases of a file, with what is needed to find them by their spelling."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: not what is made of it when it is used."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def edges(self, words: Sequence[str], begin: int, last: int) -> Iterator[Edge]:
        """Yield the phrases that may stand in the place of what begins at a word. ``words`` are bounded, ``last`` is the place of END.

        A phrase keeps the punctuation around what it replaces.
        """
        for end in range(begin + 1, min(begin + max(MAX_SPELLED, self.longest + EXTRA_WORDS), last) + 1):
            stretch = tuple(words[begin:end])
            if len(stretch) > self.longest + EXTRA_WORDS and not all(len(word) == 1 or CHARACTER.fullmatch(word) for word in stretch):
                break
            similar = self._similar(stretch)
            elsewhere = self._beside(words, begin, end, last) if similar else {}
            for place, similarity in similar.items():
                phrase = _in_place_of(stretch, self.phrases[place].words)
                if phrase is None or elsewhere.get(place, 0.0) > similarity:
                    continue
                if (target := _as_divided(phrase, stretch)) != stretch:
                    yield Edge(begin, end, target, SHARPNESS * (similarity - 1.0), (FROM_LIST, " ".join(stretch), " ".join(phrase)))

    def _beside(self, words: Sequence[str], begin: int, end: int, last: int) -> dict[int, float]:
        """Return the phrases that are like the stretch with one word more or one word less, at either end, with their highest similarity.

        A phrase that is more like one of these than like the stretch replaces that one. In place of the stretch, a long phrase would
        delete the word beside it at little cost.
        """
        best: dict[int, float] = {}
        for first, after in ((begin + 1, end), (begin, end - 1), (begin - 1, end), (begin, end + 1)):
            if 0 < first < after <= last:
                for place, similarity in self._similar(tuple(words[first:after])).items():
                    best[place] = max(similarity, best.get(place, 0.0))
        return best

    def _similar(self, stretch: tuple[str, ...]) -> dict[int, float]:
        """Return the phrases that are spelled like a stretch, with or without what is written before and after it."""
        text = " ".join(stretch)
        (before, _), (_, after) = punctuation(stretch[0]), punctuation(stretch[-1])
        found = dict(self._close(text[len(before) : len(text) - len(after)]))
        for place, similarity in self._close(text):
            found[place] = max(similarity, found.get(place, 0.0))
        return found

    def never_matching(self, texts: Iterable[str]) -> list[Phrase]:
        """Return the phrases that cannot match anything in lists of these texts: too many of their letters are in none of them."""
        letters: set[str] = set()
        for text in texts:
            letters.update(spelling_key(text))

        def possible(key: str) -> bool:
            return sum(letter in letters for letter in key) > MIN_SIMILARITY * len(key)

        return [phrase for phrase in self.phrases if not any(map(possible, phrase.keys))]

    @cached_property
    def _keys(self) -> tuple[list[str], np.ndarray, np.ndarray]:
        """Return all keys by length, the phrase of each, and their lengths."""
        keys = sorted({(len(key), key, place) for place, phrase in enumerate(self.phrases) for key in phrase.keys})
        return [key for _, key, _ in keys], np.array([place for *_, place in keys]), np.array([length for length, *_ in keys])

    @cached_property
    def _rows_with(self) -> dict[str, np.ndarray]:
        """Return the keys, by their row, that have each letter."""
        rows: defaultdict[str, list[int]] = defaultdict(list)
        for row, key in enumerate(self._keys[0]):
            for letter in set(key):
                rows[letter].append(row)
        return {letter: np.array(found) for letter, found in rows.items()}

    def _sharing_a_letter(self, key: str, low: int, high: int) -> np.ndarray:
        """Return the rows from ``low`` to ``high`` of keys with a letter of ``key``, or all rows if nearly all have: few do in Chinese."""
        found = [self._rows_with[letter] for letter in set(key) if letter in self._rows_with]
        if sum(map(len, found)) >= high - low:
            return np.arange(low, high)
        rows = np.unique(np.concatenate(found)) if found else np.empty(0, dtype=int)
        return rows[(rows >= low) & (rows < high)]

    @cached_property
    def _close(self) -> Callable[[str], tuple[tuple[int, float], ...]]:
        return lru_cache(maxsize=REMEMBERED)(self._closest)

    def _closest(self, stretch: str) -> tuple[tuple[int, float], ...]:
        """Return the OFFERED closest phrases with their similarity, above MIN_SIMILARITY."""
        from rapidfuzz.distance import Levenshtein
        from rapidfuzz.process import cdist

        key = spelling_key(stretch)
        keys, places, lengths = self._keys
        low = int(np.searchsorted(lengths, math.ceil(MIN_SIMILARITY * len(key))))
        high = int(np.searchsorted(lengths, math.floor(len(key) / MIN_SIMILARITY), side="right"))
        rows = self._sharing_a_letter(key, low, high) if key and low < high else np.empty(0, dtype=int)
        if not len(rows):
            return ()
        some = [keys[row] for row in rows]
        similar = cdist([key], some, scorer=Levenshtein.normalized_similarity, score_cutoff=MIN_SIMILARITY, dtype=np.float64)[0]
        best: dict[int, float] = {}
        for found in np.argsort(-similar, kind="stable")[: 4 * OFFERED]:
            if similar[found] > MIN_SIMILARITY:
                best.setdefault(int(places[rows[found]]), float(similar[found]))
        return tuple(list(best.items())[:OFFERED])


def _as_divided(phrase: tuple[str, ...], stretch: tuple[str, ...]) -> tuple[str, ...]:
    """Return a phrase divided into characters, if what it is to replace is divided so: Chinese and other scripts without spaces."""
    return tuple(divided(" ".join(phrase)).split()) if all(map(CHARACTER.fullmatch, stretch)) else phrase


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
