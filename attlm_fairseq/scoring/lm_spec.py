"""One LM of a run, as ``[lm.NAME]`` of ``attlm.toml`` names it: what it is made of, what it sees, what its unknown words cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.compute import Compute
from attlm_fairseq.scoring.oov_policy import UNK, OOVPolicy, parse_policy
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.text import Step, TextPipeline, parse_steps

COMMON = {"text", "oov"}  # what an entry of any kind may hold
ENTRIES = {"kenlm": COMMON, "checkpoint": {"dict", "ensemble_weights"} | COMMON, "mixture": COMMON}


@dataclass(frozen=True)
class LMSpec:
    """A KenLM file, the checkpoints of a neural LM (several are an ensemble), or a linear mixture of other LMs of the run.

    ``mixture`` are names and weights. ``text`` are the LM's own steps; without them those of the run hold.
    """

    name: str
    kenlm: Path | None = None
    checkpoints: tuple[Path, ...] = ()
    ensemble_weights: tuple[float, ...] | None = None
    dictionary: Path | None = None
    mixture: tuple[tuple[str, float], ...] = ()
    text: TextPipeline | None = None
    oov: OOVPolicy = UNK

    def load(self, compute: Compute) -> Scorer:
        """A KenLM or neural LM as it is, without its OOV policy, ready to score; torch is imported for a neural one. Raises InputError."""
        if self.kenlm is not None:
            from attlm_fairseq.scoring.kenlm import KenLMScorer

            return KenLMScorer(self.kenlm, self.name)
        from attlm_fairseq.scoring.neural import NeuralScorer

        return NeuralScorer.load(self.checkpoints, self.name, self.ensemble_weights, self.dictionary, compute)


def read_lm(name: str, entry: Any, path: Path) -> LMSpec:
    """The LM of an entry of the file ``path``. Raises InputError naming what is wrong."""
    where = f"[lm.{name}]"
    if not isinstance(entry, dict) or len(kinds := ENTRIES.keys() & entry.keys()) != 1:
        raise InputError(f"{where} needs either `kenlm`, `checkpoint` or `mixture`", path=path)
    kind = kinds.pop()
    only(entry, {kind} | ENTRIES[kind], f"entry of {where}", path)
    text = read_text(table(entry, "text", path, f"lm.{name}.text"), f"[lm.{name}.text]", path) if "text" in entry else None
    if not isinstance(policy := entry.get("oov", "unk"), str):
        raise InputError(f'{where} oov = {policy!r}, expected a policy such as "penalty:-12"', path=path)
    try:
        common = {"text": text, "oov": parse_policy(policy)}
    except InputError as error:
        raise InputError(f"{where} oov: {error}", path=path) from None
    if kind == "mixture":
        return LMSpec(name, mixture=_read_mixture(entry["mixture"], where, path), **common)
    files = entry[kind]
    files = [files] if isinstance(files, str) else files
    strings = [*files, *([entry["dict"]] if "dict" in entry else [])] if isinstance(files, list) else [None]
    if not files or not all(isinstance(file, str) for file in strings) or (kind == "kenlm" and len(files) != 1):
        raise InputError(f"{where} `kenlm` and `dict` are a file name, `checkpoint` a file name or a list of them", path=path)
    folder = path.parent
    if kind == "kenlm":
        return LMSpec(name, kenlm=folder / files[0], **common)
    weights = entry.get("ensemble_weights")
    if weights is not None and (not isinstance(weights, list) or not are_shares(weights, len(files))):
        raise InputError(f"{where} ensemble_weights needs {len(files)} numbers, none negative, not all zero", path=path)
    return LMSpec(
        name,
        checkpoints=tuple(folder / file for file in files),
        ensemble_weights=None if weights is None else tuple(map(float, weights)),
        dictionary=folder / entry["dict"] if "dict" in entry else None,
        **common,
    )


def are_shares(weights: list, count: int) -> bool:
    """Whether these are ``count`` numbers that can be divided by their sum: none negative, not all zero."""
    return (
        len(weights) == count
        and all(isinstance(weight, int | float) and not isinstance(weight, bool) and weight >= 0 for weight in weights)
        and 0 < sum(weights) < math.inf
    )


def _read_mixture(mixture: Any, where: str, path: Path) -> tuple[tuple[str, float], ...]:
    if not isinstance(mixture, dict) or not are_shares(list(mixture.values()), max(1, len(mixture))):
        raise InputError(f"{where} mixture = {{NAME = WEIGHT, ..}} needs names of LMs with weights, none negative, not all zero", path=path)
    return tuple((member, float(weight)) for member, weight in mixture.items())


def read_text(entry: Mapping[str, Any], where: str, path: Path) -> TextPipeline:
    """The text steps of a table: ``steps``, or the shorter ``tokenize`` and ``lowercase``. Files are relative to ``path``'s folder."""
    only(entry, {"steps", "lowercase", "tokenize"}, f"entry of {where}", path)
    if "steps" in entry and len(entry) > 1:
        raise InputError(f"{where} has `steps`: give all of them there, `lowercase` and `tokenize` too", path=path)
    steps, lowercase, tokenize = entry.get("steps", []), entry.get("lowercase", False), entry.get("tokenize")
    if not isinstance(steps, list) or not all(isinstance(step, str) for step in steps):
        raise InputError(f'{where} steps = {steps!r}, expected a list such as ["unicode:nfc", "lowercase"]', path=path)
    if not isinstance(lowercase, bool):
        raise InputError(f"{where} lowercase = {lowercase!r}, expected true or false", path=path)
    if tokenize is not None and not isinstance(tokenize, str):
        raise InputError(f'{where} tokenize = {tokenize!r}, expected a language such as "en"', path=path)
    steps = [*steps, *([f"tokenize:{tokenize}"] if tokenize is not None else []), *(["lowercase"] if lowercase else [])]
    try:
        return parse_steps(steps, path.parent)
    except InputError as error:
        raise InputError(f"{where} {error}", path=path) from None


def written_lm(lm: LMSpec, folder: Path) -> dict[str, Any]:
    """The entry of an LM for a file in ``folder`` (absolute). Raises InputError for names of files that are not UTF-8."""
    if lm.kenlm is not None:
        entry: dict[str, Any] = {"kenlm": _relative(lm.kenlm, folder)}
    elif lm.mixture:
        import tomlkit

        entry = {"mixture": tomlkit.inline_table()}
        entry["mixture"].update(dict(lm.mixture))
    else:
        files = [_relative(path, folder) for path in lm.checkpoints]
        entry = {"checkpoint": files[0] if len(files) == 1 else files}
        if lm.ensemble_weights:
            entry["ensemble_weights"] = list(lm.ensemble_weights)
        if lm.dictionary:
            entry["dict"] = _relative(lm.dictionary, folder)
    if lm.oov.kind != "unk":
        entry["oov"] = str(lm.oov)
    if lm.text is not None:
        entry["text"] = written_text(lm.text, folder)
    return entry


def written_text(pipeline: TextPipeline, folder: Path) -> dict[str, Any]:
    """The table of text steps for a file in ``folder`` (absolute)."""
    steps = (Step(step.name, _relative(Path(step.argument), folder)) if step.needs_file else step for step in pipeline.steps)
    return {"steps": list(map(str, steps))}


def _relative(path: Path, folder: Path) -> str:
    path = path.absolute()
    written = str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
    try:
        written.encode()
    except UnicodeEncodeError:
        raise InputError("attlm.toml, which is UTF-8, cannot hold this name: give the file or its folder another", path=path) from None
    return written


def table(document: Mapping[str, Any], name: str, path: Path, title: str | None = None) -> Mapping[str, Any]:
    """The table ``name`` of a document, empty where it has none. Raises InputError where it is something else."""
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise InputError(f"`{name}` is {found!r}, expected a table [{title or name}]", path=path)
    return found


def only(entries: Mapping[str, Any], known: set[str], what: str, path: Path) -> None:
    """Raises InputError for an entry that is not known."""
    for name in entries:
        if name not in known:
            raise InputError(f"{name!r} is no {what}; known are {', '.join(sorted(known))}", path=path)
