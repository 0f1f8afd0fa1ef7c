"""The full softmax.

Shapes: N predictions, F features, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.kernels.linear_nll import Loss, LossTerms, linear_loss, linear_nll
from attlm_fairseq.modules.kernels.low_precision import MakeLinear
from attlm_fairseq.modules.kernels.softmax_events import SoftmaxEvents, softmax_events
from attlm_fairseq.modules.memory.reader import Read

if TYPE_CHECKING:
    from typing_extensions import Self


class OneMatrix(BiasesStartAtZero, nn.Module):
    """What the output layers with one matrix ``weight`` (V, ..) and one ``bias`` (V,) share."""

    bias: nn.Parameter

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        raise NotImplementedError

    def log_probs_of(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        return self.log_probs(features, read).gather(1, targets.unsqueeze(1)).squeeze(1)

    @torch.no_grad()
    def init_bias(self, log_probs: Tensor) -> None:
        self.bias.copy_(log_probs)

    @torch.no_grad()
    def with_temperature(self, temperature: float) -> Self:
        """Return a layer that divides the logits of its softmaxes. Other parts, such as a mixture's ``pi``, do not change."""
        cooled = copy.copy(self)
        cooled._parameters = self._parameters | {name: nn.Parameter(getattr(self, name) / temperature) for name in ("weight", "bias")}
        return cooled


class Softmax(OneMatrix, nn.Linear):
    """The full softmax ``p = softmax(W f + b)``. Its matrix W (V, F) may be shared with the embeddings."""

    needs_read: ClassVar[bool] = False

    def __init__(self, feature_size: int, vocabulary_size: int) -> None:
        super().__init__(feature_size, vocabulary_size)
        self.vector_size = feature_size

    def forward(self, features: Tensor, read: Read | None = None) -> Tensor:
        return super().forward(features)

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        return log_softmax(nn.functional.linear(features, self.weight, self.bias))

    def nll(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        return linear_nll(features, self.weight, self.bias, targets)

    def loss(self, features: Tensor, targets: Tensor, read: Read | None, terms: LossTerms, counted: Tensor | None = None) -> Loss:
        refuse_balance(terms)
        return linear_loss(features, self.weight, self.bias, targets, terms)

    def events(self, rounded: Callable[[Tensor], Tensor] | None = None, normaliser: str = "exact") -> SoftmaxEvents:
        return softmax_events(self.weight, self.bias, rounded, normaliser)

    def steps(self, make: MakeLinear) -> SoftmaxSteps:
        return SoftmaxSteps(make(self.weight, self.bias))


def log_softmax(logits: Tensor) -> Tensor:
    """Return the logarithm of the softmax over the last dimension, at least in float32."""
    return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)


class SoftmaxSteps(nn.Module):
    """The full softmax over logits that are computed in lower precision."""

    needs_read: ClassVar[bool] = False

    def __init__(self, logits: nn.Module) -> None:
        super().__init__()
        self.logits = logits

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        """Return natural-log probabilities (N, V) for features (N, F), with the normaliser in float32."""
        return torch.log_softmax(self.logits(features), dim=-1)


def require_exact(normaliser: str) -> None:
    """Raise ValueError for another normaliser than ``exact``: the layer has several, none of which can be left out."""
    if normaliser != "exact":
        raise ValueError(f"--normaliser {normaliser} is for LMs with one full softmax: leave it out")


def refuse_balance(terms: LossTerms) -> None:
    """Raise ValueError if the loss is to balance the softmaxes of a mixture: the layer has only one."""
    if terms.balance:
        raise ValueError("--mixture-balance is a term of mixtures of softmaxes: give --softmaxes 2 or more, or leave it out")
