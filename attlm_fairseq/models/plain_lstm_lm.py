"""``--arch plain_lstm_lm``: the LSTM language model of all the papers' tables, without a memory (fairseq's own is ``lstm_lm``),
with presets for rows of the papers' tables."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from fairseq.models import register_model

from attlm_fairseq.models._decoder import MemoryLanguageModel, PlainLSTMConfig
from attlm_fairseq.models._presets import awd_preset, daniluk_preset, zaremba_preset


@register_model("plain_lstm_lm", dataclass=PlainLSTMConfig)
class PlainLSTMLanguageModel(MemoryLanguageModel):
    family = "plain_lstm_lm"


# Table 2: 23.9 M parameters besides the embeddings at V = 77,000
daniluk_preset("plain_lstm_lm_daniluk2017", PlainLSTMLanguageModel, 300, output_layer="untied")
# PTB at V = 10,001: 19.78 M and 66.02 M parameters (Zaremba, Sutskever and Vinyals 2015)
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
# 24.3 M, as AWD-LSTM has: its layers of 1150, 1150 and 400 over embeddings of 400 are three of 820 here
awd_preset("awd_lstm_lm", PlainLSTMLanguageModel, 820, layers=3)
# AWD-LSTM-MoS (Yang et al. 2018) and AWD-LSTM-DOC (Takase, Suzuki and Nagata 2018): 21.4 M and 22.8 M on PTB, 34.8 M and 36.6 M on
# WikiText-2, as printed. Their layers of 960, 960 and 620 (WikiText-2: 1150, 1150 and 650) are three of one size here
for kind, softmaxes, dropout, sizes in (("mos", "15", 0.29, (840, 980)), ("doc", "15,5", 0.6, (845, 985))):
    shares = {"softmaxes": softmaxes, "dropout_latent": dropout}
    awd_preset(f"awd_{kind}", PlainLSTMLanguageModel, sizes[0], 3, decoder_embed_dim=280, dropout_between=0.225, **shares)
    wikitext = {"decoder_embed_dim": 300, "dropout_in": 0.55, "dropout_between": 0.2}
    awd_preset(f"awd_{kind}_wikitext2", PlainLSTMLanguageModel, sizes[1], 3, **wikitext, **shares)
