"""``--arch kvp_lstm_lm``: the attention models of Daniluk et al. (2017), with presets for the rows of their Table 2a."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass, field

from fairseq.models import register_model

from attlm_fairseq.models._presets import daniluk_preset
from attlm_fairseq.models.config import AttentionConfig, inherited
from attlm_fairseq.models.language_model import MemoryLanguageModel
from attlm_fairseq.modules.memory.key_value_predict import PARTS, KeyValuePredictReader


@dataclass
class KVPConfig(AttentionConfig):
    output_layer: str = inherited("output_layer", default="untied")
    decoder_hidden_size: int = inherited("decoder_hidden_size", default=510)
    init_range: float = inherited("init_range", default=0.1)
    kvp_mode: str = field(
        default=KeyValuePredictReader.defaults["kvp_mode"],
        metadata={"choices": PARTS, "help": "parts of an output: attention (h), key-value ([k; v]), key-value-predict ([k; v; p])"},
    )
    attention_window: int = field(
        default=KeyValuePredictReader.defaults["attention_window"], metadata={"help": "L: number of earlier outputs that are attended to"}
    )


@register_model("kvp_lstm_lm", dataclass=KVPConfig)
class KVPLanguageModel(MemoryLanguageModel):
    family = "kvp_lstm_lm"


for mode, hidden, window in (("attention", 296, 10), ("key-value", 560, 10), ("key-value-predict", 834, 5)):
    daniluk_preset(f"kvp_lstm_lm_{mode.replace('-', '_')}", KVPLanguageModel, hidden, kvp_mode=mode, attention_window=window)
