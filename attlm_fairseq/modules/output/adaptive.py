"""The adaptive softmax of Grave et al. (2017) as an output layer: frequent words at full size, rare ones in smaller clusters.

Shapes: N predictions, F features, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.kernels.limits import limits_of
from attlm_fairseq.modules.kernels.linear_nll import PLAIN_LOSS, Loss, LossTerms
from attlm_fairseq.modules.kernels.low_precision import MakeLinear
from attlm_fairseq.modules.kernels.softmax_events import no_check
from attlm_fairseq.modules.memory.reader import Read
from attlm_fairseq.modules.output.softmax import refuse_balance, require_exact

DIVISION = 4.0  # the feature size of each cluster is that of the previous cluster divided by this


class AdaptiveOutput(BiasesStartAtZero, nn.Module):
    """The adaptive softmax. Words with ids below the first cutoff have a logit each; others belong to clusters between cutoffs.

    ``p(w) = p(cluster) p(w | cluster)`` is exact and normalised over all V words. It is fast if ids are sorted by word
    frequency, as in fairseq's dictionaries. It computes in float32 even under autocast, since torch's clusters do not
    support a lower precision.
    """

    needs_read: ClassVar[bool] = False

    def __init__(self, feature_size: int, vocabulary_size: int, cutoffs: Sequence[int]) -> None:
        """Build the clusters. Raises ValueError if the cutoffs are not rising numbers from 1 to V - 1, or too many for the features."""
        super().__init__()
        cutoffs = [int(cutoff) for cutoff in cutoffs]
        if not cutoffs or sorted(set(cutoffs)) != cutoffs or cutoffs[0] < 1 or cutoffs[-1] >= vocabulary_size:
            raise ValueError(
                f"the cutoffs of the adaptive softmax must rise and lie between 1 and the vocabulary's {vocabulary_size} words, "
                f"not {cutoffs}; for example --adaptive-cutoffs {max(1, vocabulary_size // 10)},{max(2, vocabulary_size // 2)}"
            )
        if feature_size < DIVISION ** len(cutoffs):
            raise ValueError(
                f"the adaptive softmax has too many cutoffs for features of {feature_size}: each cluster has {DIVISION:g} times fewer, "
                f"and at least {DIVISION ** len(cutoffs):g} are needed for {len(cutoffs)}"
            )
        self.clusters = nn.AdaptiveLogSoftmaxWithLoss(feature_size, vocabulary_size, cutoffs, DIVISION, head_bias=True)
        self.vector_size = feature_size
        # the largest number of logits of one softmax: over frequent words and clusters, or within a cluster
        self.widest = max(cutoffs[0] + len(cutoffs), *(last - first for first, last in pairwise((*cutoffs, vocabulary_size))))

    def forward(self, features: Tensor, read: Read | None = None) -> Tensor:
        """Return the natural-log probabilities (.., V) of all words for features (.., F)."""
        with torch.autocast(features.device.type, enabled=False):
            return self.clusters.log_prob(self._exact(features).flatten(0, -2)).unflatten(0, features.shape[:-1])

    def nll(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        """Return the sum of the targets' negative natural-log probabilities. Every target counts, padding included."""
        with torch.autocast(features.device.type, enabled=False):
            features = self._exact(features)
            log_probs = self.clusters(features, targets).output
            total = -log_probs.sum(dtype=torch.promote_types(log_probs.dtype, torch.float32))
            used = torch.bucketize(targets, targets.new_tensor(self.clusters.cutoffs[:-1]), right=True).unique().tolist()
            for number, cluster in enumerate(self.clusters.tail, start=1):
                if number not in used:  # torch skips unused clusters, but its DDP waits for their gradients: make them zeros
                    total = total + cluster(features.new_empty(0, features.size(1))).sum()
            return total

    def loss(self, features: Tensor, targets: Tensor, read: Read | None, terms: LossTerms, counted: Tensor | None = None) -> Loss:
        """Return ``nll`` as a ``Loss``. Each cluster has its own normaliser, so no single ln Z exists: it is returned as 0."""
        refuse_balance(terms)
        if terms != PLAIN_LOSS:
            raise ValueError(
                "AdvSoft and self-normalisation are terms of a full softmax, not of the adaptive one: give --output-layer tied"
            )
        total = self.nll(features, targets, read)
        return Loss(total, total.detach(), total.new_zeros(()), total.new_zeros(()))

    def log_probs_of(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        """Return the natural-log probabilities (N,) of the targets (N,). Only the clusters of these words are computed."""
        with torch.autocast(features.device.type, enabled=False):
            return self.clusters(self._exact(features), targets).output

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        """Return ``forward``: its logits are already log-probabilities."""
        return self(features)

    @torch.no_grad()
    def with_temperature(self, temperature: float) -> AdaptiveOutput:
        """Return a layer that divides all its logits: of frequent words, of clusters, and within each cluster."""
        cooled = copy.deepcopy(self)
        for part in (cooled.clusters.head, *(list(cluster.children())[-1] for cluster in cooled.clusters.tail)):
            for parameter in part.parameters():
                parameter.div_(temperature)
        return cooled

    def events(self, rounded: Callable[[Tensor], Tensor] | None = None, normaliser: str = "exact") -> Callable[..., Tensor]:
        """Return a function that scores single words. It ignores ``rounded``: torch's clusters support no lower precision."""
        require_exact(normaliser)
        return partial(events_log_probs, self)

    def steps(self, make: MakeLinear) -> AdaptiveOutput:
        """Return this layer: torch's clusters support no lower precision."""
        return self

    @property
    def bias(self) -> Tensor:
        """The biases of the frequent words and of the clusters. Words within a cluster have no bias."""
        return self.clusters.head.bias

    @torch.no_grad()
    def init_bias(self, log_probs: Tensor) -> None:
        """Set the biases so that features of zero predict the cluster frequencies, with uniform words within a cluster."""
        first, *others = self.clusters.cutoffs  # the last is V
        clusters = [part.logsumexp(0) for part in log_probs.tensor_split([first, *others[:-1]])[1:]]
        self.bias.copy_(torch.cat((log_probs[:first], torch.stack(clusters))))

    def _exact(self, features: Tensor) -> Tensor:
        """Compute outside autocast, in the precision of the weights."""
        return features.to(self.clusters.head.weight.dtype)


def events_log_probs(
    layer: AdaptiveOutput,
    features: Tensor,
    contexts: Tensor,
    words: Tensor,
    check: Callable[[], None] = no_check,
    read: Read | None = None,
) -> Tensor:
    """Implement ``EventLogProbs``. Only the events of a cluster need its normaliser, so contexts share no computation."""
    at_once = max(1, limits_of(features.device).event_numbers // max(features.size(1), layer.widest))
    found = []
    for context, word in zip(contexts.split(at_once), words.split(at_once), strict=True):
        check()
        found.append(layer.log_probs_of(features.index_select(0, context), word))
    return torch.cat(found)
