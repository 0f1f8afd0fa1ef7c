"""``--arch averaging_lstm_lm``: Salton and Kelleher (2018), with presets for the rows of their tables."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from argparse import Namespace

from fairseq.models import register_model, register_model_architecture

from attlm_fairseq.models._decoder import LanguageModelConfig, MemoryLanguageModel
from attlm_fairseq.models.attentive_lstm_lm import salton_preset


@register_model("averaging_lstm_lm", dataclass=LanguageModelConfig)
class AveragingLSTMLanguageModel(MemoryLanguageModel):
    family = "averaging_lstm_lm"


@register_model_architecture("averaging_lstm_lm", "averaging_lstm_lm_ptb")
def averaging_lstm_lm_ptb(args: Namespace) -> None:
    """2 x 650, dropout 0.5; 14.1 M parameters at V = 10,001."""
    salton_preset(args, size=650, dropout=0.5, forget_bias=1.0)


@register_model_architecture("averaging_lstm_lm", "averaging_lstm_lm_wikitext2")
def averaging_lstm_lm_wikitext2(args: Namespace) -> None:
    """2 x 1000, dropout 0.65; about 50 M parameters at V = 33,278."""
    salton_preset(args, size=1000, dropout=0.65, forget_bias=1.0)
