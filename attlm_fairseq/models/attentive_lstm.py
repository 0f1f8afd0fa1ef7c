"""``--arch attentive_lstm`` for ``--task translation``: an LSTM encoder and any language model of this package as its decoder.

Salton, Ross and Kelleher (2017, section 6) announce the attentive language model as the decoder of a translation system. The decoder
here reads its own earlier states through its memory reader and the source sentence through ``SourceAttention``.
"""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass, field, fields, make_dataclass
from importlib import import_module
from typing import Any

import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY, FairseqEncoderDecoderModel, register_model
from fairseq.models.lstm import LSTMEncoder
from fairseq.tasks import FairseqTask
from torch import Tensor, nn

from attlm_fairseq.checkpoints.fairseq_loading import FROM_CHECKPOINT
from attlm_fairseq.checkpoints.weight_checks import check_finite
from attlm_fairseq.errors import InputError
from attlm_fairseq.models._decoder import IncrementalDecoder
from attlm_fairseq.models._refused_options import refuse_model_options, stored_state
from attlm_fairseq.models.config import LSTMLanguageModelConfig
from attlm_fairseq.models.language_model import fitting
from attlm_fairseq.modules.families import OWN_FAMILIES, build_language_model
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.recurrence.weighted_average import WeightedAverage
from attlm_fairseq.modules.source_attention import SourceAttention
from attlm_fairseq.modules.state import LanguageModelState

NO_LIMIT = 1 << 30  # the number of positions: there is no limit, but fairseq needs a number
FOR_LANGUAGE_MODELS_ALONE = (
    *("decoder_top_size", "init_from", "init_layers", "output_bias", "compute_dtype"),
    *("softmaxes", "dropout_latent", "pointer_loss"),
)


def decoder_options() -> list[tuple[str, Any, Any]]:
    """Return the options of all decoder families, once each, as fields of a dataclass."""
    for family in OWN_FAMILIES:  # the module of the same name registers each family
        import_module(f"attlm_fairseq.models.{family}")
    configs = [LSTMLanguageModelConfig, *(MODEL_DATACLASS_REGISTRY[family] for family in OWN_FAMILIES)]
    options: dict[str, Any] = {}
    for config in configs:
        for name, option in config.__dataclass_fields__.items():
            if name not in FOR_LANGUAGE_MODELS_ALONE and not name.startswith("_"):
                options.setdefault(name, option)
    return [(name, option.type, field(default=option.default, metadata=option.metadata)) for name, option in options.items()]


@dataclass
class EncoderConfig(LSTMLanguageModelConfig):
    """The options of the encoder, the choice of the decoder, and the options of every decoder."""

    decoder_family: str = field(
        default="attentive_lstm_lm",
        metadata={
            "choices": OWN_FAMILIES,
            "help": "architecture of the language model in the decoder; plain_lstm_lm has no memory of its earlier states",
        },
    )
    encoder_embed_dim: int = field(default=512, metadata={"help": "size of the source word embeddings"})
    encoder_hidden_size: int = field(default=512, metadata={"help": "size of an encoder LSTM state in each direction"})
    encoder_layers: int = field(default=1, metadata={"help": "number of encoder layers"})
    encoder_bidirectional: bool = field(default=False, metadata={"help": "read the source in both directions"})


AttentiveLSTMTranslationConfig = make_dataclass("AttentiveLSTMTranslationConfig", decoder_options(), bases=(EncoderConfig,))


def refuse_options_of_others(cfg: EncoderConfig) -> None:
    """Raise InputError for an option of language models alone, or of another family than that of the decoder: it has no effect."""
    family = str(cfg.decoder_family)
    own = {option.name for option in fields(MODEL_DATACLASS_REGISTRY[family])} | EncoderConfig.__annotations__.keys()
    for option in fields(AttentiveLSTMTranslationConfig):
        name, given = option.name, getattr(cfg, option.name)
        if str(given) == str(option.default) or (name, given) == ("output_bias", "zero"):  # zero is what the decoder has
            continue
        if name in FOR_LANGUAGE_MODELS_ALONE:
            raise InputError(
                f"--{name.replace('_', '-')} {given} has no effect with --arch attentive_lstm: it is for language models; leave it out"
            )
        if name not in own:
            raise InputError(
                f"--{name.replace('_', '-')} {given} has no effect with --decoder-family {family}, which does not have this option: leave "
                "it out, or name another family"
            )


class TranslationDecoder(IncrementalDecoder):
    """A language model whose features also attend to the source, and whose first state comes from the encoder."""

    def __init__(self, dictionary: Any, model: LanguageModel, source_size: int) -> None:
        super().__init__(dictionary, model)
        self.source_attention = SourceAttention(model.reader.feature_size, source_size)
        sizes = [part[0].numel() for part in model.recurrence.initial(1) if part.is_floating_point()]
        self.bridge = nn.Linear(source_size, sum(sizes))
        self.bridge_sizes = sizes

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: tuple[Tensor, ...],
        incremental_state: dict | None = None,
        **unused: Any,
    ) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """Return logits (B, T, V) for tokens (B, T) and the encoder's output, and ``{"attn": [source weights (B, T, S)]}``.

        With an incremental state, only tokens that it has not seen are read. The result is for the last one, so T = 1.
        """
        if incremental_state is None:
            features, read, _ = self.model.read(prev_output_tokens, self.first_state(encoder_out))
        else:
            features, read = self._next_features(prev_output_tokens, incremental_state, lambda: self.first_state(encoder_out))
            features, read = features.unsqueeze(1), read and read.map(lambda part: part.unsqueeze(1))
        source, _, _, padding = encoder_out
        features, weights = self.source_attention(features, source.transpose(0, 1), ~padding.t())
        rules = self.model.regularisation
        return self.model.output(rules.drop(features, rules.dropout_out, self.training), read), {"attn": [weights]}

    def first_state(self, encoder_out: tuple[Tensor, ...]) -> LanguageModelState:
        """Return the state before the first target word: a linear map and tanh of the encoder's last state, and an empty memory."""
        last = encoder_out[1][-1]  # top layer, (B, D)
        empty = self.model.initial_state(len(last))
        parts = iter(torch.tanh(self.bridge(last)).split(self.bridge_sizes, dim=1))
        # a mask of slots stays as it is; autocast would round the state
        recurrent = tuple(next(parts).view_as(like).to(like.dtype) if like.is_floating_point() else like for like in empty.recurrent)
        if isinstance(self.model.recurrence, WeightedAverage):
            # the decoder's own first state has no effect, but a gradient of 0, without which training on several GPUs would stop;
            # the others are sums over words: before the first word they are empty
            recurrent = (recurrent[0] + 0 * empty.recurrent[0], *empty.recurrent[1:])
        return LanguageModelState(self.model.recurrence.updated_state(recurrent), empty.memory)


@register_model("attentive_lstm", dataclass=AttentiveLSTMTranslationConfig)
class AttentiveLSTMTranslationModel(FairseqEncoderDecoderModel):
    """fairseq's LSTM encoder with a ``TranslationDecoder``."""

    def load_state_dict(self, state_dict: dict[str, Tensor], strict: bool = True, *others: Any, **named: Any) -> Any:
        """Load weights as fairseq does. Raises InputError if they belong to another model or to another target dictionary."""
        loaded = super().load_state_dict(fitting(self, state_dict, strict), strict, *others, **named)
        check_finite(self, None)
        return loaded

    @classmethod
    def build_model(cls, cfg: EncoderConfig, task: FairseqTask) -> "AttentiveLSTMTranslationModel":
        if FROM_CHECKPOINT not in stored_state(task):
            refuse_model_options(cfg)
            refuse_options_of_others(cfg)
        encoder = LSTMEncoder(
            task.source_dictionary,
            embed_dim=cfg.encoder_embed_dim,
            hidden_size=cfg.encoder_hidden_size,
            num_layers=cfg.encoder_layers,
            dropout_in=cfg.dropout if cfg.dropout_in is None else cfg.dropout_in,
            dropout_out=cfg.dropout if cfg.dropout_between is None else cfg.dropout_between,
            bidirectional=cfg.encoder_bidirectional,
            max_source_positions=NO_LIMIT,
        )
        target = task.target_dictionary
        try:
            model = build_language_model(str(cfg.decoder_family), cfg, len(target), target.pad())
        except ValueError as error:  # sizes that do not match
            raise InputError(f"--arch attentive_lstm: {error}") from None
        decoder = TranslationDecoder(target, model, encoder.output_units)
        model.initialise(cfg.init_range, biases_too=str(cfg.init_biases) == "uniform")
        return cls(encoder, decoder)
