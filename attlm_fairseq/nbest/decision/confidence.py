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
from attlm_fairseq.nbest.word_times import Time, filled, shared
from attlm_fairseq.text import TextPipeline


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
    answer's word in slot k. ``text`` is the answer, ``chosen`` the index of the hypothesis that it is; None if a vote makes a new text.
    """

    hypotheses: list[Hypothesis]
    network: ConfusionNetwork
    rows: list[int]
    text: str
    chosen: int | None = None

    @classmethod
    def of(cls, scored: NbestList, decided: NbestList, weights: Mapping[str, float], decision: Decision) -> AlignedAnswer:
        """Align the hypotheses of a scored list after the decision's text steps; ``decided`` is the result of ``decide``."""
        hypotheses = sorted(combine(scored, posterior_weights(weights)).hypotheses, key=lambda hypothesis: hypothesis.rank)
        network = confusion_network([decision.text.prepared(hypothesis.text) for hypothesis in hypotheses])
        answer = decided.hypotheses[0]
        chosen = next((row for row, hypothesis in enumerate(hypotheses) if hypothesis.rank == answer.rank), None)
        if decision.makes_text:
            totals = np.array([hypothesis.total for hypothesis in hypotheses])
            votes = iter(vote(disputed(network), posteriors(totals, decision.scale)).tolist())
            voted = cls(hypotheses, network, [next(votes) if len(set(slot)) > 1 else 0 for slot in network.slots], answer.text, chosen)
            # in a list that keeps its order, no vote has made the answer
            if chosen is None or voted.words == [slot[chosen] for slot in network.slots if slot[chosen]]:
                return voted
        if chosen is None:
            raise scored.error(f"list {scored.id!r}: its answer is none of its hypotheses")
        return cls(hypotheses, network, [chosen] * len(network.slots), answer.text, chosen)

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
        """Return the slots with posteriors, and the answer's words with confidences and times.

        The words are those of the answer's text. A text that a vote makes has the words after the decision's text steps, as written.
        """
        shares = posteriors(self.totals, confidence.scale)
        steps = written_text(decision.text)
        written = [steps.prepared(hypothesis.text).split() for hypothesis in self.hypotheses]
        place = [0] * len(written)  # in each hypothesis, of its word in the slot
        slots, answer = [], []
        for slot, row in zip(self.network.slots, self.rows, strict=True):
            sums: dict[str, float] = {}
            as_written = {slot[row]: written[row][place[row]] if slot[row] else ""}
            for i, word in enumerate(slot):
                sums[word] = sums.get(word, 0.0) + float(shares[i])
                as_written.setdefault(word, written[i][place[i]] if word else "")
            slots.append(tuple(sorted((WordShare(as_written[word], share) for word, share in sums.items()), key=lambda of: -of.share)))
            if slot[row]:
                answer.append(WordShare(as_written[slot[row]], min(1.0, sums[slot[row]]) * confidence.coverage))
            place = [at + bool(word) for at, word in zip(place, slot, strict=True)]
        times = self._times(decision.text)
        words, of_word = self.text.split(), words_of_pieces(self.text, decision.text)
        if len(of_word) == len(answer):  # not if a step makes other words of what it has made
            answer = _of_words(words, of_word, [share for _, share in answer], confidence.coverage)
            own = self.hypotheses[self.chosen] if self.chosen is not None else None
            if own is not None and own.is_timed and own.text.split() == words:
                times = list(own.times)
            elif times:
                times = [_span([times[piece] for piece in pieces]) for pieces in _pieces_of(of_word, len(words))]
        return Sausage(tuple(slots), tuple(answer), tuple(filled(times)))

    def _times(self, steps: TextPipeline) -> list[Time | None]:
        """Return the time of each compared word of the answer, from one hypothesis, so that they are in order; [] without times.

        It is that with the most words of the answer. A slot in which it has no word has no time.
        """
        timed = [i for i, hypothesis in enumerate(self.hypotheses) if hypothesis.is_timed]
        if not timed:
            return []
        common = self.agreement.sum(axis=0)
        source = max(timed, key=lambda i: int(common[i]))
        hypothesis = self.hypotheses[source]
        of_word = words_of_pieces(hypothesis.text, steps)
        parts: list[Time] = []
        for word, pieces in enumerate(_pieces_of(of_word, len(hypothesis.times))):
            parts += shared(hypothesis.times[word], len(pieces))
        times: list[Time | None] = []
        next_part = iter(parts)
        for slot, row in zip(self.network.slots, self.rows, strict=True):
            time = next(next_part) if slot[source] else None
            if slot[row]:
                times.append(time)
        if not any(times):  # other words than all of its own
            times = [*shared((hypothesis.times[0][0], hypothesis.times[-1][1]), len(times))]
        return times


def words_of_pieces(text: str, steps: TextPipeline) -> list[int]:
    """Return for each word of the text after the steps, from which word of the text it comes, in order.

    It is exact for steps that treat each word by itself. Else a word comes from the one at the same share of the letters.
    """
    words = text.split()
    prepared = steps.prepared(text).split()
    pieces = [steps.prepared(word).split() for word in words]
    if [piece for of_word in pieces for piece in of_word] == prepared:
        return [place for place, of_word in enumerate(pieces) for _ in of_word]
    ends = np.cumsum([len(word) for word in words]) / max(1, sum(map(len, words)))
    lengths = np.array([len(piece) for piece in prepared], dtype=float)
    middles = (np.cumsum(lengths) - lengths / 2) / max(1.0, lengths.sum())
    return np.minimum(np.searchsorted(ends, middles), len(words) - 1).tolist()


def _pieces_of(of_word: Sequence[int], count: int) -> list[list[int]]:
    """Return the places of the pieces of each of ``count`` words."""
    pieces: list[list[int]] = [[] for _ in range(count)]
    for place, word in enumerate(of_word):
        pieces[word].append(place)
    return pieces


def _of_words(text: Sequence[str], of_word: Sequence[int], confidences: Sequence[float], coverage: float) -> list[WordShare]:
    """Return the confidence of each word of a text: the lowest of its pieces. One without, such as a sign, has that of the word before."""
    found: list[float | None] = [min((confidences[i] for i in pieces), default=None) for pieces in _pieces_of(of_word, len(text))]
    before = next((share for share in found if share is not None), coverage)
    answer = []
    for word, share in zip(text, found, strict=True):
        before = before if share is None else share
        answer.append(WordShare(word, before))
    return answer


def _span(times: Sequence[Time | None]) -> Time | None:
    known = [time for time in times if time is not None]
    return (known[0][0], known[-1][1]) if known else None


def with_confidences(
    scored: NbestList, decided: NbestList, weights: Mapping[str, float], decision: Decision, confidence: Confidence
) -> NbestList:
    """Return the decided list with its confusion network and the confidences of its answer's words."""
    return replace(decided, sausage=AlignedAnswer.of(scored, decided, weights, decision).sausage(confidence, decision))
