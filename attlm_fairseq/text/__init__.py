"""Text normalisation: from the text of a hypothesis to the words that an LM looks up."""

from attlm_fairseq.text.pipeline import (
    Step,
    TextPipeline,
    describe_pipelines,
    note_texts,
    parse_step,
    parse_steps,
    remarks,
    split_texts,
    text_pipeline,
)

__all__ = [
    "Step",
    "TextPipeline",
    "describe_pipelines",
    "note_texts",
    "parse_step",
    "parse_steps",
    "remarks",
    "split_texts",
    "text_pipeline",
]
