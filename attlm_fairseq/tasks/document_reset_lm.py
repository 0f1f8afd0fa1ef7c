"""``--task document_reset_lm``: truncated backpropagation through documents, with state and memory carried to their ends."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.data import iterators
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from fairseq.tasks import register_task
from omegaconf import II
from torch import Tensor

from attlm_fairseq.checkpoints.resuming import RESUME, changes
from attlm_fairseq.errors import InputError
from attlm_fairseq.models.language_model import MemoryLanguageModel
from attlm_fairseq.modules.state import Carried, has_slots
from attlm_fairseq.tasks._absent import counting_nothing, is_absent
from attlm_fairseq.tasks._carried_state import CarriedState
from attlm_fairseq.tasks._document_dataset import DOCUMENT_ORDERS, DocumentDataset, Segment
from attlm_fairseq.tasks._lm_task import LMTask
from attlm_fairseq.tasks._trained_task import world_size
from attlm_fairseq.tasks._training_options import TrainingOptions

logger = logging.getLogger(__name__)


@dataclass
class DocumentResetLMConfig(TrainingOptions):
    data: Optional[str] = field(default=None, metadata={"help": "folder written by fairseq-preprocess --only-source"})
    bptt: int = field(default=20, metadata={"help": "tokens per segment, at whose beginning backpropagation stops (Daniluk et al.: 20)"})
    reset: str = field(
        default="document",
        metadata={
            "choices": ["document", "memory", "segment"],
            "help": "when state and memory are reset: both at each document (document); the memory at each segment and the state at "
            "each document (memory); or both at each segment (segment)",
        },
    )
    reset_every: int = field(
        default=0,
        metadata={
            "help": "also reset state and memory after every K lines (sentences) of a document, counted from its beginning; 0: only at "
            "documents. With 1 each sentence is by itself"
        },
    )
    random_bptt: bool = field(
        default=False,
        metadata={
            "help": "draw the length of training segments at random, as AWD-LSTM does: normal with mean --bptt (95 %) or half of it, "
            "standard deviation 5, minimum 5 (or --bptt). Without --sentence-avg the learning rate is scaled in proportion to the length"
        },
    )
    document_marker: str = field(
        default="", metadata={"help": "word that separates documents, alone on a line (default: blank lines); it is not predicted"}
    )
    document_order: str = field(
        default="shuffled",
        metadata={
            "choices": DOCUMENT_ORDERS,
            "help": "order of the training documents: shuffled in each epoch, as in the corpus, or as in the corpus with each row "
            "starting at a random token and wrapping around (rotated: partial shuffle)",
        },
    )
    memory_slots: int = field(
        default=0,
        metadata={
            "help": "number of newest states that the memory carries from segment to segment (0: all states of the document), for "
            "models that store single states: amsrn_lm, kvp_lstm_lm, lstmn_lm, the pointer models, --attention-score combined or dot"
        },
    )
    sentence_avg: bool = II("optimization.sentence_avg")
    validate_after_updates: int = II("dataset.validate_after_updates")
    save_interval_updates: int = II("checkpoint.save_interval_updates")
    max_update: int = II("optimization.max_update")
    stop_time_hours: float = II("optimization.stop_time_hours")
    dataset_impl: Optional[str] = II("dataset.dataset_impl")


@register_task("document_reset_lm", dataclass=DocumentResetLMConfig)
class DocumentResetLMTask(LMTask):
    """Language modelling over documents, trained as by Daniluk et al. (2017).

    ``--batch-size`` rows read one document after another, ``--bptt`` tokens per batch. State and memory are carried from
    batch to batch until the document ends; gradients are not. In training the text is divided evenly between the rows,
    which cuts a document where a row begins. Every token is predicted, whatever fairseq's limits say. With ``--reset
    segment`` nothing is carried; the predicted events are the same, so the two perplexities can be compared. Validation logs
    ``ppl`` over all words and line ends.
    """

    def __init__(self, cfg: DocumentResetLMConfig, dictionary: Any) -> None:
        if cfg.bptt < 1:
            raise InputError(f"--bptt {cfg.bptt}: a segment has at least 1 token")
        if cfg.memory_slots < 0:
            raise InputError(f"--memory-slots {cfg.memory_slots}: give how many states to carry, or 0 for all")
        if cfg.reset_every < 0:
            raise InputError(
                f"--reset-every {cfg.reset_every}: give the number of sentences after which to reset, or 0 for documents alone"
            )
        if cfg.reset_every and cfg.reset == "segment":
            raise InputError("--reset-every has no effect with --reset segment, which carries nothing anyway: leave one of them out")
        super().__init__(cfg, dictionary)
        self.training_state, self.validation_state = self.carried_state(), self.carried_state()
        self._lengths: list[int] = []  # of the segments since the last update: several with --update-freq
        self._of_all_ranks: list[dict[str, Any]] = []  # after the last step, where they have been asked for since

    @property
    def resets(self) -> dict[str, Any]:
        reset = str(self.cfg.reset)
        return {
            "--reset": reset,
            "--reset-every": self.cfg.reset_every,
            "--document-marker": self.cfg.document_marker,
            "--memory-slots": self.cfg.memory_slots,
            **({} if reset == "document" else {"--bptt": self.cfg.bptt}),  # it decides where something is emptied
        }

    def build_model(self, cfg: FairseqDataclass, from_checkpoint: bool = False) -> BaseFairseqModel:
        model = super().build_model(cfg, from_checkpoint)
        if not isinstance(model, MemoryLanguageModel):
            raise InputError(
                f"--task document_reset_lm takes only models of this package, found fairseq's {type(model).__name__}: give an --arch of "
                "this package, such as plain_lstm_lm, or --task sentence_reset_lm"
            )
        if not self.trains:
            return model
        initial, reset = model.decoder.model.initial_state(1), str(self.cfg.reset)
        if reset == "memory" and not initial.memory:
            logger.info("--reset memory is the same as --reset document for this model, which has no memory besides its recurrent state")
        if self.cfg.memory_slots and (reset == "segment" or (reset == "memory" and not has_slots(initial.recurrent))):
            raise InputError(f"--memory-slots has no effect with --reset {reset}, which carries no memory: leave one of them out")
        if self.cfg.memory_slots and not initial.has_slots:
            raise InputError(
                f"--memory-slots {self.cfg.memory_slots} has no effect on this model, whose memory has no slots: leave it out, or choose a "
                "model that keeps one slot per word, such as --attention-score combined or dot, --arch amsrn_lm or kvp_lstm_lm"
            )
        return model

    def build_generator(self, *arguments: Any, **options: Any) -> Any:
        """Refuse to generate: the sentences to continue would be cut into segments, each of which would be continued."""
        raise InputError("--task document_reset_lm does not generate: give --task sentence_reset_lm to fairseq-generate or -interactive")

    def change_for_training(self) -> str:
        return "read in another order"

    def make_dataset(self, split: str, combine: bool, epoch: int, training: bool) -> DocumentDataset:
        """Return the documents of a split, which are the same in training and evaluation."""
        lines, path = self.read_lines(split, combine, epoch)
        return DocumentDataset(
            lines,
            lines.sizes,
            self.dictionary,
            str(path),
            segment=self.cfg.bptt,
            marker=self.cfg.document_marker,
            sentences=self.cfg.reset_every,
            training=training,
        )

    def epoch_batches(
        self, dataset: DocumentDataset, seed: int, max_sentences: Optional[int], max_tokens: Optional[int], num_shards: int
    ) -> list[list[Segment]]:
        """Return the batches. There are ``max_sentences`` rows, or as many as ``max_tokens`` allows."""
        rows = self.row_count(max_sentences, max_tokens)
        training = dataset.training
        if rows < 1:
            limit = f"{self.limit_of_tokens(training)} {max_tokens}"
            raise InputError(f"{limit} has no room for one segment of --bptt {self.cfg.bptt}; give --batch-size ROWS")
        if training and max_sentences and max_tokens and max_sentences * self.cfg.bptt > max_tokens:
            raise InputError(
                f"--batch-size {max_sentences} rows of --bptt {self.cfg.bptt} are {max_sentences * self.cfg.bptt} tokens, more than "
                f"--max-tokens {max_tokens}: give fewer rows, or leave --max-tokens or --batch-size out"
            )
        order = str(self.cfg.document_order) if training else "corpus"
        return dataset.batches(order, seed, rows, num_shards, whole=not training, random_lengths=training and self.cfg.random_bptt)

    def row_count(self, max_sentences: Optional[int], max_tokens: Optional[int]) -> int:
        """Return the number of rows that a process reads in parallel."""
        return max_sentences or (max_tokens or 0) // self.cfg.bptt

    def eval_lm_dataloader(
        self,
        dataset: DocumentDataset,
        max_tokens: Optional[int] = 36000,
        batch_size: Optional[int] = None,
        context_window: int = 0,
        max_positions: Optional[int] = None,
        **kwargs: Any,
    ) -> iterators.CountingIterator:
        """Return the batches for fairseq-eval-lm. Without a batch size there are 32 rows, or as many as ``max_tokens`` allows."""
        rows = batch_size or min(32, (max_tokens or 36000) // self.cfg.bptt)
        batches = super().eval_lm_dataloader(dataset, max_tokens, rows, context_window, max_positions, **kwargs)
        return iterators.CountingIterator(self.carrying(batches, self.carried_state()), start=0, total=len(batches))

    def carried_state(self) -> CarriedState:
        return CarriedState(Carried(self.cfg.memory_slots, memory=str(self.cfg.reset) != "memory"))

    def carrying(self, batches: Iterator[dict[str, Any]], state: CarriedState) -> Iterator[dict[str, Any]]:
        """Yield the batches, each with the state after the batch before it."""
        for sample in batches:
            yield self.with_state(sample, state)

    def with_state(self, sample: dict[str, Any], state: CarriedState) -> dict[str, Any]:
        """Return the sample with the carried state added. It stays as it is if nothing is carried, or if it is empty.

        ``fairseq-eval-lm --num-shards`` fills shorter shards with empty samples.
        """
        if self.cfg.reset == "segment" or "net_input" not in sample:
            return sample
        return {**sample, "net_input": {**sample["net_input"], "carried": state}}

    def train_step(
        self, sample: dict, model: torch.nn.Module, criterion: torch.nn.Module, optimizer: Any, update_num: int, ignore_grad: bool = False
    ) -> tuple[Tensor, int, dict]:
        if all(weights.grad is None for weights in model.parameters()):  # an update begins, perhaps again after an overflow of --fp16
            self._lengths = []
        if not is_absent(sample):
            sample = self.with_state(sample, self.training_state)
            self._lengths.append(sample["target"].size(1))
        result = super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad)
        self._of_all_ranks = []
        # in mid-epoch fairseq validates before it writes a checkpoint, and begin_valid_epoch gathers; except where it may not validate
        if (self.cfg.disable_validation or update_num < self.cfg.validate_after_updates) and self.may_save_after(update_num + 1):
            self.gather_states()
        return result

    def optimizer_step(self, optimizer: Any, model: BaseFairseqModel, update_num: int) -> None:
        """Update the weights. With --random-bptt, positions weigh the same: their losses are summed, as by --sentence-avg, or the learning
        rate is scaled by the mean length of the segments. That of a batch is its longest row's: next to rows that a short document ends,
        or with few rows left, positions weigh more."""
        lengths, self._lengths = self._lengths, []
        if not self.cfg.random_bptt or self.cfg.sentence_avg:
            super().optimizer_step(optimizer, model, update_num)
            return
        length = sum(lengths) / max(1, len(lengths))
        if world_size() > 1:  # a process may have had no data left
            longest = torch.tensor(length, dtype=torch.float64, device=next(model.parameters()).device)
            torch.distributed.all_reduce(longest, torch.distributed.ReduceOp.MAX)
            length = float(longest)
        rate = optimizer.get_lr()
        optimizer.set_lr(rate * length / self.cfg.bptt)
        super().optimizer_step(optimizer, model, update_num)
        optimizer.set_lr(rate)

    def may_save_after(self, updates: int) -> bool:
        """Return whether fairseq may write a checkpoint within an epoch after this many updates."""
        interval, most = self.cfg.save_interval_updates, self.cfg.max_update
        return (interval > 0 and updates % interval == 0) or 0 < most <= updates or self.cfg.stop_time_hours > 0

    def begin_valid_epoch(self, epoch: int, model: torch.nn.Module) -> None:
        super().begin_valid_epoch(epoch, model)
        self.gather_states()

    def gather_states(self) -> None:
        """Send all states to every rank. Only the first rank writes checkpoints, and it does not ask the others then."""
        if world_size() > 1:
            self._of_all_ranks = [{}] * world_size()
            torch.distributed.all_gather_object(self._of_all_ranks, self.training_state.state_dict())

    def valid_step(self, sample: dict, model: BaseFairseqModel, criterion: torch.nn.Module) -> tuple[Tensor, int, dict]:
        if self.is_absent_in_validation(sample):
            return counting_nothing(*super().valid_step(self.two_words(model), model, criterion))
        return super().valid_step(self.with_state(sample, self.validation_state), model, criterion)

    def get_checkpoint_dict(self) -> dict[str, Any]:
        """Return the state of the rows of all ranks, so that a resumed run continues exactly. That of teachers is not kept."""
        if world_size() == 1:
            ranks = [self.training_state.state_dict()]
        else:  # states are not gathered at an epoch's end, where no document continues; otherwise `take` raises an error after resuming
            ranks = self._of_all_ranks or [{}] * world_size()
        averaged = super().get_checkpoint_dict()
        return {**averaged, type(self).__name__: {"ranks": ranks, **averaged[type(self).__name__]}}

    def dependencies(self) -> dict[str, Any]:
        """Return the settings that decide which row reads which words; with others, a row would continue the state of other words."""
        return {
            "--task": self.task_name,
            "--distributed-world-size": world_size(),
            "--bptt": self.cfg.bptt,
            "--batch-size": self.row_count(self.cfg.batch_size, self.cfg.max_tokens),
            "--seed": self.cfg.seed,
            "--document-marker": self.cfg.document_marker,
            "--document-order": str(self.cfg.document_order),
            "--random-bptt": "rows of segments" if self.cfg.random_bptt else False,  # not True, as when rows were divided otherwise
            "--reset-every": self.cfg.reset_every,
            "a training text of so many tokens:": sum(self.datasets[self.cfg.train_subset].tokens),
        }

    def set_checkpoint_dict(self, saved: dict[str, Any]) -> None:
        """Go on where ``get_checkpoint_dict`` was called. Raises InputError: in the midst of documents, with anything that decides on
        the rows changed."""
        super().set_checkpoint_dict(saved)
        ranks = saved.get("ranks", [])  # none from sentence_reset_lm
        if self.cfg.reset == "segment" or not any(ranks):
            return  # every row is reset
        before = {**saved.get("options", {}), "--distributed-world-size": len(ranks)}  # without options: from before they were saved
        if changed := changes(before, self.dependencies()):
            raise InputError(f"the checkpoint was written in the midst of documents {changed}; {RESUME}")
        self.training_state.load_state_dict(ranks[torch.distributed.get_rank() if world_size() > 1 else 0])
