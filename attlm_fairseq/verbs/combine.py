"""Join the n-best lists that several systems give for the same utterances."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np

from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.messages import collected, note
from attlm_fairseq.nbest.features.combination import COMPUTED, feature_names
from attlm_fairseq.nbest.formats.as_read import extras_of, tell_of_left_out
from attlm_fairseq.nbest.line_matching import By, check_by
from attlm_fairseq.nbest.nbest_list import VOTE, Hypothesis, NbestList
from attlm_fairseq.nbest.references import is_ctm, silent_lists
from attlm_fairseq.scoring.lm_options import check_name
from attlm_fairseq.verbs.fit_of_references import warn_of_other_utterances
from attlm_fairseq.verbs.lists import Lists, is_file, lists_or_texts
from attlm_fairseq.verbs.systems import lists_of_system

RANK = "rank"


def combine(systems: Mapping[str, Lists], *, texts_by: By | None = None) -> list[NbestList]:
    """Join the lists of several systems: each list has the hypotheses of all, the best of each system first.

    A hypothesis that repeats the words of an earlier one of its list is left out; a note says how many there are. The scores
    of a system S are called ``S_NAME``, and ``S_rank`` is minus the rank among the others of its list (0, -1, ..). A
    hypothesis that a system does not have gets the system's lowest scores in this list and the rank after the last, so that
    it gains nothing from them. ``systems_vote`` is ln of the mean of the systems' posteriors: a hypothesis of rank r in a
    system's list has a posterior in proportion to exp(-r), one that the system does not have 0. A score that some hypothesis
    of a list lacks is left out of that list, and so are other fields of the lists; notes name them.

    Args:
        systems: n-best lists by the name of their system. The first one gives ids and order; references and source sentences
            are those of the first system that has them. Files may also hold one text per line.
        texts_by: how lines of text are matched with the lists of the first system: ``order``, ``number`` (a list's id is its line's
            number, from 0) or ``id``. None: by id if every line has one, else by order, unless the ids are numbers in another order.

    Returns:
        The joined lists. Tune weights on them to rescore with all systems. Without tuned weights the systems vote:
        ``systems_vote`` has weight 1 if no weights are given to the rules ``consensus`` and ``mbr-..``, or only those of LMs.

    Raises:
        InputError: there are fewer than two systems, a name is not allowed, a file cannot be read, the systems have
            different utterances or references, or a score gets the name of another system's.
    """
    require_type("value of systems", systems, Mapping, "a dictionary by name, such as {'a': lists, 'b': lists}")
    if len(systems) < 2:
        raise InputError(f"there is {len(systems)} system to combine: expected two or more")
    (first_name, first), *others = systems.items()
    for name in systems:
        check_name(name)
    lists = list(lists_or_texts(first))
    if is_ctm(lists):
        with collected():  # what is said of a file is said when it is read again
            files = [other for _, other in others if is_file(other) and Path(str(other)).is_file()]
            names = {nbest.id: None for file in files for nbest in lists_or_texts(file)}
        lists += silent_lists(lists, names) if names.keys() & {nbest.id for nbest in lists} else []
    label = str(first) if is_file(first) else first_name
    labels = (str(other) if is_file(other) else name for name, other in others)
    check_by(texts_by)
    further = zip(labels, others, strict=True)
    columns = [lists, *(lists_of_system(name, other, lists, label, texts_by, option="--texts-by") for name, (_, other) in further)]
    for name, column in zip(systems, columns, strict=True):
        warn_of_other_utterances(column, lists, name, first_name)
    tell_of_left_out({name for nbest in chain(*columns) for name in extras_of(nbest)}, "of joined lists")
    _require_same_references(list(systems), columns)
    of_lists = [dict.fromkeys(name for nbest in column for name in feature_names(nbest) if name not in COMPUTED) for column in columns]
    rows = [list(map(_System, of_systems, of_lists)) for of_systems in zip(*columns, strict=True)]
    if repeated := sum(system.repeated for row in rows for system in row):
        note(f"note: {repeated} hypotheses repeat the words of an earlier one of their list and are left out")
    for name, of_system in zip(systems, zip(*rows, strict=True), strict=True):
        for score, count in Counter(chain.from_iterable(system.left_out for system in of_system)).items():
            note(f"note: the score {score} of {name} is left out of {count} lists in which a hypothesis lacks it")
    return [_joined(list(systems), row) for row in rows]


def _require_same_references(names: Sequence[str], columns: Sequence[Sequence[NbestList]]) -> None:
    """Raise InputError if two systems have different references of an utterance."""
    for row in zip(*columns, strict=True):
        given = [(name, nbest) for name, nbest in zip(names, row, strict=True) if nbest.references]
        for name, nbest in given[1:]:
            if nbest.references != given[0][1].references:
                message = f"the reference of list {nbest.id!r} is not that of {given[0][0]}; combine the same utterances in the same order"
                raise InputError(message, path=name, line=nbest.line or None)


def _joined(names: Sequence[str], systems: Sequence[_System]) -> NbestList:
    """Join the lists of one utterance."""
    of_systems = [system.nbest for system in systems]
    in_turn = chain.from_iterable(zip_longest(*(system.by_text for system in systems)))
    hypotheses = []
    for rank, text in enumerate(dict.fromkeys(text for text in in_turn if text is not None), 1):
        pairs = [(f"{name}_{score}", value) for name, system in zip(names, systems, strict=True) for score, value in system.scores(text)]
        pairs.append((VOTE, float(np.logaddexp.reduce([system.log_share(text) for system in systems])) - math.log(len(systems))))
        scores = dict(pairs)
        if len(scores) < len(pairs):
            twice = next(name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place]))
            raise InputError(f"list {of_systems[0].id!r}: two scores are called {twice!r}: give a system another name")
        found = [system.by_text[text] for system in systems if text in system.by_text]
        times = next((hypothesis.times for hypothesis in found if hypothesis.is_timed), ())
        hypotheses.append(Hypothesis(found[0].text, scores, rank, times=times))
    references = next((nbest.references for nbest in of_systems if nbest.references), ())
    source = next((nbest.source for nbest in of_systems if nbest.source is not None), None)
    sparse = any(nbest.sparse for nbest in of_systems)
    return NbestList(of_systems[0].id, hypotheses, references, source=source, sparse=sparse)


class _System:
    """A system's list of one utterance: its hypotheses by their words (the first of equal ones), with their scores.

    ``names``: the scores of the system's lists. A hypothesis that is alone and lacks one, such as silence, has 0: among the
    hypotheses of other systems it would be the only one without a score.
    """

    def __init__(self, nbest: NbestList, names: Iterable[str]) -> None:
        self.nbest = nbest
        self.by_text: dict[str, Hypothesis] = {}
        for hypothesis in nbest.hypotheses:
            self.by_text.setdefault(" ".join(hypothesis.text.split()), hypothesis)
        self.repeated = len(nbest.hypotheses) - len(self.by_text)
        alone = len(nbest.hypotheses) == 1 and not nbest.sparse
        own = names if alone else [name for name in feature_names(nbest) if name not in COMPUTED]
        columns = {name: [_value(hypothesis, name) for hypothesis in self.by_text.values()] for name in own}
        self._scores = columns | {RANK: [float(-place) for place in range(len(self.by_text))]}
        self._places = {text: place for place, text in enumerate(self.by_text)}
        self._log_total = float(np.logaddexp.reduce(self._scores[RANK]))
        given = {name for hypothesis in nbest.hypotheses for name in (*hypothesis.scores, *hypothesis.lm_scores)}
        self.left_out = given - columns.keys() - COMPUTED.keys()

    def log_share(self, text: str) -> float:
        """Return ln of the posterior of a text by its rank, exp(-r) / sum of exp(-r); minus infinity if the system does not have it."""
        return -self._places[text] - self._log_total if text in self._places else -math.inf

    def scores(self, text: str) -> Iterator[tuple[str, float]]:
        """Yield the scores of a text by name; of one that the system does not have, the lowest ones and the rank after the last."""
        place = self._places.get(text)
        for name, column in self._scores.items():
            if place is not None:
                yield name, column[place]
            else:
                yield name, -float(len(column)) if name == RANK else min(column)


def _value(hypothesis: Hypothesis, name: str) -> float:
    """Return a score; 0 if a hypothesis of a sparse list does not name it."""
    return hypothesis.lm_scores.get(name, hypothesis.scores.get(name, 0.0))
