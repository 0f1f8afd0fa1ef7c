"""``--arch attentive_lstm_lm``: Salton, Ross and Kelleher (2017), with presets for the rows of their tables."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from argparse import Namespace
from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model, register_model_architecture

from attlm_fairseq.models._decoder import LanguageModelConfig, MemoryLanguageModel

ATTENTION_SCORES = ChoiceEnum(["single", "combined"])


@dataclass
class AttentiveLSTMConfig(LanguageModelConfig):
    attention_score: ATTENTION_SCORES = field(
        default="single",
        metadata={"help": "score of a memory state: single, v_s . tanh(W_s h_i), or combined, v_s . tanh(W_s h_i + W_q h_t)"},
    )
    attention_memory: ChoiceEnum(["previous", "current"]) = field(
        default="previous",
        metadata={"help": "states that a position attends to: the previous ones, as in the paper, or its own current one too"},
    )


@register_model("attentive_lstm_lm", dataclass=AttentiveLSTMConfig)
class AttentiveLSTMLanguageModel(MemoryLanguageModel):
    family = "attentive_lstm_lm"


@register_model_architecture("attentive_lstm_lm", "attentive_lstm_lm_ptb")
def attentive_lstm_lm_ptb(args: Namespace) -> None:
    """Table 1: 2 x 650, dropout 0.5; 14.5 M parameters at V = 10,001."""
    salton_preset(args, size=650, dropout=0.5, forget_bias=0.0)


@register_model_architecture("attentive_lstm_lm", "attentive_lstm_lm_wikitext2")
def attentive_lstm_lm_wikitext2(args: Namespace) -> None:
    """Table 2: 2 x 1000, dropout 0.65; about 51 M parameters at V = 33,278."""
    salton_preset(args, size=1000, dropout=0.65, forget_bias=0.0)


def salton_preset(args: Namespace, size: int, dropout: float, forget_bias: float) -> None:
    """What the experiments of Salton et al. share: two layers of one size, biases 0 but the forget gates'. Given options win."""
    args.decoder_embed_dim = getattr(args, "decoder_embed_dim", size)
    args.decoder_hidden_size = getattr(args, "decoder_hidden_size", size)
    args.decoder_layers = getattr(args, "decoder_layers", 2)
    args.dropout = getattr(args, "dropout", dropout)
    args.forget_bias = getattr(args, "forget_bias", forget_bias)
    args.output_bias = getattr(args, "output_bias", "zero")
