"""``--arch plain_lstm_lm``: the LSTM language model of all the papers' tables, without a memory (fairseq's own is ``lstm_lm``),
with a preset for the row of Daniluk et al. (2017)."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from fairseq.models import register_model

from attlm_fairseq.models._decoder import LSTMLanguageModelConfig, MemoryLanguageModel
from attlm_fairseq.models._presets import daniluk_preset


@register_model("plain_lstm_lm", dataclass=LSTMLanguageModelConfig)
class PlainLSTMLanguageModel(MemoryLanguageModel):
    family = "plain_lstm_lm"


# Table 2: 23.9 M parameters besides the embeddings at V = 77,000
daniluk_preset("plain_lstm_lm_daniluk2017", PlainLSTMLanguageModel, 300, output_layer="untied", init_range=0.1)
