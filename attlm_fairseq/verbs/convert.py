"""Convert n-best lists to another format, and report what that format cannot hold."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.files.writing import is_stream
from attlm_fairseq.nbest import formats
from attlm_fairseq.nbest.formats import ONE_BEST, Holds, NbestFolderFormat, NbestFormat
from attlm_fairseq.nbest.formats.as_read import as_new
from attlm_fairseq.nbest.formats.list_ids import SeenIds
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.score_files import Numbers, with_further_scores
from attlm_fairseq.text import TextPipeline, text_pipeline
from attlm_fairseq.verbs.arguments import FilePath, check_file
from attlm_fairseq.verbs.conversion_losses import Converted, Losses, kept_of_own
from attlm_fairseq.verbs.lists import Lists, NbestFile, lists_to_write

TARGETS = tuple(dict.fromkeys((*formats.CONVERTIBLE, *formats.CONVERTIBLE_FOLDERS, *ONE_BEST)))


def convert(
    lists: Lists, path: FilePath, to: str | None = None, *, text: str | TextPipeline = "", scores: Mapping[str, Numbers] | None = None
) -> Converted:
    """Convert n-best lists to another format.

    Args:
        lists: the lists, or the file or folder that holds them.
        path: a new file (``.gz`` compresses), ``-`` for standard output, or a new folder. It appears only when
            complete.
        to: the name of the new format; None: the end of the path, as in ``lists.csv`` or ``lists.moses.gz``. A format that
            exists both as file and as folder is written as a folder if ``path`` ends in ``/``, if ``lists`` is such a folder,
            or if the file cannot hold the lists (srilm). ``1best``, ``1best-kaldi`` and ``1best-sclite`` write the text of each
            1-best hypothesis.
        text: text steps for hypotheses and references, such as ``"join-subwords:bpe,detokenize:en"``. The lists written
            are then new ones: what only their file's own format keeps is lost, and so are word confidences, and times
            where the number of words changes.
        scores: further scores by name: files with one number per line, or numbers; one for each hypothesis, list by list.

    Returns:
        The counts, and one line for each kind of information lost. Each such line is also logged.

    Raises:
        InputError: the output already exists or does not tell the format, the format cannot hold the lists or has no place for
            scores that are given, or there is not one number of each score for each hypothesis. Nothing is written then.
    """
    path, to = _new_output(path, to)
    if isinstance(lists, str | os.PathLike):
        lists = NbestFile(lists)
    source, opened = lists.open() if isinstance(lists, NbestFile) else _of_objects(lists_to_write(lists))
    steps = text_pipeline(text).load()
    if steps.steps:
        source, opened = None, _after(steps, opened)
    return _converted(source, opened, path, to, scores, whole=isinstance(lists, Sequence), as_new_lists=bool(steps.steps))


def convert_parts(
    files: Sequence[NbestFile],
    path: FilePath,
    to: str | None = None,
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
    path, to = _new_output(path, to)
    return _converted(None, _after(text_pipeline(text).load(), _of_parts(files, prefix_ids)), path, to, scores, as_new_lists=True)


def _of_objects(lists: Iterable[NbestList]) -> tuple[NbestFormat | NbestFolderFormat | None, Iterable[NbestList]]:
    """Return the format of lists that are all of one file and unchanged, else None, and the lists."""
    if not isinstance(lists, Sequence):  # to look at the last would be to hold all
        return None, lists
    files = {id(nbest.verbatim.file) if nbest.verbatim and formats.source_of(nbest) else 0 for nbest in lists}
    return formats.source_of(lists[0]) if len(files) == 1 else None, lists


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
    seen, files = SeenIds(), list(files)
    names = _distinct_names(files)
    for nbest in chain.from_iterable(map(_prefixed if prefix_ids else _of_part, files, names)):
        if not seen.add(nbest.id):
            named = ", the name of its file" if nbest.verbatim is not None and nbest.verbatim.numbered and not prefix_ids else ""
            more = "" if prefix_ids else " (--prefix-ids puts the name of its file before each)"
            told = f"an earlier list has the id {nbest.id!r}{named}, too: expected another id for each list of these files{more}"
            raise nbest.error(told)
        yield nbest


def _distinct_names(files: Sequence[NbestFile]) -> list[str]:
    """Return a name for each file: without its ending if that tells all apart, else with it, as in nbest.en and nbest.de."""
    short = [_name_of(file) for file in files]
    whole = [Path(str(file)).name for file in files]
    longer = [name.removesuffix(".gz") for name in whole]
    needed = [name if short.count(name) == 1 else long for name, long in zip(short, longer, strict=True)]
    return next((names for names in (short, needed, longer, whole) if len(set(names)) == len(files)), short)


def _prefixed(file: NbestFile, name: str) -> Iterator[NbestList]:
    return (replace(nbest, id=f"{name}-{nbest.id}") for nbest in file.open()[1])


def _name_of(file: NbestFile) -> str:
    """Return the name of a file without its ending, or of a folder."""
    path = Path(str(file))
    return path.name if path.is_dir() else Path(path.name.removesuffix(".gz")).stem


def _of_part(file: NbestFile, name: str) -> Iterator[NbestList]:
    _, opened = file.open()
    first = next(opened)
    second = next(opened, None)
    if second is None and first.verbatim is not None and first.verbatim.numbered and str(file) != "-":
        first = replace(first, id=name)
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
        losses = Losses(to, Holds(ids=to != "1best"), only_first=True)
        formats.write_one_best(losses.watch(lists), path, style=ONE_BEST[to])
        return losses.told()
    target = formats.find_target(to, path, source)
    is_own = source is not None and source.name == target.name and type(source) is type(target)
    holds = kept_of_own(target.holds) if is_own else target.holds
    if holds is None:
        raise InputError(f"{to} cannot hold lists from another format: expected one of {', '.join(TARGETS)}")
    losses = Losses(to, holds)
    watched = losses.watch(with_further_scores(lists, scores) if scores else lists)
    if as_new_lists:
        watched = map(as_new, watched)
    formats.write_nbest(list(watched) if whole else watched, target, path)
    return losses.told()


def _new_output(path: FilePath, to: str | None) -> tuple[str, str]:
    """Return the path and the format of an output.

    Raises InputError if there is something already, if it is not a path, or if neither ``to`` nor the path tells the format.
    """
    check_file(path, to)
    path = os.fspath(path)
    to = to or formats.format_in_name(path)
    if to is None:
        raise InputError(f"the output {path!r} does not end in the name of a format: say --to with one of {', '.join(TARGETS)}")
    if path != "-" and not is_stream(path) and Path(path).exists() and not (Path(path).is_dir() and not any(Path(path).iterdir())):
        raise InputError("already exists and is not overwritten: name another file", path=path)
    return path, to
