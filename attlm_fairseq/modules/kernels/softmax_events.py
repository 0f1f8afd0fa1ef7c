"""Log-probabilities of single events under a full softmax. The normaliser is computed once per context, without (N, V) logits.

Shapes: N contexts, E events, F features, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from attlm_fairseq.modules.kernels.limits import limits_of
from attlm_fairseq.modules.kernels.low_precision import round_up_rows
from attlm_fairseq.modules.kernels.products import product_into
from attlm_fairseq.modules.memory.reader import Read

MAX_LOG_NORMALISER = 60.0  # |ln Z| above this is recomputed with logsumexp: exp() overflows float32 at 88 and loses digits below -87


FREQUENT_WORDS = 1024  # the first words of the vocabulary, which are the most frequent ones: a sampled normaliser sums over all of these
SAMPLED_WORDS = 1024  # and over so many of the others, which stand for all of the others


def no_check() -> None:
    """Do nothing: the default ``check``, which never stops a computation."""


class SoftmaxEvents:
    """Computes ``ln softmax(W f + b)`` of single words, without gradients.

    Each event's own logit is computed separately in float32, even if the logits of the normalisers are rounded. In a
    normaliser, the rounding errors of many logits cancel out; in an event's own logit nothing cancels the error.
    """

    def __init__(self, weight: Tensor, bias: Tensor, low: Tensor | None = None) -> None:
        """Use a weight (V, F) and a bias (V,).

        Args:
            weight: the matrix W. If it has another type than the features, it is converted piece by piece.
            bias: the bias b.
            low: ``weight``, rounded and padded, to compute the normalisers with products in lower precision.
        """
        self.weight, self.bias = weight, bias
        self.factor, self.rounds = (weight, False) if low is None else (low, True)
        self.exp_bias = bias.exp()

    def __call__(
        self, features: Tensor, contexts: Tensor, words: Tensor, check: Callable[[], None] = no_check, read: Read | None = None
    ) -> Tensor:
        """Return ``ln p(words[e] | features[contexts[e]])`` (E,) for features (N, F), contexts (E,) and words (E,).

        ``check`` is called between pieces of the work. It may raise an exception to stop the computation.
        """
        norms = self.normalisers(features, check)
        values = features.new_empty(len(contexts))
        at_once = max(1, limits_of(features.device).event_numbers // (2 * features.size(1)))  # both factors of an event's logit
        for context, word, value in zip(contexts.split(at_once), words.split(at_once), values.split(at_once), strict=True):
            # index_select is faster than indexing
            own = torch.linalg.vecdot(features.index_select(0, context), self.weight.index_select(0, word).to(features.dtype))
            value.copy_(own + self.bias[word] - norms[context])
        return values

    def normalisers(self, features: Tensor, check: Callable[[], None] = no_check) -> Tensor:
        """Return ``ln sum_v exp(logit_v)`` (N,) for features (N, F).

        The largest logit is not subtracted first: this takes two passes over the logits instead of five. The few rows whose
        sums come near the limits of float32 are recomputed with ``plain_normalisers``.
        """
        norms = self._direct_normalisers(features, check)
        unsafe = (~(norms.abs() < MAX_LOG_NORMALISER)).nonzero().squeeze(1)  # inf and nan included
        for some in unsafe.split(limits_of(features.device).softmax.rows):
            norms[some] = plain_normalisers(self.weight, self.bias, features[some])
        return norms

    def _direct_normalisers(self, features: Tensor, check: Callable[[], None]) -> Tensor:
        """Return the normalisers, or inf or nan if float32 cannot represent the sum."""
        limits = limits_of(features.device)
        rows, words, summed = limits.rounded_softmax if self.rounds else limits.softmax
        rows = round_up_rows(min(rows, len(features))) if self.rounds else min(rows, len(features))
        product_type = self.factor.dtype if self.rounds else features.dtype
        logits = self.factor.new_empty(rows * words, dtype=product_type)
        # Buffers are reused: getting new memory from the system costs more than the sums.
        padded = self.factor.new_zeros(rows if self.rounds else 0, self.factor.size(1))
        exact = features.new_empty(rows * summed if self.rounds else 0)
        # In float64: one float32 sum over 300,000 words loses 2e-3 of ln Z, always in the same direction.
        sums = features.new_zeros(len(features), dtype=torch.float64)
        for some, of_some in zip(features.split(rows), sums.split(rows), strict=True):
            check()
            inputs = some
            if self.rounds:
                padded[: len(some), : some.size(1)] = some
                inputs = padded[: round_up_rows(len(some))]
            for piece, factors in zip(self.factor.split(words), self.exp_bias.split(words), strict=True):
                of_piece = product_into(
                    piece.to(product_type), inputs.t(), logits[: len(piece) * len(inputs)].view(len(piece), len(inputs))
                )
                for part, of_part in zip(of_piece.split(summed), factors.split(summed), strict=True):
                    values = exact[: part.numel()].view(part.shape).copy_(part) if self.rounds else part
                    of_some.add_(torch.mv(values.exp_().t()[: len(some)], of_part))
        return sums.log_().to(features.dtype)


class ApproximateEvents(SoftmaxEvents):
    """``SoftmaxEvents`` of a self-normalised model: ln Z is estimated from few words, or taken to be 0."""

    def __init__(self, weight: Tensor, bias: Tensor, sample: SoftmaxEvents | None) -> None:
        """Use a weight (V, F), a bias (V,), and a softmax whose normalisers are the estimates; None for ln Z = 0."""
        super().__init__(weight, bias)
        self.sample = sample

    def normalisers(self, features: Tensor, check: Callable[[], None] = no_check) -> Tensor:
        return features.new_zeros(len(features)) if self.sample is None else self.sample.normalisers(features, check)


def softmax_events(weight: Tensor, bias: Tensor, rounded: Callable[[Tensor], Tensor] | None, normaliser: str) -> SoftmaxEvents:
    """Return the events of a full softmax.

    Args:
        weight: (V, F).
        bias: (V,).
        rounded: converts a matrix to a lower precision for the normalisers; None keeps the precision of the weights.
        normaliser: ``exact``; ``sampled``: ln Z from the most frequent words and a fixed random sample of the others, each
            of which counts for as many as it stands for; or ``none``: ln Z = 0.
    """
    if normaliser == "none":
        return ApproximateEvents(weight, bias, None)
    others = len(weight) - FREQUENT_WORDS
    if normaliser == "exact" or others <= SAMPLED_WORDS:
        return SoftmaxEvents(weight, bias, rounded(weight) if rounded else None)
    drawn = FREQUENT_WORDS + torch.randperm(others, generator=torch.Generator().manual_seed(1))[:SAMPLED_WORDS].sort().values
    words = torch.cat((torch.arange(FREQUENT_WORDS), drawn)).to(weight.device)
    stands_for = torch.cat((bias.new_zeros(FREQUENT_WORDS), bias.new_full((SAMPLED_WORDS,), math.log(others / SAMPLED_WORDS))))
    rows = weight.index_select(0, words)
    return ApproximateEvents(weight, bias, SoftmaxEvents(rows, bias[words] + stands_for, rounded(rows) if rounded else None))


def plain_normalisers(weight: Tensor, bias: Tensor, features: Tensor) -> Tensor:
    """Return ``logsumexp(W f + b)`` (N,), one piece of the vocabulary at a time. Logits may be arbitrarily large."""
    words = limits_of(features.device).softmax.words
    pieces = zip(weight.split(words), bias.split(words), strict=True)
    return torch.logsumexp(
        torch.stack([torch.logsumexp(features @ piece.t().to(features.dtype) + offsets, dim=-1) for piece, offsets in pieces]), dim=0
    )
