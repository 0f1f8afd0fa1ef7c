"""``--arch attentive_lstm_lm``: Salton, Ross and Kelleher (2017), with presets for the rows of their tables."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass, field

from fairseq.models import register_model

from attlm_fairseq.models._presets import awd_preset, salton_preset
from attlm_fairseq.models.config import AttentionConfig
from attlm_fairseq.models.language_model import MemoryLanguageModel
from attlm_fairseq.modules.memory.attentive import MEMORIES, MERGES, SCORES, AttentiveReader


@dataclass
class AttentiveLSTMConfig(AttentionConfig):
    attention_score: str = field(
        default=AttentiveReader.defaults["attention_score"],
        metadata={
            "choices": SCORES,
            "help": "score of a memory state: single, v_s . tanh(W_s h_i), combined, v_s . tanh(W_s h_i + W_q h_t), or dot, h_i . h_t",
        },
    )
    attention_memory: str = field(
        default=AttentiveReader.defaults["attention_memory"],
        metadata={
            "choices": MEMORIES,
            "help": "states that a position attends to: the previous states, as in the paper, or the current state too",
        },
    )
    attention_merge: str = field(
        default=AttentiveReader.defaults["attention_merge"],
        metadata={
            "choices": MERGES,
            "help": "merge of state and context: concat, one layer over both, as in the paper; feedforward, a second layer; product, "
            "h_t * c_t; context, c_t alone; sum, h_t + W_a c_t",
        },
    )


@register_model("attentive_lstm_lm", dataclass=AttentiveLSTMConfig)
class AttentiveLSTMLanguageModel(MemoryLanguageModel):
    family = "attentive_lstm_lm"


# Table 1: 14.54 M parameters at V = 10,001, 14.97 M combined
salton_preset("attentive_lstm_lm_ptb", AttentiveLSTMLanguageModel, size=650, dropout=0.5, forget_bias=0.0)
# Table 2: 52.3 M parameters at V = 33,278 (the paper says 50 M)
salton_preset("attentive_lstm_lm_wikitext2", AttentiveLSTMLanguageModel, size=1000, dropout=0.65, forget_bias=0.0)
# the same 14.5 M with the regularisation of AWD-LSTM
awd_preset("awd_attentive", AttentiveLSTMLanguageModel, 650, layers=2)
