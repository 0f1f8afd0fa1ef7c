"""Other ways to say the same number: "one thousand, nine hundred and ninety-two" -> "nineteen ninety two".

Recognisers write digits, and normalisers spell them in one way, whatever was said. The words of the numbers up to
MAX_NUMBER come from the package num2words, in any of its languages. The probability of each way is learned.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.alignment import AlignedPair, Block
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline

LANGUAGE = "en"  # of spelled-out numbers, unless told otherwise
MAX_NUMBER = 9999
MAX_SPOKEN = 8  # words of a spelled number
MAX_ENDING = 3  # letters that stick to a number: 4pm, 21st
MIN_PROBABILITY = 0.01
DISCOUNT = 1.0
WAYS = ("cardinal", "plain", "digits-oh", "pairs", "pairs-oh", "pair-digits", "digits-pair", "short", "ordinal")  # "oh": any zero
PARTS = 100  # other numbers are said as pairs and digits, which are at most this

Words = tuple[str, ...]


class Spoken(NamedTuple):
    """A number in a text, up to word ``end``. ``ending``: letters attached to its last word, or of an ordinal."""

    end: int
    value: int
    ending: str


@dataclass(frozen=True)
class NumberWords:
    """The number words of a language. ``values``: by spelling, split at hyphens, without commas and joining words.

    Cardinals and ordinals that num2words cannot spell are empty.
    """

    values: dict[Words, int]
    cardinals: tuple[Words, ...]
    ordinals: tuple[Words, ...]
    joining: str  # "and"
    zeros: tuple[str, ...]
    beginnings: frozenset[Words] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        beginnings = frozenset(words[:length] for words in self.values for length in range(1, len(words) + 1))
        object.__setattr__(self, "beginnings", beginnings)

    def read(self, words: Sequence[str], begin: int) -> Spoken | None:
        """Return the longest number that begins at a word; None if there is none."""
        parts: Words = ()
        found = None
        for place in range(begin, min(begin + MAX_SPOKEN, len(words))):
            plain = words[place].strip(",$").lower()
            if self.joining and plain == self.joining and parts:
                continue
            *pieces, last = plain.split("-")
            for ending in range(min(MAX_ENDING, len(last) - 1) + 1):
                whole = (*parts, *pieces, last[: len(last) - ending])
                if whole in self.values:
                    found = Spoken(place + 1, self.values[whole], last[len(last) - ending :])
                    break
            parts = (*parts, *pieces, last)
            if parts not in self.beginnings:
                break
        return found

    def ways(self, value: int, ending: str) -> dict[str, Words]:
        """Return the ways to say a number, by the name of the way, what sticks to it apart: distinct texts."""
        digits = str(value)
        cardinal = self.cardinals[value]
        ways: dict[str, Words] = {"cardinal": cardinal, "plain": tuple(word for word in cardinal if word != self.joining)}
        if len(digits) > 1:
            for zero in self.zeros if "0" in digits else self.zeros[:1]:
                ways[f"digits-{zero}"] = tuple(zero if digit == "0" else self.cardinals[int(digit)][0] for digit in digits)
        if len(digits) > 2:
            ways["pairs"] = self._pairs(digits)
            for zero in self.zeros if digits[-2] == "0" and digits[-1] != "0" else ():
                ways[f"pairs-{zero}"] = (*self.cardinals[int(digits[:-2])], zero, *self.cardinals[int(digits[-1])])
        if len(digits) == 4:
            last = (*self.cardinals[int(digits[2])], *self.cardinals[int(digits[3])])
            ways["pair-digits"] = (*self.cardinals[int(digits[:2])], *last)
            ways["digits-pair"] = (*self.cardinals[int(digits[0])], *self.cardinals[int(digits[1])], *self.cardinals[int(digits[2:])])
        if len(digits) >= 3 and digits.endswith("00"):
            ways["short"] = self.cardinals[int(digits[:-2])]
        if self.ordinals[value]:
            ways["ordinal"] = self.ordinals[value]
        if ending:
            for name, words in list(ways.items()):
                if name != "ordinal":
                    ways[f"{name}+{ending}"] = (*words, ending)
                    ways[f"{name}+letters"] = (*words, *ending)
        return {name: words for words, name in {words: name for name, words in reversed(ways.items())}.items()}

    def _pairs(self, digits: str) -> Words:
        first, last = int(digits[:-2]), int(digits[-2:])
        return (*self.cardinals[first], *(self.cardinals[last] if last else self.hundred))

    @property
    def hundred(self) -> Words:
        return self.cardinals[100][-1:]


@lru_cache(maxsize=4)
def number_words(language: str = LANGUAGE) -> NumberWords | None:
    """Return the numbers of a language (num2words' code); None if num2words is not installed or cannot spell 0 to PARTS in it."""
    try:
        from num2words import num2words
    except ImportError:
        return None

    def spelled(value: int, kind: str) -> Words:
        try:
            text = num2words(value, lang=language, to=kind)
        except Exception:  # in some languages num2words has no words, or a fault: IndexError, KeyError, TypeError
            return ()
        return tuple(text.lower().replace(",", "").replace("-", " ").split())

    split = [spelled(value, "cardinal") for value in range(PARTS + 1)]
    if not all(split):
        return None
    split += [spelled(value, "cardinal") for value in range(PARTS + 1, MAX_NUMBER + 1)]
    ordinals = tuple(spelled(value, "ordinal") for value in range(MAX_NUMBER + 1))
    joining = "and" if language.startswith("en") else ""
    zeros = ("oh", "zero", "o") if language.startswith("en") else split[0]
    values: dict[Words, int] = {}
    for value, words in enumerate(split):
        if words:
            values.setdefault(tuple(word for word in words if word != joining), value)
    return NumberWords(values, tuple(split), ordinals, joining, zeros)


def check_language(language: str) -> None:
    """Log a note if num2words cannot spell the numbers of a language.

    Raises:
        InputError: num2words does not know the language.
    """
    require_type("value of language", language, str, "a num2words code, such as 'en'")
    try:
        from num2words import CONVERTER_CLASSES
    except ImportError:
        return
    regional = re.fullmatch(r"[a-z]{2}[_-].+", language) is not None  # num2words looks at the first two letters of any name
    if not (language in CONVERTER_CLASSES or (regional and language[:2] in CONVERTER_CLASSES)):
        known = ", ".join(sorted(CONVERTER_CLASSES))
        raise InputError(f"--language {language}: num2words does not know it; expected one of {known}")
    words = number_words(language)
    if words is None:
        note(f"note: num2words cannot spell the numbers of {language}: corrections leave numbers as they are")
    elif not any(words.ordinals):
        note(f"note: num2words has no ordinal numbers of {language}: corrections change the others alone")


def shape(spoken: Spoken) -> str:
    """Return what the probability of a way depends on: the number of digits, whether the last are 00, and what sticks to the number."""
    digits = str(spoken.value)
    tail = "00" if len(digits) > 2 and digits.endswith("00") else "0x" if len(digits) > 2 and digits[-2] == "0" else ""
    return f"{len(digits)}{tail}{'+' + spoken.ending if spoken.ending else ''}"


def is_row(kind: str, way: str) -> bool:
    """Return whether a table may have this ``shape`` and this way to say it, as ``NumberWords.ways`` names them."""
    ending = rf"(\+\S{{1,{MAX_ENDING}}})?"
    names = "|".join(re.escape(name).replace("oh", r"\S+") for name in WAYS)
    return bool(re.fullmatch(rf"[1-4](00|0x)?{ending}", kind) and re.fullmatch(rf"({names})({ending}|\+letters)", way))


@dataclass
class NumberChannel:
    """ln p of each way to say a number, by its ``shape``. ``words`` is None if the language's numbers are not known."""

    log_probs: dict[str, dict[str, float]] = field(default_factory=dict)
    counts: dict[str, dict[str, float]] = field(default_factory=dict)
    words: NumberWords | None = None

    def options(self, text: Sequence[str], begin: int, steps: TextPipeline = NO_STEPS) -> Iterator[tuple[int, Words, float, str]]:
        """Yield the other ways to say the number that begins at a word: where it ends, the words, ln p, and the way's name.

        ``text`` are the words after the text steps.
        """
        spoken = self.words.read(text, begin) if self.words and self.log_probs else None
        if spoken is None or self.words is None:
            return
        original = tuple(text[begin : spoken.end])
        best: dict[Words, tuple[float, str]] = {}
        ways = self.words.ways(spoken.value, spoken.ending)
        for name, log_prob in self.log_probs.get(shape(spoken), {}).items():
            words = _written_like(original, ways.get(name, ()), steps)
            if words and words != original and log_prob > best.get(words, (-math.inf, ""))[0]:
                best[words] = log_prob, name
        for words, (log_prob, name) in best.items():
            yield spoken.end, words, log_prob, name


def _written_like(original: Sequence[str], words: Words, steps: TextPipeline) -> Words:
    """Return the words of a number after the text steps, in capitals if the number in their place is."""
    if steps.steps:
        words = tuple(steps.words(" ".join(words)))
    return tuple(" ".join(words).upper().split()) if "".join(original).isupper() and not "".join(words).isupper() else words


def learn_numbers(pairs: Iterable[AlignedPair], language: str = LANGUAGE, steps: TextPipeline = NO_STEPS) -> NumberChannel:
    """Count in which way references say the numbers that hypotheses spell out, both after the text steps."""
    words = number_words(language)
    if words is None:
        return NumberChannel()
    counts: dict[str, defaultdict[str, float]] = {}
    totals: defaultdict[str, float] = defaultdict(float)
    for pair in pairs:
        place = 0
        while place < len(pair.hypothesis):
            spoken = words.read(pair.hypothesis, place)
            if spoken is None:
                place += 1
                continue
            kind = shape(spoken)
            totals[kind] += pair.weight
            target = opposite(pair, place, spoken.end)
            for name, way in words.ways(spoken.value, spoken.ending).items():
                if _written_like(pair.hypothesis[place : spoken.end], way, steps) == target:
                    counts.setdefault(kind, defaultdict(float))[name] += pair.weight
            place = spoken.end
    log_probs: dict[str, dict[str, float]] = {}
    for kind, found in counts.items():
        probable = {name: n / (totals[kind] + DISCOUNT) for name, n in found.items()}
        log_probs[kind] = {name: math.log(p) for name, p in sorted(probable.items()) if p >= MIN_PROBABILITY}
    return NumberChannel(log_probs, {kind: dict(found) for kind, found in counts.items()}, words)


def opposite(pair: AlignedPair, begin: int, end: int) -> Words | None:
    """Return the words of the reference that stand in the place of ``[begin, end)``; None if a block reaches over either boundary."""
    first, last = _boundary(pair.blocks, begin, before=True), _boundary(pair.blocks, end, before=False)
    return None if first is None or last is None else tuple(pair.reference[first:last])


def _boundary(blocks: Sequence[Block], place: int, *, before: bool) -> int | None:
    shift = 0
    for block in blocks:
        if block.begin == place and before:
            return block.target_begin
        if block.end == place and not before:
            return block.target_end
        if block.begin < place < block.end:
            return None
        if block.end <= place and (block.begin < place or not before):
            shift = block.target_end - block.end
    return place + shift
