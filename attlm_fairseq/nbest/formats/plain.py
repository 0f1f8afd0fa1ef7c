"""Plain text: hypotheses without scores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, TextIO

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.formats.lines import grouped, numbered, one_line, split_end, write_lines
from attlm_fairseq.nbest.formats.own_text import text_of
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFormat
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import FileText, HypothesisText, ListText

_ICEFALL = re.compile(r"[^\t\n]*\t(?:ref|hyp)=\[")  # recogs-*.txt: a reference and one hypothesis
_JSON = re.compile(r"\s*[\[{]\s*[\"\[{\]}]")


@dataclass(frozen=True)
class PlainFormat(NbestFormat):
    """One hypothesis per line, best first: ``id<TAB>text``, or lists separated by blank lines. The first line that is not blank decides.

    With a ``size``, each list has so many lines, of text alone; a blank line is an empty hypothesis.
    """

    size: int | None = None
    name: ClassVar[str] = "plain"
    holds: ClassVar[Holds] = Holds(one_line=True)
    like_text: ClassVar[bool] = True
    has_scores: ClassVar[bool] = False

    def matches(self, head: str) -> bool:
        """Either every line has a tab, or none has and a blank line separates two lists."""
        lines = head.strip("\r\n").split("\n")
        tabs = ["\t" in line for line in lines if line.strip(" \r")]
        if _JSON.match(head) or _ICEFALL.match(head) or not tabs or "\0" in head:
            return False
        return all(tabs) or (not any(tabs) and len(tabs) < len(lines))

    def with_argument(self, argument: str) -> PlainFormat:
        if not re.fullmatch(r"[1-9]\d*", argument):
            raise InputError(f"unknown n-best format 'plain:{argument}': expected plain:K with the number of lines of each list")
        return PlainFormat(int(argument))

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        return self._by_tabs_or_blank_lines(source) if self.size is None else self._in_step(source, self.size)

    def _by_tabs_or_blank_lines(self, source: TextSource) -> Iterator[NbestList]:
        with_ids: bool | None = None
        block = -1

        def parse(whole: str, line: int, after_blank: bool) -> tuple[str, Hypothesis]:
            nonlocal with_ids, block
            body, _ = split_end(whole)
            name, tab, text = body.partition("\t")
            with_ids = bool(tab) if with_ids is None else with_ids
            if bool(tab) != with_ids:
                expected = "id<TAB>text like the lines before" if with_ids else "text without a tab like the lines before"
                raise InputError(f"found {quoted(body)}: expected {expected}", path=source.name, line=line)
            if "\t" in text:
                expected = "expected id<TAB>text; a table of more columns needs a header line, such as id<TAB>hyp<TAB>score"
                raise InputError(f"found {quoted(body)}: {expected}", path=source.name, line=line)
            if not with_ids:
                block += after_blank or block < 0
                return str(block), Hypothesis(body)
            if not name.strip():
                raise InputError(f"found {quoted(body)}: the id before the tab is empty", path=source.name, line=line)
            return name, Hypothesis(text)

        for nbest in grouped(source, self.name, parse):
            if nbest.verbatim is not None:
                nbest.verbatim.numbered = not with_ids
            yield nbest

    def _in_step(self, source: TextSource, size: int) -> Iterator[NbestList]:
        """Yield lists of ``size`` lines each."""
        file = FileText(self._text_name)
        current: list[Hypothesis] = []
        count = line = 0
        for line, whole in numbered(source, file):
            current.append(Hypothesis(split_end(whole)[0], rank=len(current) + 1, verbatim=HypothesisText(whole)))
            if len(current) == size:
                yield NbestList(
                    str(count), current, line=line - size + 1, path=source.name, verbatim=ListText(file, size=size, numbered=True)
                )
                current, count = [], count + 1
        if current or not count:
            message = f"the last list has {len(current)} of {size} lines: is the file cut short, or is the number another?"
            raise InputError(message, path=source.name, line=line or None)

    @property
    def _text_name(self) -> str:
        """The format's name in the text of its lists: plain lines cannot hold all that lists of a fixed size can, such as empty texts."""
        return self.name if self.size is None else f"{self.name}:{self.size}"

    def written_id(self, nbest: NbestList) -> str | None:
        """Return None for a list that is told from others by blank lines or by their number."""
        return one_line(nbest.id) if self.size is None and "\t" in self._line(nbest, nbest.hypotheses[0]) else None

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        write_lines(lists, out, self._text_name, self._lines, self._separator)

    def _lines(self, nbest: NbestList) -> Iterator[str]:
        if self.size not in (None, len(nbest.hypotheses)):
            raise nbest.error(f"list {nbest.id} has {len(nbest.hypotheses)} hypotheses: plain:{self.size} has {self.size} for each list")
        return (self._line(nbest, hypothesis) for hypothesis in nbest.hypotheses)

    def _line(self, nbest: NbestList, hypothesis: Hypothesis) -> str:
        if text_of(nbest, self._text_name) is not None and hypothesis.verbatim is not None:
            return hypothesis.verbatim.own
        if self.size is not None:
            return f"{one_line(hypothesis.text)}\n"
        if not nbest.id.strip():
            raise nbest.error(f"the id {quoted(nbest.id)} is blank: plain lines cannot hold it; give it another one, or write jsonl")
        return f"{one_line(nbest.id)}\t{one_line(hypothesis.text)}\n"

    def _separator(self, nbest: NbestList) -> str:
        """Return the blank line that a list without ids needs when it has become another than the first of the file."""
        return "" if self.size is not None or "\t" in self._line(nbest, nbest.hypotheses[0]) else "\n"
