"""The recurrence and the reader of each model family, and the function that builds a model from its options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from attlm_fairseq import extensions
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.memory import (
    AttentiveReader,
    AveragingReader,
    KeyValuePredictReader,
    NgramReader,
    PlainReader,
    PointerReader,
    ProjectedReader,
    Reader,
    RecurrentMemoryReader,
    SelectionReader,
)
from attlm_fairseq.modules.output import OutputOptions, build_output_layer, find_output_layer, parse_softmaxes
from attlm_fairseq.modules.recurrence import LSTM, LSTMN, RNN, HigherOrderRNN, Mogrifier, Recurrence, TwoSizes, WeightedAverage
from attlm_fairseq.modules.regularisation import Regularisation


class Family(NamedTuple):
    """The parts of a model family."""

    recurrence: type[Recurrence]
    reader: type[Reader]

    @property
    def defaults(self) -> dict[str, Any]:
        """Return the defaults of this recurrence's and reader's own options. Checkpoints without an option used its default."""
        return {**self.recurrence.defaults, **self.reader.defaults}


class Families(extensions.Registry[Family]):
    """Families by name. Names that begin with another one and ``_`` are for its presets."""

    def __setitem__(self, name: str, part: Family) -> None:
        if name in RECIPES:
            raise ValueError(f"the name {name!r} is taken by a preset: choose another one")
        for other in self:
            if name.startswith(f"{other}_") or other.startswith(f"{name}_"):
                raise ValueError(
                    f"the name {name!r} and that of the family {other!r} begin alike, as those of presets do: choose another one"
                )
        super().__setitem__(name, part)


FAMILIES = Families(
    {
        "attentive_lstm_lm": Family(LSTM, AttentiveReader),
        "averaging_lstm_lm": Family(LSTM, AveragingReader),
        "amsrn_lm": Family(LSTM, SelectionReader),
        "kvp_lstm_lm": Family(LSTM, KeyValuePredictReader),
        "ngram_rnn_lm": Family(LSTM, NgramReader),
        "plain_lstm_lm": Family(LSTM, PlainReader),
        "pointer_lstm_lm": Family(LSTM, PointerReader),
        "rnn_lm": Family(RNN, PlainReader),
        "hornn_lm": Family(HigherOrderRNN, PlainReader),
        "rm_lm": Family(LSTM, RecurrentMemoryReader),
        "lstmn_lm": Family(LSTMN, PlainReader),
        "rwa_lm": Family(WeightedAverage, PlainReader),
        "mogrifier_lstm_lm": Family(Mogrifier, PlainReader),
        "attentive_mogrifier_lm": Family(Mogrifier, AttentiveReader),
        "pointer_mogrifier_lm": Family(Mogrifier, PointerReader),
    }
)
"""Families by name. A preset is called ``<family>_<table row>``.
Other packages may add families, see ``extensions.MODELS``."""

OWN_FAMILIES = tuple(FAMILIES)
"""The families of this package."""

RECIPES = {
    "awd_lstm_lm": "plain_lstm_lm",
    "awd_lstm_lm_wikitext2": "plain_lstm_lm",
    "awd_averaging": "averaging_lstm_lm",
    "awd_attentive": "attentive_lstm_lm",
    "awd_mos": "plain_lstm_lm",
    "awd_mos_wikitext2": "plain_lstm_lm",
    "awd_doc": "plain_lstm_lm",
    "awd_doc_wikitext2": "plain_lstm_lm",
    "zaremba_medium": "plain_lstm_lm",
    "zaremba_large": "plain_lstm_lm",
    "variational_large_tied": "plain_lstm_lm",
}
"""The families of presets whose names do not begin with the name of their family."""


DEFAULTS = {"adaptive_cutoffs": None, "softmaxes": "1", "projection_size": 0}
"""Options of every family that older checkpoints do not have: what was done without them."""
SIZES = ("decoder_embed_dim", "decoder_hidden_size", "decoder_layers")
LARGEST = 2**31 - 1  # of an option that is a whole number; larger ones have torch raise whatever it does


def family_of(architecture: str) -> str | None:
    """Return the family of an architecture or preset; None if neither this package nor an installed one with entry points has it."""
    if architecture in RECIPES:
        return RECIPES[architecture]
    if own := _begins_with_family(architecture, OWN_FAMILIES):
        return own
    extensions.load(extensions.MODELS)  # raises again what it raised: a module may have added a part of its families before it failed
    return _begins_with_family(architecture, FAMILIES)


def _begins_with_family(architecture: str, families: Iterable[str]) -> str | None:
    return max((name for name in families if f"{architecture}_".startswith(f"{name}_")), key=len, default=None)


def build_language_model(family: str | Family, config: Mapping[str, Any], vocabulary_size: int, padding_index: int) -> LanguageModel:
    """Build the model of a family from its options, named as on fairseq-train's command line.

    The own options of the family and of the output layer may be absent; then their defaults apply.

    Raises:
        ValueError: sizes do not match, or an option has an unknown value (for example, of a later version).
    """
    if isinstance(family, str) and family not in OWN_FAMILIES:
        extensions.load(extensions.MODELS)
    if isinstance(family, str) and family not in FAMILIES:
        raise ValueError(
            f"the family {family!r} is not in FAMILIES of attlm_fairseq.modules.families: {', '.join(FAMILIES)}; one of your own needs an "
            f"installed package with the entry point {extensions.MODELS}"
        )
    parts = FAMILIES[family] if isinstance(family, str) else family
    kind = str(config["output_layer"])
    options = {**find_output_layer(kind).defaults, **parts.defaults, **DEFAULTS, **{name: config[name] for name in config}}
    for name in (*SIZES, *DEFAULTS, *parts.defaults):
        if isinstance(options.get(name), int) and abs(options[name]) > LARGEST:
            raise ValueError(f"--{name.replace('_', '-')} {options[name]}: expected a number of at most {LARGEST:,}")
    regularisation = Regularisation.from_config(options)
    top_size = options["decoder_hidden_size"] if options.get("decoder_top_size") is None else options["decoder_top_size"]
    for name in SIZES:
        if options[name] < 1:
            raise ValueError(f"--{name.replace('_', '-')} {options[name]}: expected a whole number, at least 1")
    if top_size < 1:
        raise ValueError(f"--decoder-top-size {top_size}: expected the size of a state, at least 1")
    reader = build_reader(parts.reader, top_size, vocabulary_size, options)
    output = output_options(options, regularisation, points="pointer_loss" in parts.reader.defaults)
    options["lower_layers"] = lower_layers(output.softmaxes, options["decoder_layers"])
    model = LanguageModel(
        build_recurrence(parts.recurrence, top_size, options, regularisation),
        reader,
        build_output_layer(kind, reader.feature_size, vocabulary_size, output),
        vocabulary_size=vocabulary_size,
        embedding_size=options["decoder_embed_dim"],
        padding_index=padding_index,
        tied=find_output_layer(kind).tied,
        regularisation=regularisation,
    )
    _require_parameters_alone(model)
    return model


def _require_parameters_alone(model: LanguageModel) -> None:
    """Raise ValueError for what checkpoints would hold besides each parameter once, and exported folders would not."""
    parameters = dict(model.named_parameters())
    names = dict(model.named_parameters(remove_duplicate=False))
    for name in model.state_dict():
        if name not in names:
            raise ValueError(f"{name}: checkpoints hold parameters alone: register this buffer with persistent=False")
        if name not in parameters and not (model.tied and names[name] is model.embedding.weight):
            raise ValueError(f"{name} is a parameter that has another name, too: give each parameter one name")


def build_recurrence(kind: type[Recurrence], top_size: int, options: Mapping[str, Any], regularisation: Regularisation) -> Recurrence:
    """Build a recurrence from the options of its model. Raises ValueError if one is invalid."""
    if top_size == options["decoder_hidden_size"]:
        return kind(options["decoder_embed_dim"], options, regularisation)
    return cast(Recurrence, TwoSizes(kind, top_size, options["decoder_embed_dim"], options, regularisation))


def build_reader(kind: type[Reader], hidden_size: int, vocabulary_size: int, options: Mapping[str, Any]) -> Reader:
    """Build a reader from the options of its model, with a projection of the states if they ask for one. Raises ValueError as above."""
    projected = options["projection_size"]
    if not isinstance(projected, int) or projected < 0:
        raise ValueError(f"--projection-size must be a whole number, 0 for no projection, not {projected}")
    reader = kind.from_config(projected or hidden_size, vocabulary_size, options)
    return cast(Reader, ProjectedReader(reader, hidden_size, projected)) if projected else reader


def output_options(options: Mapping[str, Any], regularisation: Regularisation, points: bool) -> OutputOptions:
    """Return the options of the output layer; ``points``: its reader is a pointer. Raises ValueError if one cannot be parsed."""
    return OutputOptions(
        cutoffs=parse_cutoffs(options["adaptive_cutoffs"]),
        softmaxes=parse_softmaxes(str(options["softmaxes"]), options["decoder_layers"]),
        vector_size=options["decoder_embed_dim"],
        lower_size=options["decoder_hidden_size"],
        dropout_latent=regularisation.dropout_latent,
        locked_dropout=regularisation.locked,
        pointer_loss=float(options["pointer_loss"]) if points else None,
        of_model=options,
    )


def lower_layers(softmaxes: Sequence[int], layers: int) -> tuple[int, ...]:
    """Return the layers below the top one (0 is the first) that have softmaxes, downwards."""
    return tuple(layers - 1 - down for down, count in enumerate(softmaxes) if down and count)


def parse_cutoffs(text: str | None) -> list[int]:
    """Parse comma-separated cutoffs such as ``2000,10000``.

    Raises:
        ValueError: a part is not a whole number, or ``text`` is not a text.
    """
    try:
        return [int(number) for number in text.split(",")] if text else []
    except (ValueError, AttributeError):  # AttributeError: not a string, possible in an edited checkpoint
        raise ValueError(f"--adaptive-cutoffs {text!r}: expected whole numbers joined by commas, such as 2000,10000") from None
