"""The probabilities of single events under a full softmax, its normaliser computed once per context and never held as (N, V) logits.

Shapes: N contexts, E events, F features, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attlm_fairseq.modules.kernels.limits import limits_of
from attlm_fairseq.modules.kernels.low_precision import round_up_rows

MAX_LOG_NORMALISER = 60.0  # |ln Z| above this is recomputed with logsumexp: exp() overflows float32 at 88 and loses digits below -87


def no_check() -> None:
    """Let the computation go on."""


class SoftmaxEvents:
    """``ln softmax(W f + b)`` of single words, without gradients.

    Each event's own logit is computed apart and in float32 even if the normalisers' are rounded: the rounding errors of the many logits
    in a normaliser even out, that of an event's own logit would not.
    """

    def __init__(self, weight: Tensor, bias: Tensor, low: Tensor | None = None) -> None:
        """``low``: ``weight`` (V, F) rounded and padded, for normalisers whose products are in lower precision."""
        self.weight, self.bias = weight, bias
        self.factor, self.rounds = (weight, False) if low is None else (low, True)
        self.exp_bias = bias.exp()

    def __call__(self, features: Tensor, contexts: Tensor, words: Tensor, check: Callable[[], None] = no_check) -> Tensor:
        """Return ``ln p(words[e] | features[contexts[e]])`` (E,) for features (N, F), contexts (E,) and words (E,).

        ``check`` is called between pieces, and may raise what ends this.
        """
        norms = self.normalisers(features, check)
        values = features.new_empty(len(contexts))
        at_once = max(1, limits_of(features.device).event_numbers // (2 * features.size(1)))  # both factors of an event's logit
        for context, word, value in zip(contexts.split(at_once), words.split(at_once), values.split(at_once), strict=True):
            own = torch.linalg.vecdot(features.index_select(0, context), self.weight.index_select(0, word))  # faster than indexing
            value.copy_(own + self.bias[word] - norms[context])
        return values

    def normalisers(self, features: Tensor, check: Callable[[], None] = no_check) -> Tensor:
        """Return ``ln sum_v exp(logit_v)`` (N,) for features (N, F).

        The sums are taken without subtracting the largest logit first: two passes over the logits instead of five. The few rows whose
        sums come near what float32 can hold are computed again with ``plain_normalisers``.
        """
        norms = self._direct_normalisers(features, check)
        unsafe = (~(norms.abs() < MAX_LOG_NORMALISER)).nonzero().squeeze(1)  # infinite and undefined ones are, too
        for some in unsafe.split(limits_of(features.device).softmax.rows):
            norms[some] = plain_normalisers(self.weight, self.bias, features[some])
        return norms

    def _direct_normalisers(self, features: Tensor, check: Callable[[], None]) -> Tensor:
        """As ``normalisers``, infinite or undefined if float32 cannot hold the sum."""
        limits = limits_of(features.device)
        rows, words, summed = limits.rounded_softmax if self.rounds else limits.softmax
        rows = round_up_rows(min(rows, len(features))) if self.rounds else min(rows, len(features))
        logits = self.factor.new_empty(rows * words)
        # buffers are used again: memory fresh from the system costs more than the sums
        padded = self.factor.new_zeros(rows if self.rounds else 0, self.factor.size(1))
        exact = features.new_empty(rows * summed if self.rounds else 0)
        sums = features.new_zeros(len(features))
        for some, of_some in zip(features.split(rows), sums.split(rows), strict=True):
            check()
            inputs = some
            if self.rounds:
                padded[: len(some), : some.size(1)] = some
                inputs = padded[: round_up_rows(len(some))]
            for piece, factors in zip(self.factor.split(words), self.exp_bias.split(words), strict=True):
                product = torch.mm(piece, inputs.t(), out=logits[: len(piece) * len(inputs)].view(len(piece), len(inputs)))
                for part, of_part in zip(product.split(summed), factors.split(summed), strict=True):
                    values = exact[: part.numel()].view(part.shape).copy_(part) if self.rounds else part
                    of_some.addmv_(values.exp_().t()[: len(some)], of_part)
        return sums.log_()


def plain_normalisers(weight: Tensor, bias: Tensor, features: Tensor) -> Tensor:
    """Return ``logsumexp(W f + b)`` (N,), for any size of logits, a piece of the vocabulary after another."""
    words = limits_of(features.device).softmax.words
    pieces = zip(weight.split(words), bias.split(words), strict=True)
    return torch.logsumexp(torch.stack([torch.logsumexp(features @ piece.t() + offsets, dim=-1) for piece, offsets in pieces]), dim=0)
