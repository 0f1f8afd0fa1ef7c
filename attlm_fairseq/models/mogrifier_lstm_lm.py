"""``--arch mogrifier_lstm_lm``: the Mogrifier LSTM of Melis, Kočiský and Blunsom (2020)."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass, field

from fairseq.models import register_model

from attlm_fairseq.models._presets import awd_preset
from attlm_fairseq.models.config import LSTMLanguageModelConfig
from attlm_fairseq.models.language_model import MemoryLanguageModel
from attlm_fairseq.modules.recurrence.mogrifier import Mogrifier


@dataclass
class MogrifierConfig(LSTMLanguageModelConfig):
    mogrifier_rounds: int = field(
        default=Mogrifier.defaults["mogrifier_rounds"], metadata={"help": "R: how often input and state gate each other before each step"}
    )
    mogrifier_rank: int = field(
        default=Mogrifier.defaults["mogrifier_rank"],
        metadata={"help": "rank of the gates' matrices, each a product of two (0: full matrices)"},
    )
    mogrifier_capped: bool = field(
        default=Mogrifier.defaults["mogrifier_capped"], metadata={"help": "cap the LSTM's input gate at 1 minus its forget gate"}
    )
    cuda_graphs: bool = field(
        default=Mogrifier.defaults["cuda_graphs"],
        metadata={
            "help": "on a GPU, training records the kernels of a layer as CUDA graphs, for batches of the same shape. It is for "
            "--task document_reset_lm"
        },
    )


@register_model("mogrifier_lstm_lm", dataclass=MogrifierConfig)
class MogrifierLanguageModel(MemoryLanguageModel):
    family = "mogrifier_lstm_lm"


# 24 M parameters on PTB with the paper's rounds, rank and cap; the regularisation is AWD-LSTM's
awd_preset("mogrifier_lstm_lm_awd", MogrifierLanguageModel, 910, layers=2, mogrifier_rounds=5, mogrifier_rank=84, mogrifier_capped=True)
