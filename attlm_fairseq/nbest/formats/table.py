"""Tables, CSV or tab-separated: one hypothesis per row. A table with tabs and three clear columns needs no header."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, TextIO

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.as_read import is_expanded
from attlm_fairseq.nbest.formats.lines import WholeLines, one_line, split_end, whole_lines
from attlm_fairseq.nbest.formats.own_text import own_text, text_of
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFormat
from attlm_fairseq.nbest.formats.tables.columns import Columns
from attlm_fairseq.nbest.formats.tables.rows import (
    SEPARATOR,
    fields_of,
    guessed_header,
    lead_of,
    lists_of_rows,
    names_read_of,
    rows_of,
    rows_without_header,
)
from attlm_fairseq.nbest.formats.tables.written import UNUSABLE_LISTS, WrittenTable, tells_columns
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.verbatim import FileText


class TableFormat(NbestFormat):
    """A header with an id and a text, then one row per hypothesis; the rows of a list are consecutive, best first.

    Other columns of numbers are scores, unless ``keys.is_score`` denies it. All other columns are kept. Written: the rows in the new
    order, with one column per LM and ``total`` at the end.
    """

    holds = Holds(
        references=True, blank_references=False, sources=True, blank_sources=False, columns=True, scores=True, score_name=keys.as_header
    )
    delimiters: ClassVar[str]
    texts: ClassVar[Sequence[str]] = keys.ALL_TEXTS  # names of the column of the text
    blank_references: ClassVar[bool] = False  # whether a blank reference is one, of silence, or none

    def matches(self, head: str) -> bool:
        return self._delimiter(head) is not None

    def _delimiter(self, head: str) -> str | None:
        first = next((line for line in head[lead_of(head) :].split("\n") if line.strip()), "")
        return next((mark for mark in self.delimiters if Columns.of(fields_of(first, mark), self.texts) is not None), None)

    def _lacks(self, header: str) -> str:
        """Return which of the two columns that a table needs a header lacks, for a message; nothing if it has neither."""
        for mark in self.delimiters:
            names = {keys.of_header(name) for name in fields_of(split_end(header)[0], mark)}
            lacked = [what for what, known in (("id", keys.IDS), ("text", self.texts)) if names.isdisjoint(known)]
            if len(lacked) == 1:
                return f"; no column has the name of {'an' if lacked == ['id'] else 'a'} {lacked[0]}"
        return ""

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        delimiter = self._delimiter(source.head) or self.delimiters[0]
        file = FileText(self.name, framing=delimiter)
        rows = rows_of(source, file, delimiter)
        header = next(rows, None)
        if header is not None and SEPARATOR.fullmatch(header.raw):
            file.start += header.before + header.raw
            header = next(rows, None)
        columns = Columns.of(header.fields, self.texts) if header is not None else None
        if header is None or columns is None:
            found = quoted(header.raw if header else "")
            message = f"found the header {found}: expected names of columns, among them an id (id, utt, ..) and a text (hyp, text, mt, ..)"
            message += self._lacks(header.raw) if header else ""
            raise InputError(message, path=source.name, line=header.line if header else None)
        columns.require_different_names(source.name, header.line)
        file.start += header.before + header.raw
        return lists_of_rows(rows, columns, file, source.name, self.blank_references)

    def keeps(self, nbest: NbestList) -> bool:
        text = text_of(nbest, self.name)
        if text is None or not is_expanded(nbest):
            return False
        names, has_header = names_read_of(text.file), not text.file.framing[1:]
        read = {name for hypothesis in nbest.hypotheses if hypothesis.verbatim is not None for name in hypothesis.verbatim.names}
        all_scored = all(read <= hypothesis.scores.keys() for hypothesis in nbest.hypotheses)
        return read <= {name.strip() for name in names} and (has_header or ("rank" not in names and all_scored))

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        rest = iter(lists)
        first: list[NbestList] = []
        for nbest in itertools.islice(rest, UNUSABLE_LISTS):
            first.append(nbest)
            if tells_columns(nbest):
                break
        if not first:
            return
        table = WrittenTable.of(first, text_of(first[0], self.name), self.delimiters[0])
        lines = WholeLines(out)
        out.write(table.header)  # a whole line, or a byte order mark alone
        end = ""
        lists = itertools.chain(first, rest)
        del first  # which would be kept to the end
        for nbest in lists:
            text = text_of(nbest, self.name)
            if (text is None) != table.is_new:
                own_text(nbest, self.name)
            lines.put(text.before if text is not None else "")
            for place, hypothesis in enumerate(nbest.hypotheses):
                lines.put(table.row(nbest, hypothesis, place))
            end = text.file.end if text is not None else ""
        lines.put(end)


class CsvFormat(TableFormat):
    name = "csv"
    delimiters = ",;"


class TsvFormat(TableFormat):
    """A table with tabs. It needs no header if it has three columns: the id, then the text and one number, in either order.

    Without a header a quote is a character like any other. A header is written if columns are added; only then a field
    that begins with a quote gets quotes around it, so that it is read back as it was.
    """

    name = "tsv"
    delimiters = "\t"
    holds = replace(TableFormat.holds, one_line=True)

    def written_id(self, nbest: NbestList) -> str:
        return one_line(nbest.id)

    def matches(self, head: str) -> bool:
        return super().matches(head) or guessed_header(head) is not None

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        header = None if super().matches(source.head) else guessed_header(whole_lines(source.head))
        columns = Columns.of(header) if header is not None else None
        if header is None or columns is None:
            return super().parse(source)
        note(f"note: {source.name} has no header: read as {', '.join(header)}")
        file = FileText(self.name, framing="\t".join(("", *header)))
        return lists_of_rows(rows_without_header(source, file), columns, file, source.name, self.blank_references)


class ReferenceCsv(CsvFormat):
    """A table of references: the text may have the name of a reference, and a blank reference is one."""

    texts = (*keys.ALL_TEXTS, *keys.REFERENCES)
    blank_references = True


class ReferenceTsv(TsvFormat):
    """As ``ReferenceCsv``."""

    texts = ReferenceCsv.texts
    blank_references = True
