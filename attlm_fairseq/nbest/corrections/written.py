"""How a hypothesis is written, apart from its words as corrections compare them: with case and punctuation."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.corrections.alignment import bounded, differing_blocks, unbounded
from attlm_fairseq.nbest.corrections.phrase_list import FROM_LIST
from attlm_fairseq.nbest.corrections.search import Edge
from attlm_fairseq.text.phrases import NOT_PUNCTUATION
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline
from attlm_fairseq.text.steps import turkish_lower, turkish_upper
from attlm_fairseq.text.unspaced import CHARACTER, PARTS, divided, has_unspaced, joined, tightened

WORD_BY_WORD = ("unicode", "lowercase", "uppercase", "remove-punctuation", "characters")  # steps that see no other word
COMPATIBILITY = ("nfkc", "nfkd")  # forms of unicode that replace characters by others
SENTENCE_ENDS = ".?!\u3002\uff1f\uff01\u061f"
LONGEST = 200  # characters of a word that holds signs: each sign costs another look at all of them
USUAL = 0.5  # share of the occurrences that are written in one way, at least
TURKISH: dict[Callable[[str], str], Callable[[str], str]] = {str.upper: turkish_upper, str.lower: turkish_lower}
DANGLING = ",;:-\u2013\u2014\u060c\u3001\uff0c\uff1b\uff1a"  # signs that do not end a text

TAG = re.compile(r"([^\w\[<{]*)(\[[^\[\]]+\]|<[^<>]+>|\{[^{}]+\})([^\w\]>}]*)")  # of a noise: its brackets go with its word


def check_steps(text: TextPipeline, of_table: bool = False) -> TextPipeline:
    """Return the steps. ``of_table``: those of a table that has been learned, whose rows are checked one by one.

    Raises:
        InputError: a step does not treat each word by itself, so that what was written could not be found again, or the steps would
            change their own output: lowercase leaves the sign for degrees Celsius, of which NFKC makes a capital C.
    """
    for place, step in enumerate(text.steps):
        if step.name not in WORD_BY_WORD:
            raise InputError(f"text step {step}: corrections compare words one by one, by the steps {', '.join(WORD_BY_WORD)}")
        before = [str(other) for other in text.steps[:place] if other.name != "unicode"]
        if before and step.argument in COMPATIBILITY and not of_table:
            raise InputError(f"text step {step}: it makes letters and signs that {before[0]} changes: give it as the first step")
    return text


@dataclass(frozen=True)
class Written:
    """A text, and its words after the text steps: ``gaps[0] written[1] gaps[1] written[2] ..``.

    Attributes:
        words: the words after the steps, between BEGIN and END.
        written: how each of ``words`` is written; nothing for BEGIN and END.
        gaps: what is written after each of ``words`` but END: a space, punctuation, or both. The first begins the text, the last ends it.
        steps: the text steps.
        usual: how new words are usually written; the others are written as they are compared.
    """

    words: tuple[str, ...]
    written: tuple[str, ...]
    gaps: tuple[str, ...]
    steps: TextPipeline = NO_STEPS
    usual: Mapping[str, UsualForm] = field(default_factory=dict)

    @staticmethod
    def of(text: str, steps: TextPipeline = NO_STEPS, usual: Mapping[str, UsualForm] | None = None) -> Written:
        words: list[str] = []
        written: list[str] = [""]
        gaps: list[str] = [""]
        for token in text.split():
            gaps[-1] += " " if gaps[-1] or words else ""
            found = steps.words(token)
            words += found
            parts = _divided_parts(token, found, steps)
            gaps[-1] += parts[0]
            for surface, gap in zip(parts[1::2], parts[2::2], strict=True):
                written.append(surface)
                gaps.append(gap)
        return Written(tuple(bounded(" ".join(words))), (*written, ""), tuple(gaps), steps, usual or {})

    def corrected(self, edges: Iterable[Edge]) -> str:
        """Return the text that a derivation makes. ``edges`` lead from BEGIN to END.

        What is kept is written as it was. What replaces words has their punctuation around it, and a capital letter if they begin
        with one. The text begins with a capital letter and ends with a sign if it did; a text of capitals stays one. If the steps do
        not lead from this text to the words of the derivation, it is these words.
        """
        edges = list(edges)
        text = self._text(edges)
        compared = [word for edge in edges for word in edge.target][1:-1]
        plain = unbounded(compared)
        return next((one for one in (text, self._spaced(plain)) if not self.steps.steps or self.steps.words(one) == plain.split()), plain)

    def rewritten(self, words: Sequence[str]) -> str:
        """Return the text with other ``words``, as a derivation from the words that differ would make it."""
        edges: list[Edge] = []
        place = 0
        for block in differing_blocks(self.words, words):
            edges += [Edge(at, at + 1, (self.words[at],), 0.0) for at in range(place, block.begin)]
            edges.append(Edge(block.begin, block.end, tuple(words[block.target_begin : block.target_end]), 0.0, ("", "", "")))
            place = block.end
        return self.corrected([*edges, *(Edge(at, at + 1, (self.words[at],), 0.0) for at in range(place, len(self.words)))])

    def _text(self, edges: Sequence[Edge]) -> str:
        text, gap = "", ""  # what is written, and what comes before the next word
        place = 0  # of the first word that is not written yet
        last = len(self.words) - 1
        space = "" if self._is_unspaced else " "
        opening, closing = self.gaps[0], self.gaps[-1]
        for begin, end, new in (change for edge in edges if edge.rule is not None for change in self._changes(edge)):
            if place < begin:
                text, gap = self._followed(text, gap, self._kept(place, begin)), self.gaps[begin - 1]
            if begin == end:
                text, gap = self._followed(text, "", _inserted(gap, new, begin == 1, end == last, space)), ""
            elif new:
                text, gap = self._followed(text, gap, new), self.gaps[end - 1]
            else:
                before, after = _without_brackets(gap, self.gaps[end - 1])
                opening, closing = (before if begin == 1 else opening), (after if end == last else closing)
                gap = _removed(before, after, begin == 1, end == last)
            place = end
        return self._ended(" ".join(self._followed(text, gap, self._kept(place, last + 1)).split()), opening, closing)

    def _changes(self, edge: Edge) -> list[tuple[int, int, str]]:
        """Return what an edge changes: words ``[begin, end)`` become a text. The context of a phrase stays."""
        source, target = self.words[edge.begin : edge.end], edge.target
        if edge.rule is not None and edge.rule[0] == FROM_LIST:
            spelled = edge.rule[2]
            if not self._is_unspaced and all(map(CHARACTER.fullmatch, source)):
                spelled = " ".join(divided(spelled).split())
            return [(edge.begin, edge.end, self._recased(spelled, str.upper) if self._case is str.upper else spelled)]
        most = min(len(source), len(target))
        first = next((i for i in range(most) if source[i] != target[i]), most)
        last = next((i for i in range(most - first) if source[-1 - i] != target[-1 - i]), most - first)
        begin, end = edge.begin + first, edge.end - last
        new = unbounded(target[first : len(target) - last])
        return [(begin, end, self._with_case(begin, end, new))] if begin < end or new else []

    def _kept(self, begin: int, end: int) -> str:
        """Return what is written from a word to before another one, without the gaps before and after."""
        return "".join(self.written[place] + (self.gaps[place] if place < end - 1 else "") for place in range(begin, end))

    def _with_case(self, begin: int, end: int, new: str) -> str:
        """Return words in the case in which the words from ``begin`` to ``end`` are written, where the steps have changed it.

        Words that replace letters in capitals, such as DC, are in capitals, unless the lists usually write them otherwise.
        """
        surface, compared = ("".join(words[begin:end]) for words in (self.written, self.words))
        is_word = any(sum(map(str.isalpha, word)) > 1 for word in self.written[begin:end])  # I is a capital in any text
        capitals = is_word and surface.isupper() and (surface != compared or self._case is str.lower)
        case = str.upper if capitals else self._case
        new = self._spaced(" ".join([self._usually(word) or self._recased(word, case) for word in new.split()]))
        first = self.written[begin][:1] if begin < end else ""
        is_capital = first.isupper() and (first != self.words[begin][:1] or self._case is str.lower)
        return self._capitalised(new) if is_capital else new

    def _usually(self, word: str) -> str | None:
        """Return how a word is usually written, in capitals if the text is; None if that is not known."""
        if word not in self.usual:
            return None
        return self._recased(self.usual[word].form, str.upper) if self._is_of_capitals else self.usual[word].form

    def _spaced(self, new: str) -> str:
        """Return new words with or without spaces between characters of scripts without spaces, as this text has them."""
        if not has_unspaced(new) or not self._divides:
            return new
        if not self._is_unspaced:
            return " ".join(divided(new).split())
        return tightened(new) if self._joins_words else joined(new)

    def _followed(self, text: str, gap: str, more: str) -> str:
        """Return a text and what follows it. Two words get a space between them, unless this text writes such words without one."""
        ends = [text[-1:], more[:1]]
        if gap or not all(sign.isalnum() or has_unspaced(sign) for sign in ends):
            return text + gap + more
        unspaced = sum(has_unspaced(sign) is not None for sign in ends)
        return text + more if unspaced == 2 or (unspaced and self._joins_words) else f"{text} {more}"

    @property
    def _divides(self) -> bool:
        """Return whether the steps make characters of scripts without spaces words."""
        return any(step.name == "characters" for step in self.steps.steps)

    @cached_property
    def _neighbours(self) -> list[tuple[str, bool, bool]]:
        """Return, of each two words that are written, the gap between them, and whether each is a character of a script without spaces."""
        alone = [CHARACTER.fullmatch(word) is not None for word in self.written[1:-1]]
        places = [place for place in range(1, len(self.words) - 2) if self.written[place] and self.written[place + 1]]
        return [(self.gaps[place], alone[place - 1], alone[place]) for place in places]

    @cached_property
    def _is_unspaced(self) -> bool:
        """Return whether characters that count as words stand next to each other. If there are no two to tell, it is assumed."""
        if not self._divides:
            return False
        gaps = [gap for gap, first, second in self._neighbours if first and second]
        return "" in gaps or (not gaps and has_unspaced("".join(self.written)) is not None)

    @cached_property
    def _joins_words(self) -> bool:
        """Return whether such a character stands next to a word of another script."""
        return any(not gap and first != second for gap, first, second in self._neighbours)

    def _capitalised(self, text: str) -> str:
        return self._recased(text[:1], str.upper) + text[1:]

    def _recased(self, text: str, case: Callable[[str], str]) -> str:
        """Return a text in another case, as far as the steps lead back from it: ``\u00df`` and ``SS`` are not the same to them."""
        for function in (case, TURKISH.get(case, case)):
            if self.steps.words(function(text)) == self.steps.words(text):
                return function(text)
        return "".join([case(sign) if self.steps.words(case(sign)) == self.steps.words(sign) else sign for sign in text])

    def inside(self) -> Iterator[tuple[str, str]]:
        """Yield each word with how it is written, but for the first of a sentence, and none of a text of capitals."""
        if not "".join(self.written).isupper():
            for place in range(2, len(self.words) - 1):
                if not any(sign in SENTENCE_ENDS for sign in self.gaps[place - 1]):
                    yield self.words[place], self.written[place]

    def unknown(self, word: str) -> str:
        """Return how a new word is written in this text if nothing is known of it."""
        return self._recased(word, self._case)

    @cached_property
    def _case(self) -> Callable[[str], str]:
        """Return how words in the case of the steps become words in the case of the text."""
        if "".join(self.words[1:-1]).isupper():
            return str if "".join(self.written).isupper() else str.lower
        return str.upper if self._is_of_capitals else str

    @cached_property
    def _is_of_capitals(self) -> bool:
        return "".join(self.written).isupper() and len(self.words) >= 4  # one word may be I or NASA

    def _ended(self, text: str, opening: str, closing: str) -> str:
        """Return a text with the first letter of this one, and with the signs before the first word and after the last one."""
        if not self.steps.steps:
            return text
        inner = text.removeprefix(opening).removesuffix(closing)
        if not self.steps.words(DANGLING) and not self._kept(1, len(self.words) - 1).endswith(tuple(DANGLING)):
            inner = inner.rstrip(DANGLING + " ")
        first = self.written[1][:1] if len(self.words) > 2 else ""
        if first.isupper() and first != self.words[1][:1]:
            inner = self._capitalised(inner)
        return f"{opening}{inner}{closing}" if inner else text


class UsualForm(NamedTuple):
    """How a word is usually written. ``log_prob``: ln of the share of its occurrences; ``lists``: how often it was seen, 1 per list."""

    form: str
    log_prob: float = 0.0
    lists: float = 0.0


def usual_forms(lists: Iterable[Sequence[str]], steps: TextPipeline) -> dict[str, UsualForm]:
    """Learn how words are written from the texts of lists: names, above all. Each list counts as 1, divided among its texts."""
    counts: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    unknown: dict[str, str] = {}  # how words are written that nothing is known of
    for texts in lists if steps.steps else ():
        for text in texts:
            written = Written.of(text, steps)
            for word, form in written.inside():
                counts[word][form] += 1 / len(texts)
                if word not in unknown:
                    unknown[word] = written.unknown(word)
    found = {}
    for word in sorted(counts):
        form, count = max(counts[word].items(), key=lambda item: (item[1], item[0]))
        share = count / sum(counts[word].values())
        if form != unknown[word] and share > USUAL and steps.words(form) == [word]:
            found[word] = UsualForm(form, math.log(share), count)
    return found


def _divided_parts(token: str, words: Sequence[str], steps: TextPipeline) -> list[str]:
    """Return the parts of a token as ``_parts`` does. Characters of scripts without spaces are words with nothing between them."""
    pieces = PARTS.findall(token)
    if len(pieces) > 1 and len(words) > 1:
        parts = [""]
        for piece in pieces:
            gap, *more = _parts(piece, steps.words(piece), steps)
            parts = [*parts[:-1], parts[-1] + gap, *more]
        if [word for surface in parts[1::2] for word in steps.words(surface)] == list(words):
            return parts
    return _parts(token, words, steps)


def _parts(token: str, words: Sequence[str], steps: TextPipeline) -> list[str]:
    """Return a token as gap, word, gap, word, .., gap, with the words as they are written.

    If it cannot be told how each word is written, the token is the first of them, and the others are not written.
    """
    if not words:
        return [token]
    if not steps.steps:
        return ["", token, ""]
    if len(words) == 1 and (tag := TAG.fullmatch(token)) and not steps.words(tag[1] + tag[3]):
        return list(tag.groups())
    runs = [""]  # gap, signs of words, gap, ..
    for sign in token:
        if bool(steps.words(sign)) == (len(runs) % 2 == 0):
            runs[-1] += sign
        else:
            runs.append(sign)
    runs += [""] if len(runs) % 2 == 0 else []
    parts, place = runs[:1], 1
    for word in words:  # a word may hold signs that alone are none, such as the comma of 5,000, an apostrophe and the soft hyphen
        surface = "".join(runs[place : place + 1])
        while steps.words(surface) != [word] and place + 2 < len(runs) and len(surface) < LONGEST:
            surface += runs[place + 1] + runs[place + 2]
            place += 2
        parts += [surface, *runs[place + 1 : place + 2]]
        place += 2
    whole = place == len(runs) and [steps.words(surface) for surface in parts[1::2]] == [[word] for word in words]
    return parts if whole else ["", token, ""] + ["", ""] * (len(words) - 1)


def _inserted(gap: str, new: str, at_begin: bool, at_end: bool, space: str) -> str:
    """Return a gap with words inserted. They take the place of a sign that stands for a word, such as ``%`` and ``&``.

    ``space`` is what the text has between words: nothing in scripts without spaces.
    """
    if any(sign in NOT_PUNCTUATION for sign in gap):
        kept = "".join(sign for sign in gap if sign not in NOT_PUNCTUATION)
        return f"{space}{new}{space}{kept}"
    if at_begin:
        return f"{gap}{new}{space}"
    if at_end:
        return f"{space}{new}{gap}"
    if gap.endswith(" "):
        return f"{gap}{new} "
    return f" {new} " if space else f"{gap}{new}"


def _without_brackets(before: str, after: str) -> tuple[str, str]:
    """Return the gaps around words that are removed, without the brackets or quotation marks around them."""
    opens, closes = before.rstrip()[-1:], after.lstrip()[:1]
    if opens and closes and ((_opens(opens) and unicodedata.category(closes) in ("Pe", "Pf")) or opens == closes == '"'):
        return before.rstrip()[:-1], after.lstrip()[1:]
    return before, after


def _removed(before: str, after: str, at_begin: bool, at_end: bool) -> str:
    """Return one gap for the two around words that are removed."""
    if at_begin or at_end:
        return before if at_begin else after
    return before if any(map(_opens, before)) or (before.strip() and not after.strip()) else after or before


def _opens(sign: str) -> bool:
    return unicodedata.category(sign) in ("Ps", "Pi")
