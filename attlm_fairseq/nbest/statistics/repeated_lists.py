"""Which lists are of one utterance. They are no independent samples: what was tuned on one of them has seen the others."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from attlm_fairseq.nbest.metrics import Metric

DIGEST = 16  # bytes kept of the texts of a list: lists may be more than fit into memory


class RepeatedLists:
    """Sees each list once. Two are of one utterance that have equal references, in any case and order, or the same hypotheses."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._earlier: list[int] = []  # of each list one of the same utterance that came before it, or itself
        self._first: dict[bytes, int] = {}

    def add(self, references: Sequence[str], texts: Sequence[str]) -> None:
        """The next list's references and hypotheses."""
        number = len(self._earlier)
        self._earlier.append(number)
        as_scored = sorted(" ".join(self.metric.prepared(reference).lower().split()) for reference in references)
        for key in (_digest("references", as_scored), _digest("hypotheses", sorted(texts))):
            one, other = sorted((self._earliest(number), self._earliest(self._first.setdefault(key, number))))
            self._earlier[other] = one

    def utterances(self) -> np.ndarray:
        """A number (N,) for each list: that of the first list of its utterance, counted from 0."""
        return np.array([self._earliest(number) for number in range(len(self._earlier))], dtype=np.int64)

    def _earliest(self, number: int) -> int:
        earlier = self._earlier
        while earlier[number] != number:
            earlier[number] = number = earlier[earlier[number]]
        return number


def _digest(kind: str, texts: Sequence[str]) -> bytes:
    return hashlib.blake2b(repr((kind, texts)).encode("utf-8", "surrogatepass"), digest_size=DIGEST).digest()
