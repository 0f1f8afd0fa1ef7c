"""Make n-best lists from word lattices."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from attlm_fairseq.errors import InputError, require_whole_number
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats.list_ids import SeenIds
from attlm_fairseq.nbest.lattices.best_texts import best_texts
from attlm_fairseq.nbest.lattices.labels import read_symbols
from attlm_fairseq.nbest.lattices.lattice import WORDS, Lattice
from attlm_fairseq.nbest.lattices.read import read_lattices
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.numeric import is_finite, whole_number
from attlm_fairseq.verbs.arguments import FilePath, plain_weights

HYPOTHESES = 100


def lists_from_lattices(
    lattices: FilePath | Iterable[FilePath],
    *,
    words: FilePath | None = None,
    hypotheses: int = HYPOTHESES,
    weights: Mapping[str, float] | None = None,
    leave_out: Collection[str] = (),
    frame_shift: float | None = None,
) -> Iterator[NbestList]:
    """Yield an n-best list for each lattice: its best texts, exactly, each text once.

    A lattice without a path to an end gets a list with one empty text, whose scores are 0, and a warning tells how many there are.
    Texts are sorted by the weighted sum of their scores on their best path, as the decoder would. The weights are written
    nowhere: ``tune`` finds those of the lists.

    Args:
        lattices: files and folders with lattices of Kaldi (binary or text archives, plain or gzip; scores ``graph`` and
            ``acoustic``) or in HTK's format SLF (``acoustic``, ``lm`` and others that it has). ``-`` is standard input.
        words: Kaldi's ``words.txt``. Needed if words are numbers, as in Kaldi's binary lattices.
        hypotheses: the size of the lists. A list is shorter if its lattice has fewer texts.
        weights: weights of scores and of ``words``, their number, that replace those of the lattices: 1 graph + 0.1 acoustic for
            Kaldi, the scales and the word penalty of the header for SLF.
        leave_out: words that are no part of a text, such as silence and noise. Their scores count.
        frame_shift: seconds of a frame in Kaldi's lattices, such as 0.03. Gives words the times of their arcs; Kaldi's
            ``lattice-align-words`` makes these exact. None: no times. Words of SLF have times if its nodes do.

    Yields:
        Lists with the scores of the best path of each text: natural logs, summed over the arcs and the end.

    Raises:
        InputError: a file is none of these or is damaged, a lattice has a cycle, two have the same id, a weight
            is for a score that no lattice has, a weighted sum of scores is beyond 1e80, or ``words`` is missing or
            does not have a word.
    """
    require_whole_number("hypotheses", hypotheses, 1)
    given = plain_weights(weights or {})
    if isinstance(leave_out, str):
        raise InputError(f"leave_out is {leave_out!r}: expected several words, such as ['SIL']")
    if frame_shift is not None and not (is_finite(frame_shift) and frame_shift > 0):
        raise InputError(f"the value of frame_shift is {frame_shift}: expected seconds, a number above 0")
    paths = [lattices] if isinstance(lattices, str | os.PathLike) else lattices
    symbols = None if words is None else read_symbols(os.fspath(words))
    seen, told = SeenIds(), _Notes(hypotheses, set(leave_out), set(given) - {WORDS})
    for lattice in read_lattices(paths, symbols, frame_shift):
        if not seen.add(lattice.id):
            raise lattice.error("has the id of an earlier one: expected another id for each")
        chosen = _weights(lattice, given)
        told.before(lattice, chosen)
        found = best_texts(lattice, hypotheses, chosen, leave_out)
        told.after(lattice, found)
        yield NbestList(lattice.id, found or [Hypothesis("", dict.fromkeys(lattice.names, 0.0), 1)], line=lattice.line, path=lattice.path)
    told.at_the_end()


def _weights(lattice: Lattice, given: Mapping[str, float]) -> dict[str, float]:
    more = lattice.more_names
    unknown = [name for name in given if name not in (*lattice.names, WORDS) and not (more is not None and more.fullmatch(name))]
    if unknown and any(lattice.arcs):  # a lattice without arcs has nothing to weigh
        raise lattice.error(f"has no score {unknown[0]!r} to give a weight; there are {', '.join((*lattice.names, WORDS))}")
    return {**lattice.weights, **given}


@dataclass
class _Notes:
    """What the user is told about the lattices.

    Attributes:
        hypotheses: how many a list may have.
        unseen: the words to be left out that no lattice has had so far.
        unweighted: the scores with a given weight that no lattice has had so far.
        first: the weights of the first lattice.
        differ: whether a later one has had others.
        short: number of lists with fewer hypotheses.
        without_path: ids of the lattices without a path to an end.
        without_times: ids of the lattices whose words have no times, because those of the nodes go back.
        impossible: ids of the lattices with arcs of probability 0.
        names: the scores of all lattices so far that have arcs.
        lists: whether all lattices so far are paths of n-best lists: each has one text and a key UTTERANCE-RANK.
        ranks: how many of them have a rank above 1.
    """

    hypotheses: int
    unseen: set[str]
    unweighted: set[str]
    first: Mapping[str, float] | None = None
    differ: bool = False
    short: int = 0
    without_path: list[str] = field(default_factory=list)
    without_times: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    names: dict[str, None] = field(default_factory=dict)
    lists: bool = True
    ranks: int = 0

    def before(self, lattice: Lattice, weights: Mapping[str, float]) -> None:
        if self.first is None:
            self.first = weights
            note(f"total = {' + '.join(f'{weight:g} {name}' for name, weight in weights.items() if weight) or 'none'}")
            if not lattice.names:
                note(f"WARNING: {lattice.path}: the lattice has no scores: which texts are the best is arbitrary")
        elif weights != self.first and not self.differ:
            self.differ = True
            note(f"note: {lattice.path}: its scales are others than those of the first lattice; each lattice is searched with its own")

    def after(self, lattice: Lattice, found: Sequence[Hypothesis]) -> None:
        if self.unseen:
            self.unseen.difference_update(arc.word for arcs in lattice.arcs for arc in arcs)
        self.unweighted.difference_update(lattice.names)
        if any(lattice.arcs):
            self.names |= dict.fromkeys(lattice.names)
        if lattice.times_go_back:
            self.without_times.append(lattice.id)
        if lattice.impossible:
            self.impossible.append(lattice.id)
        self.short += len(found) < self.hypotheses
        rank = whole_number(lattice.id.rpartition("-")[2])
        self.lists = self.lists and rank is not None and all(len(arcs) <= 1 for arcs in lattice.arcs)
        self.ranks += rank is not None and rank > 1
        if not found:
            self.without_path.append(lattice.id)

    def at_the_end(self) -> None:
        if self.unweighted and self.names:
            name, others = sorted(self.unweighted)[0], ", ".join((*self.names, WORDS))
            raise InputError(f"no lattice has a score {name!r} to give a weight; there are {others}")
        if self.impossible:
            note(
                f"note: {len(self.impossible)} lattices have links with a score of -inf, such as {self.impossible[0]!r}: these are left out"
            )
        if self.without_times:
            found_in = f"{len(self.without_times)} lattices have links that end before they begin, such as {self.without_times[0]!r}"
            note(f"WARNING: {found_in}: their words get no times")
        if self.without_path:
            found_in = f"{len(self.without_path)} lattices have no path to an end, such as {self.without_path[0]!r}"
            note(f"WARNING: {found_in}: their lists have one empty text")
        if self.unseen:
            note(f"WARNING: no lattice has the word {', '.join(map(repr, sorted(self.unseen)))}, which is to be left out")
        if self.lists and self.ranks:
            note(
                "WARNING: each lattice has one path and an id such as utt-2, as Kaldi's lattice-to-nbest writes them: each hypothesis "
                "becomes a list of its own; give the lattices themselves, or `attlm convert` the folder of nbest-to-linear"
            )
        if self.short:
            note(f"note: {self.short} lists have fewer than {self.hypotheses} hypotheses: their lattices have no more texts")
