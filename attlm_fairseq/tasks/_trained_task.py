"""What the tasks of language models do in a training: averages of the weights, several processes, and going on exactly."""

# no "from __future__ import annotations" here: fairseq reads the types of config fields at run time

import logging
from typing import Any, Optional

import torch
from fairseq.criterions import FairseqCriterion
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from torch import Tensor

from attlm_fairseq.checkpoints.export import TASK_CLASSES
from attlm_fairseq.checkpoints.resuming import changes, load_patience_dict, patience_dict
from attlm_fairseq.tasks._absent import counting_nothing, is_absent
from attlm_fairseq.tasks._adam_on_cpus import fused_update, has_fused_update
from attlm_fairseq.tasks._averaging import WeightAverage, copy_to_masters
from attlm_fairseq.tasks._freed_memory import keep_freed_memory

logger = logging.getLogger(__name__)


class TrainedTask(FairseqTask):
    """A task whose training can average the weights, and goes on after an interruption as if there was none."""

    perplexities: tuple[str, ...] = ("ppl",)  # what it logs of a validation

    def __init__(self, cfg: FairseqDataclass, dictionary: Dictionary) -> None:
        super().__init__(cfg)
        self.dictionary = dictionary
        self._trained: Optional[BaseFairseqModel] = None  # after its first update
        self._own_seed = -1  # of this process for the current update
        self._judged = False  # whether this validation has been
        self._validated: dict[str, float] = {}  # perplexities of the first validation set with the weights as they are
        self.average = WeightAverage(str(cfg.average), cfg.average_decay, cfg.average_window)

    @property
    def task_name(self) -> str | None:
        return getattr(self.cfg, "_name", None)

    @property
    def resets(self) -> dict[str, Any]:
        """The options that decide where state and memory are emptied, and what is predicted."""
        raise NotImplementedError

    def dependencies(self) -> dict[str, Any]:
        """Return the settings that decide which batch has which words; with others, an epoch cannot go on where it was interrupted."""
        raise NotImplementedError

    def begin_epoch(self, epoch: int, model: BaseFairseqModel) -> None:
        super().begin_epoch(epoch, model)
        if next(model.parameters()).device.type == "cpu":
            keep_freed_memory()

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
        return {"--valid-subset": self.cfg.valid_subset.split(",")[0], "--task": self.task_name, **self.resets}

    def set_checkpoint_dict(self, saved: dict[str, Any]) -> None:
        """Go on where ``get_checkpoint_dict`` was called. A new optimizer begins a new average, from the weights in the checkpoint."""
        self.set_patience(saved)
        if not self.cfg.reset_optimizer:
            self.set_average(saved)

    def set_patience(self, saved: dict[str, Any]) -> None:
        """Let ``--patience`` go on, from what ``get_checkpoint_dict`` returned, unless fairseq forgets the best validation."""
        forgotten = self.cfg.reset_meters or self.cfg.reset_optimizer
        if not forgotten and not changes(saved.get("judged_by", {}), self.judged_by):
            load_patience_dict(saved.get("patience", {}))

    def set_average(self, saved: dict[str, Any]) -> None:
        """Go on with the average of a checkpoint, and with the latest weights, from what ``get_checkpoint_dict`` returned."""
        if "average" in saved:
            self.average.load_state_dict(saved["average"])


def world_size() -> int:
    """Return the number of processes that train together."""
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
