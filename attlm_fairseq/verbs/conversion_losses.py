"""What a format cannot hold of the lists that are written in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import Holds
from attlm_fairseq.nbest.formats.lines import one_line
from attlm_fairseq.nbest.formats.number_texts import decimal
from attlm_fairseq.nbest.formats.score_names import fresh_names, main_score
from attlm_fairseq.nbest.nbest_list import DECODER_SCORES, NbestList

_NEGLIGIBLE = 1e-12  # what rounding of binary fractions leaves


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


_ALL = Holds(references=True, sources=True, scores=True, sparse=True, times=True, extras=True)  # of a format's own lists


def kept_of_own(holds: Holds | None) -> Holds:
    """Return what a format keeps of its own lists: all, but scores that join them may get other names."""
    return _ALL if holds is None else replace(_ALL, lm_name=holds.lm_name or holds.score_name)


class Losses:
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

    def watch(self, lists: Iterable[NbestList], new_only: bool = False) -> Iterator[NbestList]:
        """Yield each list after counting what it would lose. ``new_only``: lists that are written as their file has them lose nothing."""
        for place, nbest in enumerate(lists):
            if not new_only or nbest.verbatim is None:
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
            if hypothesis.confidences and nbest.verbatim is None:
                self._extras.add("word confidences")
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
        yield from self._of_references_and_sources()
        yield from self._of_scores()
        if self._respaced:
            yield f"has one line for a hypothesis: tabs and line breaks in {self._respaced} texts become spaces"
        if self._extras and not holds.extras:
            yield f"leaves out {', '.join(sorted(self._extras))}"

    def _of_references_and_sources(self) -> Iterator[str]:
        holds = self._holds
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

    def _of_scores(self) -> Iterator[str]:
        holds = self._holds
        if self._scores and not holds.scores:
            yield f"has no scores: {', '.join(sorted(self._scores))} are lost"
        elif self._rounded:
            yield f"has {holds.decimals} decimals: the scores {', '.join(sorted(self._rounded))} are rounded"
        names = fresh_names(self._scores, () if holds.total_name is None else (holds.total_name,), holds.score_name)
        if holds.main_score is not None:
            names |= dict.fromkeys(self._main, holds.main_score)
        if holds.lm_name is not None:
            names |= {name: holds.lm_name(name) for name in self._lm_scores}
        if holds.scores and (renamed := [f"{name} -> {new}" for name, new in names.items() if new != name]):
            yield f"has other names for scores: {', '.join(sorted(renamed))}"
        if len(self._main) > 1:
            yield f"puts the scores {', '.join(sorted(self._main))} under one name, {holds.main_score}: they are of different hypotheses"
        if self._sparse and holds.scores and not holds.sparse:
            yield f"does not say that a score which a hypothesis does not name is 0, as {self._sparse} lists do"


def _main_score(scores: Collection[str], own_name: str) -> str | None:
    """Return the score that a format writes as the decoder's own, under the name ``own_name``. SRILM's acoustic score stays that."""
    return own_name if own_name in scores and own_name not in DECODER_SCORES else main_score(scores)
