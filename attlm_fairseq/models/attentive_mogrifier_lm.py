"""``--arch attentive_mogrifier_lm``: the attention of Salton, Ross and Kelleher (2017) over the states of a Mogrifier LSTM."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass

from fairseq.models import register_model

from attlm_fairseq.models.attentive_lstm_lm import AttentiveLSTMConfig
from attlm_fairseq.models.language_model import MemoryLanguageModel
from attlm_fairseq.models.mogrifier_lstm_lm import MogrifierConfig


@dataclass
class AttentiveMogrifierConfig(AttentiveLSTMConfig, MogrifierConfig):
    """The options of both."""


@register_model("attentive_mogrifier_lm", dataclass=AttentiveMogrifierConfig)
class AttentiveMogrifierLanguageModel(MemoryLanguageModel):
    family = "attentive_mogrifier_lm"
