"""A metric computed by another program, such as COMET: ``external:COMMAND``.

The program reads one line per comparison on standard input: ``source TAB hypothesis TAB reference``. It prints one
number per line, in the same order; higher is better. All hypotheses of a file are compared in one run, equal lines only
once.
"""

from __future__ import annotations

import math
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline

PREFIX = "external:"
TIMEOUT_SECONDS = 3600.0
QUOTED_CHARACTERS = 200  # characters of the program's output that messages quote

Line = tuple[str, str, str]
"""Source, hypothesis, reference."""


class SourcedReferences(tuple[str, ...]):
    """The references of a list, with the source sentence that they translate."""

    source: str = ""


def with_source(references: Sequence[str], source: str) -> SourcedReferences:
    made = SourcedReferences(references)
    made.source = source
    return made


def source_of(references: Sequence[str]) -> str:
    """Return the source sentence of references; "" if they have none."""
    return references.source if isinstance(references, SourcedReferences) else ""


class ExternalMetric:
    """The mean over lists of a program's answers. With several references the highest answer counts.

    Statistics: the answer, 1.
    """

    name = "external"
    higher_is_better = True
    bounds = -math.inf, math.inf
    ratio: float | None = 1.0
    ignores_case = False

    def __init__(self, command: str, timeout: float = TIMEOUT_SECONDS, text: TextPipeline = NO_STEPS) -> None:
        """Make the metric.

        Args:
            command: split as a shell does, but run without a shell.
            timeout: seconds allowed for each run of the command.
            text: text steps for hypotheses and references. Subwords of source sentences are joined, too.
        """
        try:
            self.arguments = shlex.split(command)
        except ValueError as error:
            raise InputError(f"{PREFIX}{command}: {error}") from None
        if not self.arguments:
            raise InputError(f"{PREFIX} names no command; expected {PREFIX}COMMAND, such as '{PREFIX}python comet.py'")
        self.command = command
        self.text = text
        self.timeout = timeout
        self._source_text = TextPipeline(tuple(step for step in text.steps if step.name == "join-subwords"))
        self._answers: dict[Line, float] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    def compare_all(self, lists: Iterable[NbestList]) -> None:
        pairs = [(hypothesis.text, nbest.references) for nbest in lists for hypothesis in nbest.hypotheses]
        self._ask([line for text, references in pairs for line in self._lines(text, references)])

    def losses_within(self, lists: Iterable[Sequence[str]], sources: Iterable[str]) -> list[np.ndarray]:
        """Return minus the answers for each pair of hypotheses within each list, (n, n) for n hypotheses, in one run of the program.

        Row i, column j compares hypothesis i with hypothesis j as the reference.
        """
        pairs = list(self._within(lists, sources))
        self._ask([line for rows in pairs for row in rows for line in row])
        return [np.array([[-self._answers[line] for line in row] for row in rows], dtype=np.float64) for rows in pairs]

    def compare_within(self, lists: Iterable[Sequence[str]], sources: Iterable[str]) -> None:
        """Run the program once for all the comparisons that ``losses_within`` will need."""
        self._ask([line for rows in self._within(lists, sources) for row in rows for line in row])

    def _within(self, lists: Iterable[Sequence[str]], sources: Iterable[str]) -> Iterator[list[list[Line]]]:
        for texts, source in zip(lists, sources, strict=True):
            yield [[(_field(source), _field(text), _field(truth)) for truth in texts] for text in texts]

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        lines = [list(self._lines(text, references)) for text in hypotheses]
        self._ask([line for of_text in lines for line in of_text])
        return np.array([[max(map(self._answers.__getitem__, of_text)), 1.0] for of_text in lines], dtype=np.float64)

    def score(self, totals: np.ndarray) -> np.ndarray:
        totals = np.asarray(totals, dtype=np.float64)
        return totals[..., 0] / np.maximum(totals[..., 1], 1.0)

    def signature(self, references: Iterable[Sequence[str]]) -> str:
        text = f"|text:{','.join(self.text.signature())}" if self.text.steps else ""
        return f"mean over lists|command:{self.command}{text}"

    def prepared(self, text: str) -> str:
        return self.text.prepared(text)

    def units(self, text: str) -> Sequence[str]:
        return text.split()

    def _lines(self, hypothesis: str, references: Sequence[str]) -> Iterator[Line]:
        source = self._source_text.prepared(source_of(references))
        for reference in references:
            yield _field(source), _field(self.prepared(hypothesis)), _field(self.prepared(reference))

    def _ask(self, lines: Sequence[Line]) -> None:
        """Run the program for the lines that it has not answered yet. Raises InputError if it fails."""
        new = [line for line in dict.fromkeys(lines) if line not in self._answers]
        if not new:
            return
        if not self._answers and not any(source for source, _, _ in new):
            note(f"note: no source sentences are known: {PREFIX}{self.command} gets blank ones (--source FILE gives them)")
        sent = "".join("\t".join(line) + "\n" for line in new)
        try:
            done = subprocess.run(
                self.arguments, input=sent.encode("utf-8", "replace"), capture_output=True, timeout=self.timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise self._error(f"did not answer {len(new)} lines within {self.timeout:g} seconds") from None
        except OSError as error:
            raise self._error(f"cannot be started: {error.strerror}") from None
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise self._error(f"ended with exit code {done.returncode}{f': {said[-1][:QUOTED_CHARACTERS]}' if said else ''}")
        answers = done.stdout.decode("utf-8", "replace").splitlines()
        if len(answers) != len(new):
            raise self._error(f"answered {len(answers)} lines to {len(new)}, expected one number per line")
        self._answers |= {line: self._number(answer, number) for number, (line, answer) in enumerate(zip(new, answers, strict=True), 1)}

    def _number(self, answer: str, line: int) -> float:
        try:
            number = float(answer)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self._error(f"answered {answer[:QUOTED_CHARACTERS]!r} in line {line}, expected a finite number")
        return number

    def _error(self, what: str) -> InputError:
        return InputError(f"{PREFIX}{self.command}: the command {what}")


def _field(text: str) -> str:
    """Return a text without tabs and line ends, as one field of a line."""
    return " ".join(text.split("\t")).replace("\n", " ").replace("\r", " ")
