"""Scores of other programs, from files with one number for each hypothesis."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.features.combination import MAX_ABSOLUTE
from attlm_fairseq.nbest.formats.number_texts import number
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.scoring.lm_options import check_name

Numbers = str | os.PathLike[str] | Sequence[float]
"""A file with one number per line, or the numbers: one for each hypothesis, list by list, each list in its order."""


def with_further_scores(lists: Iterable[NbestList], scores: Mapping[str, Numbers]) -> Iterator[NbestList]:
    """Yield the lists with further scores in ``lm_scores``, which every format writes next to the decoder's own.

    Args:
        lists: the lists.
        scores: the numbers by the name of the score; higher is better.

    Raises:
        InputError: a name cannot be that of a score or is one of the lists' own, a line is not a number, or there are fewer or more
            numbers than hypotheses.
    """
    columns = {check_name(name): _Column(name, of_name) for name, of_name in scores.items()}
    for nbest in lists:
        for name in columns:
            if any(name in hypothesis.scores or name in hypothesis.lm_scores for hypothesis in nbest.hypotheses):
                raise nbest.error(f"list {nbest.id!r} has a score {name!r} of its own: give the new one another name")
        hypotheses = []
        for hypothesis in nbest.hypotheses:
            more = {name: column.next(nbest) for name, column in columns.items()}
            hypotheses.append(replace(hypothesis, lm_scores=hypothesis.lm_scores | more))
        yield replace(nbest, hypotheses=hypotheses)
    for column in columns.values():
        column.end()


class _Column:
    """The numbers of one score, taken one after another."""

    def __init__(self, name: str, numbers: Numbers) -> None:
        self._name = name
        self._taken = 0
        self._path: str | None = None
        self._numbers: Iterator[float]
        if isinstance(numbers, str | os.PathLike):
            source = TextSource(os.fspath(numbers), "one number per line")
            self._path = source.name
            self._numbers = (self._of_line(line, place) for place, line in enumerate(source.lines(), 1))
        elif (
            isinstance(numbers, Iterable) and not isinstance(numbers, Mapping | Set) and getattr(numbers, "shape", None) != ()
        ):  # an array of no dimension is called iterable
            self._numbers = map(self._of_value, numbers)
        else:
            raise InputError(f"scores {name!r}: found {numbers!r}, expected a file or numbers, one for each hypothesis")

    def next(self, nbest: NbestList) -> float:
        """Return the number of the next hypothesis, which is of this list."""
        value = next(self._numbers, None)
        if value is None:
            message = f"{self._taken} numbers of {self._name} are fewer than there are hypotheses: none is left for list {nbest.id!r}"
            raise InputError(f"{message}; expected one number for each, in the order of the lists", path=self._path)
        self._taken += 1
        if not abs(value) <= MAX_ABSOLUTE:
            expected = f"expected a number from -{MAX_ABSOLUTE:g} to {MAX_ABSOLUTE:g}"
            raise InputError(f"{self._name} of list {nbest.id!r} is {value}, {expected}", path=self._path, line=self._line)
        return value

    def end(self) -> None:
        """Raise InputError if a number is left."""
        if next(self._numbers, None) is not None:
            message = f"more numbers of {self._name} than the {self._taken} hypotheses: expected one for each, in the order of the lists"
            raise InputError(message, path=self._path, line=self._taken + 1 if self._path else None)

    @property
    def _line(self) -> int | None:
        return self._taken if self._path else None

    def _of_value(self, value: object) -> float:
        try:
            return float(value)  # type: ignore[arg-type]  # of NumPy and torch, too
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"scores {self._name!r}: number {self._taken + 1} is {value!r}, expected a number") from None

    def _of_line(self, line: str, place: int) -> float:
        text = line.strip()
        if not text:
            raise InputError(f"a blank line: expected one number of {self._name} for each hypothesis", path=self._path, line=place)
        return number(text, self._name, self._path or "", place)
