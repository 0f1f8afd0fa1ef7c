"""``--task speech_to_text_with_lm``: fairseq's ``speech_to_text`` with language models in the decoder."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.tasks import register_task
from fairseq.tasks.speech_to_text import SpeechToTextTask

from attlm_fairseq.errors import InputError
from attlm_fairseq.tasks._lm_fusion import LMFusionOptions, LMFusionTask


@register_task("speech_to_text_with_lm")
class SpeechToTextWithLMTask(SpeechToTextTask, LMFusionTask):
    """Beam search by ``ln p_speech + sum_k weight_k ln p_k``. Checkpoints of ``--task speech_to_text`` are loaded as they are.

    Language tags that ``--prefix-size 1`` forces (``prepend_tgt_lang_tag``) are not shown to the LMs.
    """

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        SpeechToTextTask.add_args(parser)
        gen_parser_from_dataclass(parser, LMFusionOptions())

    @property
    def decoding(self) -> Any:
        return self.args

    def target_dictionary_file(self) -> Path:
        return Path(self.args.data) / self.data_cfg.vocab_filename

    def build_generator_dual_decoder(self, models: list, args: Any, extra_gen_cls_kwargs: dict) -> Any:
        if self.args.lms or self.args.word_lms or self.args.phrases:
            raise InputError("language models cannot be added to models with two decoders; leave --lms, --word-lms and --phrases out")
        return super().build_generator_dual_decoder(models, args, extra_gen_cls_kwargs)
