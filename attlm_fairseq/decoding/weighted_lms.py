"""Several language models as one decoder component: their weighted sum, negative weights included.

Shapes: N hypotheses, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from attlm_fairseq.decoding.decoder_lm import SteppedLM


class WeightedLMs:
    """``sum_k weight_k ln p_k(token | prefix)`` as a :class:`SteppedLM`: what a decoder adds to its own log-probabilities.

    A negative weight takes an LM out: the density ratio (weight +w for the LM of the target domain, -w for that of the domain the decoder
    was trained on) and internal-LM subtraction. The sums are no normalised distribution. A weight of 0 leaves its LM out.
    """

    def __init__(self, lms: Sequence[SteppedLM], weights: Sequence[float]) -> None:
        """Raises ValueError when there is no LM, a weight is missing, or the vocabularies differ (see :func:`fit_vocabulary`)."""
        if len(lms) != len(weights) or not lms:
            raise ValueError(f"{len(lms)} LMs need as many weights, and at least one: {list(weights)}")
        if any(lm.vocabulary != lms[0].vocabulary for lm in lms):
            raise ValueError("the LMs' vocabularies differ: map each to the decoder's with fit_vocabulary")
        self.lms = [lm for lm, weight in zip(lms, weights, strict=True) if weight]
        self.weights = [weight for weight in weights if weight]
        self.vocabulary = lms[0].vocabulary
        self.eos = lms[0].eos

    def start(self, rows: int = 1) -> list[Any]:
        return [lm.start(rows) for lm in self.lms]

    def step(self, states: list[Any], tokens: Tensor) -> tuple[Tensor, list[Any]]:
        total = tokens.new_zeros(len(tokens), len(self.vocabulary)).float()
        stepped = []
        for lm, weight, state in zip(self.lms, self.weights, states, strict=True):
            log_probs, state = lm.step(state, tokens)
            total = total.to(log_probs.device) + weight * log_probs
            stepped.append(state)
        return total, stepped

    def select(self, states: list[Any], rows: Tensor) -> list[Any]:
        return [lm.select(state, rows) for lm, state in zip(self.lms, states, strict=True)]
