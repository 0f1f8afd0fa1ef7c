"""``attlm.toml``: the LMs of a rescoring run, the text steps before them and the weights.

    [lm.attentive]                  # a neural LM: one checkpoint, or several as an ensemble
    checkpoint = "checkpoints/checkpoint_best.pt"
    dict = "data-bin/dict.txt"      # where it does not lie beside the checkpoint

    [lm.ngram]
    kenlm = "lm.arpa"

    [text]
    lowercase = true
    tokenize = "en"

    [weights]                       # of any score in the list, any LM, `words` and `rank`
    attentive = 0.8

Paths are relative to the file. Whatever else the file holds is left alone.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.text import TextPipeline, require_language

DEFAULT_CONFIG = Path("attlm.toml")
RESERVED_NAMES = ("words", "rank", "total")


@dataclass(frozen=True)
class LMSpec:
    """One LM of a run: a KenLM file, or the checkpoints of a neural LM (several are an ensemble)."""

    name: str
    kenlm: Path | None = None
    checkpoints: tuple[Path, ...] = ()
    ensemble_weights: tuple[float, ...] | None = None
    dictionary: Path | None = None

    def load(self, device: str) -> Scorer:
        """The LM, ready to score. Raises InputError. torch is imported only for a neural one."""
        if self.kenlm is not None:
            from attlm_fairseq.scoring.kenlm import KenLMScorer

            return KenLMScorer(self.kenlm, self.name)
        from attlm_fairseq.scoring.neural import NeuralScorer

        return NeuralScorer.load(self.checkpoints, self.name, self.ensemble_weights, self.dictionary, device)


@dataclass(frozen=True)
class Config:
    """What a run needs to know besides its lists."""

    lms: tuple[LMSpec, ...] = ()
    text: TextPipeline = field(default_factory=TextPipeline)
    weights: dict[str, float] = field(default_factory=dict)


def check_name(name: str, where: Path | None = None) -> str:
    """An LM's name, usable in every output format, or InputError."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name) or name in RESERVED_NAMES:
        raise InputError(
            f"{name!r} cannot be the name of an LM: a letter, then letters, digits, _ and -; not {', '.join(RESERVED_NAMES)}", path=where
        )
    return name


def read_config(path: Path) -> Config:
    """Read an ``attlm.toml``. Raises InputError naming the entry that is wrong."""
    document = _parse(path).unwrap()
    _only(document, {"lm", "text", "weights", "tuning"}, "table", path)
    lms = tuple(_read_lm(check_name(name, path), entry, path) for name, entry in _table(document, "lm", path).items())
    text = _table(document, "text", path)
    _only(text, {"lowercase", "tokenize"}, "entry of [text]", path)
    weights = _table(document, "weights", path)
    for name, value in weights.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(f"[weights] {name} = {value!r}, expected a finite number", path=path)
    lowercase, tokenize = text.get("lowercase", False), text.get("tokenize")
    if not isinstance(lowercase, bool):
        raise InputError(f"[text] lowercase = {lowercase!r}, expected true or false", path=path)
    if tokenize is not None and not isinstance(tokenize, str):
        raise InputError(f'[text] tokenize = {tokenize!r}, expected a language such as "en"', path=path)
    return Config(lms, TextPipeline(require_language(tokenize), lowercase), {name: float(value) for name, value in weights.items()})


def write_config(path: Path, config: Config, record: Mapping[str, Any]) -> None:
    """Write LMs, text steps and weights, and ``record`` as ``[tuning]``: how the weights came about. An existing file keeps the rest.

    The file changes at once or not at all.
    """
    document = _parse(path) if path.exists() else tomlkit.document()
    folder = path.absolute().parent
    document["lm"] = {lm.name: _written_lm(lm, folder) for lm in config.lms}
    text = ({"tokenize": config.text.tokenize} if config.text.tokenize else {}) | ({"lowercase": True} if config.text.lowercase else {})
    if text or "text" in document:
        document["text"] = text
    document["weights"] = dict(config.weights)
    document["tuning"] = dict(record)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(tomlkit.dumps(document), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"cannot be written: {error.strerror}", path=path) from None


def _parse(path: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(path.read_bytes().decode("utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 (byte {error.start})", path=path) from None
    except TOMLKitError as error:
        raise InputError(f"is not TOML: {error}", path=path, line=getattr(error, "line", None)) from None


def _read_lm(name: str, entry: Any, path: Path) -> LMSpec:
    if not isinstance(entry, dict) or ("kenlm" in entry) == ("checkpoint" in entry):
        raise InputError(f"[lm.{name}] needs either `kenlm` or `checkpoint`", path=path)
    _only(entry, {"kenlm"} if "kenlm" in entry else {"checkpoint", "dict", "ensemble_weights"}, f"entry of [lm.{name}]", path)
    files = entry.get("kenlm", entry.get("checkpoint"))
    files = [files] if isinstance(files, str) else files
    strings = [*files, *([entry["dict"]] if "dict" in entry else [])] if isinstance(files, list) else [None]
    if not files or not all(isinstance(file, str) for file in strings) or ("kenlm" in entry and len(files) != 1):
        raise InputError(f"[lm.{name}] `kenlm` and `dict` are a file name, `checkpoint` a file name or a list of them", path=path)
    weights = entry.get("ensemble_weights")
    if weights is not None and (
        not isinstance(weights, list)
        or len(weights) != len(files)
        or not all(isinstance(weight, int | float) and not isinstance(weight, bool) and weight >= 0 for weight in weights)
        or not 0 < sum(weights) < math.inf
    ):
        raise InputError(f"[lm.{name}] ensemble_weights needs {len(files)} numbers, none negative, not all zero", path=path)
    folder = path.parent
    if "kenlm" in entry:
        return LMSpec(name, kenlm=folder / files[0])
    return LMSpec(
        name,
        checkpoints=tuple(folder / file for file in files),
        ensemble_weights=None if weights is None else tuple(map(float, weights)),
        dictionary=folder / entry["dict"] if "dict" in entry else None,
    )


def _written_lm(lm: LMSpec, folder: Path) -> dict[str, Any]:
    def relative(path: Path) -> str:
        path = path.absolute()
        return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)

    if lm.kenlm is not None:
        return {"kenlm": relative(lm.kenlm)}
    files = [relative(path) for path in lm.checkpoints]
    return (
        {"checkpoint": files[0] if len(files) == 1 else files}
        | ({"ensemble_weights": list(lm.ensemble_weights)} if lm.ensemble_weights else {})
        | ({"dict": relative(lm.dictionary)} if lm.dictionary else {})
    )


def _table(document: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise InputError(f"`{name}` is {table!r}, expected a table [{name}]", path=path)
    return table


def _only(table: Mapping[str, Any], known: set[str], what: str, path: Path) -> None:
    for name in table:
        if name not in known:
            raise InputError(f"{name!r} is no {what}; known are {', '.join(sorted(known))}", path=path)
