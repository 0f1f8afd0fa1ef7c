"""What the tasks of language models share: dictionary, model, criterion, batches and perplexities."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

import logging
import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Optional

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.data import Dictionary, iterators
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from torch import Tensor

from attlm_fairseq.checkpoints.fairseq_loading import TRAINED_WITH
from attlm_fairseq.checkpoints.initialisation import initialise_from
from attlm_fairseq.checkpoints.plain_data import read_plain_data
from attlm_fairseq.checkpoints.resuming import changes
from attlm_fairseq.checkpoints.vocabulary import fingerprint
from attlm_fairseq.errors import InputError
from attlm_fairseq.models.language_model import MemoryLanguageModel
from attlm_fairseq.modules.memory import PointerReader
from attlm_fairseq.tasks._absent import is_absent
from attlm_fairseq.tasks._beginning import checkpoint_to_begin_with, checkpoint_to_resume, require_files
from attlm_fairseq.tasks._data_folder import path_of_split, read_dictionary, read_lines
from attlm_fairseq.tasks._trained_task import TrainedTask
from attlm_fairseq.tasks._training_options import TrainingOptions, refuse_metric, refuse_options

logger = logging.getLogger(__name__)

COUNTED_LINES = 200_000  # lines to count, enough to estimate word frequencies


class LMTask(TrainedTask):
    """Language modelling over the lines of a folder of fairseq-preprocess. A task says what its samples are, and where it resets.

    Nothing of a text is dropped, whatever fairseq's batch-size multiple or length limits say.
    """

    def __init__(self, cfg: FairseqDataclass, dictionary: Dictionary) -> None:
        super().__init__(cfg, dictionary)
        self.of_this_package: Optional[bool] = None  # the model, once it is built
        self.trains = False  # whether it is built to be trained
        self._to_train: Optional[BaseFairseqModel] = None  # until there is a criterion
        self._pointer_loss = 0.0  # of a model that is to be trained, if it is not the default
        self._loaded: dict[str, Any] = {}  # what the checkpoint has of its task

    @classmethod
    def setup_task(cls, cfg: FairseqDataclass, **unused: Any) -> "LMTask":
        return cls(cfg, read_dictionary(cfg.data))

    def build_model(self, cfg: FairseqDataclass, from_checkpoint: bool = False) -> BaseFairseqModel:
        self.trains = not from_checkpoint
        if self.trains:
            refuse_options(self.cfg, cfg)
            default = PointerReader.defaults["pointer_loss"]
            given = getattr(cfg, "pointer_loss", default)
            self._pointer_loss = 0.0 if given == default else given
            require_files(self.cfg)
            self.compare_dictionaries()
        model = super().build_model(cfg, from_checkpoint)
        self.of_this_package = isinstance(model, MemoryLanguageModel)
        self._to_train = model if self.trains and self.of_this_package else None
        longest = TrainingOptions.__dataclass_fields__["max_target_positions"].default
        if self.trains and self.of_this_package and self.cfg.max_target_positions != longest:
            raise InputError(
                f"--max-target-positions {self.cfg.max_target_positions} is for fairseq's own models and has no effect on this package's: "
                "give --cut-sentences to sentence_reset_lm, or leave it out"
            )
        if not from_checkpoint and getattr(cfg, "output_bias", "zero") == "unigram":
            model.decoder.model.init_output_bias(self.word_counts())
        # a checkpoint that is loaded has its weights already, and the file that it once began from may be gone
        if not from_checkpoint and (begin := getattr(cfg, "init_from", None)):
            resumed = checkpoint_to_resume(self.cfg)
            if resumed.is_file():  # fairseq takes all weights from it
                logger.info(f"not initialised from {begin}: the weights are those of {resumed}, which is resumed")
            else:
                logger.info(initialise_from(model.decoder.model, self.dictionary.symbols, Path(begin)))
        return model

    def build_criterion(self, cfg: FairseqDataclass, from_checkpoint: bool = False) -> FairseqCriterion:
        if getattr(cfg, "_name", None) == "adaptive_loss" and self.of_this_package:
            raise InputError("--criterion adaptive_loss is for fairseq's own adaptive softmax: give --criterion lm_cross_entropy")
        if getattr(cfg, "_name", None) == "lm_cross_entropy" and self.of_this_package is False:
            raise InputError("--criterion lm_cross_entropy is for the models of this package: give --criterion cross_entropy")
        if getattr(cfg, "_name", None) != "lm_cross_entropy" and self._pointer_loss:
            raise InputError(
                f"--pointer-loss {self._pointer_loss} has no effect without --criterion lm_cross_entropy: give that criterion, or leave "
                "--pointer-loss out"
            )
        if getattr(cfg, "teacher_weight", None) == 1 and self._pointer_loss:
            raise InputError(
                f"--pointer-loss {self._pointer_loss} has no effect with --teacher-weight 1, which leaves nothing of the loss with the "
                "words of the text: leave --pointer-loss out, or give a smaller weight"
            )
        if self.trains:
            refuse_metric(self.cfg, cfg, self.perplexities)
        criterion = super().build_criterion(cfg, from_checkpoint)
        model, self._to_train = self._to_train, None
        if model is not None and getattr(cfg, "_name", None) == "lm_cross_entropy":
            self.try_out(criterion, model)
        return criterion

    def try_out(self, criterion: FairseqCriterion, model: BaseFairseqModel) -> None:
        """Compute the loss of two words, so that a term of the loss that the model cannot have is refused before the data are read."""
        with torch.random.fork_rng(devices=[]):  # dropout draws, and the training is to be the same without this
            criterion(model, self.two_words(model))

    def state_dict(self) -> dict[str, Any]:
        """Return the task's entries in a checkpoint."""
        return {**super().state_dict(), "dictionary": fingerprint(self.dictionary.symbols), "resets": self.resets}

    def warn_of_other_resets(self) -> None:
        """Warn if a checkpoint was trained with another task or other resets: ``fairseq-eval-lm`` takes both from the command line."""
        stored = self._loaded
        trained_with = {"--task": stored.get(TRAINED_WITH) or self.task_name, **stored.get("resets", {})}
        if changed := changes(trained_with, {"--task": self.task_name, **self.resets}):
            logger.warning(f"the model was trained {changed}: its perplexity may be another one than with the options of its training")

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raise InputError if the checkpoint has another dictionary. Older checkpoints without this entry are accepted."""
        if state_dict.get("dictionary", fingerprint(self.dictionary.symbols)) != fingerprint(self.dictionary.symbols):
            raise InputError(
                "the checkpoint was trained with a dict.txt of other words, or in another order; preprocess the text with --srcdict and "
                "the dict.txt of its training",
                path=self.cfg.data,
            )
        self._loaded = state_dict

    def compare_dictionaries(self) -> None:
        """Raise InputError if fairseq-train would begin with a checkpoint of another dictionary; fairseq does not check this."""
        if path := checkpoint_to_begin_with(self.cfg):
            self.load_state_dict(read_plain_data(path).get("task_state") or {})

    def word_counts(self) -> Tensor:
        """Return how often each symbol is predicted in training (V,), counted in at most ``COUNTED_LINES`` lines."""
        dataset = self.make_dataset(self.cfg.train_subset, combine=True, epoch=1, training=True)  # as fairseq's trainer loads it
        counts = torch.zeros(len(self.dictionary), dtype=torch.long)
        targets = dataset.sample_targets(COUNTED_LINES)
        while some := list(islice(targets, 10_000)):
            counts += torch.cat(some).bincount(minlength=len(counts))
        return counts

    def load_dataset(self, split: str, combine: bool = False, epoch: int = 1, **kwargs: Any) -> None:
        """Load a split, for training if fairseq's trainer loads its training data."""
        # the trainer alone passes data_selector: the same split may also be loaded to be evaluated
        training = split == self.cfg.train_subset and "data_selector" in kwargs
        if training and split in self.datasets and not self.datasets[split].training and (change := self.change_for_training()):
            raise InputError(
                f"split {split!r} is {change} for training and cannot be the validation data too; copy it under another name",
                path=self.datasets[split].name,
            )
        self.datasets[split] = self.make_dataset(split, combine, epoch, training)

    def change_for_training(self) -> str:
        """Return how a text is read otherwise in training than in validation; empty if it is not."""
        raise NotImplementedError

    def make_dataset(self, split: str, combine: bool, epoch: int, training: bool) -> Any:
        """Return the dataset of a split."""
        raise NotImplementedError

    def read_lines(self, split: str, combine: bool, epoch: int) -> tuple[Any, Path]:
        """Return the indexed lines of a split and their path. Raises InputError if there are none."""
        path = path_of_split(self.cfg.data, split, epoch)
        return read_lines(path, self.dictionary, self.cfg.dataset_impl, combine), path

    def get_batch_iterator(
        self,
        dataset: Any,
        max_tokens: Optional[int] = None,
        max_sentences: Optional[int] = None,
        seed: int = 1,
        num_shards: int = 1,
        shard_id: int = 0,
        num_workers: int = 0,
        epoch: int = 1,
        data_buffer_size: int = 0,
        **unused: Any,
    ) -> iterators.EpochBatchIterator:
        """Return an iterator over the whole dataset in the batches of ``epoch_batches``."""

        def batches(dataset: Any, epoch: int) -> Sequence[Sequence[object]]:
            return self.epoch_batches(dataset, seed + epoch, max_sentences, max_tokens, num_shards)

        return iterators.EpochBatchIterator(
            dataset=dataset,
            collate_fn=dataset.collater,
            batch_sampler=batches,  # called for every epoch, so that a resumed run sees the order of the uninterrupted one
            disable_shuffling=True,  # the order is made above
            seed=seed,
            num_shards=num_shards,
            shard_id=shard_id,
            num_workers=num_workers,
            epoch=epoch,
            buffer_size=data_buffer_size,
        )

    def epoch_batches(
        self, dataset: Any, seed: int, max_sentences: Optional[int], max_tokens: Optional[int], num_shards: int
    ) -> Sequence[Sequence[object]]:
        """Return the indexes of each batch of an epoch."""
        raise NotImplementedError

    def limit_of_tokens(self, training: bool) -> str:
        """Return the name of the option that limits the tokens per batch. Validation uses --max-tokens by default."""
        own = self.trains and not training and self.cfg.max_tokens_valid != self.cfg.max_tokens
        return "--max-tokens-valid" if own else "--max-tokens"

    def eval_lm_dataloader(
        self,
        dataset: Any,
        max_tokens: Optional[int] = 36000,
        batch_size: Optional[int] = None,
        context_window: int = 0,
        max_positions: Optional[int] = None,
        **kwargs: Any,
    ) -> iterators.CountingIterator:
        """Return the batches for fairseq-eval-lm. A context window contradicts the reset at each sentence, so it is refused."""
        if context_window:
            raise InputError("--context-window does not fit sentences scored independently of each other; leave it out")
        if torch.distributed.is_initialized():  # it adds nothing up, and would print the perplexity of one process's share
            raise InputError("fairseq-eval-lm runs as one process: give --distributed-world-size 1")
        self.warn_of_other_resets()
        batches = self.get_batch_iterator(dataset, max_tokens, batch_size, **kwargs)
        shard = batches.frozen_batches[batches.shard_id :: batches.num_shards]
        if not any(map(len, shard)):
            found = f"--num-shards {batches.num_shards} leaves no text for --shard-id {batches.shard_id}"
            raise InputError(f"{found}: give fewer shards; a document, or a sentence, is in one of them")
        return batches.next_epoch_itr(shuffle=False)

    def is_absent_in_validation(self, sample: dict[str, Any]) -> bool:
        """Return whether this process has no data left. Raises InputError in fairseq-validate, which adds up nothing of several."""
        if is_absent(sample) and not self.trains:
            raise InputError("fairseq-validate runs as one process: give --distributed-world-size 1")
        return is_absent(sample)

    def reduce_metrics(self, logging_outputs: list[dict], criterion: torch.nn.Module) -> None:
        tokens = sum(float(log.get("ntokens", 0)) for log in logging_outputs)
        if tokens:
            # before the criterion's own `ppl`: that one divides by sentences where every sentence of a batch is blank
            self.log_perplexities(logging_outputs, tokens)
        super().reduce_metrics(logging_outputs, criterion)

    def log_perplexities(self, logs: list[dict], tokens: float) -> None:
        """Log the perplexities of batches with so many predicted tokens."""
        log_perplexity("ppl", sum(float(log.get("nll_loss", log.get("loss", 0))) for log in logs) / tokens, tokens)

    def max_positions(self) -> None:
        """Return None: there is no limit."""
        return

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        return self.dictionary


def log_perplexity(name: str, nll: float, tokens: float) -> None:
    """Log a perplexity, given the mean negative natural log over so many tokens."""
    of_nll = f"_nll{name.removeprefix('ppl')}"
    metrics.log_scalar(of_nll, nll, tokens, round=6)
    metrics.log_derived(name, lambda meters: perplexity(meters[of_nll].avg))


def perplexity(nll: Any) -> float:
    """Return exp of a mean negative natural-log probability, or inf if it overflows."""
    try:
        return round(math.exp(float(nll)), 4)
    except OverflowError:
        return math.inf
