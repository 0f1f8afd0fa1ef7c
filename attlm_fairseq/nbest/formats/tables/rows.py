"""The rows of a table, CSV or tab-separated, and the n-best lists in them."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import FileNotes
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.hypothesis_scores import ScoreReader
from attlm_fairseq.nbest.formats.lines import filled_lines, numbered, split_end
from attlm_fairseq.nbest.formats.list_ids import SeenIds, require_one_utterance
from attlm_fairseq.nbest.formats.number_texts import is_written_number, number
from attlm_fairseq.nbest.formats.tables.columns import Columns
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import FileText, HypothesisText, ListText

SEPARATOR = re.compile(r"sep=.\r?\n")  # the first line of Excel's tables, which is no row
_QUOTING = "a field that begins with a quote needs quotes around it, and its own ones doubled"


@dataclass(slots=True)
class Row:
    fields: list[str]
    raw: str
    before: str
    line: int


def guessed_header(head: str) -> tuple[str, str, str] | None:
    """Return the header that a table without one lacks; None if it is unclear which column is the text and which the number.

    Numbers that count up by one in every list, all from 0 or all from 1, are ranks: as scores they would turn the lists
    upside down. Lists of one row each with the same 0 or 1 count as such, because no order depends on their number.
    """
    rows = [split_row(line) for line in head.split("\n") if line.strip(" \t\r")]
    if not rows or any(len(row) != 3 or not row[0] or re.search(r"\s", row[0]) for row in rows):
        return None  # what has a space in it is rather a text than an id
    second, third = (all(is_written_number(row[place]) for row in rows) for place in (1, 2))
    if second == third:
        return None
    numbers = [(row[0], float(row[1 if second else 2])) for row in rows]
    lists = [[value for _, value in of_list] for _, of_list in itertools.groupby(numbers, lambda pair: pair[0])]
    counted = any(all(values == list(range(first, first + len(values))) for values in lists) for first in (0, 1))
    name = "rank" if counted else "score"
    return ("id", name, "text") if second else ("id", "text", name)


def lead_of(text: str) -> int:
    """Return where the header begins: after blank lines, and Excel's line of the separator."""
    start = blank_lines(text)
    separator = SEPARATOR.match(text, start)
    return start if separator is None else blank_lines(text, start=separator.end())


def blank_lines(text: str, delimiter: str = "\t", start: int = 0) -> int:
    """Return where the lines end that have nothing but white space and delimiters, with which a text begins."""
    found = re.compile(rf"(?:[ \t\r{re.escape(delimiter)}]*\n)*").match(text, start)
    return found.end() if found else start


def names_read_of(file: FileText) -> list[str]:
    """Return the names of a table's columns, of its header or of what stands for it."""
    if lacked := file.framing[1:]:
        return lacked.split("\t")
    head = file.start.removeprefix("\ufeff")
    return fields_of(head[lead_of(head) :], file.framing[0])


def fields_of(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return []


def rows_of(source: TextSource, file: FileText, delimiter: str) -> Iterator[Row]:
    """Yield the rows of a table with their own text: a quoted field may hold line breaks. Blank lines go before the next row.

    So do rows of delimiters alone, as Excel leaves them.
    """
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
            advice = "is a quote opened here and never closed?" if "field limit" in str(error) else _QUOTING
            raise InputError(f"not a row of a table: {error}; {advice}", path=source.name, line=taken[0][0] if taken else None) from None
        if fields is None:
            break
        if delimiter == "\t" and len(taken) > 1:  # most tables with tabs are written without quoting, by "\t".join
            found = f"a quote opens here and is closed on line {taken[-1][0]}: expected one line per row; {_QUOTING}"
            raise InputError(found, path=source.name, line=taken[0][0])
        raw = "".join(line for _, line in taken)
        is_blank = not fields or not raw.strip(f" \t\r\n{delimiter}")
        if not is_blank:
            yield Row(fields, raw, before, taken[0][0])
        before = before + raw if is_blank else ""
        taken.clear()
    file.end = before


def rows_without_header(source: TextSource, file: FileText) -> Iterator[Row]:
    """Yield the rows of a table with tabs in which quotes have no meaning."""
    for before, line, line_number in filled_lines(source, file):
        yield Row(split_row(line), line, before, line_number)


def split_row(line: str) -> list[str]:
    return split_end(line)[0].split("\t")


def lists_of_rows(rows: Iterator[Row], columns: Columns, file: FileText, path: str, blank_references: bool) -> Iterator[NbestList]:
    seen = SeenIds()
    reader = ScoreReader(FileNotes(path))
    found_any = False
    whole = _whole(rows, len(columns.names), not file.framing[1:], path)
    groups = ((name, list(group)) for name, group in itertools.groupby(whole, lambda row: row.fields[columns.id]))
    first_groups = list(itertools.islice(groups, keys.COUNTED_LISTS))
    first_rows = [[row.fields for row in of_list] for _, of_list in first_groups]
    columns.set_apart_counts(first_rows, path)
    columns.set_apart_reference(first_rows, path)
    columns.set_apart_source(first_rows)
    for place in columns.undecided:
        if keys.is_measurement(columns.spelled[place]):
            reader.tell_of_measurement(columns.names[place])
    for name, of_list in itertools.chain(first_groups, groups):
        first, found_any = of_list[0], True
        if not name.strip():
            raise InputError(
                f"the column {quoted(columns.names[columns.id])} is blank: expected an id in every row", path=path, line=first.line
            )
        if not seen.add(name):
            raise InputError(f"the list of id {name} continues here after other ids: put its rows together", path=path, line=first.line)
        columns.decide([row.fields for row in of_list], path)
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


def _reference(rows: Sequence[Row], columns: Columns, name: str, path: str) -> str:
    """Return the reference of a list, which need not stand in every row. Raises InputError if rows of one id are of two utterances."""
    places = {"references": columns.reference, "offsets": columns.offset}
    known: dict[str, str] = {}
    for row in rows:
        told = {what: row.fields[place] for what, place in places.items() if place is not None and row.fields[place].strip()}
        require_one_utterance(known, told, name, path, row.line)
    return known.get("references", "")


def _whole(rows: Iterator[Row], width: int, has_header: bool, path: str) -> Iterator[Row]:
    """Yield the rows. Raises InputError for one that does not have ``width`` fields."""
    where = "the header; a field with the separator needs quotes" if has_header else "the first rows"
    for row in rows:
        if len(row.fields) != width:
            expected = f"expected {width} as in {where}"
            raise InputError(f"found {len(row.fields)} fields: {expected}", path=path, line=row.line)
        yield row


def _scores(row: Row, columns: Columns, reader: ScoreReader) -> dict[str, float]:
    """Return the scores of a row; one that is divided by length is a sum again if a column has the number of tokens."""
    scores: dict[str, float] = {}
    by_name = dict(zip(columns.spelled, row.fields, strict=True))
    length = next((int(by_name[key]) for key in keys.LENGTHS if re.fullmatch("[1-9][0-9]{0,8}", by_name.get(key, ""))), None)
    for place, name in columns.scores.items():
        key = columns.spelled[place]
        if row.fields[place] == "":
            continue
        score = number(row.fields[place], f"the column {name}", reader.notes.path, row.line)
        if (normalised := keys.NORMALISED.get(key)) is not None:
            name, score = reader.sum_of(name, score, normalised, length, taken=normalised.sum_name in by_name)
        scores[name] = -score if keys.is_cost(key) else score
    return scores
