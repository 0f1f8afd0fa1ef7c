"""Loading of fairseq-train checkpoints as language models that run without fairseq."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from attlm_fairseq import extensions
from attlm_fairseq.checkpoints.dictionary_files import find_dictionary
from attlm_fairseq.checkpoints.folder import StoredModel, read_model_folder
from attlm_fairseq.checkpoints.plain_data import read_plain_data
from attlm_fairseq.checkpoints.vocabulary import PAD, Vocabulary, fingerprint, fingerprint_numbers
from attlm_fairseq.checkpoints.weight_checks import MISSHAPEN, check_finite, check_numbers, check_sizes, misshapen
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import sha256
from attlm_fairseq.forks import one_thread_in_forks
from attlm_fairseq.modules.families import FAMILIES, LARGEST, build_language_model, family_of
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.output import OutputKind, find_output_layer
from attlm_fairseq.modules.state import EVERYTHING, Carried

WEIGHTS_PREFIX = "decoder.model."  # where the fairseq adapter holds the LanguageModel
TASK_OPTIONS = ("memory_slots", "reset", "add_bos_token")  # options of the training task that say how the model reads a text
FINGERPRINT = "decoder.dictionary_version"  # and the numbers of its dictionary; fairseq averages no weights with "version" in their name
OF_A_PACKAGE = (
    "install the version of attlm that has it, or, if it is your own, a package with the entry point "
    f"{extensions.MODELS} (docs/adding-a-model.md)"
)


@dataclass(frozen=True)
class TrainedModel:
    """A language model in evaluation mode, the words it knows and where it came from.

    Attributes:
        carried: what goes from one sentence of a conversation to the next, as from segment to segment in training
            (``--memory-slots``, ``--reset memory``).
        task: the options of the training's task, as far as they are known.
    """

    model: LanguageModel
    vocabulary: Vocabulary
    path: Path
    architecture: str
    sha256: str
    carried: Carried = EVERYTHING
    task: Mapping[str, Any] = field(default_factory=dict)


@torch.inference_mode(False)  # dynamic evaluation needs gradients, also in a program that loads within inference mode
def load_model(
    path: Path, dictionary: Path | None = None, device: str = "cpu", content: Any = None, *, any_start: bool = False
) -> TrainedModel:
    """Load a checkpoint of one of this package's models, or a folder of ``attlm export``, in float32.

    Args:
        path: the checkpoint or folder.
        dictionary: ``dict.txt``; None looks next to the checkpoint, then in its data folder. A folder has its own vocabulary.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        content: the result of ``read_plain_data``, if the checkpoint was read already.
        any_start: also load a model that was trained with ``--add-bos-token``. Its scores after ``</s>`` alone would be wrong.

    Raises:
        InputError: there is no such file, it is not a checkpoint of this package, its dictionary is missing or does not fit,
            its texts begin with ``<s>``, or its options and weights do not fit or are not finite.
    """
    one_thread_in_forks()
    try:
        stored = stored_in_folder(path, dictionary) if path.is_dir() else stored_in_checkpoint(path, dictionary, content)
        if stored.options.get("add_bos_token") and not any_start:
            raise InputError(
                "was trained with --add-bos-token: its texts begin with <s> </s>, expected </s> alone, as attlm reads the models of this "
                "package; train it without --add-bos-token",
                path=path,
            )
        family = find_family(stored.architecture, path)
        if output_kind(stored, path).tied:
            stored.weights["output.weight"] = stored.weights["embedding.weight"]  # a folder holds it once
        check_sizes(stored, family)
        with torch.random.fork_rng(devices=[]):  # initial values that are replaced leave the program's random numbers as they are
            model = build_language_model(family, stored.options, len(stored.vocabulary), PAD).float()  # whatever torch's default is
        model.load_state_dict(stored.weights)
        slots = stored.options.get("memory_slots", 0)
        if type(slots) is not int or not 0 <= slots <= LARGEST:  # True is an int, too
            raise ValueError(f"memory_slots is {slots!r}, expected a whole number from 0 to {LARGEST:,}")
        carried = Carried(slots, memory=stored.options.get("reset") != "memory" or not model.initial_state(1).memory)
    except MISSHAPEN as error:
        raise misshapen(error, path) from None
    check_finite(model, path)
    return TrainedModel(model.to(device).eval(), stored.vocabulary, path, stored.architecture, stored.sha256, carried, stored.task)


def output_kind(stored: StoredModel, path: Path) -> OutputKind:
    """Return the kind of a model's output layer. Raises InputError if neither this package nor an installed one has it."""
    try:
        return find_output_layer(str(stored.options["output_layer"]))
    except ValueError as error:
        raise InputError(f"{error}; {OF_A_PACKAGE}", path=path) from None


def stored_in_folder(path: Path, dictionary: Path | None) -> StoredModel:
    """Read a folder of ``attlm export``. If a dictionary is given, it must equal the folder's."""
    stored = read_model_folder(path)
    check_numbers(stored.weights, path)
    if dictionary is not None and Vocabulary.read(dictionary) != stored.vocabulary:
        raise InputError(f"has a vocabulary of its own, which is not that of {dictionary}; leave the other one out", path=path)
    return stored


def stored_in_checkpoint(path: Path, dictionary: Path | None, content: Any = None) -> StoredModel:
    """Read a checkpoint and its ``dict.txt``. ``content`` is the checkpoint's content, if it has already been read."""
    checkpoint = read_checkpoint(path, content)
    options, task = checkpoint["cfg"]["model"], checkpoint["cfg"].get("task")
    if isinstance(task, dict):
        options = {**options, **{name: task[name] for name in TASK_OPTIONS if name in task}}
    weights = {name.removeprefix(WEIGHTS_PREFIX): value for name, value in checkpoint["model"].items() if name.startswith(WEIGHTS_PREFIX)}
    architecture = str(options["_name"])
    find_family(architecture, path)  # a foreign model is named before its dictionary is looked for
    check_numbers(weights, path)
    dictionary = dictionary or find_dictionary(path, checkpoint["cfg"])
    vocabulary = Vocabulary.read(dictionary)
    rows = len(weights["embedding.weight"]) if "embedding.weight" in weights else 0
    if rows != len(vocabulary):
        raise InputError(
            f"the dictionary {dictionary} has {len(vocabulary)} symbols, special ones included, the model {rows}; "
            "give the dict.txt that the model was trained with",
            path=path,
        )
    trained = (checkpoint.get("task_state") or {}).get("dictionary")
    among_weights = checkpoint["model"].get(FINGERPRINT, torch.tensor(fingerprint_numbers(vocabulary.symbols)))
    if trained not in (None, fingerprint(vocabulary.symbols)) or among_weights.tolist() != fingerprint_numbers(vocabulary.symbols):
        # older checkpoints have one of the two, or none
        raise InputError(
            f"the dictionary {dictionary} has other words than the model, or in another order; give the dict.txt that it was trained with",
            path=path,
        )
    return StoredModel(architecture, options, vocabulary, weights, sha256(path), task if isinstance(task, dict) else {})


def find_family(architecture: str, path: Path) -> str:
    """Return the family of an architecture or preset, a key of ``FAMILIES``. Raises InputError if it is not in this package."""
    family = family_of(architecture)
    if family is None:
        raise InputError(
            f"architecture {architecture!r} is none of this package's: {', '.join(FAMILIES)}; give one of these, {OF_A_PACKAGE}",
            path=path,
        )
    return family


def read_checkpoint(path: Path, content: Any = None) -> Mapping[str, Any]:
    """Return the content of a fairseq-train checkpoint, on the CPU, with at least ``cfg`` and ``model``.

    Raises:
        InputError: the file is missing, damaged or an n-gram model, contains anything except data, or lacks ``cfg``
            or ``model``; or this torch is older than SAFE_TORCH.
    """
    checkpoint = read_plain_data(path) if content is None else content
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("cfg"), dict) or not isinstance(checkpoint.get("model"), dict):
        raise InputError("holds no `cfg` and `model`; give a checkpoint written by fairseq-train", path=path)
    if not isinstance(checkpoint["cfg"].get("model"), dict):
        raise InputError(f"architecture is none of this package's: {', '.join(FAMILIES)}", path=path)
    return checkpoint
