"""Kaldi n-best lists: a text file, or a folder with the costs next to it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource, head_of
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats.keyed import KeyedLine, Table, TableWriter, file_name, parse_keyed, require_key, tables_beside
from attlm_fairseq.nbest.formats.lines import grouped, one_line, split_end, whole_lines, write_lines
from attlm_fairseq.nbest.formats.number_texts import is_written_number, number, written
from attlm_fairseq.nbest.formats.own_text import is_as_read, own_text, text_of, text_of_hypothesis
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFolderFormat, NbestFormat
from attlm_fairseq.nbest.formats.score_names import TOTAL, fresh_names
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList, are_alike
from attlm_fairseq.nbest.verbatim import HypothesisText

TEXTS = ("text", "words_text")  # the second is what Kaldi's own rescoring scripts call it
NUMBERS = "words"  # Kaldi's nbest-to-linear writes numbers of words, which its scripts call so
_KEY = re.compile(r"(\S+)-(\d{1,18})(?=\s|$)")
_COSTS = re.compile(r"cost|score|^acwt|^lmwt")
_TOTAL_FILE = f"{TOTAL}_cost"
_BY_CHANCE = 6  # so few hypotheses may be in the order of their keys by chance after rescoring: of 7 one order in 5,040


class KaldiFormat(NbestFormat):
    """``utt-1 oh yeah``: the utterance and, after the last dash, the rank of the hypothesis; a text may be empty."""

    name = "kaldi"
    has_scores = False
    holds = Holds(one_line=True)
    like_text = True

    def matches(self, head: str) -> bool:
        """Return whether every line begins with such a key, some with that of a first hypothesis, and a space separates the text.

        A rank has no zeros before it: ``rec-0001`` is the id of an utterance.
        """
        lines = head.rstrip("\r\n").split("\n")
        keys = [re.split(r"[ \r]", line, maxsplit=1)[0] for line in lines]
        return any(key.endswith("-1") for key in keys) and all(
            (found := _KEY.fullmatch(key)) and str(int(found[2])) == found[2] for key in keys
        )

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        def parse(whole: str, line: int, _after_blank: bool) -> tuple[str, Hypothesis]:
            return _parse(parse_keyed(whole, source.name, line), source.name)

        several = unlike = 0
        for nbest in grouped(source, self.name, parse):
            _set_ranks(nbest, source.name)
            if len(nbest.hypotheses) > 1 and (alike := are_alike(*(one.text for one in nbest.hypotheses[:2]))) is not None:
                several += 1
                unlike += not alike
            yield nbest
        if 2 * unlike > several:
            note(
                f"WARNING: {source.name} is read as Kaldi's n-best lists, keys UTTERANCE-RANK, and most lists' hypotheses have hardly a "
                "word in common: if it has one text per line, say --format text"
            )

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        write_lines(lists, out, self.name, lambda nbest: [_line(nbest, hypothesis) for hypothesis in _as_written(nbest)])


class KaldiFolder(NbestFolderFormat):
    """A folder with ``text`` (or ``words_text``) as in ``KaldiFormat``, and files of costs, ``utt-1 5.67``, in the same order."""

    name = "kaldi"
    holds = Holds(
        scores=True,
        decimals=6,
        score_name=lambda name: _own_cost_file(name),
        total_name=_TOTAL_FILE,
        lm_name=lambda name: _cost_file(name),
        one_line=True,
    )

    def matches_folder(self, folder: Path) -> bool:
        return any((folder / text).is_file() and _KEY.match(head_of(folder / text)) is not None for text in (*TEXTS, NUMBERS))

    def parse_folder(self, folder: Path) -> Iterator[NbestList]:
        text = next((folder / name for name in TEXTS if (folder / name).is_file()), None)
        if text is None:
            message = f"no file {' or '.join(TEXTS)} in it: expected a Kaldi n-best folder"
            if (folder / NUMBERS).is_file():
                message += f"; `{NUMBERS}` has numbers of words: int2sym.pl -f 2- words.txt < {NUMBERS} > words_text"
            raise InputError(message, path=folder)
        costs = {path.name for path in folder.iterdir() if path.is_file() and path != text and _COSTS.search(path.name)}
        if of_words := sorted(name for name in costs if _has_costs_of_words(folder / name)):
            note(f"note: {folder}: {', '.join(of_words)} has several numbers in a line, as for single words, and is not read as a cost")
            costs.difference_update(of_words)
        others = {name: Table(folder / name) for name in sorted({*tables_beside(text), *costs})}

        def parse(whole: str, line: int, _after_blank: bool) -> tuple[str, Hypothesis]:
            keyed = parse_keyed(whole, source.name, line)
            name, hypothesis = _parse(keyed, source.name)
            lines: dict[str, str] = {}
            hypothesis.verbatim = HypothesisText(whole, lines)
            for other, table in others.items():
                found = table.require(keyed.key)
                lines[other] = found.raw
                if other in costs and other != _TOTAL_FILE:
                    hypothesis.scores[other] = -number(found.value, "the cost", table.path, found.line)
            return name, hypothesis

        source = TextSource(str(text))
        for nbest in grouped(source, self.name, parse):
            _set_ranks(nbest, source.name)
            own = own_text(nbest, self.name)
            own.file_name, own.extras = text.name, tuple(name for name in others if name not in costs)
            yield nbest
        for table in others.values():
            table.require_end()

    def put_folder(self, lists: Iterable[NbestList], folder: Path) -> None:
        with TableWriter(folder) as files:
            for nbest in lists:
                text = text_of(nbest, self.name)
                for hypothesis in _as_written(nbest):
                    _put(files, (text.file_name if text is not None else "") or TEXTS[0], nbest, hypothesis)


def _has_costs_of_words(path: Path) -> bool:
    """Return whether the lines of a file have several numbers after the key, as the first ones show."""
    rows = [line.split()[1:] for line in whole_lines(head_of(path)).split("\n")]
    return any(len(row) > 1 for row in rows) and all(is_written_number(field) for row in rows for field in row)


def _parse(keyed: KeyedLine, path: str) -> tuple[str, Hypothesis]:
    match = _KEY.fullmatch(keyed.key)
    if match is None:
        raise InputError(f"found the key {quoted(keyed.key)}: expected UTTERANCE-NUMBER", path=path, line=keyed.line)
    return match[1], Hypothesis(keyed.value, rank=int(match[2]) + 1)  # + 1: ranks begin at 1


def _set_ranks(nbest: NbestList, path: str) -> None:
    """Replace the numbers in the keys by ranks from 1: places in the file, whose order is that of the last rescoring.

    If the keys are sorted as text, the hypotheses get the order of the numbers, and the list keeps its own text.
    """
    numbers = [hypothesis.rank for hypothesis in nbest.hypotheses]
    if len(set(numbers)) < len(numbers):
        twice = next(number for number, count in Counter(numbers).items() if count > 1) - 1
        raise InputError(f"the list of {nbest.id} has the key {nbest.id}-{twice} twice", path=path, line=nbest.line)
    texts = [str(number - 1) for number in numbers]
    if len(texts) > _BY_CHANCE and texts == sorted(texts):
        own_text(nbest, KaldiFormat.name).own = "".join(text_of_hypothesis(nbest, hypothesis).own for hypothesis in nbest.hypotheses)
        nbest.hypotheses.sort(key=lambda hypothesis: hypothesis.rank)
    for rank, hypothesis in enumerate(nbest.hypotheses, 1):
        hypothesis.rank = rank


def _as_written(nbest: NbestList) -> list[Hypothesis]:
    """Return the hypotheses in their order; those of a list that is as read in the order of its file, so that it keeps its bytes."""
    text = text_of(nbest, KaldiFormat.name)
    if text is None or not text.own or not is_as_read(nbest, text):
        return nbest.hypotheses
    places = {split_end(line)[0]: place for place, line in enumerate(text.own.split("\n"))}
    return sorted(nbest.hypotheses, key=lambda hypothesis: places[split_end(text_of_hypothesis(nbest, hypothesis).own)[0]])


def _line(nbest: NbestList, hypothesis: Hypothesis) -> str:
    if text_of(nbest, KaldiFormat.name) is not None and hypothesis.verbatim is not None:
        return hypothesis.verbatim.own
    return f"{require_key(nbest.id)}-{hypothesis.rank} {one_line(hypothesis.text)}\n"


def _put(files: TableWriter, text_name: str, nbest: NbestList, hypothesis: Hypothesis) -> None:
    line = _line(nbest, hypothesis)
    key = line.split(maxsplit=1)[0]
    lines = {text_name: line}
    if text_of(nbest, KaldiFolder.name) is not None:
        lines |= text_of_hypothesis(nbest, hypothesis).elsewhere or {}
    else:
        for name, fresh in fresh_names(hypothesis.scores, [*lines, _TOTAL_FILE], _own_cost_file).items():
            lines[fresh] = f"{key} {written(-hypothesis.scores[name], name, nbest)}\n"
    for name, fresh in fresh_names(hypothesis.lm_scores, lines, _cost_file).items():
        lines[fresh] = f"{key} {written(-hypothesis.lm_scores[name], name, nbest)}\n"
    if hypothesis.total is not None:
        lines[_TOTAL_FILE] = f"{key} {written(-hypothesis.total, TOTAL, nbest)}\n"
    files.put_all(lines, "", nbest, hypothesis)


def _cost_file(name: str) -> str:
    return f"lmwt.{file_name(name)}"


def _own_cost_file(name: str) -> str:
    """Return the file of a score of another format, which is called like its file when it is read back."""
    return file_name(name) if _COSTS.search(file_name(name)) else f"{file_name(name)}_cost"
