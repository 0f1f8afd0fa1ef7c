"""The output layers, one per file."""

from __future__ import annotations

from collections.abc import Sequence

from attlm_fairseq.modules.output.adaptive import AdaptiveOutput
from attlm_fairseq.modules.output.layer import EventLogProbs, OutputLayer
from attlm_fairseq.modules.output.softmax import Softmax

OUTPUT_LAYERS = ("tied", "untied", "adaptive")


def build_output_layer(kind: str, feature_size: int, vocabulary_size: int, cutoffs: Sequence[int] = ()) -> OutputLayer:
    """Build an output layer.

    Args:
        kind: one of ``OUTPUT_LAYERS``. For ``tied``, the language model later shares the layer's matrix with its embeddings.
        feature_size: F.
        vocabulary_size: V.
        cutoffs: the cutoffs of the adaptive softmax.

    Raises:
        ValueError: an unknown kind or invalid cutoffs.
    """
    if kind not in OUTPUT_LAYERS:
        raise ValueError(f"output layer {kind!r} is not one of: {', '.join(OUTPUT_LAYERS)}")
    if kind == "adaptive":
        return AdaptiveOutput(feature_size, vocabulary_size, cutoffs)
    return Softmax(feature_size, vocabulary_size)


__all__ = ["OUTPUT_LAYERS", "AdaptiveOutput", "EventLogProbs", "OutputLayer", "Softmax", "build_output_layer"]
