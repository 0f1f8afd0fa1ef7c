"""Loading of fairseq's own models for scoring. No code hidden in a checkpoint runs, and fairseq's log is silenced."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from attlm_fairseq.checkpoints.plain_data import read_plain_data
from attlm_fairseq.checkpoints.reading import find_family
from attlm_fairseq.checkpoints.weight_checks import MISSHAPEN, check_finite, misshapen
from attlm_fairseq.errors import InputError
from attlm_fairseq.fairseq_import import import_fairseq
from attlm_fairseq.forks import one_thread_in_forks
from attlm_fairseq.modules.kernels.torch_settings import made_in_float32


def read_options(path: Path) -> Mapping[str, Any]:
    """Return the options of a checkpoint: at least ``task`` and ``model``, each a dictionary or a Namespace.

    Raises:
        InputError: fairseq is not installed, the file holds no model of fairseq-train, or fairseq has no such architecture.
    """
    if importlib.util.find_spec("fairseq") is None:
        raise InputError("is one of fairseq's own models, which need fairseq: pip install 'attlm-fairseq[train]'", path=path)
    import_fairseq()
    content = read_plain_data(path, mapped=True)
    if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
        raise InputError("holds no model of fairseq-train", path=path)
    config = content.get("cfg") or {"task": content.get("args"), "model": content.get("args")}  # before 2021 one Namespace
    check_architecture(config, path)
    return config


def check_architecture(config: Mapping[str, Any], path: Path) -> None:
    """Raise InputError if the checkpoint names an architecture that neither fairseq nor this package has."""
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY

    from attlm_fairseq.plugin import register

    register()
    model = config.get("model")
    architecture = option(model, "_name") or option(model, "arch")
    if architecture is not None and architecture not in {*ARCH_MODEL_REGISTRY, *MODEL_DATACLASS_REGISTRY}:
        find_family(str(architecture), path)


def task_option(config: Mapping[str, Any], name: str) -> Any:
    """Return an option of the checkpoint's task; None if it is not there."""
    return option(config.get("task"), name)


def option(options: Any, name: str) -> Any:
    """Return an option, or None if it is not there. ``options`` is a dictionary or a Namespace."""
    return options.get(name) if isinstance(options, Mapping) else getattr(options, name, None)


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
    import_fairseq()
    one_thread_in_forks()
    from fairseq import checkpoint_utils

    from attlm_fairseq.plugin import register

    register()  # fairseq then refuses checkpoints with code, in options too
    logger = logging.getLogger("fairseq")
    level = logger.level
    logger.setLevel(logging.ERROR)  # fairseq logs each dictionary and module
    path = paths[0]
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]), made_in_float32():
            warnings.simplefilter("ignore")
            models, options, task = checkpoint_utils.load_model_ensemble_and_task([str(path) for path in paths], dict(overrides))
    except InputError as error:  # of a model of this package, which does not know its file
        if any(str(one) in str(error) for one in paths):
            raise
        raise InputError(str(error), path=":".join(map(str, paths))) from None
    except ImportError as error:
        raise InputError(f"cannot be loaded: {error}", path=path) from None
    except MISSHAPEN as error:
        raise misshapen(error, path) from None
    finally:
        logger.setLevel(level)
    for path, model in zip(paths, models, strict=True):
        check_finite(model, path)
    return models, options, task
