"""Export a checkpoint as a self-contained folder: weights (safetensors), configuration, vocabulary and model card."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attlm_fairseq import __version__
from attlm_fairseq.checkpoints.folder import StoredModel, write_model_folder
from attlm_fairseq.checkpoints.reading import MISSHAPEN, TrainedModel, load_model, read_checkpoint
from attlm_fairseq.errors import InputError
from attlm_fairseq.files import refuse_filled, whole_folder
from attlm_fairseq.scoring.neural import NeuralScorer
from attlm_fairseq.scoring.oov import OOVCount
from attlm_fairseq.scoring.perplexity import PerplexityCounter
from attlm_fairseq.scoring.text_file import ScoredText, score_text
from attlm_fairseq.templates import load_template
from attlm_fairseq.text import TextPipeline
from attlm_fairseq.verbs.inputs import FilePath, text_lines

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


def export_model(
    checkpoint: FilePath,
    folder: FilePath,
    *,
    dictionary: FilePath | None = None,
    texts: Sequence[FilePath] = (),
    pipeline: TextPipeline | None = None,
    card_text: str | None = None,
    device: str = "cpu",
    on_progress: Callable[[int], object] | None = None,
) -> list[OOVCount]:
    """Export a checkpoint of fairseq-train as a self-contained folder.

    The folder appears complete or not at all. Equal inputs give equal bytes.

    Args:
        checkpoint: a checkpoint of fairseq-train.
        folder: the folder to write; it must be empty or not exist.
        dictionary: ``dict.txt``; None to look next to the checkpoint and in its data folder.
        texts: files with one sentence per line; the card states the perplexity on each.
        pipeline: text steps applied to ``texts``.
        card_text: Markdown to include in the card.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        on_progress: called with the number of lines scored since the last call.

    Returns:
        The unknown words of each text.

    Raises:
        InputError: a file cannot be used, or the folder is not empty.
    """
    checkpoint, folder = Path(checkpoint), Path(folder)
    dictionary = None if dictionary is None else Path(dictionary)
    if checkpoint.is_dir():
        raise InputError("is a folder; give a checkpoint of fairseq-train", path=checkpoint)
    if isinstance(texts, str | os.PathLike):
        raise InputError(f"the texts are {os.fspath(texts)!r}: expected a list of files")
    refuse_filled(str(folder))  # before the texts are scored
    content = read_checkpoint(checkpoint)
    trained = load_model(checkpoint, dictionary, content=content)
    pipeline = (pipeline or TextPipeline()).load()
    scorers = [NeuralScorer([load_model(checkpoint, dictionary, device, content)], "the model")] if texts else []
    scored = [(Path(text).name, score_text(text_lines(text), scorers, [pipeline], on_progress)) for text in texts]
    measured = [(name, _counted(text)) for name, text in scored]
    training = training_record(content, checkpoint)
    # named_parameters yields a tied matrix only once, under its first name
    weights = {name: parameter.detach() for name, parameter in trained.model.named_parameters()}
    options = plain(content["cfg"]["model"]) | trained.carried.options
    stored = StoredModel(trained.architecture, options, trained.vocabulary, weights, trained.sha256)
    card = model_card(folder.name, trained, stored, training, checkpoint, measured=measured, pipeline=pipeline, text=card_text)
    with whole_folder(str(folder)) as place:
        write_model_folder(place, stored, training, card)
    return [count for _, text in scored for count in text.oov]


def _counted(text: ScoredText) -> PerplexityCounter:
    """Return the perplexities of a text, whose lines are scored as they are read."""
    counter = PerplexityCounter()
    for line in text.lines:
        counter.add(line.scores[0])
    return counter


def training_record(content: Mapping[str, Any], checkpoint: Path) -> dict[str, Any]:
    """Return how a checkpoint was trained: options by section, updates, epochs, validation perplexities. No paths or times.

    Raises InputError if it does not say this as fairseq-train does.
    """
    try:
        return _training_record(content)
    except (*MISSHAPEN, ArithmeticError) as error:
        raise InputError(f"its record of the training is not as fairseq-train writes it: {error}", path=checkpoint) from None


def _training_record(content: Mapping[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for section, names in TRAINING_OPTIONS.items():
        found = plain(content["cfg"].get(section))
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
    for name, meter in (("ppl", "_nll"), ("ppl_salton2017", "_nll_salton2017")):
        for _, found, _, state in dict(extra.get("metrics") or {}).get("valid", []):
            if found == meter and state.get("count"):
                record.setdefault("validation", {})[name] = round(math.exp(min(700.0, float(state["sum"]) / float(state["count"]))), 4)
    return record


def plain(section: Any) -> dict[str, Any]:
    """Return the JSON-serialisable entries of a configuration section, in order, with enumerations as strings."""
    entries = section if isinstance(section, Mapping) else vars(section) if hasattr(section, "__dict__") else {}
    return {str(name): as_plain(value) for name, value in entries.items() if is_plain(value)}


def is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, str | int | float)


def as_plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return list(map(as_plain, value))
    return str(value) if isinstance(value, str) else value


def model_card(
    name: str, trained: TrainedModel, stored: StoredModel, training: Mapping[str, Any], checkpoint: Path, **measured: Any
) -> str:
    """Return the card in Markdown: the model, its use, its perplexities (``measured``) and its training."""
    return load_template("attlm_fairseq.verbs", "model_card.md", cell=cell).render(
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


def cell(value: Any) -> str:
    """Return a value as text for a Markdown table cell."""
    return re.sub(r"\s+", " ", str(value)).replace("|", "\\|") or "(empty)"
