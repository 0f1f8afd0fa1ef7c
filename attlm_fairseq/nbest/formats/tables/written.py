"""Tables as they are written: new ones, or those that were read, with more columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.lines import one_line, split_end
from attlm_fairseq.nbest.formats.number_texts import is_written_number
from attlm_fairseq.nbest.formats.own_text import added_scores, is_own
from attlm_fairseq.nbest.formats.score_names import TOTAL, fresh_names
from attlm_fairseq.nbest.formats.tables.columns import Columns, compared_name
from attlm_fairseq.nbest.formats.tables.rows import blank_lines, lead_of, names_read_of, split_row
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import HypothesisText, ListText

UNUSABLE_LISTS = 1000  # silent or incomplete, at the beginning, until one shows which columns there are


def tells_columns(nbest: NbestList) -> bool:
    """Return whether a list probably has the scores that others have: it is not silence, has been decided on if it was scored, and all of
    its hypotheses have the same scores."""
    best = nbest.hypotheses[0]
    if not any(one.text for one in nbest.hypotheses) or (best.lm_scores and best.total is None):
        return False
    return all(one.scores.keys() == best.scores.keys() for one in nbest.hypotheses)


@dataclass(slots=True)
class WrittenTable:
    """The columns of a written table.

    Attributes:
        is_new: the lists come from another format.
        header: the text before the first row.
        quotes: the rows read are quoted, so that they have to be parsed as such.
        added: column names by LM.
        total: the column of the total, of those that were read; -1: a new one.
        own: the score columns of a new table.
        has_source: whether a new table has a column of source sentences.
        joined: column names of the scores that the lists of a table that was read have got.
        names: names of the columns of a table that was read.
        rank: the column of the ranks in a table without a header.
    """

    is_new: bool
    header: str
    delimiter: str
    end: str
    quotes: bool
    added: dict[str, str]
    total: int | None = None
    own: tuple[str, ...] = ()
    has_source: bool = False
    joined: dict[str, str] = field(default_factory=dict)
    names: Sequence[str] = ()
    rank: int | None = None

    @staticmethod
    def of(first: Sequence[NbestList], text: ListText | None, delimiter: str) -> WrittenTable:
        """Return the table with the columns of the first lists together: all others have the same. ``text`` is that of the first one."""
        hypotheses = [one for nbest in first for one in nbest.hypotheses]
        lms = list(dict.fromkeys(name for one in hypotheses for name in one.lm_scores))
        decided = any(one.total is not None for one in hypotheses)
        if text is None:
            own = tuple(dict.fromkeys(name for one in hypotheses for name in one.scores))
            has_source = any(nbest.source is not None for nbest in first)
            texts = ["id", "hyp", "ref", *(["source"] if has_source else [])]
            names = fresh_names(own, [*texts, TOTAL], keys.as_header, compared_name)
            added = fresh_names(lms, [*texts, TOTAL, *names.values()], keys.as_header, compared_name)
            total = -1 if decided else None
            header = [*texts, *names.values(), *added.values(), *([TOTAL] if total else [])]
            return WrittenTable(True, _line(header, delimiter, "\n"), delimiter, "\n", True, added, total, own, has_source)
        delimiter, lacked = text.file.framing[0], text.file.framing[1:]
        mark = "\ufeff" if text.file.start.startswith("\ufeff") else ""
        head, end = split_end(text.file.start.removeprefix(mark))
        lead, head = head[: lead_of(head)], head[lead_of(head) :]
        if lacked:  # its line end is that of the rows, of which the last may have none
            ends = (split_end(one.verbatim.own)[1] for one in hypotheses if one.verbatim is not None)
            end = next((end for end in ends if end.endswith("\n")), "")
        end = end or "\n"
        names_read = names_read_of(text.file)
        known_names = list(map(keys.of_header, names_read))
        more = list(dict.fromkeys(name for one in filter(is_own, hypotheses) for name in added_scores(one)))
        joined = fresh_names(more, [*names_read, TOTAL], keys.as_header, compared_name)
        added = fresh_names(lms, [*names_read, *joined.values()], keys.as_header, compared_name)
        total = None if not decided else known_names.index(TOTAL) if TOTAL in known_names else -1
        new = [*joined.values(), *added.values(), *([TOTAL] if total == -1 else [])]
        if not new and total is None:
            rank = names_read.index("rank") if lacked and "rank" in names_read else None
            return WrittenTable(False, text.file.start, delimiter, end, not lacked, added, names=names_read, rank=rank)
        header_line = _line([*names_read, *new], delimiter, end)
        return WrittenTable(False, mark + lead + header_line, delimiter, end, not lacked, added, total, joined=joined, names=names_read)

    def row(self, nbest: NbestList, hypothesis: Hypothesis, place: int) -> str:
        """Return the line of a hypothesis, at a place of its list from 0."""
        own = None if self.is_new else hypothesis.verbatim
        if own is not None and not self.added and self.total is None and not self.joined:
            return self._renumbered(own, place)
        not_first = hypothesis.scores.keys() - {*self.own} if self.is_new else added_scores(hypothesis).keys() - {*self.names, *self.joined}
        unknown = hypothesis.lm_scores.keys() - self.added.keys() or not_first
        if self.total is None and hypothesis.total is not None:
            unknown = unknown or {TOTAL}
        if unknown:
            raise nbest.error(f"list {nbest.id} has the score {sorted(unknown)[0]}, which lists before it lack: a table needs the same")
        new = [*_cells(hypothesis.scores, self.joined), *_cells(hypothesis.lm_scores, self.added)]
        total = "" if hypothesis.total is None else repr(float(hypothesis.total))
        fields = self._fields_read(own.own) if own is not None else self._new_fields(nbest, hypothesis)
        if self.total is not None and self.total >= 0:
            fields[self.total] = total
        cells = [*fields, *new, *([total] if self.total == -1 else [])]
        return _line(cells, self.delimiter, self.end) if self.quotes else "\t".join(map(_cell, cells)) + self.end

    def _renumbered(self, text: HypothesisText, place: int) -> str:
        """Return the line of a hypothesis as read. In a table without a header its rank is the new one: others would be read as scores."""
        if self.rank is None or place == text.place:
            return text.own
        start = blank_lines(text.own)
        before, (body, end) = text.own[:start], split_end(text.own[start:])
        fields = body.split("\t")
        fields[self.rank] = str(int(float(fields[self.rank])) - text.place + place)  # what ranks count from stays
        return before + "\t".join(fields) + end

    def _new_fields(self, nbest: NbestList, hypothesis: Hypothesis) -> list[str]:
        """Return id, text, reference and scores of a hypothesis that was not read from this table."""
        if not self.is_new:
            return self._fields_like_others(nbest, hypothesis)
        if not nbest.id.strip():
            raise nbest.error(f"the id {nbest.id!r} is blank: a table needs one in every row; write jsonl instead")
        if len(nbest.references) > 1:
            raise nbest.error(f"list {nbest.id} has {len(nbest.references)} references: a table has one column for them")
        texts = [nbest.id, hypothesis.text, *(nbest.references or ("",)), *([nbest.source or ""] if self.has_source else [])]
        return [*(map(one_line, texts) if self.delimiter == "\t" else texts), *_cells(hypothesis.scores, self.own)]

    def _fields_like_others(self, nbest: NbestList, hypothesis: Hypothesis) -> list[str]:
        """Return the fields of a new hypothesis of a list that was read.

        Next to its text and its scores, it has what is the same text in all rows of its list, if there are several.
        """
        columns = Columns.of(self.names)
        if columns is None:
            raise nbest.error(f"list {nbest.id} is not what was read")
        rows = [self._fields_read(one.verbatim.own) for one in nbest.hypotheses if one.verbatim is not None]
        read = {name for one in nbest.hypotheses if one.verbatim is not None for name in one.verbatim.names}
        fields = list(rows[0]) if len(rows) > 1 else [""] * len(rows[0])
        for place in columns.undecided:
            name = columns.names[place]
            if name in read and name in hypothesis.scores:
                score = hypothesis.scores[name]
                fields[place] = repr(-score if keys.is_cost(columns.spelled[place]) else score)
            elif is_written_number(fields[place]) or any(row[place] != fields[place] for row in rows):
                fields[place] = ""
        if columns.reference is not None:
            fields[columns.reference] = next(iter(nbest.references), "")
        if columns.source is not None and nbest.source is not None:
            fields[columns.source] = nbest.source
        fields[columns.id] = rows[0][columns.id]
        fields[columns.text] = one_line(hypothesis.text) if self.delimiter == "\t" else hypothesis.text
        return fields

    def _fields_read(self, raw: str) -> list[str]:
        """Return the fields of a row, whose text may begin with blank lines."""
        if not self.quotes:
            return split_row(split_end(raw)[0].rpartition("\n")[2])
        row = raw[blank_lines(raw, self.delimiter) :]
        return next(csv.reader(io.StringIO(row, newline=""), delimiter=self.delimiter, strict=True))


def _cells(scores: Mapping[str, float], names: Iterable[str]) -> list[str]:
    """Return the scores of these names as fields; one that is not there is blank."""
    return [repr(float(scores[name])) if name in scores else "" for name in names]


def _line(fields: Sequence[str], delimiter: str, end: str) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator="\r\n").writerow(fields)  # so that a field with either of them is quoted
    return out.getvalue()[:-2] + end


def _cell(field: str) -> str:
    """Return a field without a tab for a table with a header: in quotes only if it would be read as another one without."""
    return '"' + field.replace('"', '""') + '"' if field.startswith('"') or "\r" in field else field
