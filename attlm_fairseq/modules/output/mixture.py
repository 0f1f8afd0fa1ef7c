"""Mixtures of softmaxes: MoS (Yang et al. 2018) and direct output connections, DOC (Takase, Suzuki and Nagata 2018).

Shapes: N predictions, F features (F' of the reader), K softmaxes, E size of a word's vector, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.kernels.dropout import dropout
from attlm_fairseq.modules.kernels.limits import limits_of
from attlm_fairseq.modules.kernels.linear_nll import PLAIN_LOSS, Loss, LossTerms, linear_loss
from attlm_fairseq.modules.kernels.low_precision import Bfloat16Linear, MakeLinear
from attlm_fairseq.modules.kernels.softmax_events import SoftmaxEvents, no_check
from attlm_fairseq.modules.memory.reader import Read
from attlm_fairseq.modules.output.softmax import OneMatrix, log_softmax, require_exact


def parse_softmaxes(text: str, layers: int) -> tuple[int, ...]:
    """Parse the option ``--softmaxes``: numbers of softmaxes over the features and over each layer below the top, downwards.

    Args:
        text: such as ``1``, ``15`` or ``15,5``.
        layers: the number of layers of the recurrence.

    Raises:
        ValueError: anything else, or more numbers than layers.
    """
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts) or int(parts[0]) < 1:
        raise ValueError(
            f"--softmaxes {text!r}: expected a whole number, at least 1, such as 15, or several joined by commas, such as 15,5, "
            "for the features and the layers below the top one"
        )
    if len(parts) > layers:
        raise ValueError(f"--softmaxes {text!r} is for {len(parts)} layers, the model has {layers}: leave numbers out")
    return tuple(map(int, parts))


class Mixture(OneMatrix):
    r"""``p = sum_k pi_k softmax(W z_k + b)`` with ``z_k = tanh(L_k f_k + c_k)`` and ``pi = softmax(P f)``.

    ``f`` are the features of the memory reader. In MoS, all ``f_k = f``. In DOC, the first K_1 softmaxes have ``f_k = f``, the
    others the output of a lower layer of the recurrence. The matrix W (V, E) may be shared with the embeddings.

    The cost is that of K softmaxes, in training and in scoring. Only the targets' logits and K normalisers are computed for
    each prediction, except in decoders, which need all words.

    In training, dropout is applied to ``z_k``. Locked dropout has one mask for all positions of a row of the batch, as in the papers.
    """

    needs_read: ClassVar[bool] = False

    def __init__(
        self,
        sizes: Sequence[int],
        counts: Sequence[int],
        vector_size: int,
        vocabulary_size: int,
        dropout_latent: float = 0.0,
        locked: bool = False,
    ) -> None:
        """Build the layer.

        Args:
            sizes: F', then the sizes of the outputs of lower layers. Features are the concatenation of all of these.
            counts: the number of softmaxes over each of them.
            vector_size: E.
            vocabulary_size: V.
            dropout_latent: dropout probability of the ``z_k`` in training.
            locked: whether this dropout is locked.
        """
        super().__init__()
        self.sizes, self.vector_size = tuple(sizes), vector_size
        self.dropout_latent, self.locked = dropout_latent, locked
        self.weight = nn.Parameter(torch.empty(vocabulary_size, vector_size).uniform_(-0.05, 0.05))  # W
        self.bias = nn.Parameter(torch.zeros(vocabulary_size))  # b
        self.latents = nn.ModuleList(
            nn.Linear(size, count * vector_size) for size, count in zip(sizes, counts, strict=True)
        )  # L_k, c_k, of all k with the same f_k
        self.prior = nn.Linear(sizes[0], sum(counts), bias=False)  # P

    @property
    def projections(self) -> list[nn.Linear]:
        """The layers of ``latents``, typed for mypy: ``nn.ModuleList`` does not know the type of its elements."""
        return list(cast("Sequence[nn.Linear]", self.latents))

    def components(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return ``z`` (.., K, E) and ``ln pi`` (.., K), at least float32, for features (.., F)."""
        latents = latents_of(features, self.sizes, self.latents, self.vector_size)
        with torch.autocast(features.device.type, enabled=False):
            logits = self.prior(features[..., : self.sizes[0]].to(self.prior.weight.dtype))
        return latents, log_softmax(logits)

    def forward(self, features: Tensor, read: Read | None = None) -> Tensor:
        """Return the natural-log probabilities (.., V) of all words for features (.., F), in the dtype of the features."""
        return self.log_probs(features).to(features.dtype)

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        latents, log_priors = self.components(features)
        latents = self._dropped(latents)
        return mixture_log_probs(log_priors, (nn.functional.linear(z, self.weight, self.bias) for z in latents.unbind(-2)))

    def nll(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        return self.loss(features, targets, read, PLAIN_LOSS).total

    def loss(self, features: Tensor, targets: Tensor, read: Read | None, terms: LossTerms, counted: Tensor | None = None) -> Loss:
        """Return the loss; each softmax has its own normaliser, so no single ln Z exists: it is returned as 0.

        The balancing term of Takase et al. (2018, section 3.3) is ``N balance (s / m)^2``. ``s`` and ``m`` are standard
        deviation (over K - 1, as torch computes it) and mean, over the softmaxes, of their priors summed over the N
        predictions. It keeps the model from using a few softmaxes only; the paper's weight is 0.001.
        """
        if terms.self_normalisation:
            raise ValueError("--self-normalisation is a term of a single softmax: give --softmaxes 1, or leave it out")
        latents, log_priors = self.components(features)
        latents = self._dropped(latents, counted)
        found = linear_loss(latents.flatten(0, 1), self.weight, self.bias, targets, terms, log_priors)
        total = found.total
        if terms.balance and len(features):
            sums = log_priors.exp().sum(0)
            total = total + terms.balance * len(features) * sums.var() / sums.mean().square()
        return Loss(total, found.nll, torch.zeros_like(found.nll), torch.zeros_like(found.nll))

    def _dropped(self, latents: Tensor, counted: Tensor | None = None) -> Tensor:
        """Return ``z`` (B, T, K, E), or (N, K, E) of the predictions ``counted`` (B, T), after dropout.

        Without ``counted``, locked dropout takes each of N predictions for a row.
        """
        if not (self.locked and self.training and self.dropout_latent):
            return dropout(latents, self.dropout_latent, self.training)
        rows, *positions = latents.shape[:-2] if counted is None else counted.shape
        mask = dropout(latents.new_ones(rows, *[1] * len(positions), *latents.shape[-2:]), self.dropout_latent, True)
        if counted is not None:
            mask = mask.expand(-1, *positions, -1, -1)[counted]
        return latents * mask

    def events(self, rounded: Callable[[Tensor], Tensor] | None = None, normaliser: str = "exact") -> MixtureEvents:
        require_exact(normaliser)
        return MixtureEvents(self, rounded)

    def steps(self, make: MakeLinear) -> MixtureSteps:
        return MixtureSteps(self, make)


class MixtureEvents:
    """Computes log-probabilities of single words under a ``Mixture``: K normalisers per context, K logits per event."""

    def __init__(self, mixture: Mixture, rounded: Callable[[Tensor], Tensor] | None) -> None:
        """Use a mixture. If ``rounded`` is given, normalisers and the ``z_k`` are computed with products in lower precision."""
        self.softmax = SoftmaxEvents(mixture.weight, mixture.bias, rounded(mixture.weight) if rounded else None)
        self.mixture = mixture
        self.latents = [Bfloat16Linear(layer.weight, layer.bias) if rounded else layer for layer in mixture.projections]

    def __call__(
        self, features: Tensor, contexts: Tensor, words: Tensor, check: Callable[[], None] = no_check, read: Read | None = None
    ) -> Tensor:
        """See ``EventLogProbs``. The ``z_k`` of an event's context are computed twice, so that few are held at a time."""
        components = self.mixture.prior.out_features
        at_once = max(1, limits_of(features.device).event_numbers // (2 * components * self.mixture.vector_size))
        norms = features.new_empty(len(features), components)
        for some, of_some in zip(features.split(at_once), norms.split(at_once), strict=True):
            of_some.copy_(self.softmax.normalisers(self._latents(some).flatten(0, 1), check).view_as(of_some))
        values = features.new_empty(len(contexts))
        for context, word, value in zip(contexts.split(at_once), words.split(at_once), values.split(at_once), strict=True):
            check()
            some = features.index_select(0, context)
            own = torch.linalg.vecdot(self._latents(some), self.softmax.weight.index_select(0, word).unsqueeze(1))
            log_priors = log_softmax(self.mixture.prior(some[:, : self.mixture.sizes[0]]))
            value.copy_((log_priors + own + self.softmax.bias[word].unsqueeze(1) - norms[context]).logsumexp(1))
        return values

    def _latents(self, features: Tensor) -> Tensor:
        return latents_of(features, self.mixture.sizes, self.latents, self.mixture.vector_size)


class MixtureSteps(nn.Module):
    """A ``Mixture`` for decoders, over logits that are computed in lower precision."""

    needs_read: ClassVar[bool] = False

    def __init__(self, mixture: Mixture, make: MakeLinear) -> None:
        super().__init__()
        self.sizes, self.vector_size = mixture.sizes, mixture.vector_size
        self.latents = nn.ModuleList(make(layer.weight, layer.bias) for layer in mixture.projections)
        self.prior = mixture.prior
        self.logits = make(mixture.weight, mixture.bias)

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        """Return natural-log probabilities (N, V) for features (N, F), with the normalisers in float32."""
        latents = latents_of(features, self.sizes, self.latents, self.vector_size)
        log_priors = log_softmax(self.prior(features[:, : self.sizes[0]]))
        return mixture_log_probs(log_priors, (self.logits(z) for z in latents.unbind(-2)))


def latents_of(features: Tensor, sizes: Sequence[int], layers: Iterable[nn.Module], vector_size: int) -> Tensor:
    """Return ``z`` (.., K, E) for features (.., F): each layer is applied to the part of the features of its size."""
    parts = [layer(part) for layer, part in zip(layers, features.split(list(sizes), dim=-1), strict=True)]
    return torch.tanh(torch.cat(parts, dim=-1)).unflatten(-1, (-1, vector_size))


def mixture_log_probs(log_priors: Tensor, logits: Iterable[Tensor]) -> Tensor:
    """Return ``ln sum_k pi_k softmax(logits_k)`` (.., V), one softmax at a time, for ``ln pi`` (.., K) and K logits (.., V)."""
    total = None
    for log_prior, of_one in zip(log_priors.unbind(-1), logits, strict=True):
        part = log_softmax(of_one) + log_prior.unsqueeze(-1)
        total = part if total is None else torch.logaddexp(total, part)
    assert total is not None, "a mixture has softmaxes"
    return total
