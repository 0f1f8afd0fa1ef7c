"""Loading of fairseq's own models for scoring. No code hidden in a checkpoint runs, and fairseq's log is silenced."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attlm_fairseq.checkpoints.reading import MISSHAPEN, check_finite, misshapen, read_plain_data
from attlm_fairseq.errors import InputError


def read_options(path: Path) -> Mapping[str, Any]:
    """Return the options of a checkpoint: at least ``task`` and ``model``, each a dictionary or a Namespace.

    Raises:
        InputError: fairseq is not installed, or the file holds no model of fairseq-train.
    """
    if importlib.util.find_spec("fairseq") is None:
        raise InputError("is one of fairseq's own models, which need fairseq: pip install 'attlm-fairseq[train]'", path=path)
    content = read_plain_data(path, mapped=True)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise InputError("holds no model of fairseq-train", path=path)
    return content.get("cfg") or {"task": content.get("args"), "model": content.get("args")}  # before 2021 one Namespace


def task_option(config: Mapping[str, Any], name: str) -> Any:
    """Return an option of the checkpoint's task; None if it is not there."""
    task = config.get("task")
    return task.get(name) if isinstance(task, Mapping) else getattr(task, name, None)


def load_models(paths: Sequence[Path], overrides: Mapping[str, object]) -> tuple[list[Any], Any, Any]:
    """Load checkpoints of one task with fairseq.

    Args:
        paths: the checkpoints.
        overrides: options that replace those of the checkpoints.

    Returns:
        The models, the options of the last checkpoint, and the task.

    Raises:
        InputError: a file that is not a checkpoint, or whose weights are not finite or not those of the model.
    """
    from fairseq import checkpoint_utils

    from attlm_fairseq.plugin import register

    register()  # fairseq then refuses checkpoints with code, in options too
    logger = logging.getLogger("fairseq")
    level = logger.level
    logger.setLevel(logging.ERROR)  # fairseq logs each dictionary and module
    path = paths[0]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            models, options, task = checkpoint_utils.load_model_ensemble_and_task([str(path) for path in paths], dict(overrides))
    except ImportError as error:
        raise InputError(f"cannot be loaded: {error}", path=path) from None
    except MISSHAPEN as error:
        raise misshapen(error, path) from None
    finally:
        logger.setLevel(level)
    for path, model in zip(paths, models, strict=True):
        check_finite(model, path)
    return models, options, task
