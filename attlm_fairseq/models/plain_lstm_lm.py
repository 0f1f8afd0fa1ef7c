"""``--arch plain_lstm_lm``: the LSTM language model of all the papers' tables, without a memory (fairseq's own is ``lstm_lm``),
with presets for rows of the papers' tables."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from fairseq.models import register_model

from attlm_fairseq.models._presets import daniluk_preset, merity_preset, salton_preset, zaremba_preset
from attlm_fairseq.models.config import LSTMLanguageModelConfig
from attlm_fairseq.models.language_model import MemoryLanguageModel


@register_model("plain_lstm_lm", dataclass=LSTMLanguageModelConfig)
class PlainLSTMLanguageModel(MemoryLanguageModel):
    family = "plain_lstm_lm"


# the row that the papers of Salton et al. lack, trained as their attentive LMs: 13.28 M parameters at V = 10,001, 49.32 M at V = 33,278
salton_preset("plain_lstm_lm_ptb", PlainLSTMLanguageModel, size=650, dropout=0.5, forget_bias=0.0)
salton_preset("plain_lstm_lm_wikitext2", PlainLSTMLanguageModel, size=1000, dropout=0.65, forget_bias=0.0)
# Table 2: 23.9 M parameters besides the embeddings at V = 77,000
daniluk_preset("plain_lstm_lm_daniluk2017", PlainLSTMLanguageModel, 300, output_layer="untied")
# PTB at V = 10,001: 19.78 M and 66.03 M parameters (Zaremba, Sutskever and Vinyals 2015)
zaremba_preset("zaremba_medium", PlainLSTMLanguageModel, 650, init_range=0.05, dropout=0.5, output_layer="untied")
zaremba_preset("zaremba_large", PlainLSTMLanguageModel, 1500, init_range=0.04, dropout=0.65, output_layer="untied")
# "Large + BD + WT" (Press and Wolf 2017), 51.02 M. Its dropout of h_{t-1}, a mask per gate, is weight drop here, which keeps the fused LSTM
zaremba_preset(
    "variational_large_tied",
    PlainLSTMLanguageModel,
    1500,
    init_range=0.04,
    dropout=0.5,
    dropout_words=0.3,
    weight_drop=0.3,
    locked_dropout=True,
)
# AWD-LSTM (Merity, Keskar and Socher 2018), AWD-LSTM-MoS (Yang et al. 2018) and AWD-LSTM-DOC (Takase, Suzuki and Nagata 2018)
merity_preset("awd_lstm_lm", PlainLSTMLanguageModel, 400, 1150, 400)
merity_preset("awd_lstm_lm_wikitext2", PlainLSTMLanguageModel, 400, 1150, 400, dropout_in=0.65, dropout_between=0.2)
for kind, softmaxes, dropout in (("mos", "15", 0.29), ("doc", "15,5", 0.6)):
    mixture = {"softmaxes": softmaxes, "dropout_latent": dropout}
    merity_preset(f"awd_{kind}", PlainLSTMLanguageModel, 280, 960, 620, dropout_between=0.225, **mixture)
    wikitext = {"dropout_in": 0.55, "dropout_between": 0.2}
    merity_preset(f"awd_{kind}_wikitext2", PlainLSTMLanguageModel, 300, 1150, 650, **wikitext, **mixture)
