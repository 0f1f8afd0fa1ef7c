"""Convert n-best lists to another format, and report what that format cannot hold."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.files import is_stream
from attlm_fairseq.messages import note
from attlm_fairseq.nbest import formats
from attlm_fairseq.nbest.formats import Holds, NbestFolderFormat, NbestFormat
from attlm_fairseq.nbest.formats.as_read import as_new
from attlm_fairseq.nbest.formats.lines import SeenIds, decimal, main_score, one_line
from attlm_fairseq.nbest.nbest_list import DECODER_SCORES, NbestList
from attlm_fairseq.nbest.score_files import Numbers, with_further_scores
from attlm_fairseq.text import TextPipeline, text_pipeline
from attlm_fairseq.verbs.arguments import FilePath, check_file
from attlm_fairseq.verbs.lists import Lists, NbestFile, lists_to_write
from attlm_fairseq.verbs.rescore import ONE_BEST

_NEGLIGIBLE = 1e-12  # what rounding of binary fractions leaves
TARGETS = tuple(dict.fromkeys((*formats.CONVERTIBLE, *formats.CONVERTIBLE_FOLDERS, *ONE_BEST)))


@dataclass(frozen=True)
class Converted:
    """The result of ``convert``.

    Attributes:
        list_count: number of lists.
        hypothesis_count: number of hypotheses.
        lost: one line for each kind of information that the format cannot hold.
    """

    list_count: int
    hypothesis_count: int
    lost: tuple[str, ...]


def convert(
    lists: Lists, path: FilePath, to: str, *, text: str | TextPipeline = "", scores: Mapping[str, Numbers] | None = None
) -> Converted:
    """Convert n-best lists to another format.

    Args:
        lists: the lists, or the file or folder that holds them.
        path: a new file (``.gz`` compresses), ``-`` for standard output, or a new folder. It appears only when
            complete.
        to: the name of the new format. A format that exists both as file and as folder is written as a folder if
            ``path`` ends in ``/``, if ``lists`` is such a folder, or if the file cannot hold the lists (srilm).
            ``1best``, ``1best-kaldi`` and ``1best-sclite`` write the text of each 1-best hypothesis.
        text: text steps for hypotheses and references, such as ``"join-subwords:bpe,detokenize:en"``. The lists written are
            then new ones: what only their file's own format keeps is lost, and so are times where the number of words changes.
        scores: further scores by name: files with one number per line, or numbers; one for each hypothesis, list by list.

    Returns:
        The counts, and one line for each kind of information lost. Each such line is also logged.

    Raises:
        InputError: the output already exists, the format cannot hold the lists or has no place for scores that are given, or there
            is not one number of each score for each hypothesis. Nothing is written then.
    """
    path = _new_output(path, to)
    if isinstance(lists, str | os.PathLike):
        lists = NbestFile(lists)
    source, opened = lists.open() if isinstance(lists, NbestFile) else (None, lists_to_write(lists))
    steps = text_pipeline(text).load()
    if steps.steps:
        source, opened = None, _after(steps, opened)
    return _converted(source, opened, path, to, scores, whole=isinstance(lists, Sequence), as_new_lists=bool(steps.steps))


def convert_parts(
    files: Sequence[NbestFile],
    path: FilePath,
    to: str,
    *,
    text: str | TextPipeline = "",
    scores: Mapping[str, Numbers] | None = None,
    prefix_ids: bool = False,
) -> Converted:
    """Convert the lists of several files or folders, in this order, to one output, as ``convert`` does.

    A list without an id that is alone in its file gets the file's name without its ending as id. With ``prefix_ids`` this name
    and a dash stand before every id of the file. What only a file's own format keeps is lost.

    Raises:
        InputError: as ``convert``, or two lists have the same id.
    """
    path = _new_output(path, to)
    return _converted(None, _after(text_pipeline(text).load(), _of_parts(files, prefix_ids)), path, to, scores, as_new_lists=True)


def _after(text: TextPipeline, lists: Iterable[NbestList]) -> Iterator[NbestList]:
    """Yield the lists with their hypotheses and references after the text steps. Times stay if the number of words does."""
    for nbest in lists:
        if not text.steps:
            yield nbest
            continue
        hypotheses = []
        for hypothesis in nbest.hypotheses:
            new = text.prepared(hypothesis.text)
            times = hypothesis.times if len(new.split()) == len(hypothesis.times) else ()
            hypotheses.append(replace(hypothesis, text=new, times=times, confidences=()))
        yield replace(nbest, hypotheses=hypotheses, references=tuple(map(text.prepared, nbest.references)))


def _of_parts(files: Iterable[NbestFile], prefix_ids: bool) -> Iterator[NbestList]:
    seen = SeenIds()
    for nbest in chain.from_iterable(map(_prefixed if prefix_ids else _of_part, files)):
        if not seen.add(nbest.id):
            named = ", the name of its file" if nbest.verbatim is not None and nbest.verbatim.numbered and not prefix_ids else ""
            more = "" if prefix_ids else " (--prefix-ids puts the name of its file before each)"
            told = f"an earlier list has the id {nbest.id!r}{named}, too: expected another id for each list of these files{more}"
            raise nbest.error(told)
        yield nbest


def _prefixed(file: NbestFile) -> Iterator[NbestList]:
    name = _name_of(file)
    return (replace(nbest, id=f"{name}-{nbest.id}") for nbest in file.open()[1])


def _name_of(file: NbestFile) -> str:
    """Return the name of a file or folder without its ending."""
    return Path(Path(str(file)).name.removesuffix(".gz")).stem


def _of_part(file: NbestFile) -> Iterator[NbestList]:
    _, opened = file.open()
    first = next(opened)
    second = next(opened, None)
    if second is None and first.verbatim is not None and first.verbatim.numbered and str(file) != "-":
        first = replace(first, id=_name_of(file))
    yield first
    if second is not None:
        yield second
        yield from opened


def _converted(
    source: NbestFormat | NbestFolderFormat | None,
    lists: Iterable[NbestList],
    path: str,
    to: str,
    scores: Mapping[str, Numbers] | None,
    whole: bool = False,
    as_new_lists: bool = False,
) -> Converted:
    """Write the lists, of the format ``source``, and report what is lost. ``whole``: they are held in memory at once."""
    require_type("value of scores", scores or {}, Mapping, "files or numbers by name, such as {'qe': 'dev.qe'}")
    if scores and (to in ONE_BEST or not formats.find_target(to, path, source).has_scores):
        raise InputError(f"{to} has no place for scores: expected another format, such as jsonl, for {', '.join(scores)}")
    if to in ONE_BEST:
        losses = _Losses(to, Holds(ids=to != "1best"), only_first=True)
        formats.write_one_best(losses.watch(lists), path, style=ONE_BEST[to])
        return losses.told()
    target = formats.find_target(to, path, source)
    is_own = source is not None and source.name == target.name and type(source) is type(target)
    holds = _of_own(target.holds) if is_own else target.holds
    if holds is None:
        raise InputError(f"{to} cannot hold lists from another format: expected one of {', '.join(TARGETS)}")
    losses = _Losses(to, holds)
    watched = losses.watch(with_further_scores(lists, scores) if scores else lists)
    if as_new_lists:
        watched = map(as_new, watched)
    formats.write_nbest(list(watched) if whole else watched, target, path)
    return losses.told()


def _new_output(path: FilePath, to: str) -> str:
    """Return the path of an output. Raises InputError if there is something already, or if it is no path."""
    check_file(path, to)
    path = os.fspath(path)
    if path != "-" and not is_stream(path) and Path(path).exists() and not (Path(path).is_dir() and not any(Path(path).iterdir())):
        raise InputError("already exists and is not overwritten: name another file", path=path)
    return path


_ALL = Holds(references=True, sources=True, scores=True, sparse=True, times=True, extras=True)  # of a format's own lists


def _of_own(holds: Holds | None) -> Holds:
    """Return what a format keeps of its own lists: all, but scores that join them may get other names."""
    return _ALL if holds is None else replace(_ALL, lm_name=holds.lm_name or holds.score_name)


class _Losses:
    """Counts what the target format cannot hold, while the lists pass by."""

    def __init__(self, to: str, holds: Holds, only_first: bool = False) -> None:
        self._to, self._holds, self._only_first = to, holds, only_first
        self._lists = self._hypotheses = self._dropped = self._references = self._sources = 0
        self._blank = self._blank_sources = self._sparse = self._respaced = 0
        self._scores: Counter[str] = Counter()
        self._lm_scores: set[str] = set()
        self._rounded: set[str] = set()
        self._extras: set[str] = set()
        self._ids: str | None = None
        self._main: set[str] = set()  # what the decoder's own score is called, for formats that have a name for it
        self._last = ""  # id
        self._has_sources = False  # whether the first list has one
        self._sorted = True

    def watch(self, lists: Iterable[NbestList]) -> Iterator[NbestList]:
        """Yield each list after counting what it would lose."""
        for place, nbest in enumerate(lists):
            self._count(nbest, place)
            yield nbest

    def _count(self, nbest: NbestList, place: int) -> None:
        self._lists += 1
        self._hypotheses += len(nbest.hypotheses)
        self._dropped += len(nbest.hypotheses) - 1 if self._only_first else 0
        if not self._holds.ids and nbest.id != str(place) and self._ids is None:
            self._ids = nbest.id
        self._sorted = self._sorted and self._last <= nbest.id
        self._last = nbest.id
        self._references += bool(nbest.references)
        self._sources += nbest.source is not None
        self._has_sources = nbest.source is not None if place == 0 else self._has_sources
        self._blank += "" in nbest.references
        self._blank_sources += nbest.source == ""
        self._sparse += nbest.sparse
        if nbest.verbatim is not None:
            self._extras.update(nbest.verbatim.extras)
        for hypothesis in nbest.hypotheses:
            scores = hypothesis.scores | hypothesis.lm_scores
            self._scores.update(scores.keys())
            self._lm_scores.update(hypothesis.lm_scores.keys())
            if self._holds.main_score is not None and (main := _main_score(hypothesis.scores, self._holds.main_score)):
                self._main.add(main)
            if self._holds.one_line and one_line(hypothesis.text) != hypothesis.text:
                self._respaced += 1
            if hypothesis.times and not self._holds.times:
                self._extras.add("times")
            if self._holds.decimals is not None:
                in_unit = {name: score / self._holds.unit for name, score in scores.items()}
                self._rounded.update(name for name, score in in_unit.items() if abs(float(decimal(score)) - score) > _NEGLIGIBLE)

    def told(self) -> Converted:
        """Log what was lost, and return it with the counts."""
        lost = tuple(self._lines())
        for line in lost:
            note(f"note: {self._to} {line}")
        return Converted(self._lists, self._hypotheses, lost)

    def _lines(self) -> Iterator[str]:
        holds = self._holds
        if self._dropped:
            yield f"has the first hypothesis of each list alone: {self._dropped} others are lost"
        if self._ids is not None:
            yield f"has no ids: those of the lists are lost, such as {self._ids!r}"
        if not holds.order and not self._sorted:
            yield "sorts the lists by id: their order is lost"
        if self._references and not holds.references:
            yield f"has no references: those of {self._references} lists are lost"
        elif self._blank and not holds.blank_references:
            yield f"has no blank references, of silence: those of {self._blank} lists are lost"
        if self._sources and not holds.sources:
            yield f"has no source sentences: those of {self._sources} lists are lost"
        elif self._sources and holds.columns and not self._has_sources:
            yield f"has source sentences only if the first list has one: those of {self._sources} lists are lost"
        elif self._blank_sources and not holds.blank_sources:
            yield f"has no blank source sentences: those of {self._blank_sources} lists are lost"
        if self._scores and not holds.scores:
            yield f"has no scores: {', '.join(sorted(self._scores))} are lost"
        elif self._rounded:
            yield f"has {holds.decimals} decimals: the scores {', '.join(sorted(self._rounded))} are rounded"
        names = {name: holds.main_score if name in self._main and holds.main_score else holds.score_name(name) for name in self._scores}
        if holds.lm_name is not None:
            names |= {name: holds.lm_name(name) for name in self._lm_scores}
        if holds.scores and (renamed := [f"{name} -> {new}" for name, new in names.items() if new != name]):
            yield f"has other names for scores: {', '.join(sorted(renamed))}"
        if len(self._main) > 1:
            yield f"puts the scores {', '.join(sorted(self._main))} under one name, {holds.main_score}: they are of different hypotheses"
        if self._sparse and holds.scores and not holds.sparse:
            yield f"does not say that a score which a hypothesis does not name is 0, as {self._sparse} lists do"
        if self._respaced:
            yield f"has one line for a hypothesis: tabs and line breaks in {self._respaced} texts become spaces"
        if self._extras and not holds.extras:
            yield f"has no place for {', '.join(sorted(self._extras))}: lost"


def _main_score(scores: Collection[str], own_name: str) -> str | None:
    """Return the score that a format writes as the decoder's own, under the name ``own_name``. SRILM's acoustic score stays that."""
    return own_name if own_name in scores and own_name not in DECODER_SCORES else main_score(scores)
