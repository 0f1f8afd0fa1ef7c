"""Hypotheses of some lists in the form that is sent to other processes and serves as the key of a score cache."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate, chain, repeat

import numpy as np

from attlm_fairseq.nbest.nbest_list import NbestList


@dataclass(frozen=True)
class Block:
    """The hypotheses of consecutive lists.

    Attributes:
        texts: the texts of all hypotheses, list by list.
        sizes: number of hypotheses of each list.
        sources: source sentence of each list; None if unknown.
        distances: how far the decoder's score of each hypothesis is below the best of its list (natural log); empty if no
            LM needs it.
        rest: the total of each hypothesis (see ``combination``) without the scores of this run's LMs; empty unless lists whose
            decision an approximation could change are to be scored exactly.
    """

    texts: tuple[str, ...]
    sizes: tuple[int, ...]
    sources: tuple[str | None, ...]
    distances: tuple[float, ...] = ()
    rest: tuple[float, ...] = ()

    @classmethod
    def of_lists(
        cls,
        lists: Sequence[NbestList],
        distances: Callable[[NbestList], Sequence[float]] | None = None,
        rest: Callable[[NbestList], Sequence[float]] | None = None,
    ) -> Block:
        return cls(
            tuple(hypothesis.text for nbest in lists for hypothesis in nbest.hypotheses),
            tuple(len(nbest.hypotheses) for nbest in lists),
            tuple(nbest.source for nbest in lists),
            tuple(chain.from_iterable(map(distances, lists))) if distances else (),
            tuple(chain.from_iterable(map(rest, lists))) if rest else (),
        )

    def rows_of(self, lists: Iterable[int]) -> list[int]:
        """Return the places of the hypotheses of some lists, given the places of the lists, in order."""
        begins = [0, *accumulate(self.sizes)]
        return [row for place in lists for row in range(begins[place], begins[place + 1])]

    def by_list(self, values: np.ndarray) -> list[np.ndarray]:
        """Return values of all hypotheses, list by list."""
        return np.split(values, [*accumulate(self.sizes)][:-1])

    def of_rows(self, rows: Sequence[int]) -> Block:
        """Return some of the hypotheses, given their places in order. Lists without any are left out."""
        lists, sizes = np.unique(np.repeat(np.arange(len(self.sizes)), self.sizes)[list(rows)], return_counts=True)
        return Block(
            tuple(self.texts[row] for row in rows),
            tuple(sizes.tolist()),
            tuple(self.sources[place] for place in lists),
            tuple(self.distances[row] for row in rows) if self.distances else (),
            tuple(self.rest[row] for row in rows) if self.rest else (),
        )

    def __len__(self) -> int:
        return len(self.texts)

    def source_of_each(self) -> list[str]:
        """Return the source sentence of each hypothesis; "" if it is not known."""
        return [source or "" for source, size in zip(self.sources, self.sizes, strict=True) for source in repeat(source, size)]

    def digest(self) -> str:
        """Return the SHA-256 of all that there is, in hexadecimal."""
        return hashlib.sha256(json.dumps(astuple(self)).encode()).hexdigest()
