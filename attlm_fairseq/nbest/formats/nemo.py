"""NeMo's beam search output: a table without ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, TextIO

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.formats.lines import grouped, one_line, split_end, write_lines
from attlm_fairseq.nbest.formats.number_texts import number, written
from attlm_fairseq.nbest.formats.own_text import is_rescored, text_of, text_of_hypothesis
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFormat
from attlm_fairseq.nbest.formats.score_names import TOTAL, fresh_names, one_word, required_main_score
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

_LINE = re.compile(r"[^\t]*\t\s*[-+]?(\d+\.\d*|\d*\.\d+|\d+(?=e))(e[-+]?\d+)?\s*(\t[^\t=]+=[^\t]*)*", re.IGNORECASE)
_WHOLE_NUMBER = re.compile(r"[^\t]*\t\s*[-+]?\d+\s*(\t[^\t=]+=[^\t]*)*")
_BELOW_ZERO = re.compile(r"[^\t]*[^\s][ ][^\s][^\t]*\t\s*-\d+\s*(\t[^\t=]+=[^\t]*)*")  # after several words, which are no id
_OTHER_NUMBER = re.compile(r"[^\t]*\t\s*[-+]?(inf|infinity|nan)\s*(\t[^\t=]+=[^\t]*)*", re.IGNORECASE)


@dataclass(frozen=True)
class NemoFormat(NbestFormat):
    """``text<TAB>score``, with the same number of hypotheses, ``beam``, for every utterance. No quoting; ``null`` is a word."""

    beam: int | None = None
    name: ClassVar[str] = "nemo"
    like_text: ClassVar[bool] = True
    holds: ClassVar[Holds] = Holds(ids=False, scores=True, decimals=6, score_name=one_word, main_score="score", one_line=True)

    def matches(self, head: str) -> bool:
        """Return whether every line is a text and a number.

        One of them has a decimal point, or is below 0 and stands after several words: a text of digits after an id is not.
        """
        lines = [line for line in head.split("\n") if line.strip(" \r")]
        if any(map(_BELOW_ZERO.fullmatch, lines)) and all(map(_WHOLE_NUMBER.fullmatch, lines)):
            return True
        return any(map(_LINE.fullmatch, lines)) and all(_LINE.fullmatch(line) or _OTHER_NUMBER.fullmatch(line) for line in lines)

    def with_argument(self, argument: str) -> NemoFormat:
        if not re.fullmatch(r"[1-9]\d*", argument):
            raise InputError(f"unknown n-best format 'nemo:{argument}': expected nemo:K with the number of hypotheses of each list")
        return NemoFormat(int(argument))

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        if self.beam is None:
            raise InputError(
                "text<TAB>score lines have no ids: give the number of hypotheses of each list (NeMo's beam size), --format nemo:K",
                path=source.name,
            )
        return self._lists(source, self.beam)

    def _lists(self, source: TextSource, beam: int) -> Iterator[NbestList]:
        count = 0
        path = source.name

        def parse(whole: str, line: int, _after_blank: bool) -> tuple[str, Hypothesis]:
            nonlocal count
            body, _ = split_end(whole)
            text, *columns = body.split("\t")
            if not columns:
                raise InputError(f"found {quoted(body)}: expected text<TAB>score", path=path, line=line)
            scores = {"score": number(columns[0], "the score", path, line)}
            for column in columns[1:]:
                name, equals, value = column.rpartition("=")
                if not equals or name in scores:
                    raise InputError(f"found the column {quoted(column)}: expected name=value, each name once", path=path, line=line)
                scores[name] = number(value, f"the score {name}", path, line)
            scores.pop(TOTAL, None)
            count += 1
            return str((count - 1) // beam), Hypothesis(text, scores)

        for nbest in grouped(source, self.name, parse):
            if len(nbest.hypotheses) != beam:
                message = (
                    f"the last list has {len(nbest.hypotheses)} of {beam} hypotheses: is the file cut short, or the beam size another?"
                )
                raise InputError(message, path=path, line=nbest.line)
            yield nbest

    def written_id(self, nbest: NbestList) -> None:
        """Return None: there are no ids in the file."""

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        beam = self.beam

        def lines(nbest: NbestList) -> list[str]:
            nonlocal beam
            text = text_of(nbest, self.name)
            beam = text.size if text is not None else beam or len(nbest.hypotheses)
            if len(nbest.hypotheses) != beam:
                counts = f"list {nbest.id} has {len(nbest.hypotheses)} hypotheses"
                raise InputError(f"{counts}: NeMo's lists all have the same number, here {beam}")
            return [(_new_line if text is None else _line)(nbest, hypothesis) for hypothesis in nbest.hypotheses]

        write_lines(lists, out, self.name, lines)


def _line(nbest: NbestList, hypothesis: Hypothesis) -> str:
    own = text_of_hypothesis(nbest, hypothesis)
    if not is_rescored(hypothesis):
        return own.own
    body, end = split_end(own.own)
    columns = body.split("\t")
    names = fresh_names(hypothesis.lm_scores, [*hypothesis.scores, TOTAL], one_word)
    columns += [f"{names[name]}={written(value, name, nbest)}" for name, value in hypothesis.lm_scores.items()]
    if hypothesis.total is not None:
        columns = [column for column in columns if not column.startswith(f"{TOTAL}=")]
        columns.append(f"{TOTAL}={written(hypothesis.total, TOTAL, nbest)}")
    return "\t".join(columns) + end


def _new_line(nbest: NbestList, hypothesis: Hypothesis) -> str:
    """Return the line of a hypothesis that was read from another format."""
    main = required_main_score(nbest, hypothesis)
    names = fresh_names([name for name in hypothesis.scores if name != main], ["score", TOTAL], one_word)
    added = fresh_names(hypothesis.lm_scores, ["score", TOTAL, *names.values()], one_word)
    columns = [one_line(hypothesis.text), written(hypothesis.scores[main], main, nbest)]
    columns += [f"{key}={written(hypothesis.scores[name], name, nbest)}" for name, key in names.items()]
    columns += [f"{key}={written(hypothesis.lm_scores[name], name, nbest)}" for name, key in added.items()]
    if hypothesis.total is not None:
        columns.append(f"{TOTAL}={written(hypothesis.total, TOTAL, nbest)}")
    return "\t".join(columns) + "\n"
