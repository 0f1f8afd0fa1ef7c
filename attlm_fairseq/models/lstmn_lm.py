"""``--arch lstmn_lm``: the LSTM-Network of Cheng, Dong and Lapata (2016), with presets for the rows of their PTB table."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from fairseq.models import register_model

from attlm_fairseq.models.config import LSTMLanguageModelConfig
from attlm_fairseq.models.language_model import MemoryLanguageModel, preset


@register_model("lstmn_lm", dataclass=LSTMLanguageModelConfig)
class LSTMNLanguageModel(MemoryLanguageModel):
    family = "lstmn_lm"


# embeddings of 150, states of 300; dropout and initialisation are this package's
for name, layers in (("ptb", 1), ("ptb_3layers", 3)):
    preset(
        f"lstmn_lm_{name}",
        LSTMNLanguageModel,
        decoder_embed_dim=150,
        decoder_hidden_size=300,
        decoder_layers=layers,
        output_layer="untied",
    )
