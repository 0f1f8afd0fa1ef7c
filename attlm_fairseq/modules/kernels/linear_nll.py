"""The loss of a full-softmax output layer in pieces that stay in the cache, its gradients computed along the way.

Shapes: N predictions, F features, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attlm_fairseq.modules.kernels.limits import limits_of
from attlm_fairseq.modules.kernels.low_precision import ROWS, rounded
from attlm_fairseq.numeric import ceil_div


class LossTerms(NamedTuple):
    """What is added to the negative log-probabilities in training. All are 0 for the plain loss."""

    adversarial: float = 0.0
    """AdvSoft's epsilon (Wang, Gong and Liu 2019): a target's vector w_y moves against h by epsilon |w_y| if w_y . h > 0."""
    self_normalisation: float = 0.0
    """Weight of the mean (ln Z)^2 (Devlin et al. 2014), which trains the sum Z of exp(logits) towards 1."""


PLAIN_LOSS = LossTerms()


class Loss(NamedTuple):
    """Sums over predictions, natural log. Only ``total`` is differentiable."""

    total: Tensor  # the negative log-probabilities and all terms
    nll: Tensor  # the negative log-probabilities, without terms
    log_normaliser: Tensor  # ln Z, without AdvSoft's move
    squared_log_normaliser: Tensor  # (ln Z)^2


def linear_nll(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """``- sum_n ln softmax(weight features_n + bias)[targets_n]``, a float32 scalar, for features (N, F) and targets (N,).

    The same as cross entropy on the logits, without ever holding (N, V) of them: for V = 10,000 and N = 1,120 these
    are four arrays of 43 MiB. Under autocast the matrix products run in its dtype, and so are rounded what enters them and what comes of
    them, pieces of the gradients of features and weight included; the softmax, all sums and the gradient of the bias are float32.
    So it is with weights in half precision; the scale of a loss comes after these products, and does not save what float16 loses in them.
    """
    return linear_loss(features, weight, bias, targets, PLAIN_LOSS).total


def linear_loss(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, terms: LossTerms) -> Loss:
    """As ``linear_nll``, with the terms: ``- ln softmax(..)[y] + alpha (ln Z)^2`` of logits that AdvSoft has moved.

    AdvSoft adds ``delta . h`` to the target's logit, with ``delta = - epsilon |w_y| h / |h|`` as a constant in the gradients.
    """
    device = features.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else features.dtype
    total, *sums = _LinearNLL.apply(features, weight, bias, targets, _Settings(terms, dtype, torch.is_grad_enabled()))
    return Loss(total, *sums)


class _Settings(NamedTuple):
    """What is computed, in which dtype the products, and whether gradients may be wanted."""

    terms: LossTerms
    dtype: torch.dtype
    grad_enabled: bool


class _LinearNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        settings: _Settings,
    ) -> tuple[Tensor, ...]:
        dtype = settings.dtype
        exact = torch.promote_types(weight.dtype, torch.float32)
        limits = limits_of(features.device)
        most = max(1, limits.logits // len(weight)) if dtype == exact else max(ROWS, limits.rounded_logits // len(weight))
        pieces = ceil_div(len(features), most)
        rows = ceil_div(len(features), max(1, pieces))  # in each, evenly
        differentiate = settings.grad_enabled and any(ctx.needs_input_grad[:3])  # which is true within no_grad, too
        with torch.autocast(features.device.type, enabled=False):
            products = _Products if dtype == exact else _RoundedProducts
            layer = products(features.to(dtype), weight, bias.to(exact), rows, differentiate)
            sums = _Sums(settings.terms, features.device)
            grad_bias = torch.zeros_like(bias, dtype=exact)
            for begin in range(0, len(features), max(1, rows)):
                piece = slice(begin, begin + rows)
                target = targets[piece].unsqueeze(1)
                logits = layer.logits(piece)
                reached, move = logits.gather(1, target), None
                if epsilon := settings.terms.adversarial:
                    move = _Move(epsilon, features[piece].to(exact), weight[targets[piece]].to(exact), reached - bias[target])
                    logits.scatter_add_(1, target, move.logits)
                scale = sums.add(logits, reached, move)
                if differentiate:
                    errors = logits.mul_(scale)
                    errors.scatter_add_(1, target, errors.new_full(target.shape, -1.0))  # less the one-hot targets
                    grad_bias += errors.sum(0)
                    layer.add_gradients(piece, errors)
                    if move is not None:
                        layer.grad_features[piece] += errors.gather(1, target) * move.vectors
        if differentiate:  # rounded last of all: the scale of a loss may be more than float16 holds
            ctx.save_for_backward(layer.grad_features, layer.grad_weight.contiguous(), grad_bias)
            ctx.dtypes = features.dtype, weight.dtype, bias.dtype
        found = [each.to(exact, copy=True) for each in sums.found()]
        ctx.mark_non_differentiable(*found[1:])
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        wanted = zip(ctx.saved_tensors, ctx.dtypes, ctx.needs_input_grad[:3], strict=True)
        return *((saved * grad.to(saved.dtype)).to(dtype) if use else None for saved, dtype, use in wanted), None, None


class _Sums:
    """The sums of a ``Loss``, piece by piece, in float64."""

    def __init__(self, terms: LossTerms, device: torch.device) -> None:
        self.terms = terms
        self.total, self.nll, self.norms, self.squares = torch.zeros(4, dtype=torch.float64, device=device).unbind()

    def add(self, logits: Tensor, reached: Tensor, move: _Move | None) -> Tensor:
        """Add a piece: its logits (N, V), moved, and those of its targets (N, 1), not moved.

        The logits are overwritten. Times what is returned, (N, 1), they are the gradient of the loss but for the targets' own -1.
        """
        top = logits.amax(1, keepdim=True)
        sums = logits.sub_(top).exp_().sum(1, keepdim=True)
        norm = top + sums.log()
        plain = norm if move is None else top + (sums - (reached + move.logits - top).exp() + (reached - top).exp()).log()
        self.nll += (plain - reached).sum(dtype=torch.float64)
        self.norms += plain.sum(dtype=torch.float64)
        self.squares += plain.square().sum(dtype=torch.float64)
        scale = sums.reciprocal_()  # which makes it the softmax
        if self.terms != PLAIN_LOSS:
            weight = self.terms.self_normalisation
            of_terms = weight * norm.square() - (0 if move is None else move.logits)
            self.total += (norm - reached + of_terms).sum(dtype=torch.float64)
            scale *= 1 + 2 * weight * norm
        return scale

    def found(self) -> tuple[Tensor, ...]:
        """In the order of ``Loss``."""
        return self.nll if self.terms == PLAIN_LOSS else self.total, self.nll, self.norms, self.squares


class _Move:
    """AdvSoft's move of the targets' vectors: what it adds to their logits (N, 1), and the vectors (N, F) that it adds to them."""

    def __init__(self, epsilon: float, features: Tensor, of_targets: Tensor, product: Tensor) -> None:
        """``of_targets`` (N, F) are the targets' rows w_y, ``product`` (N, 1) is w_y . h."""
        lengths = torch.linalg.vector_norm(features, dim=1, keepdim=True)
        steps = epsilon * torch.linalg.vector_norm(of_targets, dim=1, keepdim=True) * (product > 0)
        self.logits = -steps * lengths
        self.vectors = -steps / lengths.clamp(min=torch.finfo(lengths.dtype).tiny) * features


class _Products:
    """The three products of a piece, and the sums of their gradients, in the dtype of the features, that of the weight at least."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor, rows: int, differentiate: bool) -> None:
        self.features, self.weight, self.bias = features, weight.to(features.dtype), bias
        self.held = features.new_empty(rows, len(weight))
        if differentiate:
            self.grad_features = torch.empty_like(features)
            self.grad_weight = features.new_zeros(weight.shape[::-1]).t()  # so laid out, a product adds faster

    def logits(self, piece: slice) -> Tensor:
        features = self.features[piece]
        return torch.addmm(self.bias, features, self.weight.t(), out=self.held[: len(features)])

    def add_gradients(self, piece: slice, errors: Tensor) -> None:
        self.grad_features[piece] = errors @ self.weight
        self.grad_weight.addmm_(errors.t(), self.features[piece])


class _RoundedProducts:
    """The same with what enters a product, and what comes of it, in the features' lower precision; sums are in that of the bias."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor, rows: int, differentiate: bool) -> None:
        self.features, self.weight, self.bias = features, rounded(weight, features.dtype, rows=True), bias
        # buffers of the weight's or the logits' size are used again: fresh pages from the system cost more than writing to them
        self.low = features.new_zeros(ceil_div(rows, ROWS) * ROWS, len(self.weight))
        self.low_features = features.new_zeros(len(self.low), self.weight.size(1))
        self.held = bias.new_empty(rows, len(weight))
        if differentiate:
            self.grad_features = bias.new_empty(features.shape)
            self.product = torch.empty_like(self.weight)
            self.grad_weight = bias.new_empty(weight.shape) if len(features) else bias.new_zeros(weight.shape)

    def logits(self, piece: slice) -> Tensor:
        features = self.features[piece]
        self.low_features[: len(features), : features.size(1)] = features
        self.low_features[len(features) :] = 0
        torch.mm(self.low_features, self.weight.t(), out=self.low)
        held = self.held[: len(features)]
        return held.copy_(self.low[: len(held), : held.size(1)]).add_(self.bias)

    def add_gradients(self, piece: slice, errors: Tensor) -> None:
        words, size = self.grad_weight.shape
        self.low[: len(errors), :words] = errors  # the rows behind are those of features of zero
        self.grad_features[piece] = (self.low @ self.weight)[: len(errors), :size]
        product = torch.mm(self.low.t(), self.low_features, out=self.product)[:words, :size]
        if piece.start:
            self.grad_weight += product
        else:
            self.grad_weight.copy_(product)
