"""Options of a model that have no effect, or would change what is measured."""

from __future__ import annotations

import logging
import math
from typing import Any

from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.tasks import FairseqTask

from attlm_fairseq.checkpoints.fairseq_loading import FROM_CHECKPOINT, TRAINED_WITH
from attlm_fairseq.errors import InputError
from attlm_fairseq.models.config import LanguageModelConfig, default_of
from attlm_fairseq.modules.kernels.products import has_bfloat16_instructions, slower_in_bfloat16

logger = logging.getLogger(__name__)


def refuse_model_options(model: Any) -> None:
    """Raise InputError for options of a model to be trained that have no effect or no sense. A model of fairseq's own has none of them."""
    if not 0 <= (getattr(model, "init_range", None) or 0) < math.inf:  # nan too
        raise InputError(f"--init-range {model.init_range}: expected a number, 0 or above")
    if not math.isfinite(getattr(model, "forget_bias", None) or 0):
        raise InputError(f"--forget-bias {model.forget_bias}: expected a number")
    if getattr(model, "adaptive_cutoffs", None) and str(model.output_layer) != "adaptive":
        raise InputError(f"--adaptive-cutoffs has no effect with --output-layer {model.output_layer}: give --output-layer adaptive")
    config = MODEL_DATACLASS_REGISTRY.get(getattr(model, "_name", None), LanguageModelConfig)
    changed = [name for name in ("dropout", "dropout_latent") if getattr(model, name, None) != default_of(config, name)]
    if "dropout_latent" in changed and not _has_softmaxes(model):
        raise InputError("--dropout-latent has no effect without --softmaxes: give --softmaxes 2 or more, or leave it out")
    if "dropout" in changed and None not in (getattr(model, place, None) for place in _places_of_dropout(model)):
        raise InputError(
            f"--dropout {model.dropout} has no effect: --dropout-in, --dropout-between and --dropout-out are given too, or the preset has "
            "them; change these"
        )
    if str(getattr(model, "init_layers", "range")) == "torch" and str(model.init_biases) != default_of(config, "init_biases"):
        raise InputError(f"--init-biases {model.init_biases} has no effect with --init-layers torch, which draws the biases: leave it out")
    between = getattr(model, "dropout_between", None)
    one_layer = getattr(model, "decoder_layers", 0) == 1 and not hasattr(model, "encoder_layers")  # the encoder has this dropout, too
    if between and one_layer and between != default_of(config, "dropout_between"):
        raise InputError(f"--dropout-between {between} has no effect with one layer: leave it out, or give --decoder-layers 2 or more")


def _has_softmaxes(model: Any) -> bool:
    """Return whether the output layer mixes several softmaxes, such as those of ``1,2`` and not that of ``1,0``."""
    return sum(int(count) for count in str(getattr(model, "softmaxes", "1")).split(",") if count.strip().isdecimal()) > 1


def _places_of_dropout(model: Any) -> list[str]:
    latent = ["dropout_latent"] if _has_softmaxes(model) else []
    return ["dropout_in", "dropout_between", "dropout_out", *latent]


def stored_state(task: FairseqTask) -> dict[str, Any]:
    """Return what the checkpoint whose model is built has of its task. It has ``FROM_CHECKPOINT``; that of a new model is without."""
    return getattr(getattr(task, "state", None), "state_dict", {})


def check_another_task(cfg: LanguageModelConfig, task: FairseqTask) -> None:
    """Check a model that a task of fairseq builds; this package's tasks check theirs themselves.

    A model of a checkpoint that one of this package's tasks has trained is warned of: ``fairseq-eval-lm`` without ``--task`` takes
    ``language_modeling``, which gives another perplexity.

    Raises:
        InputError: the model is to be trained, with options that have no effect.
    """
    if type(task).__module__.startswith("attlm_fairseq."):
        return
    stored = stored_state(task)
    if FROM_CHECKPOINT not in stored:
        refuse_model_options(cfg)
        if cfg.init_from:
            raise InputError(
                f"--init-from has no effect with fairseq's {type(task).__name__}: give --task sentence_reset_lm or document_reset_lm, or "
                "leave it out"
            )
    elif "dictionary" in stored:
        trained_with = stored.get(TRAINED_WITH) or "sentence_reset_lm (or document_reset_lm)"
        logger.warning(
            f"fairseq's {type(task).__name__} reads the text as one stream (except with --sample-break-mode eos), and the model was "
            f"trained with {trained_with}: give --task {trained_with}"
        )


def warn_of_slow_bfloat16() -> None:
    if not has_bfloat16_instructions():
        logger.warning("--compute-dtype bf16: this CPU has no instructions for bfloat16: products are computed in float32, which is faster")
    elif slower_in_bfloat16():
        logger.warning("--compute-dtype bf16: on this CPU products in bfloat16 take longer than in float32: leave it out")
