"""Common options of the presets of each paper."""

from __future__ import annotations

from typing import Any

from attlm_fairseq.models.language_model import MemoryLanguageModel, preset


def salton_preset(name: str, model: type[MemoryLanguageModel], size: int, dropout: float, forget_bias: float) -> None:
    """Register a preset of Salton et al.: two layers of equal size, and biases 0 except those of forget gates."""
    preset(
        name,
        model,
        decoder_embed_dim=size,
        decoder_hidden_size=size,
        decoder_layers=2,
        dropout=dropout,
        forget_bias=forget_bias,
        output_bias="zero",
    )


def daniluk_preset(name: str, model: type[MemoryLanguageModel], hidden: int, **others: Any) -> None:
    """Register a preset of Daniluk et al.: one layer, embeddings of size 300, no dropout (the paper mentions none).

    All parameters except the biases of forget gates are drawn uniformly from (-0.1, 0.1).
    """
    preset(
        name,
        model,
        decoder_embed_dim=300,
        decoder_hidden_size=hidden,
        decoder_layers=1,
        dropout=0.0,
        init_range=0.1,
        init_biases="uniform",
        output_bias="zero",
        **others,
    )


def zaremba_preset(name: str, model: type[MemoryLanguageModel], size: int, init_range: float, **others: Any) -> None:
    """Register a preset of two layers of one size, all parameters drawn from one range, as Zaremba et al. (2015) have them."""
    preset(
        name,
        model,
        decoder_embed_dim=size,
        decoder_hidden_size=size,
        decoder_layers=2,
        init_range=init_range,
        init_biases="uniform",
        forget_bias=None,  # drawn, too
        output_bias="zero",
        **others,
    )


def awd_preset(name: str, model: type[MemoryLanguageModel], size: int, layers: int, **others: Any) -> None:
    """Register a preset with the regularisation of AWD-LSTM's PTB recipe (Merity, Keskar and Socher 2018), tied.

    The embeddings have the size of the states. ``others`` may change all of this.
    """
    recipe = {
        "decoder_embed_dim": size,
        "decoder_hidden_size": size,
        "decoder_layers": layers,
        "dropout_in": 0.4,
        "dropout_between": 0.25,
        "dropout_out": 0.4,
        "dropout_words": 0.1,
        "weight_drop": 0.5,
        "locked_dropout": True,
    }
    preset(name, model, **{**recipe, **others})


def merity_preset(name: str, model: type[MemoryLanguageModel], embeddings: int, size: int, top: int, **others: Any) -> None:
    """Register a preset with AWD-LSTM's sizes and initial weights, too: three layers, of which the top one is smaller."""
    sizes = {"decoder_embed_dim": embeddings, "decoder_top_size": top}
    initial = {"init_range": 0.1, "init_layers": "torch", "forget_bias": None, "output_bias": "zero"}
    awd_preset(name, model, size, 3, **{**sizes, **initial, **others})
