"""Training options of fairseq that the tasks use or refuse, because they would have no effect or cannot work."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from omegaconf import II

from attlm_fairseq.errors import InputError
from attlm_fairseq.models._choices import ChoiceOptions
from attlm_fairseq.models._refused_options import refuse_model_options
from attlm_fairseq.tasks._averaging import AVERAGES


@dataclass
class TrainingOptions(ChoiceOptions):
    """Base class of the tasks' configs.

    Use these options only in training. The config of a loaded checkpoint may lack the options to which they refer.
    """

    average: str = field(
        default="none",
        metadata={
            "choices": AVERAGES,
            "help": "validate and save averaged weights: the mean since validation stopped improving (nt-asgd) or "
            "since the first update (asgd), both meant for --optimizer sgd, or an exponential moving average (ema)",
        },
    )
    average_window: int = field(
        default=5,
        metadata={"help": "nt-asgd: start averaging if a validation is worse than the best one more than N validations ago"},
    )
    average_decay: float = field(
        default=0.999, metadata={"help": "ema: factor of the old average in update t, which is at most (1 + t) / (10 + t)"}
    )
    max_target_positions: int = field(
        default=1024, metadata={"help": "models of fairseq's own, such as transformer_lm: length of the longest sentence, its end included"}
    )
    amp: bool = II("common.amp")
    fp16: bool = II("common.fp16")
    bf16: bool = II("common.bf16")
    cpu: bool = II("common.cpu")
    seed: int = II("common.seed")
    batch_size: Optional[int] = II("dataset.batch_size")
    train_subset: str = II("dataset.train_subset")
    disable_validation: bool = II("dataset.disable_validation")
    curriculum: int = II("dataset.curriculum")
    grouped_shuffling: bool = II("dataset.grouped_shuffling")
    update_epoch_batch_itr: bool = II("dataset.update_epoch_batch_itr")
    skip_remainder_batch: Optional[bool] = II("optimization.skip_remainder_batch")
    save_dir: str = II("checkpoint.save_dir")
    restore_file: str = II("checkpoint.restore_file")
    checkpoint_suffix: str = II("checkpoint.checkpoint_suffix")
    max_tokens: Optional[int] = II("dataset.max_tokens")
    max_tokens_valid: Optional[int] = II("dataset.max_tokens_valid")
    # fairseq-eval-lm takes the window away from it before there is a task to ask, and then asks for batches with a window: refused there
    tokens_per_sample: int = II("eval_lm.context_window")
    finetune_from_model: Optional[str] = II("checkpoint.finetune_from_model")
    continue_once: Optional[str] = II("checkpoint.continue_once")
    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")
    maximize_best_checkpoint_metric: bool = II("checkpoint.maximize_best_checkpoint_metric")
    reset_meters: bool = II("checkpoint.reset_meters")
    reset_optimizer: bool = II("checkpoint.reset_optimizer")
    patience: int = II("checkpoint.patience")
    valid_subset: str = II("dataset.valid_subset")
    batch_size_valid: Optional[int] = II("dataset.batch_size_valid")


def refuse_options(task: TrainingOptions, model: Any) -> None:
    """Raise InputError for options, of a task or of the model that it is to train, that have no effect or cannot work."""
    for option in ("batch_size", "batch_size_valid"):
        if (size := getattr(task, option)) is not None and size < 1:
            raise InputError(f"--{option.replace('_', '-')} {size}: expected at least 1")
    if task.disable_validation and task.patience > 0:
        raise InputError("--patience counts validations: leave --disable-validation out, or --patience")
    if task.amp:  # the models choose the precision of each computation themselves
        raise InputError("--amp has no effect on these models: give --compute-dtype bf16, or leave it out")
    for option in ("fp16", "bf16"):
        if getattr(task, option) and (task.cpu or not torch.cuda.is_available()):
            raise InputError(f"--{option} does not work without a GPU: give --compute-dtype bf16, or leave it out")
    if getattr(model, "cuda_graphs", False) and (task.cpu or not torch.cuda.is_available()):
        raise InputError("--cuda-graphs has no effect without a GPU: leave it out")
    _refuse_averaging(task)
    for option in ("curriculum", "grouped_shuffling", "update_epoch_batch_itr", "skip_remainder_batch"):
        if getattr(task, option):
            raise InputError(
                f"--{option.replace('_', '-')} has no effect here, where --batch-order or --document-order decides on the batches and "
                "none is left out: leave it out"
            )
    refuse_model_options(model)
    for option in ("finetune_from_model", "continue_once"):
        if getattr(model, "init_from", None) and getattr(task, option):
            raise InputError(f"--init-from has no effect with --{option.replace('_', '-')}, which takes all weights: give one of them")


def refuse_metric(task: TrainingOptions, criterion: Any, of_task: Sequence[str]) -> None:
    """Raise InputError for a ``--best-checkpoint-metric`` that a known criterion and a task, which has its own, do not log.

    fairseq finds out when the first validation has ended, and ends before it saves anything.
    """
    known = {"lm_cross_entropy": ["loss", "nll_loss"], "cross_entropy": ["loss"]}.get(getattr(criterion, "_name", ""))
    if known is None or task.disable_validation:
        return
    terms = {"attention_entropy": "attention_entropy", "log_normaliser": "self_normalisation"}
    known += [*(["nll_loss"] if len(known) == 1 and criterion.sentence_avg else []), *of_task]
    known += [metric for metric, term in terms.items() if getattr(criterion, term, 0)]
    if task.best_checkpoint_metric not in known:
        raise InputError(f"--best-checkpoint-metric {task.best_checkpoint_metric}: expected {', '.join(known[:-1])} or {known[-1]}")
    if task.maximize_best_checkpoint_metric:
        raise InputError(f"--maximize-best-checkpoint-metric: {task.best_checkpoint_metric} is the better the lower: leave it out")


def _refuse_averaging(task: TrainingOptions) -> None:
    if task.average != "none" and (task.fp16 or task.bf16):  # then only fairseq's optimizer has the full-precision weights
        raise InputError("--average does not work with --fp16 and --bf16: give --compute-dtype bf16, which keeps the weights in float32")
    if not 0 < task.average_decay < 1:  # nan fails this test too
        raise InputError(f"--average-decay {task.average_decay}: expected a number between 0 and 1, such as 0.999")
    if task.average_window < 1:
        raise InputError(f"--average-window {task.average_window}: expected at least 1 validation")
    for option, kind in (("average_window", "nt-asgd"), ("average_decay", "ema")):
        if getattr(task, option) != TrainingOptions.__dataclass_fields__[option].default and str(task.average) != kind:
            name = f"--{option.replace('_', '-')}"
            raise InputError(f"{name} has no effect without --average {kind}: give --average {kind}, or leave {name} out")
    if task.average == "nt-asgd" and task.disable_validation:
        raise InputError("--average nt-asgd begins after a validation: leave --disable-validation out, or give --average asgd or ema")
