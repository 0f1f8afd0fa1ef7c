"""``--arch amsrn_lm``: Liu, Chuang and Lee (2016), with presets for the rows of their tables."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass, field

from fairseq.models import register_model

from attlm_fairseq.models.config import AttentionConfig, inherited
from attlm_fairseq.models.language_model import MemoryLanguageModel, preset
from attlm_fairseq.modules.memory.selection import SELECTIONS, SelectionReader


@dataclass
class AMSRNConfig(AttentionConfig):
    output_layer: str = inherited("output_layer", default="untied")
    selection: str = field(
        default=SelectionReader.defaults["selection"],
        metadata={
            "choices": SELECTIONS,
            "help": "gates of keys and values: none (all ones), independent, tied (w_h1 = w_h2), complementary (w_h1 = 1 - w_h2)",
        },
    )


@register_model("amsrn_lm", dataclass=AMSRNConfig)
class AMSRNLanguageModel(MemoryLanguageModel):
    family = "amsrn_lm"


# The rows of Table 2: embedding and one LSTM layer of 50. The paper names neither a
# dropout nor how its weights begin: these presets add no dropout, and biases are 0. Those that end in _ours have the package's defaults.
SIZES = {"decoder_embed_dim": 50, "decoder_hidden_size": 50, "decoder_layers": 1}
for selection in SELECTIONS:
    preset(f"amsrn_lm_{selection}", AMSRNLanguageModel, **SIZES, selection=selection, dropout=0.0, forget_bias=0.0, output_bias="zero")
    preset(f"amsrn_lm_{selection}_ours", AMSRNLanguageModel, **SIZES, selection=selection)
