"""Plain text: hypotheses without scores."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TextIO

from attlm_fairseq.errors import InputError
from attlm_fairseq.files import TextSource
from attlm_fairseq.nbest.formats.lines import grouped, one_line, quoted, split_end, text_of, write_lines
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFormat
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

_ICEFALL = re.compile(r"[^\t\n]*\t(?:ref|hyp)=\[")  # recogs-*.txt: a reference and one hypothesis
_JSON = re.compile(r"\s*[\[{]\s*[\"\[{\]}]")


class PlainFormat(NbestFormat):
    """One hypothesis per line, best first: ``id<TAB>text``, or lists separated by blank lines. The first line that is not blank decides."""

    name = "plain"
    holds = Holds(one_line=True)
    like_text = True
    has_scores = False

    def matches(self, head: str) -> bool:
        """Either every line has a tab, or none has and a blank line separates two lists."""
        lines = head.strip("\r\n").split("\n")
        tabs = ["\t" in line for line in lines if line.strip(" \r")]
        if _JSON.match(head) or _ICEFALL.match(head) or not tabs or "\0" in head:
            return False
        return all(tabs) or (not any(tabs) and len(tabs) < len(lines))

    def parse(self, source: TextSource) -> Iterator[NbestList]:
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

        return grouped(source, self.name, parse)

    def written_id(self, nbest: NbestList) -> str | None:
        """Return None for a list that is told from others by blank lines."""
        return one_line(nbest.id) if "\t" in self._line(nbest, nbest.hypotheses[0]) else None

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        write_lines(lists, out, self.name, self._lines, self._separator)

    def _lines(self, nbest: NbestList) -> Iterator[str]:
        return (self._line(nbest, hypothesis) for hypothesis in nbest.hypotheses)

    def _line(self, nbest: NbestList, hypothesis: Hypothesis) -> str:
        if text_of(nbest, self.name) is not None and hypothesis.verbatim is not None:
            return hypothesis.verbatim.own
        if not nbest.id.strip():
            raise nbest.error(f"the id {quoted(nbest.id)} is blank: plain lines cannot hold it; give it another one, or write jsonl")
        return f"{one_line(nbest.id)}\t{one_line(hypothesis.text)}\n"

    def _separator(self, nbest: NbestList) -> str:
        """Return the blank line that a list without ids needs when it has become another than the first of the file."""
        return "" if "\t" in self._line(nbest, nbest.hypotheses[0]) else "\n"
