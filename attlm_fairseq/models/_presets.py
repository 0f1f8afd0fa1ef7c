"""What the presets of one paper's experiments have in common."""

from __future__ import annotations

from typing import Any

from attlm_fairseq.models._decoder import MemoryLanguageModel, preset


def salton_preset(name: str, model: type[MemoryLanguageModel], size: int, dropout: float, forget_bias: float) -> None:
    """Register a preset of the experiments of Salton et al.: two layers of one size, biases 0 but the forget gates'."""
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
    """Register a preset of the experiments of Daniluk et al.: one layer, embeddings of 300. The paper speaks of no dropout."""
    preset(name, model, decoder_embed_dim=300, decoder_hidden_size=hidden, decoder_layers=1, dropout=0.0, **others)
