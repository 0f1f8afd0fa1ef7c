"""``--arch rm_lm``: the recurrent memory networks of Tran, Bisazza and Monz (2016), with presets for the rows of two papers' tables."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass, field

from fairseq.models import register_model

from attlm_fairseq.models._presets import daniluk_preset
from attlm_fairseq.models.config import AttentionConfig, inherited
from attlm_fairseq.models.language_model import MemoryLanguageModel, preset
from attlm_fairseq.modules.memory.recurrent_memory import COMPOSITIONS, POSITIONS, RecurrentMemoryReader

DEFAULTS = RecurrentMemoryReader.defaults


@dataclass
class RecurrentMemoryConfig(AttentionConfig):
    output_layer: str = inherited("output_layer", default="untied")
    rm_window: int = field(
        default=DEFAULTS["rm_window"], metadata={"help": "N: number of newest words that are attended to, the current one included"}
    )
    rm_composition: str = field(
        default=DEFAULTS["rm_composition"],
        metadata={"choices": COMPOSITIONS, "help": "how state and words read are composed: by gates (gated), or C h_t + s_t (linear)"},
    )
    rm_positions: str = field(
        default=DEFAULTS["rm_positions"],
        metadata={"choices": POSITIONS, "help": "vectors of the positions in the window, added to those of the words: learned, or none"},
    )
    rm_second_lstm: bool = field(
        default=DEFAULTS["rm_second_lstm"], metadata={"help": "a second LSTM reads the composed vectors and predicts (the paper's RMR)"}
    )


@register_model("rm_lm", dataclass=RecurrentMemoryConfig)
class RecurrentMemoryLanguageModel(MemoryLanguageModel):
    family = "rm_lm"


# RM(+tM-g) in Table 2 of Daniluk et al. (2017): 70.65 M parameters besides the embeddings at V = 77,000
daniluk_preset("rm_lm_daniluk2017", RecurrentMemoryLanguageModel, hidden=300, output_layer="untied")
# Rows E and F in Table 2 of Liu et al. (2016): embedding and LSTM of 50 as in their other rows
SIZES = {"decoder_embed_dim": 50, "decoder_hidden_size": 50, "decoder_layers": 1}
for name, second in (("rmn", False), ("rmr", True)):
    preset(f"rm_lm_{name}", RecurrentMemoryLanguageModel, **SIZES, rm_second_lstm=second, dropout=0.0, output_bias="zero")
    preset(f"rm_lm_{name}_ours", RecurrentMemoryLanguageModel, **SIZES, rm_second_lstm=second)
