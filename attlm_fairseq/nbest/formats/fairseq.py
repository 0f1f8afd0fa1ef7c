"""What fairseq-generate and fairseq-interactive print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import CARRIAGE_RETURNS, TextSource
from attlm_fairseq.nbest.formats.lines import numbered, split_end, write_lines
from attlm_fairseq.nbest.formats.list_ids import SeenIds
from attlm_fairseq.nbest.formats.number_texts import number, written
from attlm_fairseq.nbest.formats.own_text import own_text, text_of_hypothesis
from attlm_fairseq.nbest.formats.protocol import NbestFormat
from attlm_fairseq.nbest.formats.score_names import fresh_names, one_word
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import FileText, HypothesisText, ListText
from attlm_fairseq.numeric import LN_2

SUM = "fairseq"  # ln P(hypothesis), from the P-line
NORMALISED = "H"  # the H-line's score, length-normalised, in natural log
_DATA = re.compile(r"([A-Z])-(\d+)(?:_\d+)?\t")
_BROKEN = re.compile(r"\s*[STHDPAIEWCL]-\d+(\s|$)")
_OF_HYPOTHESIS = frozenset("DPAIEL")
_READ = frozenset("STHL")  # of other lines, only fairseq's have a place for what they say, such as each token's ln p (P)
_HAS_H = re.compile(rf"\s{NORMALISED}=")
LINE_END = "\n"
_MATCHES = re.compile(r"^H-\d+\t(?:[^\t\n]*$|-?(?:[\d.]+(?:e-?\d+)?|inf|nan)\t)", re.MULTILINE)  # not tables with such ids


class FairseqFormat(NbestFormat):
    """Tab-separated ``S- T- H- D- P-`` lines, best hypothesis first, sentence ids in any order. Other lines keep their place.

    fairseq computes in log2. The T-line has ``<<unk>>`` for ``<unk>``. A written file gets a line ``L-12<TAB>name=value
    name=value``.
    """

    name = "fairseq"

    def matches(self, head: str) -> bool:
        if _MATCHES.search(head) is not None:
            return True
        kinds = [found[1] if (found := _DATA.match(line)) else "" for line in head.splitlines()]  # a run that ended before its first H-line
        return len(set(kinds)) > 1 and set(kinds) <= {*"STDP"}

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        file = FileText(self.name)
        seen = SeenIds()
        with_p: bool | None = None
        path = source.name
        for block in _blocks(source, file):
            if not seen.add(block.id):
                message = f"the lines of sentence {block.id} continue here after other sentences: put them together"
                raise InputError(message, path=path, line=block.lines[0].number)
            text = ListText(file, block.before)
            nbest = NbestList(block.id, [], line=block.lines[0].number, path=path, verbatim=text)
            for line in block.lines:
                _take(line, nbest, text)
            text.extras = tuple(sorted({line.kind for line in block.lines if line.kind} - _READ))
            if not nbest.hypotheses:
                raise InputError(f"sentence {nbest.id} has no H-line", path=path, line=nbest.line)
            for hypothesis in nbest.hypotheses:
                has_p = SUM in hypothesis.scores
                with_p = has_p if with_p is None else with_p
                if has_p != with_p:
                    found, others = ("a", "none") if has_p else ("no", "one")
                    message = f"hypothesis {hypothesis.rank} of sentence {nbest.id} has {found} P-line, those before have {others}"
                    raise InputError(message, path=path, line=_line_of(block, hypothesis))
            yield nbest
        if with_p is None:
            raise InputError("no n-best list in it: no H-line", path=path)

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        write_lines(lists, out, self.name, self._lines)

    def _lines(self, nbest: NbestList) -> Iterator[str]:
        return (self._group(nbest, hypothesis) for hypothesis in nbest.hypotheses)

    def _group(self, nbest: NbestList, hypothesis: Hypothesis) -> str:
        own_text(nbest, self.name)
        lines = _lines_of(text_of_hypothesis(nbest, hypothesis).own)
        if hypothesis.total is not None:
            total = written(hypothesis.total / LN_2, "total", nbest)
            for i, line in enumerate(lines):
                if _kind(line) in ("H", "D"):
                    label, _, text = line.split("\t", 2)
                    lines[i] = f"{label}\t{total}\t{text}"
        names = fresh_names(hypothesis.lm_scores, hypothesis.scores, one_word)
        added = [f"{names[name]}={written(value, name, nbest)}" for name, value in hypothesis.lm_scores.items()]
        kinds = [_kind(line) for line in lines]
        kept = "L" in kinds and _HAS_H.search(lines[kinds.index("L")])
        if hypothesis.total is not None and not kept:
            added.append(f"{NORMALISED}={hypothesis.scores[NORMALISED]!r}")  # exact
        if added:
            place = kinds.index("L") if "L" in kinds else max(i for i, kind in enumerate(kinds) if kind)
            body, end = split_end(lines[place])
            label = "" if "L" in kinds else f"{end or LINE_END}L-{nbest.id}\t"
            lines[place] = f"{body}{label or ' '}{' '.join(added)}{end}"
        return "".join(lines)


@dataclass(slots=True)
class _Line:
    number: int
    kind: str  # the letter, or "" for a line that is none of fairseq's
    text: str


@dataclass(slots=True)
class _Block:
    """The lines of one sentence and the other lines before it."""

    id: str
    before: str
    lines: list[_Line]


def _kind(line: str) -> str:
    match = _DATA.match(line)
    return match[1] if match else ""


def _lines_of(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _blocks(source: TextSource, file: FileText) -> Iterator[_Block]:
    block: _Block | None = None
    log: list[_Line] = []
    for line_number, line in numbered(source, file):
        match = _DATA.match(line)
        if "\r" in line and any(map(_DATA.match, line.split("\r")[1:])):
            raise InputError(CARRIAGE_RETURNS, path=source.name, line=line_number)
        if match is None:
            if _BROKEN.match(line):
                raise InputError(f"found {quoted(line)}: expected a tab after the sentence number", path=source.name, line=line_number)
            log.append(_Line(line_number, "", line))
            continue
        if block is not None and block.id == match[2]:
            block.lines += log
        else:
            if block is not None:
                yield block
            block = _Block(match[2], "".join(other.text for other in log), [])
        log = []
        block.lines.append(_Line(line_number, match[1], line))
    file.end = "".join(other.text for other in log)
    if block is not None:
        yield block


def _take(line: _Line, nbest: NbestList, of_list: ListText) -> None:
    """Add a line to the list that it belongs to."""
    path = nbest.path
    label, _, content = split_end(line.text)[0].partition("\t")
    if line.kind == "H":
        score, tab, text = content.partition("\t")
        if not tab:
            raise InputError(f"{label} has one field: expected a score and a text", path=path, line=line.number)
        scores = {NORMALISED: number(score, f"the score of {label}", path, line.number) * LN_2}
        nbest.hypotheses.append(Hypothesis(text, scores, rank=len(nbest.hypotheses) + 1, verbatim=HypothesisText(line.text)))
        return
    before_hypotheses = not nbest.hypotheses
    if line.kind and before_hypotheses == (line.kind in _OF_HYPOTHESIS):
        message = (
            f"{label} comes before its H-line" if before_hypotheses else f"{label} comes after an H-line: is the sentence there twice?"
        )
        raise InputError(message, path=path, line=line.number)
    if before_hypotheses:
        of_list.before += line.text
        if line.kind == "T":
            nbest.references = (content,)
        if line.kind == "S":
            nbest.source = content
        return
    hypothesis = nbest.hypotheses[-1]
    of_hypothesis = text_of_hypothesis(nbest, hypothesis)
    if line.kind in ("D", "P", "L") and any(_kind(other) == line.kind for other in _lines_of(of_hypothesis.own)):
        raise InputError(f"{label} is there twice for one H-line", path=path, line=line.number)
    of_hypothesis.own += line.text
    if line.kind == "D" and "\t" not in content:
        raise InputError(f"{label} has one field: expected a score and a text", path=path, line=line.number)
    _take_scores(line, label, content, hypothesis, path)


def _take_scores(line: _Line, label: str, content: str, hypothesis: Hypothesis, path: str) -> None:
    """Add the scores of a P- or L-line to its hypothesis."""
    if line.kind == "P":
        what = f"a score of {label}"
        values = [number(value, what, path, line.number) for value in content.split()]
        words = sum(1 for word in hypothesis.text.split(" ") if word)
        if len(values) <= words:
            message = f"{label} has {len(values)} scores for {words} words: expected at least {words + 1}; is the line cut short?"
            raise InputError(message, path=path, line=line.number)
        hypothesis.scores[SUM] = sum(values) * LN_2
    if line.kind == "L":
        seen = hypothesis.scores.keys() - {NORMALISED}
        for pair in content.split():
            name, equals, value = pair.rpartition("=")
            if not equals or not name or name in seen:
                raise InputError(f"{label} has {quoted(pair)}: expected name=value, each name once", path=path, line=line.number)
            seen.add(name)
            hypothesis.scores[name] = number(value, f"the score {name} of {label}", path, line.number)


def _line_of(block: _Block, hypothesis: Hypothesis) -> int:
    return [line.number for line in block.lines if line.kind == "H"][hypothesis.rank - 1]
