"""``--task sentence_reset_lm``: one sample per sentence, with state and memory reset at each sentence."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Optional

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.data import Dictionary, iterators
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II
from torch import Tensor

from attlm_fairseq.checkpoints.export import TASK_CLASSES
from attlm_fairseq.checkpoints.fairseq_loading import TRAINED_WITH
from attlm_fairseq.checkpoints.initialisation import initialise_from
from attlm_fairseq.checkpoints.reading import read_plain_data
from attlm_fairseq.checkpoints.vocabulary import fingerprint
from attlm_fairseq.errors import InputError
from attlm_fairseq.models.language_model import MemoryLanguageModel
from attlm_fairseq.modules.memory import PointerReader
from attlm_fairseq.tasks._absent import counting_nothing, is_absent
from attlm_fairseq.tasks._adam_on_cpus import fused_update, has_fused_update
from attlm_fairseq.tasks._averaging import WeightAverage, copy_to_masters
from attlm_fairseq.tasks._beginning import checkpoint_to_begin_with, checkpoint_to_resume, require_files
from attlm_fairseq.tasks._data_folder import path_of_split, read_dictionary, read_lines
from attlm_fairseq.tasks._generation import continuations, refuse_typed_symbols, refuse_unused_lm
from attlm_fairseq.tasks._resuming import changes, load_patience_dict, patience_dict, world_size
from attlm_fairseq.tasks._sentence_dataset import BATCH_ORDERS, SentenceDataset
from attlm_fairseq.tasks._training_options import TrainingOptions, refuse_metric, refuse_options

logger = logging.getLogger(__name__)

COUNTED_LINES = 200_000  # lines to count, enough to estimate word frequencies


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
class SentenceResetLMTask(FairseqTask):
    """Language modelling over independent sentences.

    Input ``</s> w_1 .. w_n``, target ``w_1 .. w_n </s>``. No sentence is dropped, whatever fairseq's batch-size multiple or
    length limits say. Validation logs ``ppl``, over all words and sentence ends, and ``ppl_salton2017``: the loss without
    the first event of each sentence, divided by the number of all events, as in the code of Salton et al. (2017).
    """

    perplexities: tuple[str, ...] = ("ppl", "ppl_salton2017")  # what it logs of a validation

    def __init__(self, cfg: FairseqDataclass, dictionary: Dictionary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        self.of_this_package: Optional[bool] = None  # the model, once it is built
        self.trains = False  # whether it is built to be trained
        self._to_train: Optional[BaseFairseqModel] = None  # until there is a criterion
        self._pointer_loss = 0.0  # of a model that is to be trained, if it is not the default
        self._trained: Optional[BaseFairseqModel] = None  # after its first update
        self._own_seed = -1  # of this process for the current update
        self._judged = False  # whether this validation has been
        self._validated: dict[str, float] = {}  # perplexities of the first validation set with the weights as they are
        self._loaded: dict[str, Any] = {}  # what the checkpoint has of its task
        self.average = WeightAverage(str(cfg.average), cfg.average_decay, cfg.average_window)

    @classmethod
    def setup_task(cls, cfg: FairseqDataclass, **unused: Any) -> "SentenceResetLMTask":
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

    @property
    def _name(self) -> str | None:
        return getattr(self.cfg, "_name", None)

    @property
    def resets(self) -> dict[str, Any]:
        """The options that decide where state and memory are emptied, and what is predicted."""
        return {"--blank-lines": str(self.cfg.blank_lines)}

    def warn_of_other_resets(self) -> None:
        """Warn if a checkpoint was trained with another task or other resets: ``fairseq-eval-lm`` takes both from the command line."""
        stored = self._loaded
        trained_with = {"--task": stored.get(TRAINED_WITH) or self._name, **stored.get("resets", {})}
        if changed := changes(trained_with, {"--task": self._name, **self.resets}):
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
        """Load a split. Sentences are cut only if fairseq's trainer loads its training data."""
        # the trainer alone passes data_selector: the same split may also be loaded to be evaluated, and is then never cut
        training = split == self.cfg.train_subset and "data_selector" in kwargs
        if training and self.cfg.cut_sentences and split in self.datasets and not self.datasets[split].training:
            raise InputError(
                f"split {split!r} is cut for training and cannot be the validation data too; copy it under another name",
                path=self.datasets[split].name,
            )
        self.datasets[split] = self.make_dataset(split, combine, epoch, training)

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

    def read_lines(self, split: str, combine: bool, epoch: int) -> tuple[Any, Path]:
        """Return the indexed lines of a split and their path. Raises InputError if there are none."""
        path = path_of_split(self.cfg.data, split, epoch)
        return read_lines(path, self.dictionary, self.cfg.dataset_impl, combine), path

    def get_batch_iterator(
        self,
        dataset: SentenceDataset,
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

        def batches(dataset: SentenceDataset, epoch: int) -> Sequence[Sequence[object]]:
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
        self, dataset: SentenceDataset, seed: int, max_sentences: Optional[int], max_tokens: Optional[int], num_shards: int
    ) -> Sequence[Sequence[object]]:
        """Return the indexes of each batch of an epoch. Evaluation always groups sentences by length."""
        order = str(self.cfg.batch_order) if dataset.training else "length"
        return dataset.batches(order, seed, max_sentences, max_tokens, self.limit_of_tokens(dataset.training))

    def limit_of_tokens(self, training: bool) -> str:
        """Return the name of the option that limits the tokens per batch. Validation uses --max-tokens by default."""
        own = self.trains and not training and self.cfg.max_tokens_valid != self.cfg.max_tokens
        return "--max-tokens-valid" if own else "--max-tokens"

    def eval_lm_dataloader(
        self,
        dataset: SentenceDataset,
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
        return self.get_batch_iterator(dataset, max_tokens, batch_size, **kwargs).next_epoch_itr(shuffle=False)

    def train_step(
        self,
        sample: dict[str, Any],
        model: BaseFairseqModel,
        criterion: FairseqCriterion,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
    ) -> tuple[Tensor, int, dict]:
        resumed = self._trained is None and bool(self.average.own)
        self.draw_by_rank()
        self.average.take_out(model)
        if resumed:
            copy_to_masters(optimizer)
        if is_absent(sample):
            return counting_nothing(*super().train_step(self.two_words(model), model, criterion, optimizer, update_num, ignore_grad=True))
        return super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad)

    def two_words(self, model: BaseFairseqModel) -> dict[str, Any]:
        """Return a batch of two words, on the device of the model."""
        tokens = torch.full((1, 2), self.dictionary.eos(), device=next(model.parameters()).device)
        return {"net_input": {"src_tokens": tokens}, "target": tokens, "ntokens": tokens.numel()}

    def draw_by_rank(self) -> None:
        """Let each process of a training draw its own dropout. fairseq gives all of them the same seed at the beginning of an update, and
        again when it is repeated after an overflow of ``--fp16``."""
        if torch.distributed.is_initialized() and torch.initial_seed() != self._own_seed:
            # far from the seeds of the next updates; on CPUs only 32 bits of a seed count
            self._own_seed = (torch.initial_seed() + torch.distributed.get_rank() * 1_000_003) % 2**32
            torch.manual_seed(self._own_seed)

    def optimizer_step(self, optimizer: Any, model: BaseFairseqModel, update_num: int) -> None:
        if has_fused_update(optimizer):
            fused_update(optimizer.optimizer)
        else:
            super().optimizer_step(optimizer, model, update_num)
        self.average.add(model)
        self._trained, self._validated = model, {}

    def begin_valid_epoch(self, epoch: int, model: BaseFairseqModel) -> None:
        """Prepare for validation. The first validation set decides when averaging of the weights starts."""
        super().begin_valid_epoch(epoch, model)
        self.average.put_in(model)
        self._judged = False

    def post_validate(self, model: BaseFairseqModel, stats: dict[str, Any], agg: Any) -> None:
        if self._judged:
            return
        self._validated = {name: float(stats[name]) for name in self.perplexities if name in stats}
        if self.average.kind == "nt-asgd" and self.average.judge(float(stats["ppl"])):
            logger.info("the weights are averaged from now on")
        self._judged = True

    def get_checkpoint_dict(self) -> dict[str, Any]:
        """Return the task's entries for a checkpoint, and put the average into the model, which is saved next."""
        saved: dict[str, Any] = {"options": self.dependencies(), "judged_by": self.judged_by, "validation": self._validated}
        if patience := patience_dict():
            saved["patience"] = patience
        if self.average.kind != "none":
            if self._trained is not None:
                self.average.put_in(self._trained)
            saved["average"] = self.average.state_dict()
        return dict.fromkeys(TASK_CLASSES, saved)  # fairseq gives each task what has its name, and a run may go on with the other task

    @property
    def judged_by(self) -> dict[str, Any]:
        """The options that decide which validation is better than which."""
        return {"--best-checkpoint-metric": self.cfg.best_checkpoint_metric, **self.validated}

    @property
    def validated(self) -> dict[str, Any]:
        """The options that decide which events a validation predicts, and from what."""
        return {"--valid-subset": self.cfg.valid_subset.split(",")[0], "--task": self._name, **self.resets}

    def dependencies(self) -> dict[str, Any]:
        """Return the settings that decide which batch has which sentences; with others, an epoch cannot go on where it was interrupted."""
        return {
            "--task": self._name,
            "--distributed-world-size": world_size(),
            "--batch-size": self.cfg.batch_size,
            "--max-tokens": self.cfg.max_tokens,
            "--seed": None if str(self.cfg.batch_order) == "corpus" else self.cfg.seed,
            "--batch-order": str(self.cfg.batch_order),
            "--cut-sentences": self.cfg.cut_sentences,
            "--blank-lines": str(self.cfg.blank_lines),
            "a training text of so many sentences:": len(self.datasets[self.cfg.train_subset]),
        }

    def set_checkpoint_dict(self, saved: dict[str, Any]) -> None:
        """Go on where ``get_checkpoint_dict`` was called. A new optimizer begins a new average, from the weights in the checkpoint."""
        forgotten = self.cfg.reset_meters or self.cfg.reset_optimizer  # as fairseq forgets the best validation
        if not forgotten and not changes(saved.get("judged_by", {}), self.judged_by):
            load_patience_dict(saved.get("patience", {}))
        if not self.cfg.reset_optimizer:
            self.set_average(saved)

    def set_average(self, saved: dict[str, Any]) -> None:
        """Go on with the average of a checkpoint, and with the latest weights, from what ``get_checkpoint_dict`` returned."""
        if "average" in saved:
            self.average.load_state_dict(saved["average"])

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

    def is_absent_in_validation(self, sample: dict[str, Any]) -> bool:
        """Return whether this process has no data left. Raises InputError in fairseq-validate, which adds up nothing of several."""
        if is_absent(sample) and not self.trains:
            raise InputError("fairseq-validate runs as one process: give --distributed-world-size 1")
        return is_absent(sample)

    def reduce_metrics(self, logging_outputs: list[dict], criterion: torch.nn.Module) -> None:
        tokens = sum(float(log.get("ntokens", 0)) for log in logging_outputs)
        nll = sum(float(log.get("nll_loss", log.get("loss", 0))) for log in logging_outputs)
        if tokens:
            # before the criterion's own `ppl`: that one divides by sentences where every sentence of a batch is blank
            metrics.log_scalar("_nll", nll / tokens, tokens, round=6)
            metrics.log_derived("ppl", lambda meters: perplexity(meters["_nll"].avg))
            if any("first_nll" in log for log in logging_outputs):
                first = sum(float(log.get("first_nll", 0)) for log in logging_outputs)
                metrics.log_scalar("_nll_salton2017", (nll - first) / tokens, tokens, round=6)
                metrics.log_derived("ppl_salton2017", lambda meters: perplexity(meters["_nll_salton2017"].avg))
        super().reduce_metrics(logging_outputs, criterion)

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

    def max_positions(self) -> None:
        """Return None: there is no limit."""
        return

    @property
    def source_dictionary(self) -> Dictionary:
        return self.dictionary

    @property
    def target_dictionary(self) -> Dictionary:
        return self.dictionary


def perplexity(nll: Any) -> float:
    """Return exp of a mean negative natural-log probability, or inf if it overflows."""
    try:
        return round(math.exp(float(nll)), 4)
    except OverflowError:
        return math.inf
