"""``--task document_reset_lm``: truncated backpropagation through documents, state and memory carried to their ends."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.data import iterators
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.tasks import FairseqTask, register_task
from omegaconf import II
from torch import Tensor

from attlm_fairseq.errors import InputError
from attlm_fairseq.tasks._carried_state import CarriedState
from attlm_fairseq.tasks._document_dataset import DOCUMENT_ORDERS, DocumentDataset
from attlm_fairseq.tasks.sentence_reset_lm import SentenceResetLMTask


@dataclass
class DocumentResetLMConfig(FairseqDataclass):
    data: Optional[str] = field(default=None, metadata={"help": "folder written by fairseq-preprocess --only-source"})
    bptt: int = field(default=20, metadata={"help": "tokens a segment: gradients go back no further (Daniluk et al.: 20)"})
    reset: ChoiceEnum(["document", "segment"]) = field(
        default="document",
        metadata={"help": "state and memory begin anew with each document, carried from segment to segment, or with each segment"},
    )
    document_marker: str = field(
        default="", metadata={"help": "the word that alone on a line separates documents (default: blank lines do); it is not predicted"}
    )
    document_order: ChoiceEnum(list(DOCUMENT_ORDERS)) = field(
        default="shuffled", metadata={"help": "order of the training documents: shuffled anew each epoch, or as in the corpus"}
    )
    train_subset: str = II("dataset.train_subset")
    dataset_impl: Optional[str] = II("dataset.dataset_impl")


@register_task("document_reset_lm", dataclass=DocumentResetLMConfig)
class DocumentResetLMTask(SentenceResetLMTask):
    """Language modelling over documents, as Daniluk et al. (2017) train.

    ``--batch-size`` rows read one document after another, ``--bptt`` tokens a batch; state and memory go from batch to batch until the
    document ends, gradients do not. In training the text is divided evenly between the rows, which cuts a document where a row begins.
    Every token is read and predicted, whatever fairseq's limits say. With ``--reset segment`` nothing is carried: the same events, so
    that the two perplexities can be compared. Validation logs ``ppl`` over all words and line ends.
    """

    def __init__(self, cfg: DocumentResetLMConfig, dictionary: Any) -> None:
        if cfg.bptt < 1:
            raise InputError(f"--bptt {cfg.bptt}: a segment has at least 1 token")
        super().__init__(cfg, dictionary)
        self.training_state, self.validation_state = CarriedState(), CarriedState()
        self._of_all_ranks: list[dict[str, Any]] = []

    def load_dataset(self, split: str, combine: bool = False, epoch: int = 1, **kwargs: Any) -> None:
        lines, path = self.read_lines(split, combine, epoch)
        self.datasets[split] = DocumentDataset(
            lines, lines.sizes, self.dictionary, str(path), segment=self.cfg.bptt, marker=self.cfg.document_marker
        )

    def epoch_batches(
        self, dataset: DocumentDataset, seed: int, max_sentences: Optional[int], max_tokens: Optional[int], num_shards: int
    ) -> list[list[int]]:
        """The batches of all rows, ``max_sentences`` of them or as many as ``max_tokens`` has room for."""
        rows = max_sentences or (max_tokens or 0) // self.cfg.bptt
        if rows < 1:
            raise InputError(f"--max-tokens {max_tokens} has no room for one segment of --bptt {self.cfg.bptt}; give --batch-size ROWS")
        training = dataset is self.datasets.get(self.cfg.train_subset)
        order = str(self.cfg.document_order) if training else "corpus"
        return dataset.batches(order, seed, rows, num_shards, whole=not training)

    def eval_lm_dataloader(
        self,
        dataset: DocumentDataset,
        max_tokens: Optional[int] = 36000,
        batch_size: Optional[int] = None,
        context_window: int = 0,
        max_positions: Optional[int] = None,
        **kwargs: Any,
    ) -> iterators.CountingIterator:
        """What fairseq-eval-lm iterates over."""
        batches = super().eval_lm_dataloader(dataset, max_tokens, batch_size or 32, context_window, max_positions, **kwargs)
        return iterators.CountingIterator(self.carrying(batches, CarriedState()), start=0, total=len(batches))

    def carrying(self, batches: Iterator[dict[str, Any]], state: CarriedState) -> Iterator[dict[str, Any]]:
        """The batches, each with the state that the one before has left."""
        for sample in batches:
            yield self.with_state(sample, state)

    def with_state(self, sample: dict[str, Any], state: CarriedState) -> dict[str, Any]:
        """The sample with the state for the model to take and put; unchanged where nothing is carried."""
        if not sample or self.cfg.reset == "segment":
            return sample
        return {**sample, "net_input": {**sample["net_input"], "carried": state}}

    def train_step(
        self, sample: dict, model: torch.nn.Module, criterion: torch.nn.Module, optimizer: Any, update_num: int, ignore_grad: bool = False
    ) -> tuple[Tensor, int, dict]:
        if not ignore_grad:  # that is a batch of a rank that has no data left, for the others to have company
            sample = self.with_state(sample, self.training_state)
        result = FairseqTask.train_step(self, sample, model, criterion, optimizer, update_num, ignore_grad)
        if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
            # the first rank alone writes checkpoints, and without asking the others: it must have their states at any time
            self._of_all_ranks = [{}] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(self._of_all_ranks, self.training_state.state_dict())
        return result

    def valid_step(self, sample: dict, model: torch.nn.Module, criterion: torch.nn.Module) -> tuple[Tensor, int, dict]:
        return FairseqTask.valid_step(self, self.with_state(sample, self.validation_state), model, criterion)

    def get_checkpoint_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the rows of all ranks, so that a resumed run goes on exactly."""
        return {type(self).__name__: {"ranks": self._of_all_ranks or [self.training_state.state_dict()]}}

    def set_checkpoint_dict(self, saved: dict[str, Any]) -> None:
        ranks = saved["ranks"]
        world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        if len(ranks) != world:
            raise InputError(f"the checkpoint was written by {len(ranks)} processes and cannot be resumed by {world} in mid-epoch")
        self.training_state.load_state_dict(ranks[torch.distributed.get_rank() if world > 1 else 0])
        self._of_all_ranks = ranks if world > 1 else []
