"""Write a checkpoint of fairseq-train as a self-contained folder: weights, configuration, vocabulary and model card."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attlm_fairseq.checkpoints.folder import StoredModel, write_model_folder
from attlm_fairseq.checkpoints.reading import TrainedModel
from attlm_fairseq.checkpoints.weight_checks import MISSHAPEN
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.folders import whole_folder
from attlm_fairseq.templates import load_template
from attlm_fairseq.version import __version__

TASK_CLASSES = ("SentenceResetLMTask", "DocumentResetLMTask")
"""The entries of this package's tasks in a checkpoint; all have the same validation."""
TRAINING_OPTIONS = {
    # section of fairseq's configuration: the options in it that describe the training; None for all
    "task": (
        *("_name", "cut_sentences", "blank_lines", "batch_order", "average", "average_window", "average_decay"),
        *("bptt", "random_bptt", "reset", "reset_every", "memory_slots", "document_marker", "document_order"),
    ),
    "criterion": None,
    "optimizer": None,
    "lr_scheduler": None,
    "optimization": ("max_epoch", "max_update", "clip_norm", "update_freq", "sentence_avg"),
    "dataset": ("max_tokens", "batch_size"),
    "common": ("seed", "fp16", "bf16", "amp"),
    "distributed_training": ("distributed_world_size",),
}
OF_THIS_MACHINE = ("init_from", "teacher")  # options of models and criterions that are paths


def write_checkpoint_folder(
    folder: Path,
    trained: TrainedModel,
    content: Mapping[str, Any],
    checkpoint: Path,
    *,
    measured: Sequence[tuple[str, Any]] = (),
    steps: Sequence[str] = (),
    text: str | None = None,
) -> None:
    """Write a model as a folder, which appears complete or not at all. Equal inputs give equal bytes.

    Args:
        folder: the folder; it must be empty or not exist.
        trained: the model.
        content: the checkpoint that it was loaded from, as read.
        checkpoint: the checkpoint's file.
        measured: names of texts with their ``PerplexityCounter``, for the card.
        steps: the text steps of these texts, for the card.
        text: Markdown to include in the card.

    Raises:
        InputError: the record of the training is wrong, or the folder is not empty or cannot be written.
    """
    training = _training(content, checkpoint)
    # named_parameters yields a tied matrix only once, under its first name
    weights = {name: parameter.detach() for name, parameter in trained.model.named_parameters()}
    options = _plain(content["cfg"]["model"]) | trained.carried.options
    stored = StoredModel(trained.architecture, options, trained.vocabulary, weights, trained.sha256)
    card = _model_card(folder.name, trained, stored, training, checkpoint, measured=measured, steps=list(steps), text=text)
    with whole_folder(str(folder)) as place:
        write_model_folder(place, stored, training, card)


def _training(content: Mapping[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Return how a checkpoint was trained: options by section, updates, epochs, validation perplexities. No paths or times.

    Raises InputError if it does not say this as fairseq-train does.
    """
    try:
        return _recorded(content)
    except (*MISSHAPEN, ArithmeticError) as error:
        raise InputError(f"its record of the training is not as fairseq-train writes it: {error}", path=checkpoint) from None


def _recorded(content: Mapping[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for section, names in TRAINING_OPTIONS.items():
        found = _plain(content["cfg"].get(section))
        chosen = {name: value for name, value in found.items() if value is not None and (names is None or name in names)}
        if chosen:
            record[section] = chosen
    history = content.get("optimizer_history") or [{}]
    if isinstance(updates := history[-1].get("num_updates"), int):
        record["updates"] = updates
    extra = content.get("extra_state") or {}
    iterator = extra.get("train_iterator") or {}
    if isinstance(iterator.get("epoch"), int):
        # a checkpoint saved at the end of an epoch already names the next epoch
        record["epochs"] = iterator["epoch"] - (0 if iterator.get("iterations_in_epoch") else 1)
    # of earlier versions there are only fairseq's meters, which hold the mean of all validations of a run
    validated = next((found.get("validation") for name, found in extra.items() if name in TASK_CLASSES), None) or {}
    if perplexities := {name: round(float(validated[name]), 4) for name in ("ppl", "ppl_salton2017") if name in validated}:
        record["validation"] = perplexities
    return record


def _plain(section: Any) -> dict[str, Any]:
    """Return the JSON-serialisable entries of a configuration section, in order, with enumerations as strings, without paths."""
    entries = section if isinstance(section, Mapping) else vars(section) if hasattr(section, "__dict__") else {}
    return {str(name): _as_plain(value) for name, value in entries.items() if _is_plain(value) and name not in OF_THIS_MACHINE}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float)


def _as_plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return list(map(_as_plain, value))
    return str(value) if isinstance(value, str) else value


def _model_card(
    name: str, trained: TrainedModel, stored: StoredModel, training: Mapping[str, Any], checkpoint: Path, **measured: Any
) -> str:
    """Return the card in Markdown: the model, its use, its perplexities (``measured``) and its training."""
    return load_template("attlm_fairseq.checkpoints", "model_card.md", cell=_cell).render(
        name=name,
        trained=trained,
        training=training,
        task=training.get("task") or {},
        counts=[f"{training[kind]:,} {kind}" for kind in ("updates", "epochs") if kind in training],
        sections={"model": {option: value for option, value in stored.options.items() if option != "_name"}, **training},
        checkpoint=checkpoint,
        version=__version__,
        **measured,
    )


def _cell(value: Any) -> str:
    """Return a value as text for a Markdown table cell."""
    return re.sub(r"\s+", " ", str(value)).replace("|", "\\|") or "(empty)"
