"""``--arch rnn_lm``: the plain RNN language model, with a preset for the row of Daniluk et al. (2017)."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from fairseq.models import register_model

from attlm_fairseq.models._presets import daniluk_preset
from attlm_fairseq.models.config import LanguageModelConfig
from attlm_fairseq.models.language_model import MemoryLanguageModel


@register_model("rnn_lm", dataclass=LanguageModelConfig)
class RNNLanguageModel(MemoryLanguageModel):
    family = "rnn_lm"


# Table 2: 23.9 M parameters besides the embeddings at V = 77,000
daniluk_preset("rnn_lm_daniluk2017", RNNLanguageModel, 307, output_layer="untied")
