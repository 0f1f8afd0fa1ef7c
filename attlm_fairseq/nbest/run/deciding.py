"""Decide on scored lists as they stream by: weight of the decoder's score, decision, confidences, counts and notes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import repeat

from attlm_fairseq.batching import batch_by_size
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.decision.confidence import Confidence, with_confidences
from attlm_fairseq.nbest.decision.decision import decide
from attlm_fairseq.nbest.features.combination import COMPUTED, is_incomplete
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.decoder_score import ALONE, Doubts, doubts_of_default, own_scores, with_default, with_telling
from attlm_fairseq.text.subword_marks import SubwordMarks

PAIRS_PER_PROGRAM_RUN = 1 << 18  # hypothesis pairs sent to the program of mbr-external in one run


def nothing_to_choose(run: RunConfig) -> str:
    """Return the warning that no list has two different hypotheses."""
    more = "" if run.candidates.anything else "; corrections add hypotheses"
    return f"WARNING: no list has two different hypotheses: there is nothing to choose between{more}"


class ListDecider:
    """Decides on each scored list as it passes by, and counts changes.

    Attributes:
        weights: the weights in use; with the first list, the default weight of the decoder's own score joins them.
        counts: numbers of lists, hypotheses, changed answers, and answers that are in no list, by their names in
            ``verbs.rescore.Rescored``.
    """

    def __init__(self, run: RunConfig, features: Iterable[str], confidence: Confidence | None = None) -> None:
        """Prepare for the lists of one run.

        Args:
            run: weights and decision.
            features: the LM features that have a weight.
            confidence: adds word confidences to each list; None adds none.
        """
        self.run, self.confidence = run, confidence
        self.weights = dict(run.weights)
        self.counts = {"list_count": 0, "hypothesis_count": 0, "changed": 0, "new_texts": 0}
        # a score may be missing from some hypotheses of sparse lists, but hardly from all of them
        self._unseen = {name for name, value in run.weights.items() if value} - {*(lm.name for lm in run.scored), *features, *COMPUTED}
        self._marks = SubwordMarks(run.decision.text)
        self._has_choice = False
        self._lists_of_several = 0  # hypotheses
        self._doubts: list[Doubts] = []  # of the score that has a weight by default
        self._bare: str | None = None  # a list without scores of its own, by which the LMs decide alone
        self._incomplete: list[str] = []  # ids of lists that stay as they are

    def decide_all(self, lists: Iterable[NbestList]) -> Iterator[NbestList]:
        """Yield each list with the answer first. After the last list, warn of what was unusual in all of them."""
        telling, lists = with_telling(self.run, self._prepared(lists))
        if telling is not None:
            self.weights, line = with_default(self.run, self.weights, telling)
            if line:
                note(line)
            self._doubts = doubts_of_default(self.run, self.weights)
            self._bare = telling.id if line == ALONE else None
            self._tell_formula()
        for scored in lists:
            self._require_none_before(scored)
            decided = decide(scored, self.weights, self.run.decision)
            self._count(scored, decided)
            weights = self.weights
            if self.run.decision.keep_incomplete and is_incomplete(scored, weights):
                self._incomplete.append(scored.id)
                weights = {}  # confidences go by rank
            else:
                for doubts in self._doubts:
                    doubts.add(scored)
            if self.confidence is not None:
                decided = with_confidences(scored, decided, weights, self.run.decision, self.confidence)
            yield decided
        self._require_a_complete_list()
        rule = self.run.decision.rule
        if rule != "max" and (warning := self._marks.warning_of_decision(rule)):
            note(warning)
        if self.counts["list_count"]:
            warn_of_unseen(self._unseen)
        for doubts in self._doubts:
            doubts.tell()
        if self._incomplete:
            which = f"{len(self._incomplete)} of {self.counts['list_count']} lists, the first {self._incomplete[0]!r},"
            note(f"WARNING: {which} lack a score that has a weight: they keep their input order, without totals")
        if self.counts["list_count"] > 1 and not self._has_choice:  # in one list of a service it is nothing unusual
            note(nothing_to_choose(self.run))

    def _prepared(self, lists: Iterable[NbestList]) -> Iterator[NbestList]:
        """Yield the lists. If an external program compares hypotheses, lists are read ahead so that one run serves many."""
        decision = self.run.decision
        if not decision.asks_program:
            yield from lists
            return
        for some in batch_by_size(lists, repeat(PAIRS_PER_PROGRAM_RUN), lambda nbest: len(nbest.hypotheses) ** 2):
            decision.prepare(some)
            yield from some

    def _require_a_complete_list(self) -> None:
        """Raise InputError if no list has all scores that have a weight: a name may be mistyped."""
        if self._incomplete and len(self._incomplete) == self._lists_of_several > 1:  # one list of a service may well lack a score
            names = ", ".join(name for name, weight in self.weights.items() if weight)
            raise InputError(f"no list has all scores that have a weight ({names}): is a name mistyped?")

    def _require_none_before(self, scored: NbestList) -> None:
        """Raise InputError for a list with scores if the LMs decide alone because the first list had none."""
        if self._bare is not None and (own := own_scores(self.run, scored)):
            found = f"list {scored.id!r} has the scores {', '.join(own)}, list {self._bare!r} before it has none of its own"
            ways = f"--weight {own[0]}=1 --keep-incomplete or --weight {own[0]}=0"
            raise scored.error(f"{found}: give every list its scores, or say what they count, such as {ways}")

    def _count(self, scored: NbestList, decided: NbestList) -> None:
        self._marks.add(scored.hypotheses[0].text)
        self._has_choice = self._has_choice or scored.has_choice
        if self._unseen:
            self._unseen.difference_update(*(hypothesis.scores | hypothesis.lm_scores for hypothesis in scored.hypotheses))
        first, answer = scored.hypotheses[0], decided.hypotheses[0]
        self.counts["list_count"] += 1
        self._lists_of_several += len(scored.hypotheses) > 1
        self.counts["hypothesis_count"] += len(scored.hypotheses)
        self.counts["changed"] += answer.rank != first.rank and answer.text != first.text  # the report counts changes in the same way
        self.counts["new_texts"] += answer.rank == 0

    def _tell_formula(self) -> None:
        terms = " + ".join(f"{value:g} {name}" for name, value in self.weights.items() if value)
        if self.run.decision.rule != "max":
            note((f"total = {terms}" if terms else "all weights are 0") + f"; decision: {self.run.decision}")
        else:
            note(f"total = {terms}" if terms else "all weights are 0: the lists stay as they are")


def warn_of_unseen(names: Collection[str]) -> None:
    """Warn of weights whose score no hypothesis has: the name may be mistyped. Only sparse lists can cause this."""
    if names:
        note(f"WARNING: no hypothesis has a score {', '.join(sorted(names))}: the weight had no effect")
