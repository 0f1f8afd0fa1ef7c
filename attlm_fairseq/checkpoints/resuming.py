"""What fairseq leaves out of its checkpoints, so that a resumed run goes on as if it had never stopped.

fairseq saves the best validation of ``--lr-scheduler reduce_lr_on_plateau``, but not how many worse ones followed, nor the
validation of the epoch that has just ended, which the scheduler sees only after the checkpoint is written. It does not save
at all what ``--patience`` counts, nor the options on which the batches of an unfinished epoch depend. With ``--reset-dataloader``
it does not give a task what the task has saved. It copies the best checkpoint to the last one in place: a run that is killed then
would have half a checkpoint to go on from.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import fairseq.checkpoint_utils
from fairseq.file_io import PathManager
from fairseq.optim import lr_scheduler
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule

from attlm_fairseq.errors import InputError

logger = logging.getLogger(__name__)

RESUME = "resume with the options and the data of before, or give --reset-dataloader to begin with the first epoch again"
COUNTERS = ("num_bad_epochs", "cooldown_counter")  # of torch's scheduler


class ResumablePlateau(ReduceLROnPlateauLRSchedule):
    """fairseq's schedule, whose state holds all that decides on the next rate.

    ``pending`` is the loss of a validation that the scheduler has not seen yet.
    """

    pending: float | None = None

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), **{name: getattr(self.lr_scheduler, name) for name in COUNTERS}, "pending": self.pending}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for name in COUNTERS:
            setattr(self.lr_scheduler, name, state_dict.get(name, 0))  # fairseq's own checkpoints lack it
        self.pending = state_dict.get("pending")

    def forget(self) -> None:
        """Let the next validation be the best so far."""
        self.lr_scheduler.best = self.lr_scheduler.mode_worse
        for name in COUNTERS:
            setattr(self.lr_scheduler, name, 0)

    def step(self, epoch: int, val_loss: float | None = None) -> float:
        """End an epoch. Without a loss, a pending one is taken: fairseq calls this once it has restored optimizer and scheduler."""
        val_loss, self.pending = self.pending if val_loss is None else val_loss, None
        return super().step(epoch, val_loss)


class WholeCopies(PathManager):
    """fairseq's files. A copy on a disk of this machine gets its name when it is whole."""

    @staticmethod
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        """Return whether the file was copied, as fairseq's own does."""
        if PathManager.path_requires_pathmanager(dst_path):
            return bool(PathManager.copy(src_path, dst_path, overwrite))
        unfinished = Path(f"{dst_path}.tmp")
        shutil.copyfile(src_path, unfinished)
        unfinished.replace(dst_path)
        return True


def complete_checkpoints() -> None:
    """Let fairseq save and load all that a resumed run needs. Calling it again does nothing."""
    fairseq.checkpoint_utils.PathManager = WholeCopies
    lr_scheduler.LR_SCHEDULER_REGISTRY["reduce_lr_on_plateau"] = ResumablePlateau
    if not hasattr(fairseq.checkpoint_utils.save_checkpoint, "__wrapped__"):
        fairseq.checkpoint_utils.save_checkpoint = _saving(fairseq.checkpoint_utils.save_checkpoint)
        fairseq.checkpoint_utils.load_checkpoint = _loading(fairseq.checkpoint_utils.load_checkpoint)


def _saving(save: Any) -> Any:
    @wraps(save)
    def save_checkpoint(cfg: Any, trainer: Any, epoch_itr: Any, val_loss: float | None) -> Any:
        schedule = trainer.lr_scheduler
        if isinstance(schedule, ResumablePlateau) and epoch_itr.end_of_epoch():
            schedule.pending = val_loss
        return save(cfg, trainer, epoch_itr, val_loss)

    return save_checkpoint


def _loading(load: Any) -> Any:
    @wraps(load)
    def load_checkpoint(cfg: Any, trainer: Any, **passthrough: Any) -> Any:
        try:
            extra_state, epoch_itr = load(cfg, trainer, **passthrough)
        except AssertionError as error:
            if "please reset the optimizer" not in str(error):
                raise
            raise InputError(
                f"the checkpoint was written with another optimizer or criterion ({str(error).split(';')[0]}); give those of before, or "
                "--reset-optimizer"
            ) from None
        except RuntimeError as error:
            if "dataloader mismatch" not in str(error) or not hasattr(trainer.task, "dependencies"):
                raise
            raise InputError(
                "the checkpoint was written in the midst of an epoch. With the options and the data of this run an epoch is shorter than "
                f"what was read of that one; {RESUME}"
            ) from None
        if extra_state is None or not hasattr(trainer.task, "set_average"):
            return extra_state, epoch_itr
        saved = extra_state.get(type(trainer.task).__name__, {})
        if cfg.reset_dataloader and not cfg.reset_optimizer:  # fairseq then gives the task nothing
            trainer.task.set_average(saved)
            trainer.task.set_patience(saved)
        if changed := changes(saved.get("judged_by", {}), trainer.task.judged_by):
            logger.warning(f"the checkpoint was written {changed}: the next validation counts as the best so far")
            vars(fairseq.checkpoint_utils.save_checkpoint).pop("best", None)
            if isinstance(schedule := trainer.lr_scheduler, ResumablePlateau):
                schedule.forget()
            if changes(saved["judged_by"], trainer.task.validated):  # not the metric alone: nt-asgd judges by perplexity whatever it is
                trainer.task.average.perplexities.clear()
        if epoch_itr.iterations_in_epoch > 0 and (changed := changes(saved.get("options", {}), trainer.task.dependencies())):
            logger.warning(
                f"the checkpoint was written in the midst of an epoch {changed}: the rest of this epoch reads some words again and leaves "
                f"others out; {RESUME}"
            )
        return extra_state, epoch_itr

    return load_checkpoint


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the settings that differ, in words; empty if none does. What one of the two lacks is not compared."""
    changed = [name for name, value in before.items() if name in now and now[name] != value]
    one, other = (", ".join(f"{name} {options[name]!r}" for name in changed) for options in (before, now))
    return f"with {one}, and this run has {other}" if changed else ""


def patience_dict() -> dict[str, Any]:
    """Return what ``--patience`` has counted; empty if it has not begun."""
    begun = (counters for counters in _patience() if hasattr(counters, "best"))
    return next(({"best": counters.best, "num_runs": counters.num_runs} for counters in begun), {})


def load_patience_dict(saved: dict[str, Any]) -> None:
    """Let ``--patience`` go on from what ``patience_dict`` returned."""
    for counters in _patience() if saved else ():
        counters.best, counters.num_runs = saved["best"], saved["num_runs"]


def _patience() -> Iterator[Any]:
    """Yield fairseq-train's function that counts, from the modules that hold it: it may run as a program of its own."""
    for name in ("__main__", "fairseq_cli.train"):
        if callable(counters := getattr(sys.modules.get(name), "should_stop_early", None)):
            yield counters
