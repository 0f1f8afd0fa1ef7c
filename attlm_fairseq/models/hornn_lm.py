"""``--arch hornn_lm``: the higher-order RNNs of Soltani and Jiang (2016), with presets for the rows of Daniluk et al. (2017)."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass, field

from fairseq.models import register_model

from attlm_fairseq.models._presets import daniluk_preset
from attlm_fairseq.models.config import LanguageModelConfig
from attlm_fairseq.models.language_model import MemoryLanguageModel
from attlm_fairseq.modules.recurrence.higher_order import FEEDBACKS, HigherOrderRNN


@dataclass
class HORNNConfig(LanguageModelConfig):
    hornn_order: int = field(
        default=HigherOrderRNN.defaults["hornn_order"], metadata={"help": "N: number of previous states that feed back"}
    )
    hornn_feedback: str = field(
        default=HigherOrderRNN.defaults["hornn_feedback"],
        metadata={
            "choices": FEEDBACKS,
            "help": "weights of the states that feed back: fofe, 0.6^n for the n-th, or gated, sigmoid(W_1n x_t + W_2n h_{t-n})",
        },
    )


@register_model("hornn_lm", dataclass=HORNNConfig)
class HORNNLanguageModel(MemoryLanguageModel):
    family = "hornn_lm"


# Table 2: 23.77 M and 23.83 M parameters besides the embeddings at V = 77,000
for feedback, hidden in (("fofe", 303), ("gated", 297)):
    daniluk_preset(f"hornn_lm_{feedback}", HORNNLanguageModel, hidden, hornn_feedback=feedback, output_layer="untied")
