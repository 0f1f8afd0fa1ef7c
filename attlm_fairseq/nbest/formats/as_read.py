"""Whether lists are still what was read from their file. Only then is the file's own text written back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from attlm_fairseq.messages import note
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import HypothesisText


def remembered(lists: Iterable[NbestList], references: bool = False, times: bool = False, sources: bool = False) -> Iterator[NbestList]:
    """Yield lists that have just been read, each with what tells later whether it has changed.

    ``references``, ``times`` and ``sources`` tell whether the format can hold these: only then does another one change the list.
    """
    for nbest in lists:
        text = nbest.verbatim
        if text is not None:
            text.id = nbest.id
            text.references = nbest.references if references else None
            text.source, text.has_source = nbest.source, sources
            names: tuple[str, ...] = ()
            for hypothesis in nbest.hypotheses:
                own = hypothesis.verbatim
                if own is None:
                    hypothesis.verbatim = own = HypothesisText()
                if names != (own_names := tuple(hypothesis.scores)):
                    names = own_names  # one tuple serves all hypotheses that have the same scores
                own.place, own.of, own.text = hypothesis.rank - 1, text, hypothesis.text
                own.names, own.scores = names, tuple(hypothesis.scores.values())
                own.times = hypothesis.times if times else None
        yield nbest


def has_changed(nbest: NbestList) -> bool:
    """Return whether a list from a file has another id, references or source sentence, or a hypothesis that its file does not have.

    Such a hypothesis is new, changed, or there twice. The list's order, and what rescoring adds, may have changed.
    """
    return nbest.verbatim is not None and not _is_of_its_file(nbest, HypothesisText.is_of, nbest.hypotheses)


def is_expanded(nbest: NbestList) -> bool:
    """Return whether a list from a file has changed only by new hypotheses, which are from no file, and by more scores for the others."""
    own = [hypothesis for hypothesis in nbest.hypotheses if hypothesis.verbatim is not None]
    return bool(own) and has_changed(nbest) and _is_of_its_file(nbest, HypothesisText.is_part_of, own)


def _is_of_its_file(nbest: NbestList, is_of: Callable[..., bool], hypotheses: Sequence[Hypothesis]) -> bool:
    """Return whether these hypotheses of a list, its id and its references are those of its file."""
    text = nbest.verbatim
    places = set()
    for hypothesis in hypotheses:
        own = hypothesis.verbatim
        if own is None or not is_of(own, text, hypothesis.text, hypothesis.scores) or own.times not in (None, hypothesis.times):
            return False
        places.add(own.place)
    if text is None or len(places) < len(hypotheses) or text.id != nbest.id:
        return False
    if text.has_source and nbest.source != text.source and (nbest.source is None or nbest.source != nbest.source_of_run):
        return False
    return text.references is None or tuple(text.references) == tuple(nbest.references)


def as_new(nbest: NbestList) -> NbestList:
    """Return the list as if a program had made it, without the text of its file. Ranks are distinct."""
    hypotheses = [replace(hypothesis, verbatim=None) for hypothesis in nbest.hypotheses]
    if len({hypothesis.rank for hypothesis in hypotheses}) < len(hypotheses):
        hypotheses = [replace(hypothesis, rank=rank) for rank, hypothesis in enumerate(hypotheses, 1)]
    return replace(nbest, hypotheses=hypotheses, verbatim=None)


def current(lists: Iterable[NbestList], keeps: Callable[[NbestList], bool]) -> Iterator[NbestList]:
    """Yield lists to write. Those that have changed, but for those of ``keeps``, come as new lists; a note tells how many."""
    changed = 0
    for nbest in lists:
        if has_changed(nbest) and not keeps(nbest):
            changed += 1
            nbest = as_new(nbest)
        yield nbest
    _tell(changed)


def all_current(lists: Sequence[NbestList], keeps: Callable[[NbestList], bool]) -> Sequence[NbestList]:
    """Return lists to write, all of them as new lists if one has changed and is not of ``keeps``, so that one output has one form.

    So do lists of files with different beginnings, such as headers of tables: the columns of one are not those of the other.
    """
    changed = sum(has_changed(nbest) and not keeps(nbest) for nbest in lists)
    files = {id(nbest.verbatim.file): nbest.verbatim.file for nbest in lists if nbest.verbatim is not None}
    beginnings = {(file.format, file.framing, file.start.strip()) for file in files.values()}
    if not changed and len(beginnings) < 2:
        return lists
    _tell(changed)
    if not changed:
        note("note: the lists are of files that begin differently: only ids, references, texts and scores are written")
    return list(map(as_new, lists))


def expanded_for(
    lists: Iterable[NbestList], keeps: Callable[[NbestList], bool], when: str = "with added candidates"
) -> Iterator[NbestList]:
    """Yield lists to write, with candidates or in another format: those of ``keeps`` in the text of their file, others as new lists.

    After the last one, the names of the fields that new lists leave out are logged, and ``when`` that is so.
    """
    left_out: set[str] = set()
    for nbest in lists:
        if not keeps(nbest):
            left_out.update(extras_of(nbest))
            nbest = as_new(nbest)
        yield nbest
    tell_of_left_out(left_out, when)


def extras_of(nbest: NbestList) -> tuple[str, ...]:
    """Return the names of the fields that a list loses as a new one: what its file said besides texts, scores and references."""
    return () if nbest.verbatim is None else nbest.verbatim.extras


def tell_of_left_out(extras: Collection[str], when: str) -> None:
    """Log the names of the fields that are left out, if there are any, and ``when`` that is so."""
    if extras:
        note(f"note: {when} only ids, references, texts and scores are written; left out: {', '.join(sorted(extras))}")


def _tell(changed: int) -> None:
    if changed:
        what = "other ids, references, sources, texts, scores or hypotheses than in their file: what else it said about them is not written"
        note(f"note: {changed} lists have {what}")
