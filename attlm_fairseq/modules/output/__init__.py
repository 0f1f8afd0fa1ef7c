"""The output layers, one per file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attlm_fairseq.modules.output.adaptive import AdaptiveOutput
from attlm_fairseq.modules.output.layer import EventLogProbs, OutputLayer
from attlm_fairseq.modules.output.mixture import Mixture, parse_softmaxes
from attlm_fairseq.modules.output.pointer import PointerSoftmax
from attlm_fairseq.modules.output.softmax import Softmax

OUTPUT_LAYERS = ("tied", "untied", "adaptive")


@dataclass(frozen=True)
class OutputOptions:
    """The options of an output layer.

    Attributes:
        kind: one of ``OUTPUT_LAYERS``. For ``tied``, the language model later shares the layer's matrix with its embeddings.
        cutoffs: the cutoffs of the adaptive softmax.
        softmaxes: the numbers of softmaxes over the features and over each layer below the top, downwards.
        vector_size: E, the size of the embeddings, which the word vectors of a mixture of softmaxes have, too.
        lower_size: H, the size of a lower layer's output.
        dropout_latent: dropout probability within a mixture of softmaxes.
        locked_dropout: whether it draws one mask for all positions of a row.
        pointer_loss: the weight of a pointer's auxiliary loss; None if the reader is not a pointer.
    """

    kind: str
    cutoffs: Sequence[int] = ()
    softmaxes: Sequence[int] = (1,)
    vector_size: int = 0
    lower_size: int = 0
    dropout_latent: float = 0.0
    locked_dropout: bool = False
    pointer_loss: float | None = None


def build_output_layer(feature_size: int, vocabulary_size: int, options: OutputOptions) -> OutputLayer:
    """Build an output layer for features of a reader of size F and V words.

    Raises:
        ValueError: an unknown kind, invalid cutoffs, or a combination that is not supported.
    """
    if options.kind not in OUTPUT_LAYERS:
        raise ValueError(f"output layer {options.kind!r} is not one of: {', '.join(OUTPUT_LAYERS)}")
    mixture = sum(options.softmaxes) > 1
    if options.pointer_loss is not None:
        if mixture or options.kind == "adaptive":
            raise ValueError("a pointer needs one full softmax: give --output-layer tied or untied, and --softmaxes 1")
        return PointerSoftmax(feature_size, vocabulary_size, options.pointer_loss)
    if options.kind == "adaptive":
        if mixture:
            raise ValueError("a mixture of adaptive softmaxes is not supported: give --output-layer tied or untied, or --softmaxes 1")
        return AdaptiveOutput(feature_size, vocabulary_size, options.cutoffs)
    if not mixture:
        return Softmax(feature_size, vocabulary_size)
    used = [(options.lower_size, count) for count in options.softmaxes[1:] if count]
    sizes, counts = zip((feature_size, options.softmaxes[0]), *used, strict=True)
    return Mixture(sizes, counts, options.vector_size, vocabulary_size, options.dropout_latent, options.locked_dropout)


__all__ = [
    "OUTPUT_LAYERS",
    "AdaptiveOutput",
    "EventLogProbs",
    "Mixture",
    "OutputLayer",
    "OutputOptions",
    "PointerSoftmax",
    "Softmax",
    "build_output_layer",
    "parse_softmaxes",
]
