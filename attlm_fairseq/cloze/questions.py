"""Cloze questions in the format of the Children's Book Test (Hill, Bordes, Chopra and Weston 2016).

    1 the first sentence of the context
    ..
    20 the last sentence of the context
    21 a sentence with XXXXX for the word left out<TAB>answer<TAB><TAB>candidate|candidate|..

Any number of context sentences is read. A blank line may follow a question.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from attlm_fairseq.errors import InputError, require_several
from attlm_fairseq.files.reading import TextSource

BLANK = "XXXXX"
EXPECTED = f"a sentence with {BLANK}, tab, answer, tab, tab, candidates joined by |"


@dataclass(frozen=True)
class ClozeQuestion:
    """A question: which of the candidates is left out of the query?

    Attributes:
        context: the sentences before the query.
        query: a sentence that contains ``XXXXX`` once.
        answer: the right candidate.
        candidates: the distinct candidates, including the answer. An empty candidate leaves the word out.
        line: line number of the query in its file; None if the question was not read from a file.
    """

    context: tuple[str, ...]
    query: str
    answer: str
    candidates: tuple[str, ...]
    line: int | None = None

    def __post_init__(self) -> None:
        require_several("context", self.context, "a tuple of sentences")
        require_several("candidates", self.candidates, "a tuple of words")
        if self.query.count(BLANK) != 1:
            raise InputError(f"the query has {BLANK} {self.query.count(BLANK)} times, expected once: {self.query!r}")
        if len(set(self.candidates)) != len(self.candidates) or len(self.candidates) < 2:
            raise InputError(f"expected two or more candidates, all different: found {'|'.join(self.candidates)!r}")
        if self.answer not in self.candidates:
            raise InputError(f"the answer {self.answer!r} is not one of the candidates {'|'.join(self.candidates)!r}")

    def filled(self, candidate: str) -> str:
        """Return the query with a candidate in place of ``XXXXX``."""
        return self.query.replace(BLANK, candidate)

    @property
    def around(self) -> tuple[str, str]:
        """Return the query before and after ``XXXXX``."""
        before, after = self.query.split(BLANK)
        return before, after

    def __str__(self) -> str:
        """Return the question in the format of the Children's Book Test, with a blank line at the end."""
        query = f"{self.query}\t{self.answer}\t\t{'|'.join(self.candidates)}"
        return "".join(f"{number} {sentence}\n" for number, sentence in enumerate((*self.context, query), 1)) + "\n"


def read_questions(source: TextSource) -> Iterator[ClozeQuestion]:
    """Yield the questions of a file. Raises InputError with the line number of what is not a cloze question."""
    context: list[str] = []
    for number, line in enumerate(source.lines(), 1):
        text = line.rstrip("\r\n")
        if not text.strip() and not context:
            continue
        sentence = _sentence(text, len(context) + 1, source.name, number)
        if "\t" not in sentence:
            context.append(sentence)
            continue
        yield _question(tuple(context), sentence, source.name, number)
        context = []
    if context:
        raise InputError(f"ends after {len(context)} sentences of context: expected {EXPECTED}", path=source.name)


def _sentence(text: str, expected: int, path: str, line: int) -> str:
    number, space, sentence = text.partition(" ")
    if number != str(expected) or not space:
        raise InputError(
            f"found {text[:60]!r}, expected {expected}, a space and a sentence: the lines of a question are numbered from 1, and the last "
            f"is {EXPECTED}",
            path=path,
            line=line,
        )
    return sentence


def _question(context: tuple[str, ...], text: str, path: str, line: int) -> ClozeQuestion:
    fields = text.split("\t")
    if len(fields) != 4 or fields[2].strip():
        raise InputError(f"found {len(fields)} fields between tabs, expected {EXPECTED}", path=path, line=line)
    query, answer, _, candidates = fields
    try:
        return ClozeQuestion(context, query, answer, tuple(dict.fromkeys(candidates.split("|"))), line)
    except InputError as error:
        raise InputError(str(error), path=path, line=line) from None
