"""``--criterion lm_cross_entropy``: the language-modelling loss, computed in pieces, with the attention-entropy term of AMSRN."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.tasks import FairseqTask
from omegaconf import II
from torch import Tensor

from attlm_fairseq.errors import InputError
from attlm_fairseq.models._decoder import MemoryDecoder


@dataclass
class LMCrossEntropyConfig(FairseqDataclass):
    attention_entropy: float = field(
        default=0.0,
        metadata={
            "help": "lambda: weight of the entropy of the attention weights, added to the loss; positive rewards sparse attention. Where "
            "--task document_reset_lm carries a memory of fixed size (--attention-score single), all that was carried into a segment has "
            "one weight together: the entropy is over it and the states of the segment"
        },
    )
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("lm_cross_entropy", dataclass=LMCrossEntropyConfig)
class LMCrossEntropyCriterion(FairseqCriterion):
    """``C + lambda sum_u sum_t H(alpha_t)`` (Liu et al. 2016) with ``C`` the summed negative natural-log probability of the targets.

    The same loss as fairseq's ``cross_entropy`` where lambda is 0, in less time and memory, and exact for the adaptive softmax. The
    entropy sums over the predictions that count; what it was in the mean is logged as ``attention_entropy`` (nats). It is over the columns
    of the reader's weights: a memory of fixed size that is carried from segment to segment is one of them.
    """

    def __init__(self, task: FairseqTask, attention_entropy: float, sentence_avg: bool) -> None:
        super().__init__(task)
        self.attention_entropy = attention_entropy
        self.sentence_avg = sentence_avg

    def forward(self, model: torch.nn.Module, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict]:
        """A batch -> the summed loss, what the gradients are divided by, and what is logged."""
        if not isinstance(getattr(model, "decoder", None), MemoryDecoder):
            raise InputError("--criterion lm_cross_entropy is for the models of this package: give --criterion cross_entropy")
        need_weights = self.attention_entropy != 0
        nll, extra = model(**sample["net_input"], target=sample["target"], need_weights=need_weights)
        loss = nll
        log = {"nll_loss": nll.detach(), "ntokens": sample["ntokens"], "nsentences": sample["target"].size(0)}
        if need_weights:
            if extra["attn"] is None:
                raise InputError("--attention-entropy needs a model with attention weights; this one has none: leave the option out")
            entropy = attention_entropy(extra["attn"], sample["target"] != self.padding_idx)
            loss = nll + self.attention_entropy * entropy
            if model.training and not entropy.requires_grad:
                raise InputError("--attention-entropy has no effect on this model, whose attention weights are constants: leave it out")
            log["attention_entropy"] = entropy.detach()
        sample_size = sample["target"].size(0) if self.sentence_avg else sample["ntokens"]
        return loss, sample_size, {**log, "loss": loss.detach(), "sample_size": sample_size}

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        sums = {name: sum(float(log.get(name, 0)) for log in logging_outputs) for name in ("loss", "nll_loss", "ntokens", "sample_size")}
        if not sums["ntokens"]:
            return
        # base 2, as fairseq's own criterions log it; the entropy in nats, as the papers print it
        metrics.log_scalar("loss", sums["loss"] / sums["sample_size"] / math.log(2), sums["sample_size"], round=3)
        metrics.log_scalar("nll_loss", sums["nll_loss"] / sums["ntokens"] / math.log(2), sums["ntokens"], round=3)
        if any("attention_entropy" in log for log in logging_outputs):
            entropy = sum(float(log.get("attention_entropy", 0)) for log in logging_outputs)
            metrics.log_scalar("attention_entropy", entropy / sums["ntokens"], sums["ntokens"], round=4)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


def attention_entropy(weights: Tensor, counted: Tensor) -> Tensor:
    """``- sum_t sum_i alpha_ti ln alpha_ti`` over the positions ``counted`` (B, T) of weights (B, T, M), with 0 ln 0 = 0."""
    weights = weights.float()
    terms = weights * torch.log(weights.clamp(min=torch.finfo(torch.float32).tiny))  # finite gradients where a weight is 0
    return -(terms.sum(-1) * counted).sum()
