"""``--task translation_with_lm``: fairseq's translation with language models in the decoder. Training is that of ``translation``."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from dataclasses import dataclass
from typing import Any

from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from attlm_fairseq.tasks._lm_fusion import LMFusionOptions, LMFusionTask


@dataclass
class TranslationWithLMConfig(LMFusionOptions, TranslationConfig):
    """The options of ``translation`` and of the language models."""


@register_task("translation_with_lm", dataclass=TranslationWithLMConfig)
class TranslationWithLMTask(TranslationTask, LMFusionTask):
    """Beam search by ``ln p_translation + sum_k weight_k ln p_k`` at every position, including the sentence end.

    It does what fairseq-generate does with ``--lm-path``, several times faster, with several LMs, and for every sentence of
    the data. At the end of the program it prints on standard error what the LMs did. Checkpoints of ``--task translation``
    are loaded unchanged.
    """

    @property
    def decoding(self) -> Any:
        return self.cfg
