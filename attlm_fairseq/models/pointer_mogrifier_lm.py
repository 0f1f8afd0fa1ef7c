"""``--arch pointer_mogrifier_lm``: the pointer sentinel mixture of Merity et al. (2017) over the states of a Mogrifier LSTM."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass

from fairseq.models import register_model

from attlm_fairseq.models.language_model import MemoryLanguageModel
from attlm_fairseq.models.mogrifier_lstm_lm import MogrifierConfig
from attlm_fairseq.models.pointer_lstm_lm import PointerConfig


@dataclass
class PointerMogrifierConfig(PointerConfig, MogrifierConfig):
    """The options of both."""


@register_model("pointer_mogrifier_lm", dataclass=PointerMogrifierConfig)
class PointerMogrifierLanguageModel(MemoryLanguageModel):
    family = "pointer_mogrifier_lm"
