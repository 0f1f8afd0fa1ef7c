"""Tables, CSV or tab-separated: one hypothesis per row. A table with tabs and three clear columns needs no header."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TextIO

from attlm_fairseq.errors import InputError
from attlm_fairseq.files import TextSource
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.as_read import is_expanded
from attlm_fairseq.nbest.formats.lines import (
    TOTAL,
    SeenIds,
    WholeLines,
    added_scores,
    filled_lines,
    fresh_names,
    is_number,
    is_own,
    number,
    numbered,
    one_line,
    own_text,
    quoted,
    require_one_utterance,
    split_end,
    text_of,
    whole_lines,
)
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFormat
from attlm_fairseq.nbest.formats.records import Reader
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import FileText, HypothesisText, ListText

_SEPARATOR = re.compile(r"sep=.\r?\n")  # the first line of Excel's tables, which is no row
UNUSABLE_LISTS = 1000  # silent or incomplete, at the beginning, until one shows which columns there are
_QUOTING = "a field that begins with a quote needs quotes around it, and its own ones doubled"


@dataclass(slots=True)
class Columns:
    """The roles of a table's columns, by position. Columns that may be scores are ``undecided`` until they have a value.

    ``spelled`` are the names as ``formats/keys.py`` spells them.
    """

    names: Sequence[str]
    spelled: Sequence[str]
    id: int
    text: int
    reference: int | None
    source: int | None
    undecided: list[int]
    scores: dict[int, str] = field(default_factory=dict)
    extras: list[str] = field(default_factory=list)

    @property
    def offset(self) -> int | None:
        """The column with the time at which the utterance begins in its recording."""
        return self.spelled.index("offset") if "offset" in self.spelled else None

    @staticmethod
    def of(header: Sequence[str], known_texts: Sequence[str] = keys.ALL_TEXTS) -> Columns | None:
        """Return what a header says; None if it names no id or no text. The first of ``known_texts`` in it is the text."""
        names = list(map(keys.of_header, header))
        first = {name: names.index(name) for name in names}
        ids, texts = ([first[name] for name in known if name in first] for known in (keys.IDS, known_texts))
        if not ids or not texts or len(set(map(_compared, header))) < len(names):
            return None
        reference = next((first[name] for name in keys.REFERENCES if name in first and first[name] != texts[0]), None)
        source = next((first[name] for name in keys.SOURCES if name in first), None)
        others = [place for place in range(len(names)) if place not in (ids[0], texts[0], reference, source)]
        return Columns([name.strip() for name in header], names, ids[0], texts[0], reference, source, others)

    def set_apart_counts(self, lists: Sequence[Sequence[Sequence[str]]], path: str) -> None:
        """Find the columns that count hypotheses or rows, in the rows of the first lists. They are no scores."""
        for place in list(self.undecided):
            values = [[_as_whole(row[place]) for row in rows if row[place] != ""] for rows in lists]
            if keys.is_score(self.spelled[place]) and keys.is_count(self.spelled[place], values):
                self.undecided.remove(place)
                self.extras.append(self.names[place])
                note(f"note: {path}: the column {quoted(self.names[place])} counts the hypotheses or rows: it is not read as a score")

    def set_apart_reference(self, lists: Sequence[Sequence[Sequence[str]]], path: str) -> None:
        """Find out by the rows of the first lists whether a column that may be the reference is of hypotheses instead."""
        place = self.reference
        if place is None or self.spelled[place] not in keys.OF_HYPOTHESES_TOO:
            return
        if any(len({row[place] for row in rows} - {""}) > 1 for rows in lists):
            self.reference = None
            self.extras.append(self.names[place])
            note(f"note: {path}: the column {quoted(self.names[place])} differs within a list: it is not read as the reference")

    def set_apart_source(self, lists: Sequence[Sequence[Sequence[str]]]) -> None:
        """Find out by the rows of the first lists whether a column that may be the source sentence is something else."""
        place = self.source
        if place is None:
            return
        values = [{row[place] for row in rows} - {""} for rows in lists]
        if any(len(of_list) > 1 or any(map(is_number, of_list)) for of_list in values):
            self.source = None
            self.undecided.append(place)

    def decide(self, rows: Sequence[Sequence[str]]) -> None:
        """Decide which columns are scores: those with a score's name, and others if all values of the first list are numbers.

        The order of the rows does not matter, so that a reordered list is read like before.
        """
        for place in list(self.undecided):
            values = [row[place] for row in rows if row[place] != ""]
            if not values:
                continue
            self.undecided.remove(place)
            key = self.spelled[place]
            if keys.is_score_column(key) or (keys.is_score(key) and all(map(is_number, values))):
                self.scores[place] = self.names[place]
            elif key not in keys.NOT_READ:
                self.extras.append(self.names[place])


def _compared(name: str) -> str:
    """Return the name of a column as it is compared with others: two columns never differ in case alone."""
    return name.strip().lower()


def _as_whole(field: str) -> int | str:
    return int(field) if re.fullmatch("[0-9]{1,18}", field) else field


@dataclass(slots=True)
class _Row:
    fields: list[str]
    raw: str
    before: str
    line: int


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
        first = next((line for line in head[_lead(head) :].split("\n") if line.strip()), "")
        return next((mark for mark in self.delimiters if Columns.of(_fields(first, mark), self.texts) is not None), None)

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        delimiter = self._delimiter(source.head) or self.delimiters[0]
        file = FileText(self.name, framing=delimiter)
        rows = _rows(source, file, delimiter)
        header = next(rows, None)
        if header is not None and _SEPARATOR.fullmatch(header.raw):
            file.start += header.before + header.raw
            header = next(rows, None)
        columns = Columns.of(header.fields, self.texts) if header is not None else None
        if header is None or columns is None:
            found = quoted(header.raw if header else "")
            message = f"found the header {found}: expected names of columns, among them an id (id, utt, ..) and a text (hyp, text, ..)"
            raise InputError(message, path=source.name, line=header.line if header else None)
        file.start += header.before + header.raw
        return _lists(rows, columns, file, source.name, self.blank_references)

    def keeps(self, nbest: NbestList) -> bool:
        text = text_of(nbest, self.name)
        if text is None or not is_expanded(nbest):
            return False
        names, has_header = _names_read(text.file), not text.file.framing[1:]
        read = {name for hypothesis in nbest.hypotheses if hypothesis.verbatim is not None for name in hypothesis.verbatim.names}
        all_scored = all(read <= hypothesis.scores.keys() for hypothesis in nbest.hypotheses)
        return read <= {name.strip() for name in names} and (has_header or ("rank" not in names and all_scored))

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        rest = iter(lists)
        first: list[NbestList] = []
        for nbest in itertools.islice(rest, UNUSABLE_LISTS):
            first.append(nbest)
            if _tells_columns(nbest):
                break
        if not first:
            return
        table = _Table.of(first, text_of(first[0], self.name), self.delimiters[0])
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
        return super().matches(head) or _header_of(head) is not None

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        header = None if super().matches(source.head) else _header_of(whole_lines(source.head))
        columns = Columns.of(header) if header is not None else None
        if header is None or columns is None:
            return super().parse(source)
        note(f"note: {source.name} has no header: read as {', '.join(header)}")
        file = FileText(self.name, framing="\t".join(("", *header)))
        return _lists(_rows_without_header(source, file), columns, file, source.name, self.blank_references)


class ReferenceCsv(CsvFormat):
    """A table of references: the text may have the name of a reference, and a blank reference is one."""

    texts = (*keys.ALL_TEXTS, *keys.REFERENCES)
    blank_references = True


class ReferenceTsv(TsvFormat):
    """As ``ReferenceCsv``."""

    texts = ReferenceCsv.texts
    blank_references = True


def _header_of(head: str) -> tuple[str, str, str] | None:
    """Return the header that a table without one lacks; None if it is unclear which column is the text and which the number.

    Numbers that count up by one in every list, all from 0 or all from 1, are ranks: as scores they would turn the lists
    upside down. Lists of one row each with the same 0 or 1 count as such, because no order depends on their number.
    """
    rows = [_split(line) for line in head.split("\n") if line.strip(" \t\r")]
    if not rows or any(len(row) != 3 or not row[0] or re.search(r"\s", row[0]) for row in rows):
        return None  # what has a space in it is rather a text than an id
    second, third = (all(is_number(row[place]) for row in rows) for place in (1, 2))
    if second == third:
        return None
    numbers = [(row[0], float(row[1 if second else 2])) for row in rows]
    lists = [[value for _, value in of_list] for _, of_list in itertools.groupby(numbers, lambda pair: pair[0])]
    counted = any(all(values == list(range(first, first + len(values))) for values in lists) for first in (0, 1))
    name = "rank" if counted else "score"
    return ("id", name, "text") if second else ("id", "text", name)


def _lead(text: str) -> int:
    """Return where the header begins: after blank lines, and Excel's line of the separator."""
    start = len(text) - len(text.lstrip("\r\n"))
    separator = _SEPARATOR.match(text, start)
    if separator is None:
        return start
    return len(text) - len(text[separator.end() :].lstrip("\r\n"))


def _names_read(file: FileText) -> list[str]:
    """Return the names of a table's columns, of its header or of what stands for it."""
    if missing_header := file.framing[1:]:
        return missing_header.split("\t")
    head = file.start.removeprefix("\ufeff")
    return _fields(head[_lead(head) :], file.framing[0])


def _fields(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


def _rows(source: TextSource, file: FileText, delimiter: str) -> Iterator[_Row]:
    """Yield the rows of a table with their own text: a quoted field may hold line breaks. Blank lines go before the next row."""
    taken: list[tuple[int, str]] = []

    def lines() -> Iterator[str]:
        for line_number, line in numbered(source, file):
            taken.append((line_number, line))
            yield line

    reader = csv.reader(lines(), delimiter=delimiter, strict=True)
    before = ""
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise InputError(f"not a row of a table: {error}; {_QUOTING}", path=source.name, line=taken[0][0] if taken else None) from None
        if fields is None:
            break
        if delimiter == "\t" and len(taken) > 1:  # most tables with tabs are written without quoting, by "\t".join
            found = f"a quote opens here and is closed on line {taken[-1][0]}: expected one line per row; {_QUOTING}"
            raise InputError(found, path=source.name, line=taken[0][0])
        raw = "".join(line for _, line in taken)
        if fields:
            yield _Row(fields, raw, before, taken[0][0])
        before = "" if fields else before + raw
        taken.clear()
    file.end = before


def _rows_without_header(source: TextSource, file: FileText) -> Iterator[_Row]:
    """Yield the rows of a table with tabs in which quotes have no meaning."""
    for before, line, line_number in filled_lines(source, file):
        yield _Row(_split(line), line, before, line_number)


def _split(line: str) -> list[str]:
    return split_end(line)[0].split("\t")


def _lists(rows: Iterator[_Row], columns: Columns, file: FileText, path: str, blank_references: bool) -> Iterator[NbestList]:
    seen = SeenIds()
    reader = Reader(path)
    found_any = False
    whole = _whole(rows, len(columns.names), not file.framing[1:], path)
    groups = ((name, list(group)) for name, group in itertools.groupby(whole, lambda row: row.fields[columns.id]))
    first_groups = list(itertools.islice(groups, keys.COUNTED_LISTS))
    first_rows = [[row.fields for row in of_list] for _, of_list in first_groups]
    columns.set_apart_counts(first_rows, path)
    columns.set_apart_reference(first_rows, path)
    columns.set_apart_source(first_rows)
    for place in columns.undecided:
        if columns.spelled[place] in keys.MEASUREMENTS:
            reader.tell_of_measurement(columns.names[place])
    for name, of_list in itertools.chain(first_groups, groups):
        first, found_any = of_list[0], True
        if not seen.add(name):
            raise InputError(f"the list of id {name} continues here after other ids: put its rows together", path=path, line=first.line)
        columns.decide([row.fields for row in of_list])
        if not columns.scores:
            reader.tell_of_total(columns.spelled)
        reference = _reference(of_list, columns, name, path)
        references = (reference,) if columns.reference is not None and (reference or blank_references) else ()
        sources = {row.fields[columns.source] for row in of_list} - {""} if columns.source is not None else set()
        if len(sources) > 1 and columns.source is not None and columns.names[columns.source] not in columns.extras:
            columns.extras.append(columns.names[columns.source])  # not read: it differs within a list
        source = sources.pop() if len(sources) == 1 else None
        text = ListText(file, first.before, size=len(of_list), extras=tuple(columns.extras))
        nbest = NbestList(name, [], references, first.line, text, path=path, source=source)
        for rank, row in enumerate(of_list, 1):
            raw = HypothesisText((row.before if rank > 1 else "") + row.raw)
            nbest.hypotheses.append(Hypothesis(row.fields[columns.text], _scores(row, columns, reader), rank, verbatim=raw))
        yield nbest
    if not found_any:
        raise InputError("no n-best list in it: a header alone", path=path)


def _reference(rows: Sequence[_Row], columns: Columns, name: str, path: str) -> str:
    """Return the reference of a list, which need not stand in every row. Raises InputError if rows of one id are of two utterances."""
    places = {"references": columns.reference, "offsets": columns.offset}
    known: dict[str, str] = {}
    for row in rows:
        told = {what: row.fields[place] for what, place in places.items() if place is not None and row.fields[place].strip()}
        require_one_utterance(known, told, name, path, row.line)
    return known.get("references", "")


def _whole(rows: Iterator[_Row], width: int, has_header: bool, path: str) -> Iterator[_Row]:
    """Yield the rows. Raises InputError for one that does not have ``width`` fields."""
    where = "the header; a field with the separator needs quotes" if has_header else "the first rows"
    for row in rows:
        if len(row.fields) != width:
            expected = f"expected {width} as in {where}"
            raise InputError(f"found {len(row.fields)} fields: {expected}", path=path, line=row.line)
        yield row


def _scores(row: _Row, columns: Columns, reader: Reader) -> dict[str, float]:
    """Return the scores of a row; one that is divided by length is a sum again if a column has the number of tokens."""
    scores: dict[str, float] = {}
    by_name = dict(zip(columns.spelled, row.fields, strict=True))
    length = next((int(by_name[key]) for key in keys.LENGTHS if re.fullmatch("[1-9][0-9]{0,8}", by_name.get(key, ""))), None)
    for place, name in columns.scores.items():
        key = columns.spelled[place]
        if row.fields[place] == "":
            continue
        score = number(row.fields[place], f"the column {name}", reader.path, row.line)
        if (normalised := keys.NORMALISED.get(key)) is not None:
            name, score = reader.sum_of(name, score, normalised, length, taken=normalised.sum_name in by_name)
        scores[name] = -score if key in keys.COSTS else score
    return scores


def _tells_columns(nbest: NbestList) -> bool:
    """Return whether a list probably has the scores that others have: it is not silence, has been decided on if it was scored, and all of
    its hypotheses have the same scores."""
    best = nbest.hypotheses[0]
    if not any(one.text for one in nbest.hypotheses) or (best.lm_scores and best.total is None):
        return False
    return all(one.scores.keys() == best.scores.keys() for one in nbest.hypotheses)


@dataclass(slots=True)
class _Table:
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
    def of(first: Sequence[NbestList], text: ListText | None, delimiter: str) -> _Table:
        """Return the table with the columns of the first lists together: all others have the same. ``text`` is that of the first one."""
        hypotheses = [one for nbest in first for one in nbest.hypotheses]
        lms = list(dict.fromkeys(name for one in hypotheses for name in one.lm_scores))
        decided = any(one.total is not None for one in hypotheses)
        if text is None:
            own = tuple(dict.fromkeys(name for one in hypotheses for name in one.scores))
            has_source = any(nbest.source is not None for nbest in first)
            texts = ["id", "hyp", "ref", *(["source"] if has_source else [])]
            names = fresh_names(own, [*texts, TOTAL], keys.as_header, _compared)
            added = fresh_names(lms, [*texts, TOTAL, *names.values()], keys.as_header, _compared)
            total = -1 if decided else None
            header = [*texts, *names.values(), *added.values(), *([TOTAL] if total else [])]
            return _Table(True, _line(header, delimiter, "\n"), delimiter, "\n", True, added, total, own, has_source)
        delimiter, missing_header = text.file.framing[0], text.file.framing[1:]
        mark = "\ufeff" if text.file.start.startswith("\ufeff") else ""
        head, end = split_end(text.file.start.removeprefix(mark))
        lead, head = head[: _lead(head)], head[_lead(head) :]
        if missing_header:  # its line end is that of the rows, of which the last may have none
            ends = (split_end(one.verbatim.own)[1] for one in hypotheses if one.verbatim is not None)
            end = next(filter(None, ends), "")
        end = end or "\n"
        names_read = _names_read(text.file)
        known_names = list(map(keys.of_header, names_read))
        more = list(dict.fromkeys(name for one in filter(is_own, hypotheses) for name in added_scores(one)))
        joined = fresh_names(more, [*names_read, TOTAL], keys.as_header, _compared)
        added = fresh_names(lms, [*names_read, *joined.values()], keys.as_header, _compared)
        total = None if not decided else known_names.index(TOTAL) if TOTAL in known_names else -1
        new = [*joined.values(), *added.values(), *([TOTAL] if total == -1 else [])]
        if not new and total is None:
            rank = names_read.index("rank") if missing_header and "rank" in names_read else None
            return _Table(False, text.file.start, delimiter, end, not missing_header, added, names=names_read, rank=rank)
        header_line = _line([*names_read, *new], delimiter, end)
        return _Table(False, mark + lead + header_line, delimiter, end, not missing_header, added, total, joined=joined, names=names_read)

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
        before, line = text.own[: -len(text.own.lstrip("\r\n"))], text.own.lstrip("\r\n")
        body, end = split_end(line)
        fields = body.split("\t")
        fields[self.rank] = str(int(float(fields[self.rank])) - text.place + place)  # what ranks count from stays
        return before + "\t".join(fields) + end

    def _new_fields(self, nbest: NbestList, hypothesis: Hypothesis) -> list[str]:
        """Return id, text, reference and scores of a hypothesis that was not read from this table."""
        if not self.is_new:
            return self._fields_like_others(nbest, hypothesis)
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
                fields[place] = repr(-score if columns.spelled[place] in keys.COSTS else score)
            elif is_number(fields[place]) or any(row[place] != fields[place] for row in rows):
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
            return _split(split_end(raw)[0].rpartition("\n")[2])
        return next(row for row in csv.reader(io.StringIO(raw, newline=""), delimiter=self.delimiter, strict=True) if row)


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
