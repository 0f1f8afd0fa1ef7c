"""``--arch pointer_lstm_lm``: the pointer sentinel mixture of Merity et al. (2017), with the preset of their tables' rows."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass, field

from fairseq.models import register_model

from attlm_fairseq.models._presets import zaremba_preset
from attlm_fairseq.models.config import LSTMLanguageModelConfig
from attlm_fairseq.models.language_model import MemoryLanguageModel
from attlm_fairseq.modules.memory.pointer import PointerReader


@dataclass
class PointerConfig(LSTMLanguageModelConfig):
    pointer_window: int = field(
        default=PointerReader.defaults["pointer_window"],
        metadata={"help": "L: number of newest words, the current one included, that the pointer can choose"},
    )
    pointer_loss: float = field(
        default=PointerReader.defaults["pointer_loss"],
        metadata={"help": "factor of the auxiliary loss of --criterion lm_cross_entropy, -ln of the gate and the weights on the target"},
    )


@register_model("pointer_lstm_lm", dataclass=PointerConfig)
class PointerLSTMLanguageModel(MemoryLanguageModel):
    family = "pointer_lstm_lm"


# "Medium pointer sentinel-LSTM" of Tables 2 and 3, 20.2 M parameters on PTB at V = 10,001: Zaremba's medium LSTM with a pointer
zaremba_preset("pointer_lstm_lm_medium", PointerLSTMLanguageModel, 650, init_range=0.05, dropout=0.5, output_layer="untied")
