"""SRILM n-best lists: one file a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.folders import file_inside
from attlm_fairseq.files.reading import STDIN, TextSource, head_of
from attlm_fairseq.nbest.formats.keyed import file_name
from attlm_fairseq.nbest.formats.lines import grouped, one_line, split_end, whole_lines, write_lines
from attlm_fairseq.nbest.formats.list_ids import file_of_id
from attlm_fairseq.nbest.formats.number_texts import is_written_number, number, written
from attlm_fairseq.nbest.formats.own_text import own_text, text_of, text_of_hypothesis
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFolderFormat, NbestFormat
from attlm_fairseq.nbest.formats.score_names import TOTAL, fresh_names, required_main_score
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.numeric import LN_10

_COUNT = re.compile(r"\d{1,18}")
_BYTELOG = re.compile(r"\s*NBestList\d")
_OWN_SCORES = ("acoustic", "lm")
LIST_END = ".score"  # what SRILM's scripts append to the id of a list


class SrilmFormat(NbestFormat):
    """One sentence: ``acoustic lm nwords words...`` in log10, of which ``<s>`` and ``</s>`` stay in a written line."""

    name = "srilm"
    has_scores = False
    like_text = True

    def matches(self, head: str) -> bool:
        """Return whether every line begins with two numbers and a count."""
        lines = [line.split(None, 3) for line in whole_lines(head).rstrip("\r\n").split("\n")]
        return _BYTELOG.match(head) is not None or all(
            len(line) >= 3 and is_written_number(line[0]) and is_written_number(line[1]) and _COUNT.fullmatch(line[2]) for line in lines
        )

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        path = source.name
        name = "0" if path == STDIN else _list_id(path)

        def parse(whole: str, line: int, _after_blank: bool) -> tuple[str, Hypothesis]:
            if line == 1 and _BYTELOG.match(whole):
                message = (
                    "the list has byte-log scores with the LM mixed in: write it in SRILM's plain form, 'acoustic lm nwords words...', "
                    "as rescore-decipher does"
                )
                raise InputError(message, path=path, line=line)
            fields = split_end(whole)[0].split(None, 3)
            if len(fields) < 3 or not _COUNT.fullmatch(fields[2]):
                raise InputError(f"found {quoted(whole)}: expected 'acoustic lm nwords words...'", path=path, line=line)
            scores = {own: number(field, f"the {own} score", path, line) * LN_10 for own, field in zip(_OWN_SCORES, fields, strict=False)}
            text = fields[3] if len(fields) > 3 else ""
            if len(text.split()) < int(fields[2]):
                raise InputError(f"found {len(text.split())} words, expected {fields[2]}: is the line cut short?", path=path, line=line)
            return name, Hypothesis(_without_marks(text) if "s>" in text else text, scores)

        return grouped(source, self.name, parse)

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        write_lines(
            _only_one(lists), out, self.name, lambda nbest: [text_of_hypothesis(nbest, hypothesis).own for hypothesis in nbest.hypotheses]
        )


def _without_marks(text: str) -> str:
    """Return the text without ``<s>`` as its first and ``</s>`` as its last word."""
    first, *rest = text.split(None, 1)
    if first == "<s>" and not text[0].isspace():
        text = "".join(rest)
    ended = text.rstrip()
    if ended == "</s>" or (ended.endswith("</s>") and ended[-5].isspace()):
        text = ended[:-4].rstrip()
    return text


class SrilmFolder(NbestFolderFormat):
    """A folder of ``SrilmFormat`` files, or several such files, in the order of their names, with score directories."""

    name = "srilm"
    holds = Holds(order=False, scores=True, decimals=6, unit=LN_10, main_score="acoustic", one_line=True)

    def matches_folder(self, folder: Path) -> bool:
        first = next(iter(_files(folder)), None)
        return first is not None and SrilmFormat().matches(head_of(first))

    def parse_folder(self, folder: Path) -> Iterator[NbestList]:
        if not _files(folder):
            raise InputError("no n-best list in it: expected one file for each list", path=folder)
        directories = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        return self._parse_files(_files(folder), directories)

    def read_files(self, files: Sequence[Path]) -> Iterator[NbestList]:
        """Yield the lists of several files. Raises InputError as in ``read_folder``."""
        return self._remembered(self._parse_files, files)

    def _parse_files(self, files: Sequence[Path], score_directories: Sequence[Path] = ()) -> Iterator[NbestList]:
        for path in files:
            source = TextSource(str(path))
            for nbest in SrilmFormat().parse(source):
                own_text(nbest, self.name).file_name = path.name
                for directory in score_directories:
                    _read_scores(directory, nbest)
                yield nbest

    def written_id(self, nbest: NbestList) -> str:
        """Return the name of the list's file: ``a`` and ``a.gz`` have one id and are two lists."""
        own = text_of(nbest, self.name)
        return (own.file_name if own is not None else "") or _file_of(nbest)

    def put_folder(self, lists: Iterable[NbestList], folder: Path) -> None:
        names: list[str] = []
        score_files: set[str] = set()
        for nbest in lists:
            own = text_of(nbest, self.name)
            file = self.written_id(nbest)
            lines = [(_lines if own is not None else _new_lines)(nbest, hypothesis) for hypothesis in nbest.hypotheses]
            names = names or list(lines[0])
            if any(line.keys() != set(names) for line in lines):
                raise nbest.error(f"list {nbest.id} has other scores than the first: all hypotheses need the same; write jsonl instead")
            if file in names:
                raise nbest.error(f"the list {quoted(nbest.id)} and a folder of scores would both be called {file}; write jsonl instead")
            score_file = _score_file(file)
            if len(names) > 1 and score_file in score_files:
                raise nbest.error(f"two lists have the scores of one file, {score_file}: rename one of them, or write jsonl instead")
            score_files.add(score_file)
            for name in lines[0]:
                (folder / name).mkdir(exist_ok=True)
                of_file = [line[name] for line in lines]
                with file_inside(folder / name / (score_file if name else file)) as out:
                    write_lines([nbest], out, self.name if not name else "", partial(_given, of_file))


def _given(lines: list[str], _: NbestList) -> list[str]:
    return lines


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _list_id(path: str) -> str:
    """Return the id of a list's file, as SRILM's scripts do: they write lists as ``ID.score.gz``, their scores as ``DIRECTORY/ID.gz``."""
    return Path(path).name.removesuffix(".gz").removesuffix(LIST_END)


def _score_file(name: str) -> str:
    """Return the name of the file in each score directory that belongs to a list's file."""
    return _list_id(name) + (".gz" if name.endswith(".gz") else "")


def _only_one(lists: Iterable[NbestList]) -> Iterator[NbestList]:
    for count, nbest in enumerate(lists):
        own_text(nbest, SrilmFormat.name)
        if count:
            raise InputError("SRILM has one file for each sentence: these are several lists, write jsonl instead")
        yield nbest


def _read_scores(directory: Path, nbest: NbestList) -> None:
    file = own_text(nbest, SrilmFolder.name).file_name
    plain = _list_id(file)
    names = dict.fromkeys([file, _score_file(file), plain, f"{plain}.gz", plain + LIST_END, f"{plain}{LIST_END}.gz"])
    source = TextSource(str(next((path for name in names if (path := directory / name).exists()), directory / _score_file(file))))
    lines = list(source.lines(keep_mark=True))
    if len(lines) != len(nbest.hypotheses):
        raise InputError(f"found {len(lines)} scores for {len(nbest.hypotheses)} hypotheses: expected one a line", path=source.name)
    for line_number, (line, hypothesis) in enumerate(zip(lines, nbest.hypotheses, strict=True), 1):
        score = number(line.strip(), "the score", source.name, line_number) * LN_10
        if directory.name != TOTAL:
            hypothesis.scores[directory.name] = score
        own = text_of_hypothesis(nbest, hypothesis)
        own.elsewhere = {**(own.elsewhere or {}), directory.name: line}


def _lines(nbest: NbestList, hypothesis: Hypothesis) -> dict[str, str]:
    """Return the line for the list's own file, called "", and for each score directory."""
    own = text_of_hypothesis(nbest, hypothesis)
    lines = {"": own.own, **(own.elsewhere or {})}
    return lines | _added(nbest, hypothesis, lines)


def _file_of(nbest: NbestList) -> str:
    """Return the name of the file of a list that was read from another format."""
    if nbest.id.endswith((".gz", LIST_END)):
        ends = "it ends as SRILM's files do, which have an id without that; write jsonl instead"
        raise nbest.error(f"the id {quoted(nbest.id)} cannot be the name of a file: {ends}")
    return file_of_id(nbest)


def _new_lines(nbest: NbestList, hypothesis: Hypothesis) -> dict[str, str]:
    """Return the lines of a hypothesis from another format: the decoder's own score is the acoustic one."""
    main = "acoustic" if "acoustic" in hypothesis.scores else required_main_score(nbest, hypothesis)
    if "lm" not in hypothesis.scores and any("lm" in other.scores for other in nbest.hypotheses):
        raise nbest.error(f"list {nbest.id}: hypothesis {hypothesis.rank} has no score 'lm', which others of the list have")
    scores = (hypothesis.scores[main], hypothesis.scores.get("lm", 0.0) if main != "lm" else 0.0)
    numbers = " ".join(written(score / LN_10, main, nbest) for score in scores)
    lines = {"": f"{numbers} {len(hypothesis.text.split())} {one_line(hypothesis.text)}".rstrip(" ") + "\n"}
    others = [name for name in hypothesis.scores if name not in (main, "lm")]
    for name, fresh in fresh_names(others, [*_OWN_SCORES, TOTAL], file_name).items():
        lines[fresh] = f"{written(hypothesis.scores[name] / LN_10, name, nbest)}\n"
    return lines | _added(nbest, hypothesis, lines)


def _added(nbest: NbestList, hypothesis: Hypothesis, taken: Iterable[str]) -> dict[str, str]:
    """Return the lines with the LM scores and the total."""
    lines = {}
    for name, fresh in fresh_names(hypothesis.lm_scores, [*taken, *_OWN_SCORES, TOTAL], file_name).items():
        lines[fresh] = f"{written(hypothesis.lm_scores[name] / LN_10, name, nbest)}\n"
    if hypothesis.total is not None:
        lines[TOTAL] = f"{written(hypothesis.total / LN_10, TOTAL, nbest)}\n"
    return lines
