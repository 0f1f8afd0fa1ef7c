"""``--arch ngram_rnn_lm``: the N-gram RNNs of Daniluk et al. (2017), with presets for the rows of their Table 2b."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass, field

from fairseq.models import register_model

from attlm_fairseq.models._presets import daniluk_preset
from attlm_fairseq.models.config import LSTMLanguageModelConfig, inherited
from attlm_fairseq.models.language_model import MemoryLanguageModel
from attlm_fairseq.modules.memory import NgramReader


@dataclass
class NgramRNNConfig(LSTMLanguageModelConfig):
    output_layer: str = inherited("output_layer", default="untied")
    init_range: float = inherited("init_range", default=0.1)
    ngram_order: int = field(
        default=NgramReader.defaults["ngram_order"], metadata={"help": "N: number of newest outputs that give one part each"}
    )


@register_model("ngram_rnn_lm", dataclass=NgramRNNConfig)
class NgramRNNLanguageModel(MemoryLanguageModel):
    family = "ngram_rnn_lm"


for order, hidden in ((2, 564), (3, 786), (4, 968), (5, 1120)):
    daniluk_preset(f"ngram_rnn_lm_{order}gram", NgramRNNLanguageModel, hidden, ngram_order=order)
