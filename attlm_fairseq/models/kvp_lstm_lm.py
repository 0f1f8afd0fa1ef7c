"""``--arch kvp_lstm_lm``: the attention models of Daniluk et al. (2017), with presets for the rows of their Table 2a."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from argparse import Namespace
from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model, register_model_architecture

from attlm_fairseq.models._decoder import OUTPUT_LAYERS, LanguageModelConfig, MemoryLanguageModel, inherited
from attlm_fairseq.modules.memory.key_value_predict import PARTS


@dataclass
class KVPConfig(LanguageModelConfig):
    output_layer: OUTPUT_LAYERS = inherited("output_layer", default="untied")
    decoder_hidden_size: int = inherited("decoder_hidden_size", default=510)
    init_range: float = inherited("init_range", default=0.1)
    kvp_mode: ChoiceEnum(list(PARTS)) = field(
        default="key-value-predict",
        metadata={"help": "parts of an output: attention (h), key-value ([k; v]), key-value-predict ([k; v; p])"},
    )
    attention_window: int = field(default=5, metadata={"help": "L: how many earlier outputs are attended to"})


@register_model("kvp_lstm_lm", dataclass=KVPConfig)
class KVPLanguageModel(MemoryLanguageModel):
    family = "kvp_lstm_lm"


def preset(name: str, mode: str, hidden: int, window: int) -> None:
    """Register ``kvp_lstm_lm_<name>``, a row of Table 2a: one LSTM layer, embeddings of 300."""

    @register_model_architecture("kvp_lstm_lm", f"kvp_lstm_lm_{name}")
    def row(args: Namespace) -> None:
        args.kvp_mode = getattr(args, "kvp_mode", mode)
        args.attention_window = getattr(args, "attention_window", window)
        daniluk_preset(args, hidden)


def daniluk_preset(args: Namespace, hidden: int) -> None:
    """What the experiments of Daniluk et al. share: one layer, embeddings of 300. Given options win."""
    args.decoder_embed_dim = getattr(args, "decoder_embed_dim", 300)
    args.decoder_hidden_size = getattr(args, "decoder_hidden_size", hidden)
    args.decoder_layers = getattr(args, "decoder_layers", 1)


preset("attention", "attention", 296, 10)
preset("key_value", "key-value", 560, 10)
preset("key_value_predict", "key-value-predict", 834, 5)
