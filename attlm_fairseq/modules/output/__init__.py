"""The output layers, one per file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from attlm_fairseq import extensions
from attlm_fairseq.modules.output.adaptive import AdaptiveOutput
from attlm_fairseq.modules.output.layer import EventLogProbs, OutputLayer
from attlm_fairseq.modules.output.mixture import Mixture, parse_softmaxes
from attlm_fairseq.modules.output.pointer import PointerSoftmax
from attlm_fairseq.modules.output.softmax import Softmax
from attlm_fairseq.modules.output.transformed import TransformedSoftmax


@dataclass(frozen=True)
class OutputOptions:
    """The options of an output layer.

    Attributes:
        cutoffs: the cutoffs of the adaptive softmax.
        softmaxes: the numbers of softmaxes over the features and over each layer below the top, downwards.
        vector_size: E, the size of the embeddings, which the word vectors of a mixture of softmaxes have, too.
        lower_size: H, the size of a lower layer's output.
        dropout_latent: dropout probability within a mixture of softmaxes.
        locked_dropout: whether it draws one mask for all positions of a row.
        pointer_loss: the weight of a pointer's auxiliary loss; None if the reader is not a pointer.
        of_model: all options of the model by name, for a layer with options of its own.
    """

    cutoffs: Sequence[int] = ()
    softmaxes: Sequence[int] = (1,)
    vector_size: int = 0
    lower_size: int = 0
    dropout_latent: float = 0.0
    locked_dropout: bool = False
    pointer_loss: float | None = None
    of_model: Mapping[str, Any] = field(default_factory=dict)

    @property
    def mixture(self) -> bool:
        """Whether several softmaxes are mixed."""
        return sum(self.softmaxes) > 1


def full_softmax(feature_size: int, vocabulary_size: int, options: OutputOptions) -> OutputLayer:
    """Build a full softmax, a mixture of several or the pointer's."""
    if options.pointer_loss is not None:
        return PointerSoftmax(feature_size, vocabulary_size, options.pointer_loss)
    if not options.mixture:
        return Softmax(feature_size, vocabulary_size)
    used = [(options.lower_size, count) for count in options.softmaxes[1:] if count]
    sizes, counts = zip((feature_size, options.softmaxes[0]), *used, strict=True)
    return Mixture(sizes, counts, options.vector_size, vocabulary_size, options.dropout_latent, options.locked_dropout)


def adaptive_softmax(feature_size: int, vocabulary_size: int, options: OutputOptions) -> OutputLayer:
    """Build an adaptive softmax. Raises ValueError for invalid cutoffs."""
    return AdaptiveOutput(feature_size, vocabulary_size, options.cutoffs)


class OutputKind(NamedTuple):
    """A choice of ``--output-layer``.

    Attributes:
        build: makes the layer for features of size F, V words and the options. It raises ValueError if an option is invalid.
        tied: whether the language model then shares the layer's ``weight`` with its embeddings.
        full: whether ``build`` also makes mixtures (``softmaxes``) and pointers (``pointer_loss``). Of other kinds they are refused.
        defaults: the kind's own options. A model without an option has its default.
    """

    build: Callable[[int, int, OutputOptions], OutputLayer]
    tied: bool = False
    full: bool = False
    defaults: Mapping[str, Any] = {}


OUTPUT_LAYERS = extensions.Registry[OutputKind](
    {
        "tied": OutputKind(full_softmax, tied=True, full=True),
        "untied": OutputKind(full_softmax, full=True),
        "adaptive": OutputKind(adaptive_softmax),
    }
)
"""The choices of ``--output-layer`` by name. Other packages may add some, see ``extensions.MODELS``."""

OWN_LAYERS = tuple(OUTPUT_LAYERS)
"""The choices of this package."""


def build_output_layer(name: str, feature_size: int, vocabulary_size: int, options: OutputOptions) -> OutputLayer:
    """Build the output layer ``name`` for features of a reader of size F and V words.

    Raises:
        ValueError: an unknown name, an invalid option, or a combination that is not supported.
    """
    kind = find_output_layer(name)
    if options.pointer_loss is not None and (options.mixture or not kind.full):
        raise ValueError("a pointer needs one full softmax: give --output-layer tied or untied, and --softmaxes 1")
    if options.mixture and not kind.full:
        raise ValueError(f"a mixture of {name} output layers is not supported: give --output-layer tied or untied, or --softmaxes 1")
    return kind.build(feature_size, vocabulary_size, options)


def find_output_layer(name: str) -> OutputKind:
    """Return a kind of output layer by its name.

    Raises:
        ValueError: neither this package nor an installed one has it.
    """
    if name not in OWN_LAYERS:
        extensions.load(extensions.MODELS)
    if name not in OUTPUT_LAYERS:
        raise ValueError(f"output layer {name!r} is not one of: {', '.join(OUTPUT_LAYERS)}")
    return OUTPUT_LAYERS[name]


__all__ = [
    "OUTPUT_LAYERS",
    "AdaptiveOutput",
    "EventLogProbs",
    "Mixture",
    "OutputKind",
    "OutputLayer",
    "OutputOptions",
    "PointerSoftmax",
    "Softmax",
    "TransformedSoftmax",
    "build_output_layer",
    "find_output_layer",
    "parse_softmaxes",
]
