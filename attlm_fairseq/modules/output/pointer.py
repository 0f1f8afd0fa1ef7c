"""The mixture of a full softmax and a pointer to recent words: Merity, Xiong, Bradbury and Socher (2017).

Shapes: N predictions, E events, F features, V vocabulary, M columns of the pointer's weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from attlm_fairseq.modules.kernels.limits import limits_of
from attlm_fairseq.modules.kernels.linear_nll import PLAIN_LOSS, Loss, LossTerms, linear_loss
from attlm_fairseq.modules.kernels.low_precision import MakeLinear
from attlm_fairseq.modules.kernels.softmax_events import SoftmaxEvents, no_check
from attlm_fairseq.modules.memory.reader import Read
from attlm_fairseq.modules.output.softmax import Softmax, SoftmaxSteps, refuse_balance


class PointerSoftmax(Softmax):
    r"""``p(w) = g softmax(U f + b)_w + sum_{i: x_i = w} a_i`` with the weights ``a``, words ``x`` and gate ``g`` of a ``Read``.

    The sum of ``g`` and all ``a_i`` is 1. The loss in training is ``- ln p(y) - auxiliary ln(g + sum_{i: x_i = y} a_i)``, where
    the second term teaches the pointer to give its weight to the target or to the gate. The paper has ``auxiliary`` = 1.
    """

    needs_read: ClassVar[bool] = True

    def __init__(self, feature_size: int, vocabulary_size: int, auxiliary: float) -> None:
        """Build the layer. Raises ValueError if the weight of the auxiliary loss is not a number from 0 up."""
        super().__init__(feature_size, vocabulary_size)
        if not 0 <= auxiliary < float("inf"):  # nan fails this test too
            raise ValueError(f"--pointer-loss {auxiliary}: expected a number, 0 or above")
        self.auxiliary = auxiliary

    def forward(self, features: Tensor, read: Read | None = None) -> Tensor:
        """Return the natural-log probabilities (.., V) of all words for features (.., F), in the dtype of the features."""
        return self.log_probs(features, read).to(features.dtype)

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        return with_pointer(super().log_probs(features), required(read))

    def nll(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        return linear_loss(features, self.weight, self.bias, targets, PLAIN_LOSS, self._parts(targets, required(read))).total

    def loss(self, features: Tensor, targets: Tensor, read: Read | None, terms: LossTerms, counted: Tensor | None = None) -> Loss:
        """Return the loss with the additional terms; in training, the auxiliary loss is added. ``ln Z`` is that of the softmax."""
        refuse_balance(terms)
        parts = self._parts(targets, required(read))
        found = linear_loss(features, self.weight, self.bias, targets, terms, parts)
        if self.training and self.auxiliary:
            found = found._replace(total=found.total - self.auxiliary * parts.logsumexp(1).sum())
        return found

    def events(  # type: ignore[override]
        self, rounded: Callable[[Tensor], Tensor] | None = None, normaliser: str = "exact"
    ) -> PointerEvents:
        return PointerEvents(super().events(rounded, normaliser))

    def steps(self, make: MakeLinear) -> PointerSteps:
        return PointerSteps(make(self.weight, self.bias))

    @staticmethod
    def _parts(targets: Tensor, read: Read) -> Tensor:
        """Return ``ln g`` and ``ln sum_{i: x_i = y} a_i``, (N, 2)."""
        return torch.stack((gate_of(read), log_or_nothing(pointed_at(targets, read))), dim=1)


class PointerSteps(SoftmaxSteps):
    """A ``PointerSoftmax`` for decoders, over logits that are computed in lower precision."""

    needs_read: ClassVar[bool] = True

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        return with_pointer(super().log_probs(features), required(read))


class PointerEvents:
    """Computes log-probabilities of single words under a ``PointerSoftmax``, the softmax normaliser once per context."""

    def __init__(self, softmax: SoftmaxEvents) -> None:
        self.softmax = softmax

    def __call__(
        self, features: Tensor, contexts: Tensor, words: Tensor, check: Callable[[], None] = no_check, read: Read | None = None
    ) -> Tensor:
        """See ``EventLogProbs``."""
        read = required(read)
        values = self.softmax(features, contexts, words, check)
        at_once = max(1, limits_of(features.device).event_numbers // max(1, 2 * read.weights.size(1)))
        for context, word, value in zip(contexts.split(at_once), words.split(at_once), values.split(at_once), strict=True):
            of_events = read.map(partial(torch.index_select, dim=0, index=context))
            value.copy_(added(value + gate_of(of_events), pointed_at(word, of_events)))
        return values


def required(read: Read | None) -> Read:
    """Return what was read. Raises ValueError if it is missing."""
    if read is None:
        raise ValueError("a pointer needs what its reader has read")
    return read


def gate_of(read: Read) -> Tensor:
    """Return ``ln g`` (..,), the logarithm of the share of the softmax."""
    assert read.log_gate is not None, "the reader of a pointer has a sentinel"
    return read.log_gate


def pointed_at(words: Tensor, read: Read) -> Tensor:
    """Return ``sum_{i: x_i = w} a_i`` (N,) of one word (N,) for each prediction."""
    assert read.tokens is not None, "the reader of a pointer has words"
    return (read.weights * (read.tokens == words.unsqueeze(1))).sum(1)


def log_or_nothing(probabilities: Tensor) -> Tensor:
    """Return natural logarithms, with -inf and a gradient of 0 for a probability of 0."""
    smallest = torch.finfo(probabilities.dtype).tiny
    return torch.where(probabilities > 0, probabilities.clamp(min=smallest).log(), -torch.inf)


def added(log_probs: Tensor, probabilities: Tensor) -> Tensor:
    """Return ``ln(exp(log_probs) + probabilities)``."""
    return torch.logaddexp(log_probs, log_or_nothing(probabilities).to(log_probs.dtype))


def with_pointer(log_probs: Tensor, read: Read) -> Tensor:
    """Return the log-probabilities (.., V) of the mixture, given those of its softmax."""
    assert read.tokens is not None, "the reader of a pointer has words"
    pointed = read.weights.new_zeros(log_probs.shape).scatter_add(-1, read.tokens, read.weights)
    return added(log_probs + gate_of(read).unsqueeze(-1), pointed)
