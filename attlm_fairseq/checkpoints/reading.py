"""Loading of fairseq-train checkpoints as language models that run without fairseq. No code hidden in a file is executed."""

from __future__ import annotations

import argparse
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attlm_fairseq import extensions, magic
from attlm_fairseq.checkpoints.folder import StoredModel, read_model_folder
from attlm_fairseq.checkpoints.vocabulary import PAD, Vocabulary, fingerprint, fingerprint_numbers
from attlm_fairseq.errors import InputError, NoDictionaryError
from attlm_fairseq.files.hashes import sha256
from attlm_fairseq.forks import one_thread_in_forks
from attlm_fairseq.modules.families import FAMILIES, build_language_model, family_of
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
# what it raises to take a file's content for a model's where parts are missing, of another kind or of another size
MISSHAPEN = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)

SafeGlobals = list[Callable[..., Any] | tuple[Callable[..., Any], str]]
"""What ``torch.serialization.add_safe_globals`` takes."""

PLAIN_GLOBALS: SafeGlobals = [argparse.Namespace]  # fairseq saves some options as one; a container, it runs nothing
torch.serialization.add_safe_globals(PLAIN_GLOBALS)  # so that torch.load reads what this package wrote
# Before it, a checkpoint can corrupt memory in spite of weights_only (CVE-2026-24747), before 2.6 run code (CVE-2025-32434).
SAFE_TORCH = (2, 10)
_ALLOWING = threading.RLock()


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
        if type(slots) is not int or slots < 0:  # True is an int, too
            raise ValueError(f"memory_slots is {slots!r}, expected a whole number, 0 or more")
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


def misshapen(error: Exception, path: Path) -> InputError:
    """Return the one-line message for a ``MISSHAPEN`` error."""
    found = f"there is no {error}" if isinstance(error, KeyError) else str(error)
    return InputError(
        f"the weights do not fit the model's options: {found}; give what fairseq-train or attlm export wrote with this version of attlm "
        "or an earlier one",
        path=path,
    )


class NoInitialValues(TorchFunctionMode):
    """Skip ``normal_``, which initialises embeddings: on the meta device it imports torch's compiler, 1.5 s and 75 MB."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return kwargs["tensor"] if function is nn.init.normal_ else function(*args, **(kwargs or {}))


def check_sizes(stored: StoredModel, family: str) -> None:
    """Compare the sizes in the options with those of the weights, before anything of these sizes is built.

    Raises:
        ValueError: they differ. Building a model of a wrong size could exhaust the memory or never end.
    """
    options = {**FAMILIES[family].defaults, **stored.options}
    for name in FAMILIES[family].recurrence.counts:
        if not isinstance(options[name], int) or options[name] > len(stored.weights):
            raise ValueError(f"{name} is {options[name]} by its options, there are {len(stored.weights)} tensors in its weights")
    with torch.device("meta"), NoInitialValues():  # sizes without memory
        expected = build_language_model(family, stored.options, len(stored.vocabulary), PAD).state_dict()
    for name in {**expected, **stored.weights}:
        by_options, found = (size_of(weights.get(name)) for weights in (expected, stored.weights))
        if by_options != found:
            raise ValueError(f"{name} is {found} in its weights, {by_options} by its options")


def size_of(weights: Tensor | None) -> str:
    """Return the shape as messages have it: 20x12."""
    return "none" if weights is None else "x".join(map(str, weights.shape)) or "a number"


def check_numbers(weights: Mapping[str, Any], path: Path) -> None:
    """Raise InputError for weights that are not floating-point: torch would silently convert complex numbers and integers."""
    for name, value in weights.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            found = str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"its weights {name} are {found}, expected floating-point numbers; train or export the model again", path=path)


def check_finite(model: torch.nn.Module, path: Path | None) -> None:
    """Raise InputError for weights that are nan or infinite, with which every probability would be nan."""
    for name, weights in model.named_parameters():
        # as soon as one of them is not, and in a tenth of the time of looking at each; a sum in float16 could overflow
        if not weights.sum(dtype=torch.promote_types(weights.dtype, torch.float32)).isfinite():
            raise InputError(
                f"its weights are no finite numbers ({name}): training has diverged; take an earlier checkpoint, or train with a smaller "
                "--lr or --clip-norm",
                path=path,
            )


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


def is_checkpoint(path: Path) -> bool:
    """Return whether torch wrote the file, rather than KenLM. Raises InputError if the file does not exist."""
    try:
        with path.open("rb") as file:
            return file.read(2).startswith(magic.TORCH)
    except FileNotFoundError:
        raise InputError("there is no such file; give a checkpoint, a folder of attlm export or a KenLM file", path=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None


@contextmanager
def allowed_globals(names: Sequence[Any]) -> Iterator[None]:
    """Context in which torch's ``weights_only`` loading allows exactly these names besides its own; the list is global to the process."""
    with _ALLOWING:
        before = torch.serialization.get_safe_globals()
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals([*names])
        try:
            yield
        finally:
            torch.serialization.clear_safe_globals()
            torch.serialization.add_safe_globals(before)


def checked_sparse_tensors() -> AbstractContextManager[Any]:
    """Let torch refuse files with sparse tensors whose indices are outside the shape; torch before 2.14 accepts them.

    Using such a tensor reads and writes memory outside the tensor.
    """
    return torch.sparse.check_sparse_tensor_invariants()


def require_safe_torch() -> None:
    """Raise InputError if checkpoints can have this torch run code that is hidden in them."""
    major, minor = torch.__version__.split(".")[:2]
    if (int(major), int(minor)) < SAFE_TORCH:
        wanted = ".".join(map(str, SAFE_TORCH))
        raise InputError(f"torch {torch.__version__} can run code hidden in checkpoints; install torch {wanted} or later")


def read_plain_data(path: Path, mapped: bool = False) -> Any:
    """Return the content of a torch file, on the CPU. Raises InputError if it contains anything except data.

    ``mapped``: map tensors from the file, so that reading the other content reads no tensor (zip files only).
    """
    require_safe_torch()
    try:
        if not path.is_file():
            raise InputError("there is no such file; give a checkpoint written by fairseq-train", path=path)
        with path.open("rb") as file:
            head = file.read(16).lstrip()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    if head.startswith((b"\\data\\", b"mmap lm ")):  # ARPA text, KenLM's binary
        raise InputError("is an n-gram model; expected a neural one. Commands that score take it as --lm or --kenlm", path=path)
    try:
        with allowed_globals(PLAIN_GLOBALS), checked_sparse_tensors(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol")  # whatever it is, the error below says what is wrong
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and head.startswith(magic.TORCH[0]))
    except pickle.UnpicklingError as error:
        raise InputError(f"refused: it is not a checkpoint of plain data or holds code ({first_sentence(error)})", path=path) from None
    except Exception as error:  # broken bytes make torch raise almost anything
        raise InputError(f"is not a checkpoint written by fairseq-train, or is cut short{in_brackets(error)}", path=path) from None


def data_folders(path: Path, config: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the folders in which the data of a checkpoint's training may lie: its own, then its data folder.

    A relative data folder is looked for from the checkpoint's folder and its parents, nearest first, because fairseq-train
    was usually started in one of them, and then from the current folder.
    """
    yield path.parent
    for folder in _named_data_folders(config):
        yield from (above / folder for above in (*path.resolve().parents, Path()))


def _named_data_folders(config: Mapping[str, Any]) -> list[Path]:
    task = config.get("task")
    data = (task.get("data") if isinstance(task, dict) else getattr(task, "data", None)) or ""
    return [Path(folder) for folder in str(data).split(":") if folder]


def find_dictionary(path: Path, config: Mapping[str, Any], names: Sequence[str] = ("dict.txt",)) -> Path:
    """Return ``dict.txt`` in the first of ``data_folders`` that has it; of several ``names``, the first, all in one folder.

    Raises:
        NoDictionaryError: no folder has all the files, or a folder cannot be looked at.
    """
    named = [folder / names[0] for folder in _named_data_folders(config)]
    adjacent = path.parent / names[0]
    what = " and ".join(names)
    for folder in data_folders(path, config):
        candidate = folder / names[0]
        try:
            if all(candidate.with_name(name).is_file() for name in names):
                return candidate
        except OSError as error:  # a name that is too long, a folder closed to the user
            raise NoDictionaryError(
                f"no {what} found: cannot look at {candidate} ({error.strerror}); copy it next to the checkpoint", path=path
            ) from None
    above = "" if all(place.is_absolute() for place in named) else " (from here and from each folder above the checkpoint)"
    looked = ", ".join(map(str, [adjacent, *named])) + above
    raise NoDictionaryError(f"no {what} found: looked at {looked}; copy it next to the checkpoint", path=path)


def in_brackets(error: BaseException) -> str:
    """Return `` (gist)`` of an error; "" if it says nothing in words."""
    gist = first_sentence(error)
    return f" ({gist})" if any(map(str.isalpha, gist)) else ""


def first_sentence(error: BaseException) -> str:
    """Return the gist of torch's long explanations without their advice, which would be unsafe here."""
    text = str(error).split("WeightsUnpickler error:")[-1]
    return text.strip().split("\n")[0].split(". ")[0][:200]
