"""The checkpoints from which fairseq-train begins or goes on, by its own rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attlm_fairseq.errors import InputError


def checkpoint_to_resume(cfg: Any) -> Path:
    """Return the path of the checkpoint that fairseq-train would resume, by the rule of ``checkpoint_utils.load_checkpoint``."""
    suffix = f"{cfg.checkpoint_suffix}.pt"
    if cfg.restore_file == "checkpoint_last.pt":  # by default the save folder's; any other name is a path
        return Path(cfg.save_dir, f"checkpoint_last{suffix}")
    return Path(cfg.restore_file.replace(".pt", suffix))


def checkpoint_to_begin_with(cfg: Any) -> Path | None:
    """Return the checkpoint whose weights fairseq-train would take, resumed or not; None if there is none."""
    others = (Path(other) for other in (cfg.continue_once, cfg.finetune_from_model) if other)
    return next((path for path in (checkpoint_to_resume(cfg), *others) if path.is_file()), None)


def require_files(cfg: Any) -> None:
    """Raise InputError if a checkpoint to begin with is missing.

    fairseq would train a new model and overwrite the checkpoints in --save-dir.
    """
    resumed = checkpoint_to_resume(cfg)
    if cfg.restore_file != "checkpoint_last.pt":
        if not resumed.is_file() and resumed.absolute() != Path(cfg.save_dir, resumed.name).absolute():  # not yet there
            raise InputError(f"there is no such file; correct --restore-file {cfg.restore_file}, or leave it out", path=resumed)
    elif not resumed.is_file():  # a first start
        for option in ("continue_once", "finetune_from_model"):
            if (named := getattr(cfg, option)) and not Path(named).is_file():
                raise InputError(f"there is no such file; correct --{option.replace('_', '-')}, or leave it out", path=named)
