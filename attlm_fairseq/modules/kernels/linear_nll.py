"""The loss of a full-softmax output layer, computed together with its gradients in pieces.

Shapes: N predictions, F features, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attlm_fairseq.modules.kernels.limits import limits_of
from attlm_fairseq.modules.kernels.low_precision import rounded
from attlm_fairseq.modules.kernels.products import left_factor, product, product_into, round_up_to_few
from attlm_fairseq.numeric import ceil_div


class LossTerms(NamedTuple):
    """Weights of the training terms that are added to the negative log-probabilities. All are 0 for the plain loss."""

    adversarial: float = 0.0
    """AdvSoft's epsilon (Wang, Gong and Liu 2019): a target's vector w_y moves against h by epsilon |w_y| if w_y . h > 0."""
    self_normalisation: float = 0.0
    """Weight of the mean (ln Z)^2 (Devlin et al. 2014), which trains the sum Z of exp(logits) towards 1."""
    balance: float = 0.0
    """Weight of a mixture's squared coefficient of variation (Takase et al. 2018), see ``modules/output/mixture.py``."""


GRADIENT_ROWS = 2048  # of a gradient in lower precision, computed and added at once


PLAIN_LOSS = LossTerms()


class Loss(NamedTuple):
    """Sums over predictions, natural log. Only ``total`` is differentiable."""

    total: Tensor  # the negative log-probabilities and all terms
    nll: Tensor  # the negative log-probabilities, without terms
    log_normaliser: Tensor  # ln Z, without AdvSoft's move
    squared_log_normaliser: Tensor  # (ln Z)^2


def linear_nll(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    """Return ``- sum_n ln softmax(weight features_n + bias)[targets_n]``, a float32 scalar (natural log).

    It equals the cross entropy of the logits, but computes them in pieces, whose sizes are in ``kernels/limits.py``. All of them at
    once would be four arrays of 43 MiB for V = 10,000 and N = 1,120.

    Under autocast the matrix products run in its dtype. Their factors and results are rounded, including the pieces of the
    gradients of features and weight. The softmax, all sums and the gradient of the bias are in float32. The same holds for
    weights in half precision. Loss scaling is applied after these products, so it does not prevent underflow in float16.

    Args:
        features: (N, F).
        weight: (V, F).
        bias: (V,).
        targets: (N,). All of them count.
    """
    return linear_loss(features, weight, bias, targets, PLAIN_LOSS).total


def linear_loss(
    features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, terms: LossTerms, log_weights: Tensor | None = None
) -> Loss:
    """Return ``linear_nll`` with the training terms: ``- ln softmax(..)[y] + alpha (ln Z)^2`` on logits changed by AdvSoft.

    AdvSoft adds ``delta . h`` to the target's logit, with ``delta = - epsilon |w_y| h / |h|``. Gradients treat delta as a
    constant.

    With ``log_weights`` a prediction is a mixture of K softmaxes, ``p(y) = sum_k exp(log_weights_k) softmax_k[y]``. Columns of
    ``log_weights`` after the first K are logarithms of probabilities that y has from elsewhere; these are added. The sums of
    ``ln Z`` are then over all N K softmaxes.

    Args:
        features: (N, F), or (N K, F) with ``log_weights``: K rows per prediction.
        weight: (V, F).
        bias: (V,).
        targets: (N,).
        terms: the weights of the training terms. ``balance`` is not one of this function's.
        log_weights: (N, C) with C >= K, or None.
    """
    device = features.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else features.dtype
    settings = _Settings(terms, dtype, torch.is_grad_enabled())
    total, *sums = _LinearNLL.apply(features, weight, bias, targets, settings, log_weights)
    return Loss(total, *sums)


class _Settings(NamedTuple):
    """The terms to compute, the dtype of products, and whether gradients may be needed."""

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
        log_weights: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        dtype = settings.dtype
        exact = torch.promote_types(weight.dtype, torch.float32)
        limits = limits_of(features.device)
        most = max(limits.loss_rows, (limits.logits if dtype == exact else limits.rounded_logits) // len(weight))
        pieces = ceil_div(len(features), most)
        components = len(features) // max(1, len(targets))
        rows = ceil_div(ceil_div(len(features), max(1, pieces)), max(1, components)) * components  # pieces of equal size
        at_once = max(1, limits.loss_numbers // (len(weight) * max(1, components))) * max(1, components)
        targets = targets.repeat_interleave(components) if components > 1 else targets
        differentiate = settings.grad_enabled and any(ctx.needs_input_grad)  # needs_input_grad is True even under no_grad
        with torch.autocast(features.device.type, enabled=False):
            products = _Products if dtype == exact else _RoundedProducts
            layer = products(features.to(dtype), weight, bias.to(exact), rows, at_once, differentiate)
            sums, moved = _Sums(settings.terms, features.device), list[Tensor]()
            grad_bias = torch.zeros_like(bias, dtype=exact)
            grad_log_weights = None if log_weights is None else torch.empty_like(log_weights, dtype=exact)
            for begin in range(0, len(features), max(1, rows)):
                end = min(begin + rows, len(features))
                layer.multiply(slice(begin, end))
                for first in range(begin, end, at_once):  # few rows stay in a CPU's cache
                    some = slice(first, min(first + at_once, end))
                    target = targets[some].unsqueeze(1)
                    logits = layer.logits(some)
                    reached, move = logits.gather(1, target), None
                    if epsilon := settings.terms.adversarial:
                        move = _Move(epsilon, features[some].to(exact), weight[targets[some]].to(exact), reached - bias[target])
                        logits.scatter_add_(1, target, move.logits)
                    predictions = slice(some.start // max(1, components), some.stop // max(1, components))
                    scale, shares = sums.add(logits, reached, move, None if log_weights is None else log_weights[predictions].to(exact))
                    if grad_log_weights is not None:
                        grad_log_weights[predictions] = -shares
                    if differentiate:
                        errors = logits.mul_(scale)
                        errors.scatter_add_(1, target, -shares[:, : max(1, components)].reshape(-1, 1))  # subtract the one-hot targets
                        grad_bias += errors.sum(0)
                        layer.keep_errors(some, errors)
                        if move is not None:
                            moved.append(errors.gather(1, target) * move.vectors)
                if differentiate:
                    layer.add_gradients()
                if moved:
                    layer.grad_features[begin:end] += torch.cat(moved)
                    moved.clear()
        if differentiate:  # round last: the loss scale may exceed the range of float16
            ctx.save_for_backward(layer.grad_features, layer.grad_weight, grad_bias, grad_log_weights)
            ctx.dtypes = [None if part is None else part.dtype for part in (features, weight, bias, log_weights)]
        found = [each.to(exact, copy=True) for each in sums.found()]
        ctx.mark_non_differentiable(*found[1:])
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *unused: Tensor) -> tuple[Tensor | None, ...]:
        needed = *ctx.needs_input_grad[:3], ctx.needs_input_grad[-1]
        whole = grad.device.type == "cpu" and grad.item() == 1  # fairseq's; on a GPU to look costs more than to multiply
        wanted = zip(ctx.saved_tensors, ctx.dtypes, needed, strict=True)
        *first, last = ((saved if whole else saved * grad.to(saved.dtype)).to(dtype) if use else None for saved, dtype, use in wanted)
        return *first, None, None, last


class _Sums:
    """Adds up the values of a ``Loss`` piece by piece, in float64."""

    def __init__(self, terms: LossTerms, device: torch.device) -> None:
        self.terms = terms
        self.total, self.nll, self.norms, self.squares = torch.zeros(4, dtype=torch.float64, device=device).unbind()

    def add(self, logits: Tensor, reached: Tensor, move: _Move | None, log_weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Add a piece of n predictions with K softmaxes each, and return what its gradient needs.

        The logits are overwritten. Multiplied by the factors, they are the gradient of the loss with respect to the logits,
        except for the shares, which are to be subtracted from the targets.

        Args:
            logits: (n K, V), after AdvSoft's move.
            reached: the targets' logits (n K, 1), before AdvSoft's move.
            move: AdvSoft's move, or None.
            log_weights: (n, C), or None for n predictions with one softmax each.

        Returns:
            Factors (n K, 1), and the share of each of the C parts in the probability of the target, (n, C); without
            ``log_weights`` ones (n, 1).
        """
        top = logits.amax(1, keepdim=True)
        sums = logits.sub_(top).exp_().sum(1, keepdim=True)
        norm = top + sums.log()
        plain = norm if move is None else top + (sums - (reached + move.logits - top).exp() + (reached - top).exp()).log()
        moved = 0 if move is None else move.logits
        of_targets, shares = mixed(norm - reached - moved, log_weights)
        self.nll += (of_targets if move is None else mixed(plain - reached, log_weights)[0]).sum(dtype=torch.float64)
        self.norms += plain.sum(dtype=torch.float64)
        self.squares += plain.square().sum(dtype=torch.float64)
        scale = sums.reciprocal_()  # exp(logits) times this is the softmax
        weight = self.terms.self_normalisation
        self.total += of_targets.sum(dtype=torch.float64) + weight * norm.square().sum(dtype=torch.float64)
        if log_weights is not None or weight:
            components = len(logits) // max(1, len(shares))
            scale *= shares[:, :components].reshape(-1, 1) + 2 * weight * norm
        return scale, shares

    def found(self) -> tuple[Tensor, ...]:
        """Return the sums in the order of ``Loss``."""
        return self.total, self.nll, self.norms, self.squares


def mixed(nll: Tensor, log_weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the negative log-probabilities (n,) of mixtures, and the share of each part in the probability, (n, C).

    Args:
        nll: those of the first K parts, (n K, 1).
        log_weights: (n, C): the logarithms of the weights of the first K parts, then of the probabilities of other parts.
    """
    if log_weights is None:
        return nll.squeeze(1), torch.ones_like(nll)
    of_parts = nll.view(len(log_weights), -1)
    parts = torch.cat((log_weights[:, : of_parts.size(1)] - of_parts, log_weights[:, of_parts.size(1) :]), dim=1)
    total = parts.logsumexp(1)
    return -total, (parts - total.unsqueeze(1)).exp()


class _Move:
    """AdvSoft's move of the targets' vectors: what it adds to their logits (N, 1), and the vectors (N, F) that it adds to them."""

    def __init__(self, epsilon: float, features: Tensor, of_targets: Tensor, product: Tensor) -> None:
        """Compute the move. ``of_targets`` (N, F) are the targets' rows w_y; ``product`` (N, 1) is w_y . h."""
        lengths = torch.linalg.vector_norm(features, dim=1, keepdim=True)
        steps = epsilon * torch.linalg.vector_norm(of_targets, dim=1, keepdim=True) * (product > 0)
        self.logits = -steps * lengths
        self.vectors = -steps / lengths.clamp(min=torch.finfo(lengths.dtype).tiny) * features


class _Products:
    """The three products of a piece and the sums of their gradients. The dtype is the features', at least the weight's."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor, rows: int, at_once: int, differentiate: bool) -> None:
        self.features, self.weight, self.bias = features, weight.to(features.dtype), bias
        self.some = features.new_zeros(round_up_to_few(rows), features.size(1))  # of a piece, then rows that do not count
        if differentiate:
            self.grad_features = torch.empty_like(features)
            self.grad_weight = features.new_zeros(0 if len(features) else weight.shape)

    def multiply(self, piece: slice) -> None:
        """Compute the logits of a piece, without the bias."""
        self.piece, count = piece, piece.stop - piece.start
        self.some[:count] = self.features[piece]
        self.some[count:] = 0
        self.held = product(self.some, self.weight.t())

    def logits(self, rows: slice) -> Tensor:
        """Return the logits of some rows of the piece, with the bias. They may be overwritten."""
        return self.held[_after(rows, self.piece.start)].add_(self.bias)

    def keep_errors(self, rows: slice, errors: Tensor) -> None:
        """Take the gradients of the logits of these rows, which are in the logits' memory."""

    def add_gradients(self) -> None:
        """Add those of the piece, after the gradients of all its logits were given."""
        count = self.piece.stop - self.piece.start
        self.held[count:] = 0
        self.grad_features[self.piece] = product(self.held, self.weight)[:count]
        of_piece = product(self.held.t(), self.some)
        self.grad_weight = self.grad_weight.add_(of_piece) if self.piece.start else of_piece


class _RoundedProducts:
    """``_Products`` with factors and results in the features' lower precision, and sums in the dtype of the bias."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor, rows: int, at_once: int, differentiate: bool) -> None:
        self.features, self.weight, self.bias = features, rounded(weight, features.dtype, rows=True), bias
        # Large buffers are reused: getting new memory pages from the system costs more than writing to them.
        self.low = features.new_zeros(round_up_to_few(rows), len(self.weight))
        self.low_features = features.new_zeros(len(self.low), self.weight.size(1))
        self.held = bias.new_empty(min(at_once, rows), len(weight))
        if differentiate:
            self.grad_features = bias.new_empty(features.shape)
            self.grad_weight = bias.new_empty(weight.shape) if len(features) else bias.new_zeros(weight.shape)

    def multiply(self, piece: slice) -> None:
        self.piece, features = piece, self.features[piece]
        self.low_features[: len(features), : features.size(1)] = features
        self.low_features[len(features) :] = 0
        product_into(self.low_features, self.weight.t(), self.low)

    def logits(self, rows: slice) -> Tensor:
        held = self.held[: rows.stop - rows.start]
        return held.copy_(self._of(rows)).add_(self.bias)

    def keep_errors(self, rows: slice, errors: Tensor) -> None:
        self._of(rows).copy_(errors)

    def _of(self, rows: slice) -> Tensor:
        return self.low[_after(rows, self.piece.start), : len(self.bias)]

    def add_gradients(self) -> None:
        words, size = self.grad_weight.shape
        # the rows after those of the piece belong to padded features, which are 0
        self.grad_features[self.piece] = product(self.low, self.weight)[: self.piece.stop - self.piece.start, :size]
        at_once = GRADIENT_ROWS if self.low.device.type == "cpu" else self.low.size(1)  # few stay in a CPU's cache
        for begin in range(0, words, at_once):
            sums = self.grad_weight[begin : begin + at_once]
            of_piece = product(left_factor(self.low[:, begin : begin + at_once].t()), self.low_features)[: len(sums), :size]
            if self.piece.start:
                sums += of_piece
            else:
                sums.copy_(of_piece)


def _after(rows: slice, begin: int) -> slice:
    """Return the slice counted from ``begin``."""
    return slice(rows.start - begin, rows.stop - begin)
