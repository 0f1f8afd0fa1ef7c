"""The self-contained folder of a language model: what ``attlm export`` writes and ``--lm`` reads.

    model.safetensors   the weights, float32; a tied output matrix is stored once
    vocabulary.json     the symbols in the order of their ids, special ones first
    config.json         architecture, its options, how it was trained, SHA-256 of the two files above
    README.md           the card, for people; never read back

Nothing in it is code, and reading it runs none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from attlm_fairseq.checkpoints.vocabulary import SPECIAL_SYMBOLS, Vocabulary
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import sha256

FORMAT = "attlm language model"
VERSION = 1
WEIGHTS, VOCABULARY, CONFIG, CARD = "model.safetensors", "vocabulary.json", "config.json", "README.md"


@dataclass(frozen=True)
class StoredModel:
    """The content of a model's file or folder. ``sha256``: of the checkpoint, or of ``config.json``, which has the other hashes.

    ``task``: the options of the training's task, as far as they are known.
    """

    architecture: str
    options: Mapping[str, Any]
    vocabulary: Vocabulary
    weights: dict[str, Tensor]
    sha256: str
    task: Mapping[str, Any] = field(default_factory=dict)


def write_model_folder(folder: Path, model: StoredModel, training: Mapping[str, Any], card: str) -> None:
    """Write the files into an existing, empty folder; same input, same bytes. ``training`` is a record of how it was trained.

    Raises InputError for a vocabulary with a symbol twice.
    """
    from safetensors.torch import save

    check_distinct(model.vocabulary.symbols, folder / VOCABULARY)
    weights = {name: value.contiguous() for name, value in model.weights.items()}
    # written here, not by safetensors: then a full disk is an OSError, and who may read the file is as the umask has it
    (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))
    (folder / VOCABULARY).write_text(as_json(list(model.vocabulary.symbols)), encoding="utf-8")
    config = {
        "format": FORMAT,
        "version": VERSION,
        "architecture": model.architecture,
        "options": dict(model.options),
        "training": dict(training),
        "checkpoint": model.sha256,
        "files": {name: sha256(folder / name) for name in (WEIGHTS, VOCABULARY)},
    }
    # a file's name may be no UTF-8; written so it is, and still JSON
    (folder / CONFIG).write_text(as_json(config), encoding="utf-8", errors="backslashreplace")
    (folder / CARD).write_text(card, encoding="utf-8", errors="backslashreplace")


def read_model_folder(folder: Path) -> StoredModel:
    """Read it back. Raises InputError: a file is missing, is not what was written, or belongs to another program."""
    config = read_json(folder / CONFIG)
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise InputError(f"is not the {CONFIG} of a folder written by attlm export: it has no `format` {FORMAT!r}", path=folder / CONFIG)
    if config.get("version") != VERSION:
        raise InputError(f"version {config.get('version')!r} of the format, this program reads version {VERSION}", path=folder / CONFIG)
    for name, kind in (("architecture", str), ("options", dict), ("files", dict)):
        if not isinstance(config.get(name), kind):
            raise InputError(f"has no usable `{name}`; export the model again", path=folder / CONFIG)
    for name in (WEIGHTS, VOCABULARY):
        if not (folder / name).is_file():
            raise InputError(f"there is no {name}; export the model again", path=folder)
        if sha256(folder / name) != config["files"].get(name):
            raise InputError(f"has changed since it was exported: its SHA-256 is not the one in {CONFIG}; export again", path=folder / name)
    symbols = read_json(folder / VOCABULARY)
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols) or tuple(symbols[:4]) != SPECIAL_SYMBOLS:
        raise InputError(f"is not a list of symbols that begins with {', '.join(SPECIAL_SYMBOLS)}", path=folder / VOCABULARY)
    try:
        "".join(symbols).encode()
    except UnicodeEncodeError as error:
        found = f"found {error.object[error.start]!r}, half of a surrogate pair"
        raise InputError(f"holds a symbol that is not Unicode text: {found}; export the model again", path=folder / VOCABULARY) from None
    if broken := [symbol for symbol in symbols if "\n" in symbol or "\r" in symbol]:
        raise InputError(f"holds the symbol {broken[0]!r:.60}: no word has a line break; export the model again", path=folder / VOCABULARY)
    check_distinct(symbols, folder / VOCABULARY)
    training = config.get("training")
    task = training.get("task") if isinstance(training, dict) else None
    weights, digest = read_weights(folder / WEIGHTS), sha256(folder / CONFIG)
    return StoredModel(
        config["architecture"], config["options"], Vocabulary(symbols), weights, digest, task if isinstance(task, dict) else {}
    )


def check_distinct(symbols: Sequence[str], path: Path) -> None:
    """Raise InputError if two ids have the same symbol, since the id of that word would be ambiguous."""
    seen: dict[str, int] = {}
    for row, symbol in enumerate(symbols):
        if seen.setdefault(symbol, row) != row:
            raise InputError(
                f"has the symbol {symbol!r} twice, as id {seen[symbol]} and {row}; give each word one line in dict.txt", path=path
            )


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file.

    Raises:
        InputError: the file cannot be read or is not in the safetensors format.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"is not a safetensors file: {error}", path=path) from None


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        InputError: the file cannot be read, is not UTF-8 or is not JSON.
    """
    try:
        return json.loads(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}; give a folder written by attlm export", path=path) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", path=path) from None


def as_json(value: Sequence | Mapping) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"
