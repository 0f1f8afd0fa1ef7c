"""A full softmax over transformed features or a transformed matrix: the base of output layers of other packages.

Shapes: N predictions, E events, F features, D numbers of a word's vector, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.kernels.linear_nll import Loss, LossTerms, linear_loss, linear_nll
from attlm_fairseq.modules.kernels.low_precision import MakeLinear
from attlm_fairseq.modules.kernels.softmax_events import SoftmaxEvents, no_check, softmax_events
from attlm_fairseq.modules.memory.reader import Read
from attlm_fairseq.modules.output.layer import EventLogProbs
from attlm_fairseq.modules.output.softmax import Softmax, SoftmaxSteps, log_softmax, refuse_balance

if TYPE_CHECKING:
    from typing_extensions import Self


class TransformedSoftmax(Softmax):
    """``p = softmax((U v(f) + c) / temperature)`` of features ``f``; without overrides ``v(f) = f``, ``U = W`` and ``c = b``.

    A subclass overrides ``vectors``, which is ``v``, or ``matrix``, which is ``U`` and ``c``, or both. Losses and scores (natural
    logarithms), temperatures and decoders' steps in lower precision follow. A subclass sets its own parameters, such as a scale, in
    ``initialise_biases``; those that it does not set are drawn.

    Args of the constructor: D, the size of a word's vector, and V.
    """

    temperature = 1.0

    def vectors(self, features: Tensor) -> Tensor:
        """Return ``v(f)`` (.., D) for features (.., F)."""
        return features

    def matrix(self) -> tuple[Tensor, Tensor]:
        """Return ``U`` (V, D) and ``c`` (V,), which do not depend on the features."""
        return self.weight, self.bias

    def forward(self, features: Tensor, read: Read | None = None) -> Tensor:
        return nn.functional.linear(self.vectors(features), *self._cooled())

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        return log_softmax(self(features))

    def nll(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        return linear_nll(self.vectors(features), *self._cooled(), targets)

    def loss(self, features: Tensor, targets: Tensor, read: Read | None, terms: LossTerms, counted: Tensor | None = None) -> Loss:
        refuse_balance(terms)
        return linear_loss(self.vectors(features), *self._cooled(), targets, terms)

    def events(  # type: ignore[override]  # a function, not an object with normalisers
        self, rounded: Callable[[Tensor], Tensor] | None = None, normaliser: str = "exact"
    ) -> EventLogProbs:
        with torch.no_grad():
            return partial(_log_probs_of_events, self, softmax_events(*self._cooled(), rounded, normaliser))

    def steps(self, make: MakeLinear) -> TransformedSteps:
        return TransformedSteps(self, make(*self._cooled()))

    def with_temperature(self, temperature: float) -> Self:
        cooled = copy.copy(self)
        cooled.temperature = self.temperature * temperature
        return cooled

    def _cooled(self) -> tuple[Tensor, Tensor]:
        """Return the matrix and the biases, divided by the temperature."""
        weight, bias = self.matrix()
        return (weight, bias) if self.temperature == 1.0 else (weight / self.temperature, bias / self.temperature)


class TransformedSteps(SoftmaxSteps):
    """A ``TransformedSoftmax`` for decoders: logits in lower precision of features that are transformed in that of the layer."""

    def __init__(self, layer: TransformedSoftmax, logits: nn.Module) -> None:
        super().__init__(logits)
        self.layer = layer

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        return super().log_probs(self.layer.vectors(features))


def _log_probs_of_events(
    layer: TransformedSoftmax,
    softmax: SoftmaxEvents,
    features: Tensor,
    contexts: Tensor,
    words: Tensor,
    check: Callable[[], None] = no_check,
    read: Read | None = None,
) -> Tensor:
    """Implement ``EventLogProbs``."""
    with torch.no_grad():
        return softmax(layer.vectors(features), contexts, words, check)
