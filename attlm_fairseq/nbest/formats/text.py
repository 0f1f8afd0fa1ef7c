"""One text per line, perhaps with an id: the outputs of systems that give one hypothesis, and references."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TextIO, cast

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats.lines import numbered, split_end, write_lines
from attlm_fairseq.nbest.formats.own_text import own_text, text_of_hypothesis
from attlm_fairseq.nbest.formats.protocol import NbestFormat
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import FileText, HypothesisText, ListText

_ID_FIRST = re.compile(r"\s*(?P<id>\S+)(?:\s+(?P<text>.*))?", re.DOTALL)  # Kaldi, ESPnet: id text
_ID_LAST = re.compile(r"(?P<text>.*?)(?:^|(?<=\s))\((?P<id>\S+)\)\s*", re.DOTALL)  # sclite: text (id)
FEWEST_NUMBERED = 3  # lines: two that begin with different numbers are rather texts
_LIKE_AN_ID = re.compile(r"(?![0-9]+$)[!-,./:-^`-~]*[0-9_-][!-~]*")  # ASCII with a digit, dash or underscore: words rarely look like this


@dataclass(frozen=True)
class TextFormat(NbestFormat):
    """One text per line, the only hypothesis of its list; a blank line is an empty one. Never recognised: any text looks like this.

    Attributes:
        by: ``"id"`` requires an id in every line, ``"order"`` takes the lines as they are. With None, ids are taken if
            all lines have one, and a note says so. An id is a distinct first word, or last word in parentheses, each
            with a digit, dash or underscore. Lists without ids get their positions from 0.
    """

    by: Literal["order", "id"] | None = None
    name: ClassVar[str] = "text"
    like_text: ClassVar[bool] = True
    has_scores: ClassVar[bool] = False

    def matches(self, head: str) -> bool:
        return False

    def with_argument(self, argument: str) -> TextFormat:
        if argument not in ("order", "id"):
            raise InputError(f"unknown n-best format 'text:{argument}': expected text, text:order or text:id")
        return TextFormat(cast(Literal["order", "id"], argument))

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        file = FileText(self.name)
        raw = [line for _, line in numbered(source, file)]
        if not any(map(str.strip, raw)):
            raise InputError("nothing but blank lines: expected one text per line", path=source.name)
        texts = self._with_ids([split_end(line)[0] for line in raw], source.name)
        for number, ((name, text), line) in enumerate(zip(texts, raw, strict=True), 1):
            hypothesis = Hypothesis(text, rank=1, verbatim=HypothesisText(line))
            yield NbestList(name, [hypothesis], line=number, path=source.name, verbatim=ListText(file, size=1))

    def _with_ids(self, lines: Sequence[str], path: str) -> list[tuple[str, str]]:
        """Return (id, text) of each line."""
        ways = [] if self.by == "order" else keyed(lines)
        found = next((way for way in ways if self.by == "id" or like_ids(way)), None)
        if found is None and self.by is None and (numbers := doubtful_numbers(lines, ways)):
            raise InputError(f"{numbers}: say --format {self.name}:id or --format {self.name}:order", path=path)
        if found is None and self.by == "id":
            raise InputError("not every line carries an id: expected 'id text' or 'text (id)'", path=path)
        if found is None:
            return [(str(place), line) for place, line in enumerate(lines)]
        names = [name for name, _ in found]
        as_they_are = f"--format {self.name}:order takes the lines as they are"
        if (twice := repeated(names)) is not None:
            raise InputError(f"{twice}: expected each id once; {as_they_are}", path=path)
        if self.by is None:
            note(f"note: {path}: the lines' ids, such as {names[0]!r}, do not count as words; {as_they_are}")
        return found

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        write_lines(lists, out, self.name, self._lines)

    def _lines(self, nbest: NbestList) -> list[str]:
        if len(nbest.hypotheses) != 1:
            raise nbest.error(f"list {nbest.id} has {len(nbest.hypotheses)} hypotheses: text has one per line; write jsonl instead")
        own_text(nbest, self.name)
        return [text_of_hypothesis(nbest, nbest.hypotheses[0]).own]


def keyed(lines: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Return (id, text) of each line, once for each of the two forms that fits every line."""
    ways = []
    for way in (_ID_LAST, _ID_FIRST):
        matches = [way.fullmatch(line) for line in lines]
        if all(matches):
            ways.append([(match["id"], (match["text"] or "").strip()) for match in matches if match])
    return ways


def like_ids(keyed_lines: Sequence[tuple[str, str]]) -> bool:
    """Return whether these look like ids, not words: at least two, all distinct, all of a form that is rare for words."""
    names = {name for name, _ in keyed_lines}
    return 1 < len(names) == len(keyed_lines) and all(map(_LIKE_AN_ID.fullmatch, names)) and any(text for _, text in keyed_lines)


def doubtful_numbers(lines: Sequence[str], ways: Sequence[Sequence[tuple[str, str]]]) -> str | None:
    """Return a clause on lines that each have a number of their own, ``text (1)`` or ``1 text``, which may be an id or a word; else None.

    ``ways``: as ``keyed`` returns them. A number that begins a line is a word if some lines have nothing else, or if there are few.
    """
    for keyed_lines in ways:
        names = {name for name, _ in keyed_lines}
        if not 1 < len(names) == len(keyed_lines) or not all(name.isascii() and name.isdecimal() for name in names):
            continue
        if all(line.rstrip().endswith(f"({name})") for line, (name, _) in zip(lines, keyed_lines, strict=True)):
            return f"every line ends in a number in parentheses, such as ({keyed_lines[0][0]}), which may be an id or a word"
        if len(keyed_lines) >= FEWEST_NUMBERED and all(text for _, text in keyed_lines):
            return f"every line begins with another number, such as {keyed_lines[0][0]}, which may be an id or a word"
    return None


def repeated(names: Sequence[str]) -> str | None:
    """Return a clause on the first id that occurs several times; None if all are distinct."""
    found = next(((name, count) for name, count in Counter(names).items() if count > 1), None)
    return None if found is None else f"the id {found[0]!r} is there {found[1]} times"
