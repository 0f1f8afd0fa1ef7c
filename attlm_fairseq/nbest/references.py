"""Give n-best lists their references, from files or their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, compress

from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import source_of
from attlm_fairseq.nbest.formats.ctm import CtmFormat
from attlm_fairseq.nbest.line_matching import By, keyed_of, line_number, match_lines, sorted_as_text
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList, silence
from attlm_fairseq.nbest.reference_files import STM_IGNORED, TextFile, positions
from attlm_fairseq.nbest.word_times import Time
from attlm_fairseq.text.one_form import in_one_form


def attach_references(lists: Iterable[NbestList], references: Sequence[TextFile] | None, by: By | None = None) -> list[NbestList]:
    """Return copies of the lists with their references, one from each file. Blank ones are left out unless all are blank.

    Words in segments that STM leaves out of scoring are left out, too. Logs how many words, lines that match no list, and a warning if
    the lists' numbered ids are sorted as text.

    Args:
        lists: the lists.
        references: files that replace the lists' own references; None: every list must have its own.
        by: how lines are matched with lists; see ``line_matching``. With None, references of utterances of which a CTM file has no line
            get a list without words.

    Raises:
        InputError: a list has no reference, or a file does not fit the lists.
    """
    lists = list(lists)
    if references is None:
        bare = [nbest for nbest in lists if not nbest.references]
        if bare:
            others = f", like {len(bare)} of {len(lists)}" if len(bare) > 1 else ""
            some = "" if len(bare) == len(lists) else "; --partial-refs leaves such lists out"
            raise bare[0].error(f"list {bare[0].id!r} has no reference{others}: give files with one line per list (--refs){some}")
        note_silence([nbest.references for nbest in lists], "the lists' own references")
        return lists
    if by is None:
        lists = with_silence(lists, references[0], "; --refs-by id leaves them out")
    ids = [nbest.id for nbest in lists]
    matched = [match_lines(ids, file, by) for file in references]
    if len({found.by_id for found in matched}) > 1:
        without = next(found.file.path for found in matched if not found.by_id)
        raise InputError(f"its lines carry no ids of the lists, those of the other files do; {matched[0].file.force_order}", path=without)
    for found in matched:
        if found.left_over and by in ("id", "number"):
            name, count = found.left_over[0], len(found.left_over)
            first = f"the first of id {name!r}" if by == "id" else f"the first of line number {name}"
            counts = f"{len(ids)} lists, {len(found.file.lines)} references{' with ids' if by == 'id' else ''}"
            note(f"note: {found.file.path}: {count} references are of no list and left over, {first}: {counts}")
    if matched[0].by_id and not matched[0].in_order:
        warn_of_repeated_ids(lists)
    if by is None and not any(found.by_id for found in matched) and (warning := sorted_as_text(ids)):
        note(warning)
    given = [_given(texts) for texts in zip(*(found.texts for found in matched), strict=True)]
    note_silence(given, str(matched[0].file.path))
    unscored = [tuple(chain(*of_files)) for of_files in zip(*(_unscored(ids, file, by) for file in references), strict=True)]
    with_references = [replace(nbest, references=texts, unscored=times) for nbest, texts, times in zip(lists, given, unscored, strict=True)]
    paths = {nbest.path for nbest in lists}
    return without_unscored(with_references, (paths.pop() if len(paths) == 1 else "") or "the lists")


def _unscored(ids: Sequence[str], file: TextFile, by: By | None) -> list[tuple[Time, ...]]:
    """Return the times of each list that a file leaves out of scoring."""
    if not file.unscored:
        return [()] * len(ids)
    places = match_lines(ids, replace(file, lines=positions(file.lines)), by).texts
    return [file.unscored[int(place)] for place in places]


def without_unscored(lists: Sequence[NbestList], name: str) -> list[NbestList]:
    """Return the lists without the words whose middle lies in their ``unscored`` times. Logs how many words.

    A list stays as it is if a word of it has no time. ``name`` is that of the system, for the message.
    """
    found = [_scored_part(nbest) for nbest in lists]
    before, after = (sum(len(one.times) for nbest in of_system for one in nbest.hypotheses) for of_system in (lists, found))
    if after < before:
        note(f"note: {name}: {before - after} words are in segments that the references ignore ({STM_IGNORED}) and are left out")
    if untimed := sum(bool(nbest.unscored) and not _is_timed(nbest) for nbest in lists):
        note(f"note: {name}: {untimed} lists have words without times: all count, also in segments that the references ignore")
    return found


def _scored_part(nbest: NbestList) -> NbestList:
    if not nbest.unscored or not _is_timed(nbest):
        return nbest
    return replace(nbest, hypotheses=[_without_words(hypothesis, nbest.unscored) for hypothesis in nbest.hypotheses])


def _is_timed(nbest: NbestList) -> bool:
    return all(hypothesis.is_timed or not hypothesis.text.strip() for hypothesis in nbest.hypotheses)


def _without_words(hypothesis: Hypothesis, unscored: Sequence[Time]) -> Hypothesis:
    """Return the hypothesis without the words whose middle lies in one of these times."""
    middles = [(begin + end) / 2 for begin, end in hypothesis.times]
    kept = [not any(begin <= middle < end for begin, end in unscored) for middle in middles]
    if all(kept):
        return hypothesis
    return replace(
        hypothesis,
        text=" ".join(compress(hypothesis.text.split(), kept)),
        times=tuple(compress(hypothesis.times, kept)),
        confidences=tuple(compress(hypothesis.confidences, kept)),
    )


def is_ctm(lists: Sequence[NbestList]) -> bool:
    """Return whether these are all lists of a CTM file, which has no line for an utterance without words."""
    files = [nbest.verbatim.file for nbest in lists if nbest.verbatim is not None and isinstance(source_of(nbest), CtmFormat)]
    return 0 < len(files) == len(lists) == files[0].size and all(file is files[0] for file in files)


def silent_lists(lists: Sequence[NbestList], names: Iterable[str], advice: str = "") -> list[NbestList]:
    """Return a list without words for each id that the lists of a CTM file do not have. Logs how many there are."""
    known = {nbest.id for nbest in lists}
    silent = [silence(name, lists[0]) for name in dict.fromkeys(names) if name not in known]
    if silent:
        told = f"{len(silent)} utterances have no line, and so no words, the first of id {silent[0].id!r}{advice}"
        note(f"note: {lists[0].path}: {told}")
    return silent


def with_silence(lists: list[NbestList], file: TextFile, advice: str = "") -> list[NbestList]:
    """Return the lists of a CTM file with those of the other utterances in a file of references; other lists as they are."""
    if not is_ctm(lists):
        return lists
    ids = [nbest.id for nbest in lists]
    ways = [in_one_form(ids, [name for name, _ in way]) for way in keyed_of(file)]
    formed, names = max(ways, key=lambda way: len({*way[0]}.intersection(way[1])), default=(ids, []))
    known = set(formed)
    silent = [name for name in names if name not in known]
    return [*lists, *silent_lists(lists, silent, advice)] if known.intersection(names) else lists


def warn_of_repeated_ids(lists: Iterable[NbestList]) -> None:
    """Log if several lists have one id, by which each gets its reference."""
    counts = Counter(nbest.id for nbest in lists)
    if (twice := next((name for name, count in counts.items() if count > 1), None)) is not None:
        note(f"WARNING: several lists have the id {twice!r}, and the same reference: if they are other utterances, it is wrong for some")


def with_known_references(
    lists: Iterable[NbestList], references: Sequence[TextFile] | None, by: By | None = None
) -> tuple[list[NbestList], By | None]:
    """Return the lists that have a reference, and how the lines of the files are matched with them. Logs how many have none.

    With files, a list has a reference if its id stands in each of them.

    Raises:
        InputError: no list has one, or ``by`` is by order.
    """
    lists = list(lists)
    if references is None:
        kept = [nbest for nbest in lists if nbest.references]
    else:
        if by == "order":
            raise InputError("lists without references are found by ids: --partial-refs does not go with --refs-by order")
        kept = lists = with_silence(lists, references[0]) if by is None else lists
        for file in references:
            ids = [nbest.id for nbest in lists]
            names = {name for name in ids if line_number(name, file) is not None} if by == "number" else _ids_in(file, ids)
            kept = [nbest for nbest in kept if nbest.id in names]
        by = by or "id"
    if not kept:
        by_id = "" if references is None else ", by the ids in the files: without ids, nothing tells which lists have none"
        raise InputError(f"none of the {len(lists)} lists has a reference{by_id}")
    if len(kept) < len(lists):
        note(f"note: {len(lists) - len(kept)} of {len(lists)} lists have no reference and are left out")
    return kept, by


def _ids_in(file: TextFile, ids: Sequence[str]) -> set[str]:
    """Return the ids of lists that stand in a file, read in the way in which most do."""
    found: set[str] = set()
    for as_written in keyed_of(file):
        formed, names = in_one_form(ids, [name for name, _ in as_written])
        known = set(names)
        found = max(found, {name for name, one in zip(ids, formed, strict=True) if one in known}, key=len)
    return found


def note_silence(references: Sequence[Sequence[str]], where: str) -> None:
    """Log how many of the lists have blank references only, if any have."""
    silent = sum(not any(text.strip() for text in texts) for texts in references)
    if silent == len(references) > 0:
        note(f"WARNING: {where}: all references are blank, that is, silence: every word of the lists counts as wrong")
    elif silent:
        note(
            f"note: {where}: {silent} of {len(references)} references are blank, that is, silence: every word of their lists "
            "counts as wrong"
        )


def _given(references: Sequence[str]) -> tuple[str, ...]:
    return tuple(text for text in references if text.strip()) or tuple(references)
