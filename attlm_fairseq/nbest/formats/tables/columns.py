"""The roles of a table's columns: id, text, reference, source sentence, scores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import filterfalse

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.messages import FileNotes, note
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.number_texts import is_written_number
from attlm_fairseq.nbest.formats.ranks import warn_of_other_order

_OTHER_NUMBER = re.compile(r"[-+\u2212]?\d+(?:[.,]\d+)?")  # with a decimal comma, or a typographic minus

MISSING = ("n/a", "na", "none", "null", "-", "?")  # fields in place of a number


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
        """Return what a header says; None if it names no id or no text. The first of ``known_texts`` in it is the text.

        Several columns without a name are no scores: tables of Excel may end in blank columns.
        """
        names = list(map(keys.of_header, header))
        first = {name: names.index(name) for name in names}
        ids, texts = ([first[name] for name in known if name in first] for known in (keys.IDS, known_texts))
        if not ids or not texts:
            return None
        reference = next((first[name] for name in keys.REFERENCES if name in first and first[name] != texts[0]), None)
        source = next((first[name] for name in keys.SOURCES if name in first), None)
        others = [place for place in range(len(names)) if place not in (ids[0], texts[0], reference, source)]
        return Columns([name.strip() for name in header], names, ids[0], texts[0], reference, source, others)

    def require_different_names(self, path: str, line: int | None) -> None:
        """Raise InputError if two columns have the same name."""
        seen: dict[str, str] = {}
        for name in filter(None, self.names):
            if (other := seen.setdefault(compared_name(name), name)) is not name:
                names = f"called {quoted(name)}" if name == other else f"called {quoted(other)} and {quoted(name)}"
                raise InputError(f"two columns are {names}: give them names that differ in more than capitals", path=path, line=line)

    def set_apart_counts(self, lists: Sequence[Sequence[Sequence[str]]], path: str) -> None:
        """Find the columns that count hypotheses or rows, in the rows of the first lists. They are no scores."""
        numbers, counted = {}, set()
        for place in list(self.undecided):
            values = [[_as_whole(row[place]) for row in rows if row[place] != ""] for rows in lists]
            numbers[self.names[place]] = values
            counts = keys.is_score(self.spelled[place]) and keys.is_count(self.spelled[place], values)
            if counts:
                counted.add(self.names[place])
                self.undecided.remove(place)
                self.extras.append(self.names[place])
                note(f"note: {path}: the column {quoted(self.names[place])} counts the hypotheses or rows: it is not read as a score")
        warn_of_other_order(numbers, counted, self.names, FileNotes(path))

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
        given = {value for of_list in values for value in of_list if value.lower() not in MISSING}
        # a sentence may be a number, such as 1984
        if any(len(of_list) > 1 for of_list in values) or (given and all(map(is_written_number, given))):
            self.source = None
            self.undecided.append(place)

    def decide(self, rows: Sequence[Sequence[str]], path: str) -> None:
        """Decide which columns are scores: those with a score's name, and others if all values of the first list are numbers.

        The order of the rows does not matter, so that a reordered list is read like before.
        """
        for place in list(self.undecided):
            values = [row[place] for row in rows if row[place] != ""]
            if not values:
                continue
            self.undecided.remove(place)
            key = self.spelled[place]
            if not key and self.spelled.count("") > 1:
                self.extras.append("a column without a name")
                continue
            if keys.is_score_column(key) or (keys.is_score(key) and all(map(is_written_number, values))):
                self.scores[place] = self.names[place]
                continue
            odd = next(filterfalse(is_written_number, values), None)
            like_numbers = any(map(is_written_number, values)) or all(map(_OTHER_NUMBER.fullmatch, values))
            if like_numbers and keys.is_score(key) and odd is not None:
                note(
                    f"note: {path}: the column {quoted(self.names[place])} is not read as a score, because it holds {quoted(odd)}, "
                    "no number; leave the field empty if a score is missing, and write numbers with a point and a plain minus"
                )
            if key not in keys.NOT_READ:
                self.extras.append(self.names[place])


def compared_name(name: str) -> str:
    """Return the name of a column as it is compared with others: two columns never differ in case alone."""
    return name.strip().lower()


def _as_whole(field: str) -> int | str:
    return int(field) if re.fullmatch("[0-9]{1,18}", field) else field
