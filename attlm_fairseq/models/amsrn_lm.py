"""``--arch amsrn_lm``: Liu, Tsai, Chen and Lee (2016), with presets for the rows of their tables."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from argparse import Namespace
from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum
from fairseq.models import register_model, register_model_architecture

from attlm_fairseq.models._decoder import OUTPUT_LAYERS, LanguageModelConfig, MemoryLanguageModel, inherited
from attlm_fairseq.modules.memory.selection import SELECTIONS


@dataclass
class AMSRNConfig(LanguageModelConfig):
    output_layer: OUTPUT_LAYERS = inherited("output_layer", default="untied")
    selection: ChoiceEnum(list(SELECTIONS)) = field(
        default="tied",
        metadata={"help": "gates of keys and values: none (all ones), independent, tied (w_h1 = w_h2), complementary (w_h1 = 1 - w_h2)"},
    )


@register_model("amsrn_lm", dataclass=AMSRNConfig)
class AMSRNLanguageModel(MemoryLanguageModel):
    family = "amsrn_lm"


def preset(selection: str) -> None:
    """Register ``amsrn_lm_<selection>``, the row of Table 2 with this selection: embedding and one LSTM layer of 50."""

    @register_model_architecture("amsrn_lm", f"amsrn_lm_{selection}")
    def row(args: Namespace) -> None:
        args.selection = getattr(args, "selection", selection)
        args.decoder_embed_dim = getattr(args, "decoder_embed_dim", 50)
        args.decoder_hidden_size = getattr(args, "decoder_hidden_size", 50)
        args.decoder_layers = getattr(args, "decoder_layers", 1)


for each in SELECTIONS:
    preset(each)
