"""The sum of several fusions, such as language models and a list of phrases. Shapes: N states, U tokens of the decoder."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from attlm_fairseq.decoding.shallow_fusion import ShallowFusion, check_fusion


class FusionSum:
    """A ShallowFusion that adds the scores of several, all for the same tokens. A state is the tuple of their states."""

    def __init__(self, *fusions: ShallowFusion) -> None:
        """Add fusions.

        Raises:
            TypeError: one is not a ShallowFusion.
            ValueError: there is none, or they have different numbers of tokens or different sentence ends.
        """
        for fusion in fusions:
            check_fusion(fusion)
        if not fusions:
            raise ValueError("a sum needs at least one fusion")
        for fusion in fusions[1:]:
            if fusion.size != fusions[0].size:
                raise ValueError(f"the fusions have {fusions[0].size} and {fusion.size} tokens: give all the tokens of one decoder")
            if set(fusion.ends) != set(fusions[0].ends):
                raise ValueError(f"the fusions end sentences with the tokens {sorted(fusions[0].ends)} and {sorted(fusion.ends)}")
        self.fusions = fusions
        self.size = fusions[0].size

    @property
    def ends(self) -> Collection[int]:
        return self.fusions[0].ends

    def start(self) -> tuple[Any, ...]:
        return tuple(fusion.start() for fusion in self.fusions)

    def after(self, history: Sequence[Sequence[str]]) -> FusionSum:
        """Return the sum for sentences that follow those of ``history``, sequences of words of the LMs. See ``LogLinearLM.after``.

        Raises AttributeError for a fusion of your own without ``after``.
        """
        said = list(history)  # each of them reads it
        return FusionSum(*(fusion.after(said) for fusion in self.fusions))  # type: ignore[attr-defined]  # no part of the contract

    def score(self, state: tuple[Any, ...], token: int) -> tuple[float, tuple[Any, ...]]:
        scored = [fusion.score(of_fusion, token) for fusion, of_fusion in zip(self.fusions, state, strict=True)]
        return sum((score for score, _ in scored), 0.0), tuple(after for _, after in scored)

    def scores(self, states: Sequence[tuple[Any, ...]]) -> np.ndarray:
        parts = [fusion.scores([state[place] for state in states]) for place, fusion in enumerate(self.fusions)]
        return np.sum(parts, axis=0)

    def end(self, state: tuple[Any, ...]) -> float:
        return sum((fusion.end(of_fusion) for fusion, of_fusion in zip(self.fusions, state, strict=True)), 0.0)
