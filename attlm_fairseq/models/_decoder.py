"""The fairseq side of all models: their common options, and the adapter around the plain torch ``LanguageModel``."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

import argparse
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, NamedTuple, Optional

import torch
from fairseq.models import (
    MODEL_DATACLASS_REGISTRY,
    BaseFairseqModel,
    FairseqIncrementalDecoder,
    FairseqLanguageModel,
    register_model,
)
from fairseq.tasks import FairseqTask
from torch import Tensor

from attlm_fairseq.checkpoints.fairseq_loading import FROM_CHECKPOINT, TRAINED_WITH
from attlm_fairseq.checkpoints.reading import FINGERPRINT, check_finite
from attlm_fairseq.checkpoints.vocabulary import fingerprint_numbers
from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.models._choices import ChoiceOptions
from attlm_fairseq.modules.families import build_language_model, family_of
from attlm_fairseq.modules.kernels.linear_nll import PLAIN_LOSS, Loss, LossTerms
from attlm_fairseq.modules.kernels.products import has_bfloat16_instructions, slower_in_bfloat16
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.memory import Read
from attlm_fairseq.modules.recurrence import LSTM
from attlm_fairseq.modules.state import LanguageModelState

logger = logging.getLogger(__name__)


@dataclass
class LanguageModelConfig(ChoiceOptions):
    """The options of every model. Each model's own config adds the options of its reader."""

    decoder_embed_dim: int = field(default=512, metadata={"help": "size of the word embeddings"})
    decoder_hidden_size: int = field(default=512, metadata={"help": "size of a recurrent state h_t"})
    decoder_layers: int = field(default=2, metadata={"help": "number of recurrent layers"})
    decoder_top_size: Optional[int] = field(
        default=None, metadata={"help": "size of a state of the top layer, if it differs (default: --decoder-hidden-size)"}
    )
    projection_size: int = field(
        default=0,
        metadata={
            "help": "P: the memory and the output layer get a projection of h_t to this size (0: h_t itself). h_t may then be larger than "
            "the embeddings of a tied output layer"
        },
    )
    output_layer: str = field(
        default="tied",
        metadata={
            "help": "output layer: softmax with the embedding matrix (tied) or its own (untied), adaptive softmax (adaptive), or one of "
            "another package",
        },
    )
    adaptive_cutoffs: Optional[str] = field(
        default=None, metadata={"help": "comma-separated word ids at which the adaptive softmax begins a new cluster, such as 2000,10000"}
    )
    softmaxes: str = field(
        default="1",
        metadata={
            "help": "number of softmaxes that are mixed (MoS); with more numbers, such as 15,5, also of softmaxes over the layers "
            "below the top one, downwards (DOC). The output layer costs as much as all of them"
        },
    )
    dropout: float = field(default=0.3, metadata={"help": "dropout probability at each of the places below"})
    dropout_in: Optional[float] = field(default=None, metadata={"help": "dropout of the embeddings (default: --dropout)"})
    dropout_between: Optional[float] = field(default=None, metadata={"help": "dropout between LSTM layers (default: --dropout)"})
    dropout_out: Optional[float] = field(default=None, metadata={"help": "dropout of the features (default: --dropout)"})
    dropout_latent: Optional[float] = field(
        default=None, metadata={"help": "dropout of the vectors that enter the softmaxes of a mixture (default: --dropout)"}
    )
    locked_dropout: bool = field(
        default=False,
        metadata={"help": "use variational dropout: one dropout mask for all positions of a row of the batch"},
    )
    dropout_words: float = field(
        default=0.0, metadata={"help": "probability of dropping a word: its embedding is 0 at all its positions in a batch"}
    )
    weight_drop: float = field(
        default=0.0, metadata={"help": "probability of dropping an element of the recurrent matrices, at all positions of a batch"}
    )
    init_range: float = field(default=0.05, metadata={"help": "R: weights are initialised uniformly in [-R, R]"})
    init_biases: str = field(
        default="zero",
        metadata={
            "choices": ["zero", "uniform"],
            "help": "initial biases, except those of forget gates: 0 (zero) or drawn like weights (uniform)",
        },
    )
    init_layers: str = field(
        default="range",
        metadata={
            "choices": ["range", "torch"],
            "help": "initial weights of the layers: in [-R, R] (range) or, with their biases, as PyTorch draws them (torch), between "
            "+-1/sqrt(size of the state) in an LSTM. R is then for tables of words and the softmax alone",
        },
    )
    output_bias: str = field(
        default="unigram",
        metadata={
            "choices": ["zero", "unigram"],
            "help": "initial output biases: log frequency of each word or cluster in the training text (unigram), with which Adam "
            "learns much faster; or the same as other biases (zero), as in the papers. Other tasks than this package's use zero",
        },
    )
    compute_dtype: str = field(
        default="float32",
        metadata={
            "choices": ["float32", "bf16"],
            "help": "bf16 computes matrix products in bfloat16, but weights, recurrent state and loss in float32. It is for GPUs (where "
            "cuDNN computes the layers of LSTMs and plain RNNs, in TF32), CPUs with AMX (amx_bf16) and AMD's with avx512_bf16. Without AMX "
            "it is slower on Intel's. CPUs without instructions for it compute in float32",
        },
    )
    init_from: Optional[str] = field(
        default=None,
        metadata={
            "help": "checkpoint from which embeddings, LSTM and output layer are copied (AMSRN: of a plain_lstm_lm). Only this package's "
            "tasks take it"
        },
    )


@dataclass
class LSTMLanguageModelConfig(LanguageModelConfig):
    """The options of models whose recurrence is an LSTM."""

    # None in presets: as the other biases
    forget_bias: Optional[float] = field(default=LSTM.defaults["forget_bias"], metadata={"help": "initial bias of the LSTM's forget gates"})


@dataclass
class AttentionConfig(LSTMLanguageModelConfig):
    """The options of LSTMs with attention over earlier states or words."""

    attention_skip: int = field(
        default=0,
        metadata={"help": "S: number of newest states (or words) in memory that are not attended to"},
    )


def inherited(name: str, default: Any) -> Any:
    """Return a field of ``LanguageModelConfig`` with another default, for configs of papers that use one."""
    return field(default=default, metadata=LanguageModelConfig.__dataclass_fields__[name].metadata)


class IncrementalDecoder(FairseqIncrementalDecoder):
    """fairseq's decoder interface around a ``LanguageModel``. The model's state is kept in fairseq's incremental state."""

    def __init__(self, dictionary: Any, model: LanguageModel) -> None:
        super().__init__(dictionary)
        # A fingerprint of the dictionary, stored with the weights, so that loading detects another dictionary.
        self.register_buffer(FINGERPRINT.removeprefix("decoder."), torch.tensor(fingerprint_numbers(dictionary.symbols)))
        self.model = model

    def _next_features(
        self, tokens: Tensor, incremental_state: dict, first_state: Callable[[], LanguageModelState]
    ) -> tuple[Tensor, Read | None]:
        """Read the new tokens of (B, T): all in the first call, then the last one. Return its features (B, F) and ``Read``."""
        cached = self.get_incremental_state(incremental_state, "language_model")
        if cached is None:
            state, unread = first_state(), tokens
        else:
            state, unread = cached["state"], tokens[:, -1:]
        for token in unread.unbind(1):
            features, read, state = self.model.step_features(self.model.inputs(token), state)
        self.set_incremental_state(incremental_state, "language_model", {"state": state})
        return features, read

    def reorder_incremental_state(self, incremental_state: dict, new_order: Tensor) -> None:
        """Select the rows ``new_order`` (N,) of the state, including the reader's memory."""
        cached = self.get_incremental_state(incremental_state, "language_model")
        if cached is not None:
            self.set_incremental_state(incremental_state, "language_model", {"state": cached["state"].select(new_order)})

    def max_positions(self) -> int:
        """Return a very large number: there is no limit, but fairseq needs a number."""
        return torch.iinfo(torch.int32).max


class Taught(NamedTuple):
    """What a student learns from its teacher: ``q``, (B, T, V), which replaces the words of the text with a weight from 0 to 1."""

    probabilities: Tensor
    weight: float


class MemoryDecoder(IncrementalDecoder):
    """The decoder of language models."""

    def __init__(self, dictionary: Any, model: LanguageModel, compute_dtype: str = "float32") -> None:
        super().__init__(dictionary, model)
        self.compute_dtype = compute_dtype

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: None = None,
        incremental_state: dict | None = None,
        need_weights: bool = False,
        target: Tensor | None = None,
        terms: LossTerms = PLAIN_LOSS,
        taught: Taught | None = None,
        carried: Any = None,
        rows: Tensor | None = None,
        starts: Tensor | None = None,
        ends: Tensor | None = None,
        **unused: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return logits, or the loss of targets.

        The loss is computed here, not in the criterion, because DistributedDataParallel only sees what ``forward`` does.

        Args:
            prev_output_tokens: tokens (B, T).
            encoder_out: unused; fairseq passes it.
            incremental_state: fairseq's state. Only tokens that it has not seen are read; logits are those of the last token.
            need_weights: also return the attention weights.
            target: the words to predict (B, T); padding is not counted.
            terms: the additional terms of the loss.
            taught: the probabilities of a teacher, to learn from besides the targets.
            carried: the ``CarriedState`` with which rows begin, and which stores their states afterwards.
            rows: the rows of ``carried``, (B,).
            starts: whether a row begins from the initial state instead, (B,).
            ends: whether a row's document ends here, so that its state is not stored, (B,).
            unused: other arguments of fairseq.

        Returns:
            Logits (B, T, V); (B, 1, V) with an incremental state. With targets the loss instead, a sum over them in natural
            log. A dictionary with ``attn``: weights (B, T, M) or None. With targets it also has the ``loss`` as a ``Loss``,
            the top layer's ``states`` (B, T, H), and the reader's ``features`` (B, T, F) after dropout.
        """
        with torch.autocast(prev_output_tokens.device.type, torch.bfloat16, enabled=self.low(prev_output_tokens.device)):
            if incremental_state is not None:
                features, read = self._next_features(
                    prev_output_tokens, incremental_state, lambda: self.model.initial_state(len(prev_output_tokens))
                )
                return self._logits(features, read).unsqueeze(1), {"attn": None}
            before = None if carried is None else carried.take(self.model, rows, starts)
            outputs, features, read, after = self.model.outputs(prev_output_tokens, before, need_weights)
            extra: dict[str, Any] = {"attn": read.weights if read and need_weights else None}
            if target is None:
                result = self._logits(features, read)
            else:
                loss = self._loss(features, read, target, terms, taught)
                result = loss.total
                extra |= {"loss": loss, "states": self.model.states(outputs), "features": features[..., : self.model.reader.feature_size]}
            if carried is not None:  # last of all: in validation, fairseq reads a batch again after a lack of GPU memory
                carried.put(self.model, rows, ends, after)
            return result, extra

    def low(self, device: torch.device) -> bool:
        """Return whether products are in bfloat16: where it is asked for, except on CPUs that have no instructions for it."""
        return self.compute_dtype == "bf16" and (device.type != "cpu" or has_bfloat16_instructions())

    def _loss(self, features: Tensor, read: Read | None, target: Tensor, terms: LossTerms, taught: Taught | None) -> Loss:
        """Return the loss of the targets (B, T) without padding. The loss that a teacher gives is a part of its ``total`` alone."""
        counted = target != self.dictionary.pad()
        loss = self.model.output.loss(features[counted], target[counted], read and read.at(counted), terms, counted)
        if taught is None:
            return loss
        # all positions at once: locked dropout of a mixture has one mask for each row
        log_probs = self.model.output.log_probs(features, read)
        log_probs = log_probs.clamp(min=torch.finfo(log_probs.dtype).min)  # a layer may exclude words: 0 ln 0 = 0
        soft = -(log_probs * (taught.probabilities * counted.unsqueeze(2))).sum()
        return loss._replace(total=(1 - taught.weight) * loss.total + taught.weight * soft)

    def _logits(self, features: Tensor, read: Read | None) -> Tensor:
        """Compute logits, in eval mode in float32: bfloat16's 8-bit mantissa is too coarse for probabilities."""
        with torch.autocast(features.device.type, torch.bfloat16, enabled=self.training and self.low(features.device)):
            return self.model.output(features if self.training else features.to(self.model.embedding.weight.dtype), read)


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
        shapes = ["x".join(map(str, some[name].shape)) if name in some else "none" for some in (given, own)]
        if shapes[0] != shapes[1]:
            raise InputError(
                f"the checkpoint's {name.removeprefix('decoder.model.')} is {shapes[0]}, this model's is {shapes[1]}: give the options "
                "and the dict.txt, in the data folder, that the checkpoint was trained with. A new training needs another --save-dir: "
                "fairseq-train goes on from checkpoint_last.pt there"
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


def default_of(config: type, option: str) -> Any:
    """Return the default of an option of a model; None if the model does not have it."""
    return next((one.default for one in fields(config) if one.name == option), None)


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
