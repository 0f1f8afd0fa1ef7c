"""``--criterion lm_cross_entropy``: the language-modelling loss, computed in pieces, with the attention-entropy term of AMSRN."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

import math
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.tasks import FairseqTask
from omegaconf import II
from torch import Tensor

from attlm_fairseq.criterions.teacher import Teachers, load_teachers
from attlm_fairseq.errors import InputError
from attlm_fairseq.models._decoder import MemoryDecoder, Taught
from attlm_fairseq.modules.kernels.linear_nll import PLAIN_LOSS, LossTerms


@dataclass
class LMCrossEntropyConfig(FairseqDataclass):
    attention_entropy: float = field(
        default=0.0,
        metadata={
            "help": "lambda: factor of the entropy of the attention weights in the loss; a positive value favours sparse attention. "
            "If --task document_reset_lm carries a memory of fixed size (--attention-score single), everything carried into a "
            "segment counts as one state in the entropy"
        },
    )
    activation_reg: float = field(
        default=0.0, metadata={"help": "AR's alpha: factor of the mean square of the features after dropout (AWD-LSTM: 2)"}
    )
    temporal_activation_reg: float = field(
        default=0.0,
        metadata={"help": "TAR's beta: factor of the mean squared change of a state from one position to the next (AWD-LSTM: 1)"},
    )
    adversarial_softmax: float = field(
        default=0.0,
        metadata={
            "help": "AdvSoft's epsilon: a target's vector is moved away from the features by this share of its length (paper: 0.005)"
        },
    )
    self_normalisation: float = field(
        default=0.0,
        metadata={
            "help": "factor of the mean square of ln Z, the log-normaliser of the softmax. It trains ln Z towards 0, so that scoring "
            "can skip the normaliser (Devlin et al.: 0.1). Mean and variance of ln Z are logged"
        },
    )
    mixture_balance: float = field(
        default=0.0,
        metadata={
            "help": "factor of the squared coefficient of variation of the softmaxes' shares in a mixture, which keeps all of them in "
            "use (Takase et al.: 0.001)"
        },
    )
    teacher: Optional[str] = field(
        default=None,
        metadata={
            "help": "LM of this package to learn from (knowledge distillation): a checkpoint or folder with the same dictionary, or "
            "several joined by ':', whose probabilities are averaged"
        },
    )
    teacher_weight: float = field(
        default=0.5, metadata={"help": "share of the teacher's probabilities in what is learnt; the words of the text have the rest"}
    )
    sentence_avg: bool = II("optimization.sentence_avg")


@register_criterion("lm_cross_entropy", dataclass=LMCrossEntropyConfig)
class LMCrossEntropyCriterion(FairseqCriterion):
    """``C`` and, in training, the terms whose weights are not 0, with ``C`` the summed negative natural-log probability of the targets.

    - attention entropy (Liu et al. 2016): ``lambda sum_u sum_t H(alpha_t)``, over the predictions that count;
    - AR and TAR (Merity, Keskar and Socher 2018): ``N (alpha mean f^2 + beta mean (h_{t+1} - h_t)^2)`` for N predictions, features ``f``
      after dropout and outputs ``h`` of the recurrence before it; padding is left out;
    - AdvSoft and self-normalisation: see ``LossTerms``;
    - the balance of a mixture of softmaxes: see ``Mixture.loss``;
    - a teacher (Hinton, Vinyals and Dean 2015): ``(1 - w) C - w sum_n sum_v q_n(v) ln p_n(v)`` with the teacher's probabilities ``q``.
      Here ``C`` includes the terms of the output layer: AdvSoft, self-normalisation, balance and the auxiliary loss of a pointer.

    The same loss as fairseq's ``cross_entropy`` without terms, in less time and memory, and exact for the adaptive softmax. The entropy
    is over the columns of the reader's weights: a memory of fixed size that is carried from segment to segment is one of them.
    """

    def __init__(
        self,
        task: FairseqTask,
        attention_entropy: float,
        activation_reg: float,
        temporal_activation_reg: float,
        adversarial_softmax: float,
        self_normalisation: float,
        mixture_balance: float,
        teacher: str | None,
        teacher_weight: float,
        sentence_avg: bool,
    ) -> None:
        """Set the factors of the terms.

        Raises:
            InputError: a factor is not a finite number or, except ``attention_entropy``, negative; or the teacher's weight is not
                above 0 and at most 1, is given without a teacher, or is 1 with terms of the softmax.
        """
        super().__init__(task)
        self._task = {name: getattr(task.cfg, name, None) for name in ("_name", "reset", "reset_every")}  # where states are reset
        self.attention_entropy = attention_entropy
        self.activation_reg, self.temporal_activation_reg = activation_reg, temporal_activation_reg
        self.terms = LossTerms(adversarial_softmax, self_normalisation, mixture_balance)
        self.sentence_avg = sentence_avg
        weights = {
            "--activation-reg": activation_reg,
            "--temporal-activation-reg": temporal_activation_reg,
            "--adversarial-softmax": adversarial_softmax,
            "--self-normalisation": self_normalisation,
            "--mixture-balance": mixture_balance,
        }
        for name, weight in weights.items():
            if not 0 <= weight < math.inf:  # nan too
                raise InputError(f"{name} {weight}: expected a number, 0 or above")
        if not math.isfinite(attention_entropy):
            raise InputError(f"--attention-entropy {attention_entropy}: expected a number")
        if not 0 < teacher_weight <= 1:
            raise InputError(f"--teacher-weight {teacher_weight}: expected a number above 0, at most 1")
        if teacher is None and teacher_weight != LMCrossEntropyConfig.teacher_weight:
            raise InputError(f"--teacher-weight {teacher_weight} has no effect without --teacher: give the LM to learn from")
        if teacher_weight == 1 and self.terms != PLAIN_LOSS:
            raise InputError(
                "--teacher-weight 1 leaves nothing of the loss with the words of the text, and of its terms --adversarial-softmax, "
                "--self-normalisation and --mixture-balance: leave these out, or give a smaller weight"
            )
        self.teacher, self.teacher_weight = teacher, teacher_weight
        self.dictionary = task.target_dictionary
        self._teachers: Teachers | None = None

    def forward(self, model: torch.nn.Module, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict]:
        """Return the summed loss of a batch, the number by which fairseq divides its gradients, and the values to log."""
        decoder = getattr(model, "decoder", None)
        if not isinstance(decoder, MemoryDecoder):
            raise InputError("--criterion lm_cross_entropy is for the models of this package: give --criterion cross_entropy")
        need_weights = self.attention_entropy != 0
        terms = self.terms if model.training else PLAIN_LOSS
        taught = self.taught(decoder, sample["net_input"]) if model.training and self.teacher is not None else None
        try:
            total, extra = model(**sample["net_input"], target=sample["target"], need_weights=need_weights, terms=terms, taught=taught)
        except ValueError as error:
            if terms == PLAIN_LOSS:
                raise
            raise InputError(str(error)) from error  # a term that the output layer does not support
        found = extra["loss"]
        counted = sample["target"] != self.padding_idx
        log = {"nll_loss": found.nll, "ntokens": sample["ntokens"], "nsentences": sample["target"].size(0)}
        if self.terms.self_normalisation:
            log |= {"log_normaliser": found.log_normaliser, "squared_log_normaliser": found.squared_log_normaliser}
        loss = total
        if need_weights:
            entropy = self.entropy(model, extra["attn"], counted)
            if model.training:
                loss = loss + self.attention_entropy * entropy
            log["attention_entropy"] = entropy.detach()
        if model.training and self.activation_reg:
            loss = loss + self.activation_reg * activation(extra["features"], counted)
        if model.training and self.temporal_activation_reg:
            loss = loss + self.temporal_activation_reg * temporal_activation(extra["states"], counted)
        sample_size = sample["target"].size(0) if self.sentence_avg else sample["ntokens"]
        return loss, sample_size, {**log, "loss": loss.detach(), "sample_size": sample_size}

    def taught(self, student: MemoryDecoder, batch: dict[str, Any]) -> Taught:
        """Return what the teacher predicts in a batch. Products are in the precision of the student's."""
        if self._teachers is None:  # only now: an evaluation has no need of them
            self._teachers = load_teachers(str(self.teacher), self.dictionary.symbols, self._task)
        device = batch["src_tokens"].device
        with torch.autocast(device.type, torch.bfloat16, enabled=student.low(device)):
            return Taught(self._teachers.probabilities(**batch), self.teacher_weight)

    def entropy(self, model: torch.nn.Module, weights: Tensor | None, counted: Tensor) -> Tensor:
        """Return ``attention_entropy`` of the model's weights. Raises InputError if the model has no trainable attention."""
        if weights is None:
            raise InputError("--attention-entropy needs a memory reader with attention weights; this model has none: leave the option out")
        entropy = attention_entropy(weights, counted)
        if model.training and not entropy.requires_grad:
            raise InputError("--attention-entropy has no effect on this model, whose attention weights are constants: leave it out")
        return entropy

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        def total(name: str) -> float:
            return sum(float(log.get(name, 0)) for log in logging_outputs)

        tokens = total("ntokens")
        if not tokens:
            return
        # base 2, as fairseq's own criterions log it; the entropy and the normaliser in nats, as the papers print them
        metrics.log_scalar("loss", total("loss") / total("sample_size") / math.log(2), total("sample_size"), round=3)
        metrics.log_scalar("nll_loss", total("nll_loss") / tokens / math.log(2), tokens, round=3)
        # as fairseq's cross_entropy does, for its tasks; where this package's tasks have logged their own `ppl` before, theirs stays
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        if any("attention_entropy" in log for log in logging_outputs):
            metrics.log_scalar("attention_entropy", total("attention_entropy") / tokens, tokens, round=4)
        if any("log_normaliser" in log for log in logging_outputs):
            metrics.log_scalar("log_normaliser", total("log_normaliser") / tokens, tokens, round=4)
            metrics.log_scalar("_squared_log_normaliser", total("squared_log_normaliser") / tokens, tokens, round=6)
            metrics.log_derived(
                "log_normaliser_variance",
                lambda meters: round(meters["_squared_log_normaliser"].avg - meters["log_normaliser"].avg ** 2, 5),
            )

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


def activation(features: Tensor, counted: Tensor) -> Tensor:
    """Return ``N mean f^2`` over the N positions ``counted`` (B, T) of features (B, T, F)."""
    return (features.float().square().mean(2) * counted).sum()


def temporal_activation(states: Tensor, counted: Tensor) -> Tensor:
    """Return ``N mean (h_{t+1} - h_t)^2`` over neighbouring pairs of the N positions ``counted`` (B, T) of states (B, T, H)."""
    both = counted[:, 1:] & counted[:, :-1]
    changes = (states[:, 1:] - states[:, :-1]).float().square().mean(2) * both
    return counted.sum() * changes.sum() / both.sum().clamp(min=1)


def attention_entropy(weights: Tensor, counted: Tensor) -> Tensor:
    """Return ``- sum_t sum_i alpha_ti ln alpha_ti`` over the positions ``counted`` (B, T) of weights (B, T, M); 0 ln 0 = 0."""
    weights = weights.float()
    terms = weights * torch.log(weights.clamp(min=torch.finfo(torch.float32).tiny))  # finite gradients where a weight is 0
    return -(terms.sum(-1) * counted).sum()
