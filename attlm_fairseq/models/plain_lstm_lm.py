"""``--arch plain_lstm_lm``: the LSTM language model of all the papers' tables, without a memory (fairseq's own is ``lstm_lm``)."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from fairseq.models import register_model

from attlm_fairseq.models._decoder import LanguageModelConfig, MemoryLanguageModel


@register_model("plain_lstm_lm", dataclass=LanguageModelConfig)
class PlainLSTMLanguageModel(MemoryLanguageModel):
    family = "plain_lstm_lm"
