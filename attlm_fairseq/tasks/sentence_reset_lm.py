"""``--task sentence_reset_lm``: one sample per sentence, with state and memory reset at each sentence."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.models import BaseFairseqModel
from fairseq.tasks import register_task
from omegaconf import II
from torch import Tensor

from attlm_fairseq.errors import InputError
from attlm_fairseq.tasks._absent import counting_nothing
from attlm_fairseq.tasks._generation import continuations, refuse_typed_symbols, refuse_unused_lm
from attlm_fairseq.tasks._lm_task import LMTask, log_perplexity
from attlm_fairseq.tasks._sentence_dataset import BATCH_ORDERS, SentenceDataset
from attlm_fairseq.tasks._trained_task import world_size
from attlm_fairseq.tasks._training_options import TrainingOptions


@dataclass
class SentenceResetLMConfig(TrainingOptions):
    data: Optional[str] = field(default=None, metadata={"help": "folder written by fairseq-preprocess --only-source"})
    cut_sentences: int = field(
        default=0,
        metadata={"help": "cut training sentences at N words (0: never); the papers cut at 35. Evaluation always sees whole sentences"},
    )
    blank_lines: str = field(
        default="keep",
        metadata={
            "choices": ["keep", "skip"],
            "help": "keep: a blank line is a sentence without words, whose end is predicted; skip: blank lines are ignored",
        },
    )
    batch_order: str = field(
        default="shuffled",
        metadata={
            "choices": BATCH_ORDERS,
            "help": "sentences in a training batch: consecutive ones (corpus), random ones (shuffled) or ones of similar length (length)",
        },
    )
    dataset_impl: Optional[str] = II("dataset.dataset_impl")


@register_task("sentence_reset_lm", dataclass=SentenceResetLMConfig)
class SentenceResetLMTask(LMTask):
    """Language modelling over independent sentences.

    Input ``</s> w_1 .. w_n``, target ``w_1 .. w_n </s>``. No sentence is dropped, whatever fairseq's batch-size multiple or
    length limits say. Validation logs ``ppl``, over all words and sentence ends, and ``ppl_salton2017``: the loss without
    the first event of each sentence, divided by the number of all events, as in the code of Salton et al. (2017).
    """

    perplexities = ("ppl", "ppl_salton2017")

    @property
    def resets(self) -> dict[str, Any]:
        return {"--blank-lines": str(self.cfg.blank_lines)}

    def change_for_training(self) -> str:
        return "cut" if self.cfg.cut_sentences else ""

    def make_dataset(self, split: str, combine: bool, epoch: int, training: bool) -> SentenceDataset:
        """Return the sentences of a split, cut if they are for training."""
        lines, path = self.read_lines(split, combine, epoch)
        return SentenceDataset(
            lines,
            lines.sizes,
            self.dictionary,
            str(path),
            training=training,
            cut=self.cfg.cut_sentences if training else 0,
            skip_blank=self.cfg.blank_lines == "skip",
        )

    def epoch_batches(
        self, dataset: SentenceDataset, seed: int, max_sentences: Optional[int], max_tokens: Optional[int], num_shards: int
    ) -> Sequence[Sequence[object]]:
        """Return the indexes of each batch of an epoch. Evaluation always groups sentences by length."""
        order = str(self.cfg.batch_order) if dataset.training else "length"
        return dataset.batches(order, seed, max_sentences, max_tokens, self.limit_of_tokens(dataset.training))

    def dependencies(self) -> dict[str, Any]:
        """Return the settings that decide which batch has which sentences; with others, an epoch cannot go on where it was interrupted."""
        return {
            "--task": self.task_name,
            "--distributed-world-size": world_size(),
            "--batch-size": self.cfg.batch_size,
            "--max-tokens": self.cfg.max_tokens,
            "--seed": None if str(self.cfg.batch_order) == "corpus" else self.cfg.seed,
            "--batch-order": str(self.cfg.batch_order),
            "--cut-sentences": self.cfg.cut_sentences,
            "--blank-lines": str(self.cfg.blank_lines),
            "a training text of so many sentences:": len(self.datasets[self.cfg.train_subset]),
        }

    def valid_step(self, sample: dict[str, Any], model: BaseFairseqModel, criterion: torch.nn.Module) -> tuple[Tensor, int, dict]:
        absent = self.is_absent_in_validation(sample)
        sample = self.two_words(model) if absent else sample
        loss, sample_size, logging_output = super().valid_step(sample, model, criterion)
        # the first event of a sentence follows </s> alone: one distribution serves all sentences
        start = sample["target"].new_full((1, 1), self.dictionary.eos())
        with torch.no_grad():
            first = model.get_normalized_probs(model(start), log_probs=True)[0, -1]
        logging_output["first_nll"] = -first.float()[sample["target"][:, 0]].sum()
        return counting_nothing(loss, sample_size, logging_output) if absent else (loss, sample_size, logging_output)

    def log_perplexities(self, logs: list[dict], tokens: float) -> None:
        super().log_perplexities(logs, tokens)
        if any("first_nll" in log for log in logs):
            without_first = sum(float(log.get("nll_loss", log.get("loss", 0))) - float(log.get("first_nll", 0)) for log in logs)
            log_perplexity("ppl_salton2017", without_first / tokens, tokens)

    def build_dataset_for_inference(self, src_tokens: list[Tensor], src_lengths: list[int], **unused: Any) -> SentenceDataset:
        """Return lines typed into fairseq-interactive as prefixes to continue. Raises InputError if one has special symbols."""
        refuse_typed_symbols(src_tokens, self.dictionary)
        return SentenceDataset(src_tokens, src_lengths, self.dictionary, "standard input")

    def build_generator(
        self, models: list, args: Any, seq_gen_cls: Any = None, extra_gen_cls_kwargs: Optional[dict] = None, *rest: Any, **options: Any
    ) -> Any:
        """Return fairseq's generator. Raises InputError for a language model to add that fairseq-interactive does not load."""
        refuse_unused_lm(args, extra_gen_cls_kwargs)
        return super().build_generator(models, args, seq_gen_cls, extra_gen_cls_kwargs, *rest, **options)

    def inference_step(
        self,
        generator: Any,
        models: list,
        sample: dict[str, Any],
        prefix_tokens: Optional[Tensor] = None,
        constraints: Optional[Tensor] = None,
    ) -> Any:
        """Continue the given prefixes (B, T): the sentence itself, or as much of it as fairseq-generate --prefix-size says."""
        if constraints is not None:
            raise InputError("constrained decoding is not supported by --task sentence_reset_lm")
        return continuations(generator, models, sample, prefix_tokens, self.dictionary.eos())
