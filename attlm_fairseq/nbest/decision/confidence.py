"""Word confidences: how sure a list is of each word of its answer.

The basis is the word's posterior in its slot of the confusion network that ``consensus`` votes in, with posteriors
``softmax(scale * total)``. The posterior is 1 if all hypotheses agree, although all may be wrong. The confidence is
therefore ``coverage * posterior``; ``attlm_fairseq.nbest.statistics.calibration`` fits scale and coverage.

Shapes: n hypotheses, K slots, W words of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attlm_fairseq.nbest.decision.decision import Decision, posterior_weights, written_text
from attlm_fairseq.nbest.decision.posterior import posteriors
from attlm_fairseq.nbest.decision.rover import ConfusionNetwork, confusion_network, disputed, vote
from attlm_fairseq.nbest.features.combination import combine
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList, Sausage, WordShare


@dataclass(frozen=True, slots=True)
class Confidence:
    """How posteriors become confidences.

    Attributes:
        scale: scale of the totals in the posteriors.
        coverage: probability that a word on which all hypotheses agree is right.
    """

    scale: float = 1.0
    coverage: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.scale < math.inf:
            raise ValueError(f"scale is {self.scale}, expected a finite number that is not negative")
        if not 0 <= self.coverage <= 1:
            raise ValueError(f"coverage is {self.coverage}, expected a number from 0 to 1")


@dataclass(frozen=True)
class AlignedAnswer:
    """The answer of a rescored list, aligned with the confusion network of its hypotheses.

    ``hypotheses`` are in input order, with totals (natural log). ``rows[k]`` is the index of a hypothesis that has the
    answer's word in slot k.
    """

    hypotheses: list[Hypothesis]
    network: ConfusionNetwork
    rows: list[int]

    @classmethod
    def of(cls, scored: NbestList, decided: NbestList, weights: Mapping[str, float], decision: Decision) -> AlignedAnswer:
        """Align the hypotheses of a scored list after the decision's text steps; ``decided`` is the result of ``decide``."""
        hypotheses = sorted(combine(scored, posterior_weights(weights)).hypotheses, key=lambda hypothesis: hypothesis.rank)
        network = confusion_network([decision.text.prepared(hypothesis.text) for hypothesis in hypotheses])
        if decision.makes_text:
            totals = np.array([hypothesis.total for hypothesis in hypotheses])
            votes = iter(vote(disputed(network), posteriors(totals, decision.scale)).tolist())
            rows = [next(votes) if len(set(slot)) > 1 else 0 for slot in network.slots]
        else:
            rank = decided.hypotheses[0].rank
            rows = [next(row for row, hypothesis in enumerate(hypotheses) if hypothesis.rank == rank)] * len(network.slots)
        return cls(hypotheses, network, rows)

    @property
    def totals(self) -> np.ndarray:
        return np.array([hypothesis.total for hypothesis in self.hypotheses])

    @property
    def words(self) -> list[str]:
        """Return the W words of the answer as they are compared."""
        return [slot[row] for slot, row in zip(self.network.slots, self.rows, strict=True) if slot[row]]

    @property
    def agreement(self) -> np.ndarray:
        """Return which hypotheses have each word of the answer in its slot, (W, n) bool."""
        found = [[word == slot[row] for word in slot] for slot, row in zip(self.network.slots, self.rows, strict=True) if slot[row]]
        return np.array(found, dtype=bool).reshape(-1, len(self.hypotheses))

    def sausage(self, confidence: Confidence, decision: Decision) -> Sausage:
        """Return the slots with posteriors, and the answer's words as written after the decision's text steps, with confidences."""
        shares = posteriors(self.totals, confidence.scale)
        steps = written_text(decision.text)
        written = [steps.prepared(hypothesis.text).split() for hypothesis in self.hypotheses]
        place = [0] * len(written)  # in each hypothesis, of its word in the slot
        slots, answer, times = [], [], []
        for slot, row in zip(self.network.slots, self.rows, strict=True):
            sums: dict[str, float] = {}
            as_written = {slot[row]: written[row][place[row]] if slot[row] else ""}
            for i, word in enumerate(slot):
                sums[word] = sums.get(word, 0.0) + float(shares[i])
                as_written.setdefault(word, written[i][place[i]] if word else "")
            slots.append(tuple(sorted((WordShare(as_written[word], share) for word, share in sums.items()), key=lambda of: -of.share)))
            if slot[row]:
                answer.append(WordShare(as_written[slot[row]], min(1.0, sums[slot[row]]) * confidence.coverage))
                times.append(self._time(slot, row, written, place))
            place = [at + bool(word) for at, word in zip(place, slot, strict=True)]
        return Sausage(tuple(slots), tuple(answer), tuple(_filled(times)) if any(times) else ())

    def _time(self, slot: Sequence[str], row: int, written: Sequence[Sequence[str]], place: Sequence[int]) -> tuple[float, float] | None:
        """Return the time of a slot's word: from the answer's hypothesis, else from the first with a word there and times."""
        for i in (row, *range(len(slot))):
            times = self.hypotheses[i].times
            if slot[i] and len(times) == len(written[i]):
                return times[place[i]]
        return None


def _filled(times: Sequence[tuple[float, float] | None]) -> list[tuple[float, float]]:
    """Return the times with gaps filled: words without a time share the gap evenly; without a gap, or at the end, they last 0 s."""
    found: list[tuple[float, float]] = []
    for place, time in enumerate(times):
        if time is None:
            begin = found[-1][1] if found else 0.0
            later = [(after, known[0]) for after, known in enumerate(times[place:]) if known]
            until, next_begin = later[0] if later else (1, begin)
            time = (begin, begin + max(0.0, next_begin - begin) / until)
        found.append(time)
    return found


def with_confidences(
    scored: NbestList, decided: NbestList, weights: Mapping[str, float], decision: Decision, confidence: Confidence
) -> NbestList:
    """Return the decided list with its confusion network and the confidences of its answer's words."""
    return replace(decided, sausage=AlignedAnswer.of(scored, decided, weights, decision).sausage(confidence, decision))
