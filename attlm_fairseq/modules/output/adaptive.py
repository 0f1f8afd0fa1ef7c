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

from attlm_fairseq.modules.kernels.limits import limits_of
from attlm_fairseq.modules.kernels.linear_nll import PLAIN_LOSS, Loss, LossTerms
from attlm_fairseq.modules.kernels.softmax_events import no_check
from attlm_fairseq.modules.memory.reader import Read

DIVISION = 4.0  # each cluster of rarer words has features this many times smaller than the one before


class AdaptiveOutput(nn.Module):
    """Words by their ids: those below the first cutoff have a logit each, the others belong to a cluster between two cutoffs.

    ``p(w) = p(cluster) p(w | cluster)``: exact and normalised over all V words. Cheap where words are sorted by frequency, as in
    fairseq's dictionaries. Under autocast it computes in float32 all the same: torch's clusters do not take a lower precision.
    """

    needs_read: ClassVar[bool] = False

    def __init__(self, feature_size: int, vocabulary_size: int, cutoffs: Sequence[int]) -> None:
        """Raises ValueError where the cutoffs do not rise between 0 and V."""
        super().__init__()
        cutoffs = [int(cutoff) for cutoff in cutoffs]
        if not cutoffs or sorted(set(cutoffs)) != cutoffs or cutoffs[0] < 1 or cutoffs[-1] >= vocabulary_size:
            raise ValueError(
                f"the cutoffs of the adaptive softmax must rise and lie between 1 and the vocabulary's {vocabulary_size} words, "
                f"not {cutoffs}; for example --adaptive-cutoffs 2000,10000"
            )
        if feature_size < DIVISION ** len(cutoffs):
            raise ValueError(
                f"the adaptive softmax has too many cutoffs for features of {feature_size}: each cluster has {DIVISION:g} times fewer, "
                f"and at least {DIVISION ** len(cutoffs):g} are needed for {len(cutoffs)}"
            )
        self.clusters = nn.AdaptiveLogSoftmaxWithLoss(feature_size, vocabulary_size, cutoffs, DIVISION, head_bias=True)
        # logits of a prediction, at most: of the frequent words and the clusters, or within a cluster
        self.widest = max(cutoffs[0] + len(cutoffs), *(last - first for first, last in pairwise((*cutoffs, vocabulary_size))))

    def forward(self, features: Tensor, read: Read | None = None) -> Tensor:
        """Features (.., F) -> natural-log probabilities (.., V) of all words."""
        with torch.autocast(features.device.type, enabled=False):
            return self.clusters.log_prob(self._exact(features).flatten(0, -2)).unflatten(0, features.shape[:-1])

    def nll(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        """Features (N, F) and words (N,) -> the sum of their negative natural-log probabilities; every word counts, padding included."""
        with torch.autocast(features.device.type, enabled=False):
            features = self._exact(features)
            log_probs = self.clusters(features, targets).output
            total = -log_probs.sum(dtype=torch.promote_types(log_probs.dtype, torch.float32))
            used = torch.bucketize(targets, targets.new_tensor(self.clusters.cutoffs[:-1]), right=True).unique().tolist()
            for number, cluster in enumerate(self.clusters.tail, start=1):
                if number not in used:  # torch leaves it out; read with no prediction its gradients are zeros, which torch's DDP waits for
                    total = total + cluster(features.new_empty(0, features.size(1))).sum()
            return total

    def loss(self, features: Tensor, targets: Tensor, read: Read | None, terms: LossTerms) -> Loss:
        """As ``nll``. Its clusters have a normaliser each, so there is no ln Z: it is given as 0."""
        if terms != PLAIN_LOSS:
            raise ValueError(
                "AdvSoft and self-normalisation are terms of a full softmax, not of the adaptive one: give --output-layer tied"
            )
        total = self.nll(features, targets, read)
        return Loss(total, total.detach(), total.new_zeros(()), total.new_zeros(()))

    def log_probs_of(self, features: Tensor, targets: Tensor, read: Read | None = None) -> Tensor:
        """Features (N, F) and words (N,) -> the words' natural-log probabilities (N,), their clusters alone computed."""
        with torch.autocast(features.device.type, enabled=False):
            return self.clusters(self._exact(features), targets).output

    def log_probs(self, features: Tensor, read: Read | None = None) -> Tensor:
        """As ``forward``: the logits are log-probabilities already."""
        return self(features)

    @torch.no_grad()
    def with_temperature(self, temperature: float) -> AdaptiveOutput:
        """Divide the logits of the frequent words and the clusters, and those within each cluster."""
        cooled = copy.deepcopy(self)
        for part in (cooled.clusters.head, *(list(cluster.children())[-1] for cluster in cooled.clusters.tail)):
            for parameter in part.parameters():
                parameter.div_(temperature)
        return cooled

    def events(self, rounded: Callable[[Tensor], Tensor] | None = None) -> Callable[..., Tensor]:
        """Return what scores single words; in the precision of the weights whatever is wanted, since torch's clusters take no other."""
        return partial(events_log_probs, self)

    @property
    def bias(self) -> Tensor:
        """The biases of the frequent words and of the clusters; the words within a cluster have none."""
        return self.clusters.head.bias

    @torch.no_grad()
    def init_bias(self, log_probs: Tensor) -> None:
        """The clusters are predicted by their frequencies, and the words within one all alike."""
        first, *others = self.clusters.cutoffs  # the last is V
        clusters = [part.logsumexp(0) for part in log_probs.tensor_split([first, *others[:-1]])[1:]]
        self.bias.copy_(torch.cat((log_probs[:first], torch.stack(clusters))))

    def _exact(self, features: Tensor) -> Tensor:
        """In the precision of the weights."""
        return features.to(self.clusters.head.weight.dtype)


def events_log_probs(
    layer: AdaptiveOutput, features: Tensor, contexts: Tensor, words: Tensor, check: Callable[[], None] = no_check
) -> Tensor:
    """As ``EventLogProbs`` has it. A cluster's normaliser is needed by its own events alone, so nothing is shared."""
    at_once = max(1, limits_of(features.device).event_numbers // max(features.size(1), layer.widest))
    found = []
    for context, word in zip(contexts.split(at_once), words.split(at_once), strict=True):
        check()
        found.append(layer.log_probs_of(features.index_select(0, context), word))
    return torch.cat(found)
