"""Phrases that the user expects (names, terms), preferred inside a decoder: contextual biasing by shallow fusion.

Shapes: N states, U tokens of the decoder.
"""

from __future__ import annotations

from codecs import utf_8_decode
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attlm_fairseq.decoding.open_phrases import OpenPhrases, Tail
from attlm_fairseq.decoding.shallow_fusion import check_options, check_texts
from attlm_fairseq.decoding.spelling import Spelling
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.numeric import is_finite
from attlm_fairseq.text.phrases import PhraseList, is_sign, punctuation, word_parts

# kinds of tokens: they go on in the word (or begin one without a space), begin the next word, or only end the word
WITHIN, BEGIN, BETWEEN = "within", "begin", "between"
SHOWN = 5  # phrases in a note


class PhraseState(NamedTuple):
    """The end of a hypothesis. ``rest`` are the bytes of a letter that is not complete; ``tail`` is None after the sentence end."""

    tail: Tail | None = Tail()
    rest: bytes = b""


class Continuations(NamedTuple):
    """The scores of all tokens of a kind after a state: one for those that no phrase goes on with, and those of the others."""

    default: float
    tokens: np.ndarray
    scores: np.ndarray


class PhraseFusion:
    """A ShallowFusion that adds ``weight`` for each word inside a phrase of a list, times the phrase's own weight in the list.

    Over a sentence the scores sum to ``weight * PhraseList.count(words)``, however the words were split into tokens: ``phrases`` of
    rescoring. The letters of a phrase each get their share as they come. If the phrase is not completed, the shares are taken back,
    at the sentence end at the latest. Case, punctuation around a phrase and the ending ``'s`` are ignored. Characters of scripts without
    spaces between words, such as Chinese, are words of their own.
    """

    def __init__(self, phrases: PhraseList, texts: Sequence[bytes | None], weight: float, ends: Collection[int] = ()) -> None:
        """Prepare the tokens for the phrases.

        Args:
            phrases: the phrases.
            texts: the text of each token from ``token_texts``, None for a token without text.
            weight: the score of a word inside a phrase (natural log), to be chosen on held-out speech.
            ends: the tokens that end a sentence.

        Raises:
            ValueError: the weight is not finite, a text is not bytes, or an end is not a token.
        """
        check_options(ends, len(texts), 0.0)
        check_texts(texts)
        if not is_finite(weight):
            raise ValueError(f"the weight of the phrases is a finite number, such as 2.0, not {weight!r}")
        self.open = OpenPhrases(phrases)
        self.texts = list(texts)
        self.size = len(self.texts)
        self.weight = float(weight)
        self.ends = frozenset(ends)
        self._sort_tokens()
        self._continuations = lru_cache(maxsize=1 << 11)(self._compute)

    @classmethod
    def load(cls, path: str | Path, texts: Sequence[bytes | None], weight: float, ends: Collection[int] = ()) -> PhraseFusion:
        """Read the phrases from a file (see ``PhraseList``). A warning names those that the tokens cannot spell.

        Raises:
            InputError: the file is missing, a line is wrong, or the tokens can spell none of the phrases.
            ValueError: as above.
        """
        fusion = cls(PhraseList.load(Path(path)), texts, weight, ends)
        if impossible := fusion.impossible():
            shown = ", ".join(impossible[:SHOWN]) + (", .." if len(impossible) > SHOWN else "")
            found = f"the decoder's tokens cannot spell {len(impossible)} of {len(fusion.open.texts)} phrases"
            if len(impossible) == len(fusion.open.texts):
                raise InputError(f"{found}, so none would ever be preferred: {shown}", path=path)
            note(f"WARNING: {path}: {found}: {shown}")
        return fusion

    def __reduce__(self) -> tuple:
        return PhraseFusion, (self.open.phrases, self.texts, self.weight, self.ends)

    def after(self, history: Sequence[Sequence[str]]) -> PhraseFusion:
        """Return itself: no phrase reaches from one sentence into the next."""
        return self

    def _sort_tokens(self) -> None:
        """Sort the tokens by where their first word begins, and find them by what it may be of a phrase."""
        kinds: dict[str, list[int]] = {WITHIN: [], BEGIN: [], BETWEEN: []}
        self._by_letters: dict[str, dict[str, list[int]]] = {WITHIN: defaultdict(list), BEGIN: defaultdict(list)}
        self._always: dict[str, list[int]] = {WITHIN: [], BEGIN: []}  # scored one by one, wherever a phrase may go on
        self._broken: dict[str, list[int]] = {WITHIN: [], BEGIN: []}  # with parts of letters: scored one by one everywhere
        self._later = np.zeros(self.size)  # what the words after the first are worth
        for token, text in enumerate(self.texts):
            if token in self.ends or not text:
                continue
            letters = utf_8_decode(text, "replace", True)[0]
            parts = word_parts(letters)
            place = next((place for place, part in enumerate(parts) if part), None)
            if place is None:
                kinds[BETWEEN].append(token)
                continue
            kind, first = BEGIN if place else WITHIN, parts[place]
            kinds[kind].append(token)
            self._later[token] = self.weight * self._read(Tail(), b"", " ".join(parts[place + 1 :]).encode())[0]
            if "\ufffd" in letters:
                self._broken[kind].append(token)
            elif all(letter == "s" or is_sign(letter) for letter in first):
                self._always[kind].append(token)
            else:
                before, after = punctuation(first)
                for part in {first[begin : len(first) - end] for begin in range(len(before) + 1) for end in range(len(after) + 1)}:
                    self._by_letters[kind][part].append(token)
        self._kinds = {kind: np.array(tokens, dtype=np.int64) for kind, tokens in kinds.items()}

    def impossible(self) -> list[str]:
        """Return the phrases, without case, that no tokens spell: these are never preferred."""
        spelling = Spelling(filter(None, self.texts))
        return [text for text in self.open.texts if not spelling.can_write(text)]

    def start(self) -> PhraseState:
        return PhraseState()

    def score(self, state: PhraseState, token: int) -> tuple[float, PhraseState]:
        if token in self.ends:
            return self.end(state), PhraseState(None)
        if not 0 <= token < self.size:
            raise IndexError(f"token {token}: expected 0 to {self.size - 1}")
        text = self.texts[token]
        if state.tail is None or not text:
            return 0.0, state
        value, after = self._read(state.tail, state.rest, text)
        return self.weight * value, after

    def _read(self, tail: Tail, rest: bytes, text: bytes) -> tuple[float, PhraseState]:
        """Return the change of the text's value, without the weight, and the state afterwards."""
        total, before = 0.0, self.open.worth(tail)
        letters, used = utf_8_decode(rest + text, "replace", False)
        for place, part in enumerate(word_parts(letters)):
            if place:
                final, tail = self.open.close(tail)
                total += final
            if part:
                final, tail = self.open.append(tail, part)
                total += final
        return total + self.open.worth(tail) - before, PhraseState(tail, (rest + text)[used:])

    def _closed(self, tail: Tail, rest: bytes) -> tuple[float, Tail]:
        """Return what becomes final and the tail if the last word ends, perhaps within a letter."""
        cut, tail = self.open.append(tail, "\ufffd") if rest else (0.0, tail)
        final, tail = self.open.close(tail)
        return cut + final, tail

    def end(self, state: PhraseState) -> float:
        if state.tail is None:
            return 0.0
        final, tail = self.open.append(state.tail, "\ufffd") if state.rest else (0.0, state.tail)
        return self.weight * (final + self.open.end(tail) - self.open.worth(state.tail))

    def scores(self, states: Sequence[PhraseState]) -> np.ndarray:
        total = np.zeros((len(states), self.size))
        for row, state in zip(total, states, strict=True):
            if state.tail is not None:
                self._fill(row, state.tail, state.rest)
                row[list(self.ends)] = self.end(state)
        return total

    def _fill(self, row: np.ndarray, tail: Tail, rest: bytes) -> None:
        """Write the scores of all tokens but the sentence ends into ``row`` (U,)."""
        final, closed = self._closed(tail, rest)
        between = self.weight * (final + self.open.worth(closed) - self.open.worth(tail))
        row[self._kinds[BETWEEN]] = between
        within, begin = self._continuations(WITHIN, tail, rest), self._continuations(BEGIN, closed, b"")
        for kind, before, found in ((WITHIN, 0.0, within), (BEGIN, between, begin)):
            tokens = self._kinds[kind]
            row[tokens] = before + found.default + self._later[tokens]
            row[found.tokens] = before + found.scores

    def _compute(self, kind: str, tail: Tail, rest: bytes) -> Continuations:
        """Return the scores of the tokens of a kind; ``default`` is that of a first word which no phrase goes on with."""
        default = self.open.phrases.count(tail.words) - self.open.worth(tail)  # what stands in the words before stays
        tokens = list(dict.fromkeys(self._continuing(kind, tail)))
        scores = np.array([self._read(tail, rest, self.texts[token] or b"")[0] for token in tokens], dtype=float)
        return Continuations(self.weight * default, np.array(tokens, dtype=np.int64), self.weight * scores)

    def _continuing(self, kind: str, tail: Tail) -> Iterator[int]:
        """Yield the tokens of a kind that may go on with a phrase after the tail, or end one."""
        yield from self._broken[kind]
        if tail.word is None:
            return
        yield from self._always[kind]
        by_letters, seen = self._by_letters[kind], set()
        for begun in self.open.unfinished(tail):
            first, last = self.open.range(begun)
            for text in self.open.texts[first:last]:
                following = text[len(begun) :].partition(" ")[0]
                for length in range(1, len(following) + 1):
                    part = following[:length]
                    if part not in seen:
                        seen.add(part)
                        yield from by_letters.get(part, ())
