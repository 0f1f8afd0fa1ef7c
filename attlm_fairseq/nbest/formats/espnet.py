"""ESPnet's n-best folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.formats.keyed import Table, TableWriter, file_name, require_key, tables_beside
from attlm_fairseq.nbest.formats.lines import one_line
from attlm_fairseq.nbest.formats.list_ids import SeenIds
from attlm_fairseq.nbest.formats.number_texts import number, written
from attlm_fairseq.nbest.formats.own_text import text_of, text_of_hypothesis
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFolderFormat
from attlm_fairseq.nbest.formats.score_names import TOTAL, fresh_names
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import FileText, HypothesisText, ListText

_FOLDER = re.compile(r"(\d+)best_recog")
_TENSOR = re.compile(r"tensor\(\[?([^\],)]*)(?:[\],].*)?\)")  # what str() makes of a score that is still a tensor
_TEXT = "text"
_TOTAL_FILE = f"score_{TOTAL}"


class EspnetFolder(NbestFolderFormat):
    """``1best_recog/{text,score}``, ``2best_recog/...``: lines ``utt1 the text`` and ``utt1 -3.2`` (or ``utt1 tensor(-3.2)``).

    A later folder may lack utterances, but all folders have the same order. Other files with the same keys are kept.
    """

    name = "espnet"
    holds = Holds(scores=True, decimals=6, score_name=lambda name: _score_file(name), total_name=_TOTAL_FILE, one_line=True)

    def matches_folder(self, folder: Path) -> bool:
        return (folder / "1best_recog" / _TEXT).is_file()

    def parse_folder(self, folder: Path) -> Iterator[NbestList]:
        places = sorted(int(match[1]) for path in folder.iterdir() if (match := _FOLDER.fullmatch(path.name)))
        if not places or places != list(range(1, len(places) + 1)):
            found = ", ".join(f"{place}best_recog" for place in places) or "none"
            raise InputError(f"found the folders {found}: expected 1best_recog, 2best_recog and so on", path=folder)
        first = folder / "1best_recog" / _TEXT
        # whatever they begin with, and in whichever folder they are
        scores = {
            path.name for place in places for path in (folder / f"{place}best_recog").iterdir() if path.is_file() and _is_score(path.name)
        }
        names = sorted(scores.union(tables_beside(first)))
        tables = [{name: Table(folder / f"{place}best_recog" / name) for name in [_TEXT, *names]} for place in places]
        extras = tuple(name for name in names if not _is_score(name) and name != _TOTAL_FILE)
        file = FileText(self.name)
        seen = SeenIds()
        while (line := tables[0][_TEXT].next) is not None:
            if not seen.add(line.key):
                raise InputError(f"the utterance {line.key} is there twice", path=first, line=line.line)
            nbest = NbestList(line.key, [], line=line.line, path=str(first), verbatim=ListText(file, extras=extras))
            for rank, place in enumerate(tables, 1):
                text = place[_TEXT].take(nbest.id)
                if text is None:
                    break
                lines: dict[str, str] = {}
                hypothesis = Hypothesis(text.value, rank=rank, verbatim=HypothesisText(text.raw, lines))
                for name in names:
                    entry = place[name].require(nbest.id)
                    lines[name] = entry.raw
                    if _is_score(name):
                        match = _TENSOR.fullmatch(entry.value)
                        hypothesis.scores[name] = number(match[1] if match else entry.value, "the score", place[name].path, entry.line)
                nbest.hypotheses.append(hypothesis)
            yield nbest
        for place in tables:
            for table in place.values():
                table.require_end()

    def put_folder(self, lists: Iterable[NbestList], folder: Path) -> None:
        with TableWriter(folder) as files:
            for nbest in lists:
                lines_of = _lines if text_of(nbest, self.name) is not None else _new_lines
                for place, hypothesis in enumerate(nbest.hypotheses, 1):
                    files.put_all(lines_of(nbest, hypothesis), f"{place}best_recog/", nbest, hypothesis)


def _is_score(name: str) -> bool:
    return name == "score" or (name.startswith("score_") and name != _TOTAL_FILE)


def _lines(nbest: NbestList, hypothesis: Hypothesis) -> dict[str, str]:
    own = text_of_hypothesis(nbest, hypothesis)
    lines = {_TEXT: own.own, **(own.elsewhere or {})}
    return lines | _added(nbest, hypothesis, lines)


def _new_lines(nbest: NbestList, hypothesis: Hypothesis) -> dict[str, str]:
    """Return the lines of a hypothesis that was read from another format."""
    key = require_key(nbest.id)
    lines = {_TEXT: f"{key} {one_line(hypothesis.text)}\n"}
    for name, fresh in fresh_names(hypothesis.scores, [*lines, _TOTAL_FILE], _score_file).items():
        lines[fresh] = f"{key} {written(hypothesis.scores[name], name, nbest)}\n"
    return lines | _added(nbest, hypothesis, lines)


def _added(nbest: NbestList, hypothesis: Hypothesis, taken: Iterable[str]) -> dict[str, str]:
    """Return the lines with the LM scores and the total."""
    lines = {}
    for name, fresh in fresh_names(hypothesis.lm_scores, [*taken, _TOTAL_FILE], _lm_file).items():
        lines[fresh] = f"{nbest.id} {written(hypothesis.lm_scores[name], name, nbest)}\n"
    if hypothesis.total is not None:
        lines[_TOTAL_FILE] = f"{nbest.id} {written(hypothesis.total, TOTAL, nbest)}\n"
    return lines


def _lm_file(name: str) -> str:
    return f"score_{file_name(name)}"


def _score_file(name: str) -> str:
    """Return the file of a score of another format, which is called like its file when it is read back."""
    if name == "score" or (name.startswith("score_") and name == file_name(name)):
        return name
    return f"score_{file_name(name)}"
