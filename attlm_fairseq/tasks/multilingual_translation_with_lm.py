"""``--task translation_multi_simple_epoch_with_lm``: fairseq's multilingual translation with language models in the decoder."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from fairseq.data import FairseqDataset
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.tasks import register_task
from fairseq.tasks.translation_multi_simple_epoch import TranslationMultiSimpleEpochTask

from attlm_fairseq.tasks._lm_fusion import LMFusionOptions, LMFusionTask


@register_task("translation_multi_simple_epoch_with_lm")
class MultilingualTranslationWithLMTask(TranslationMultiSimpleEpochTask, LMFusionTask):
    """Beam search by ``ln p_translation + sum_k weight_k ln p_k`` into one target language.

    Checkpoints of ``--task translation_multi_simple_epoch`` are loaded as they are. The language token with which the decoder begins is
    not shown to the LMs.
    """

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        TranslationMultiSimpleEpochTask.add_args(parser)
        gen_parser_from_dataclass(parser, LMFusionOptions())

    @property
    def decoding(self) -> Any:
        return self.args

    def get_batch_iterator(self, dataset: FairseqDataset, *arguments: Any, **options: Any) -> EpochBatchIterator:
        # fairseq's task makes its iterator itself and does not come to LMFusionTask's
        return super().get_batch_iterator(dataset, *arguments, **self.whole_batches(dataset, options))
