"""The base class of the models that fairseq knows, and their presets."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import field, fields, make_dataclass
from typing import Any, Optional

import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, BaseFairseqModel, FairseqLanguageModel, register_model
from fairseq.tasks import FairseqTask
from torch import Tensor

from attlm_fairseq.checkpoints.reading import FINGERPRINT
from attlm_fairseq.checkpoints.weight_checks import check_finite
from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.models._decoder import MemoryDecoder
from attlm_fairseq.models._refused_options import check_another_task, warn_of_slow_bfloat16
from attlm_fairseq.models.config import LanguageModelConfig
from attlm_fairseq.modules.families import build_language_model, family_of


class MemoryLanguageModel(FairseqLanguageModel):
    """Base class of the registered models. A subclass names its family and its config."""

    family: str

    @classmethod
    def add_args(cls, parser: Any) -> None:
        super().add_args(parser)
        for option in fields(getattr(cls, "__dataclass")):
            if option.default is True:
                name_both_ways(parser, option.name)

    @classmethod
    def build_model(cls, cfg: LanguageModelConfig, task: FairseqTask) -> "MemoryLanguageModel":
        dictionary = task.target_dictionary
        check_another_task(cfg, task)
        try:
            model = build_language_model(cls.family, cfg, len(dictionary), dictionary.pad())
        except ValueError as error:  # sizes that do not match
            raise InputError(f"--arch {cls.family}: {error}") from None
        if str(cfg.compute_dtype) == "bf16" and not torch.cuda.is_available():
            warn_of_slow_bfloat16()
        model.initialise(cfg.init_range, biases_too=str(cfg.init_biases) == "uniform", layers_too=str(cfg.init_layers) == "range")
        return cls(MemoryDecoder(dictionary, model, str(cfg.compute_dtype)))

    def load_state_dict(self, state_dict: dict[str, Tensor], strict: bool = True, *others: Any, **named: Any) -> Any:
        """Load weights as fairseq does. Raises InputError if they belong to another model or dictionary."""
        loaded = super().load_state_dict(fitting(self, state_dict, strict), strict, *others, **named)
        check_finite(self, None)
        return loaded

    def get_normalized_probs(self, net_output: Any, log_probs: bool, sample: Optional[dict[str, Any]] = None) -> Tensor:
        """Return probabilities as fairseq does.

        Raises:
            InputError: a target has probability 0. fairseq-eval-lm would silently skip it.
        """
        probs = super().get_normalized_probs(net_output, log_probs, sample)
        if not self.training and sample is not None and sample.get("target") is not None:
            target = sample["target"]
            of_target = probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
            impossible = (of_target.isnan() | (of_target == (-torch.inf if log_probs else 0))) & (target != self.decoder.dictionary.pad())
            if impossible.any():
                word = self.decoder.dictionary[int(target[impossible][0])]
                found = "nan" if of_target[impossible][0].isnan() else "0"
                raise InputError(f"the model gives the word {word!r} the probability {found}: a perplexity cannot be computed")
        return probs


def fitting(model: BaseFairseqModel, weights: Mapping[str, Tensor], strict: bool) -> dict[str, Tensor]:
    """Return the weights of a checkpoint for ``load_state_dict``, with the fingerprint of the dictionary, which older ones lack.

    Raises:
        InputError: they belong to another model, or to another dictionary of the words to predict.
    """
    require_type("checkpoint's `model`", weights, Mapping, "a dictionary of weights; give a checkpoint written by fairseq-train")
    for name, value in weights.items():
        require_type(f"checkpoint's {name}", value, Tensor, "a tensor; give a checkpoint written by fairseq-train")
    own = model.state_dict()
    given = {FINGERPRINT: own[FINGERPRINT], **weights}
    for name in {**own, **given} if strict else ():
        shapes = ["x".join(map(str, some[name].shape)) if name in some else "missing" for some in (given, own)]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"the checkpoint's {name.removeprefix('decoder.model.')} is {shapes[0]}, this model's is {shapes[1]}: give the options "
                "and the dict.txt, in the data folder, that the checkpoint was trained with. A new training needs another --save-dir, as "
                "fairseq-train goes on from checkpoint_last.pt there; --init-from begins it with the weights that another model shares"
            )
    if not torch.equal(given[FINGERPRINT].to(own[FINGERPRINT]), own[FINGERPRINT]):
        raise InputError(
            "the checkpoint was trained with other words than the dict.txt in the data folder, or with these in another order: "
            "preprocess with the dict.txt that it was trained with (--srcdict; --tgtdict for the words of a translation)"
        )
    return given


def name_both_ways(parser: Any, name: str) -> None:
    """Let ``--x`` switch on what a preset has switched on anyway, and ``--no-x`` switch it off. fairseq lets ``--x`` switch it off."""
    for action in parser._actions:
        if action.dest == name:
            action.const = True
    off = f"--no-{name.replace('_', '-')}"
    parser.add_argument(off, dest=name, action="store_false", default=argparse.SUPPRESS, help="without this part of the preset")


def preset(name: str, model: type[MemoryLanguageModel], **defaults: Any) -> None:
    """Register ``--arch name``: ``model`` with the options of a row in its paper's tables as defaults.

    The preset is a model class with its own config. fairseq-hydra-train takes defaults from configs and never calls
    functions that ``register_model_architecture`` registers.
    """
    if family_of(name) != model.family:
        raise ValueError(
            f"the preset {name} of {model.family} needs an entry in RECIPES of modules/families.py: attlm finds its family there"
        )
    config = MODEL_DATACLASS_REGISTRY[model.family]
    options = config.__dataclass_fields__
    fields = [(option, options[option].type, field(default=value, metadata=options[option].metadata)) for option, value in defaults.items()]
    register_model(name, dataclass=make_dataclass(config.__name__, fields, bases=(config,)))(type(model.__name__, (model,), {}))
