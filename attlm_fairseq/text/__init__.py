"""From the text of a hypothesis to the words that an LM looks up, and how many of those it does not know."""

from attlm_fairseq.text.oov import OOVCount
from attlm_fairseq.text.pipeline import Step, TextPipeline, describe_pipelines, parse_step, parse_steps, remarks, split_texts

__all__ = ["OOVCount", "Step", "TextPipeline", "describe_pipelines", "parse_step", "parse_steps", "remarks", "split_texts"]
