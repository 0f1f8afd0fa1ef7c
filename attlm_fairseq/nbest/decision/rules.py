"""The decision rules, each over many lists of one size at a time: the maximum total, the least expected loss, the vote over words.

Shapes: k lists of n hypotheses each, in input order. Totals are on the natural-log scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from attlm_fairseq.nbest.decision.mbr import least_risk, risks
from attlm_fairseq.nbest.decision.posterior import posteriors
from attlm_fairseq.nbest.decision.rover import confusion_network, disputed, vote, winner
from attlm_fairseq.nbest.nbest_list import Hypothesis
from attlm_fairseq.text.unspaced import divided, rejoined


class Rule(Protocol):
    """What a decision rule answers for lists that it was prepared for."""

    def answers(self, lists: Sequence[int], totals: np.ndarray, scale: float) -> list[str]:
        """Return the answer of each of the k lists, by their totals (k, n); posteriors are ``softmax(scale * totals)``."""


class Maximum:
    """The hypothesis with the best total; of equal totals the first."""

    def __init__(self, texts: Sequence[Sequence[str]]) -> None:
        self.texts = texts

    def answers(self, lists: Sequence[int], totals: np.ndarray, scale: float) -> list[str]:
        del scale
        return [self.texts[i][row] for i, row in zip(lists, totals.argmax(axis=1), strict=True)]


class LeastRisk:
    """The hypothesis with the least expected loss."""

    def __init__(self, texts: Sequence[Sequence[str]], losses: Sequence[np.ndarray]) -> None:
        """``losses`` (n, n) of each list: row i, column j, what choosing hypothesis i loses if hypothesis j is right."""
        self.texts = texts
        self._losses = losses

    def answers(self, lists: Sequence[int], totals: np.ndarray, scale: float) -> list[str]:
        rows = least_risk(np.stack([self._losses[i] for i in lists]), posteriors(totals, scale))[:, 0]
        return [self.texts[i][row] for i, row in zip(lists, rows, strict=True)]

    def decided(self, hypotheses: Sequence[Hypothesis], totals: np.ndarray, scale: float) -> list[Hypothesis]:
        """Return the hypotheses of the first list from the least risk to the greatest, with minus the risk as total."""
        shares = posteriors(totals, scale)
        totals = 0.0 - risks(self._losses[0], shares)
        return [replace(hypotheses[row], total=float(totals[row])) for row in least_risk(self._losses[0], shares)]


class Vote:
    """The most probable words, slot by slot of a confusion network of the ``compared`` texts, as they stand in the ``written`` ones."""

    def __init__(
        self, compared: Sequence[Sequence[str]], written: Sequence[Sequence[str]], undivided: Sequence[Sequence[str]] | None = None
    ) -> None:
        """``undivided``: the hypotheses as read, if characters of scripts without spaces were divided to vote; answers join them again."""
        self._written, self._undivided = written, undivided
        self._as_read = [{_divided(own): " ".join(own.split()) for own in reversed(of_list)} for of_list in undivided or ()]
        self._networks = [confusion_network(of_list) for of_list in compared]
        self._disputed = [disputed(network) for network in self._networks]
        self._winners: list[dict[bytes, str]] = [{} for _ in compared]  # by votes: other totals often make the same

    def answers(self, lists: Sequence[int], totals: np.ndarray, scale: float) -> list[str]:
        counts = [len(self._disputed[i]) for i in lists]
        slots = np.concatenate([self._disputed[i] for i in lists])
        votes = vote(slots, np.repeat(posteriors(totals, scale), counts, axis=0))
        found = []
        for i, of_list in zip(lists, np.split(votes, np.cumsum(counts)[:-1]), strict=True):
            winners, key = self._winners[i], of_list.tobytes()
            if key not in winners:
                winners[key] = self._joined(i, winner(self._networks[i], of_list, self._written[i]))
            found.append(winners[key])
        return found

    def decided(self, hypotheses: Sequence[Hypothesis], totals: np.ndarray, scale: float) -> list[Hypothesis]:
        """Return the answer of the first list alone, with the rank of the hypothesis whose text it is, else 0."""
        [text] = self.answers([0], totals[None], scale)
        form = str if self._undivided is None else _divided
        written = [form(own) for own in self._written[0]]
        return [Hypothesis(text, rank=hypotheses[written.index(form(text))].rank if form(text) in written else 0)]

    def _joined(self, i: int, text: str) -> str:
        """Return an answer with its characters joined. If the text steps only divided a hypothesis, its answer is the text as read."""
        if self._undivided is None:
            return text
        return self._as_read[i].get(text) or rejoined(text, self._undivided[i])


def _divided(text: str) -> str:
    return " ".join(divided(text).split())
