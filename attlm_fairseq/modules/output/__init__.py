"""The output layers, one per file."""

from __future__ import annotations

from collections.abc import Sequence

from attlm_fairseq.modules.output.adaptive import AdaptiveOutput
from attlm_fairseq.modules.output.layer import EventLogProbs, OutputLayer
from attlm_fairseq.modules.output.softmax import Softmax

OUTPUT_LAYERS = ("tied", "untied", "adaptive")


def build_output_layer(kind: str, feature_size: int, vocabulary_size: int, cutoffs: Sequence[int] = ()) -> OutputLayer:
    """Build the output layer of a kind of ``OUTPUT_LAYERS``, the adaptive softmax with its ``cutoffs``. Raises ValueError.

    The language model ties the matrix of a ``tied`` one to its embeddings.
    """
    if kind not in OUTPUT_LAYERS:
        raise ValueError(f"output layer {kind!r} is not one of: {', '.join(OUTPUT_LAYERS)}")
    if kind == "adaptive":
        return AdaptiveOutput(feature_size, vocabulary_size, cutoffs)
    return Softmax(feature_size, vocabulary_size)


__all__ = ["OUTPUT_LAYERS", "AdaptiveOutput", "EventLogProbs", "OutputLayer", "Softmax", "build_output_layer"]
