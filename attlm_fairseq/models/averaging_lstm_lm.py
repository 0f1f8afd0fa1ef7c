"""``--arch averaging_lstm_lm``: Salton and Kelleher (2018), with presets for the rows of their tables."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from fairseq.models import register_model

from attlm_fairseq.models._presets import awd_preset, salton_preset
from attlm_fairseq.models.config import LSTMLanguageModelConfig
from attlm_fairseq.models.language_model import MemoryLanguageModel


@register_model("averaging_lstm_lm", dataclass=LSTMLanguageModelConfig)
class AveragingLSTMLanguageModel(MemoryLanguageModel):
    family = "averaging_lstm_lm"


# 14.12 M parameters at V = 10,001
salton_preset("averaging_lstm_lm_ptb", AveragingLSTMLanguageModel, size=650, dropout=0.5, forget_bias=1.0)
# 51.3 M parameters at V = 33,278 (the paper says 50 M)
salton_preset("averaging_lstm_lm_wikitext2", AveragingLSTMLanguageModel, size=1000, dropout=0.65, forget_bias=1.0)
# the same 14.1 M with the regularisation of AWD-LSTM
awd_preset("awd_averaging", AveragingLSTMLanguageModel, 650, layers=2)
