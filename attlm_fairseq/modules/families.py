"""Which recurrence and which reader each model family has, and building a model from its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.memory import (
    AttentiveReader,
    AveragingReader,
    KeyValuePredictReader,
    NgramReader,
    PlainReader,
    Reader,
    SelectionReader,
)
from attlm_fairseq.modules.output import build_output_layer
from attlm_fairseq.modules.recurrence import LSTM, RNN, HigherOrderRNN, Recurrence
from attlm_fairseq.modules.regularisation import Regularisation


class Family(NamedTuple):
    """What its models are made of."""

    recurrence: type[Recurrence]
    reader: type[Reader]

    @property
    def defaults(self) -> dict[str, Any]:
        """The options that only this recurrence and this reader have, with the values that checkpoints without them were trained with."""
        return {**self.recurrence.defaults, **self.reader.defaults}


FAMILIES = {
    "attentive_lstm_lm": Family(LSTM, AttentiveReader),
    "averaging_lstm_lm": Family(LSTM, AveragingReader),
    "amsrn_lm": Family(LSTM, SelectionReader),
    "kvp_lstm_lm": Family(LSTM, KeyValuePredictReader),
    "ngram_rnn_lm": Family(LSTM, NgramReader),
    "plain_lstm_lm": Family(LSTM, PlainReader),
    "rnn_lm": Family(RNN, PlainReader),
    "hornn_lm": Family(HigherOrderRNN, PlainReader),
}
"""By name. A preset is called ``<family>_<table row>``, so its family is the longest name that begins it, or it is one of these:"""

RECIPES = {
    "awd_lstm_lm": "plain_lstm_lm",
    "awd_averaging": "averaging_lstm_lm",
    "awd_attentive": "attentive_lstm_lm",
    "zaremba_medium": "plain_lstm_lm",
    "zaremba_large": "plain_lstm_lm",
    "variational_large_tied": "plain_lstm_lm",
}
"""The families of presets that are known under names of their own."""


def family_of(architecture: str) -> str | None:
    """Return the family of an architecture or preset, None if it is not one of this package's."""
    if architecture in RECIPES:
        return RECIPES[architecture]
    return max((name for name in FAMILIES if architecture.startswith(name)), key=len, default=None)


def build_language_model(family: str | Family, config: Mapping[str, Any], vocabulary_size: int, padding_index: int) -> LanguageModel:
    """Build the model of a family from its options, named as on fairseq-train's command line; those of its own have defaults.

    Raises:
        ValueError: Sizes do not go together, or a choice does not exist, such as one of a later version.
    """
    parts = FAMILIES[family] if isinstance(family, str) else family
    options = {**parts.defaults, "adaptive_cutoffs": None, **{name: config[name] for name in config}}
    regularisation = Regularisation.from_config(options)
    reader = parts.reader.from_config(options["decoder_hidden_size"], options)
    output = str(options["output_layer"])
    return LanguageModel(
        parts.recurrence.from_config(options["decoder_embed_dim"], options, regularisation),
        reader,
        build_output_layer(output, reader.feature_size, vocabulary_size, parse_cutoffs(options["adaptive_cutoffs"])),
        vocabulary_size=vocabulary_size,
        embedding_size=options["decoder_embed_dim"],
        padding_index=padding_index,
        tied=output == "tied",
        regularisation=regularisation,
    )


def parse_cutoffs(text: str | None) -> list[int]:
    """Return ``2000,10000`` as numbers. Raises ValueError."""
    try:
        return [int(number) for number in text.split(",")] if text else []
    except (ValueError, AttributeError):  # not a text: only in a file that is not as it was written
        raise ValueError(f"--adaptive-cutoffs {text!r}: expected whole numbers joined by commas, such as 2000,10000") from None
