"""Rescore n-best lists in many files (shards) with Ray Data, on one machine or a cluster. Needs ``pip install '.[ray]'``.

Each Ray actor loads the LMs once and rescores one shard after the other. An output has the name of its shard and
appears complete or not at all. Existing outputs are left alone, and the scores of an interrupted one are kept next to
it. So the same command continues an interrupted run, and a dead worker is replaced without loss. The folder of the
outputs has a hidden file with the settings they were made with, so that no run goes on with others. All machines need
the same paths.
"""

from __future__ import annotations

import glob
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from attlm_fairseq.errors import InputError, InputWarning
from attlm_fairseq.files.folders import own_folder
from attlm_fairseq.files.hashes import sha256, sha256_of_folder
from attlm_fairseq.files.writing import whole_file
from attlm_fairseq.messages import collected, note
from attlm_fairseq.nbest.formats import open_nbest
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_entries import written_table
from attlm_fairseq.nbest.run.config_tables import LM_ENTRIES
from attlm_fairseq.nbest.run.score_cache import UNFINISHED
from attlm_fairseq.verbs.arguments import FilePath
from attlm_fairseq.verbs.configuration import run_config
from attlm_fairseq.verbs.rescore import RescoreOutput, rescore_opened
from attlm_fairseq.verbs.run import open_workers, require_context, require_weights

NAMES_OF_FILES = frozenset({"kenlm", "checkpoint", "dict", "adapt", "text", "source_text"})
RUNNING = ".attlm-running"  # a folder that a run holds while it fills the output
SETTINGS_FILE = ".attlm-settings.json"
"""In the folder of the outputs; ``find_shards`` leaves it out."""


@dataclass(frozen=True)
class Shard:
    """The result of a file of lists. ``error`` is empty if it was rescored; ``notes`` are lines for the user."""

    path: str
    output: str
    lists: int
    error: str
    notes: tuple[str, ...]


class ShardRescorer:
    """An actor: the LMs of a run, applied to one shard after the other."""

    def __init__(self, config: RunConfig, folder: str, format_name: str | None = None, resume: bool = True) -> None:
        """``folder``: what relative paths are relative to, here as in the process that started the run. ``resume``: keep the scores."""
        os.chdir(folder)
        self._config = config
        self._format_name = format_name
        self._resume = resume
        self._features = require_weights(config)
        self._loaded = open_workers(config, self._features)

    def __call__(self, row: Mapping[str, str]) -> dict[str, Any]:
        """Rescore the shard ``row["path"]`` into ``row["output"]``; an InputError ends only this shard."""
        found: dict[str, Any] = {**row, "lists": 0, "error": "", "conversations": "[]"}
        with collected() as notes, warnings.catch_warnings():
            warnings.simplefilter("always", InputWarning)
            warnings.showwarning = lambda message, *_, **__: note(f"WARNING: {message}")  # the actor's own output is seen by nobody
            try:
                form, lists = open_nbest(row["path"], self._format_name)
                output = RescoreOutput(row["output"], resume=self._resume)
                rescored = rescore_opened(form, lists, self._config, self._features, output, loaded=self._loaded)
                found |= {"lists": rescored.list_count, "conversations": json.dumps(rescored.conversations)}
            except InputError as error:
                found["error"] = str(error)
        return found | {"notes": "\n".join(notes)}


def find_shards(pattern: str, output: Path | None = None) -> list[str]:
    """Return the files of a folder, or those that match a pattern, sorted.

    Hidden files are left out, and the folder ``output`` of an earlier call, or a folder that holds it.

    Raises:
        InputError: no file matches, or the folder has none.
    """
    files = sorted(glob.glob(f"{glob.escape(pattern)}/*" if Path(pattern).is_dir() else pattern))  # noqa: PTH207 - may be absolute
    if output is not None:
        folder = Path(os.path.realpath(output))
        files = [file for file in files if not (Path(file).is_dir() and folder.is_relative_to(os.path.realpath(file)))]
    if not files:
        raise InputError("no such files: expected a pattern in quotes, or a folder with a file for each shard", path=pattern)
    return files


def rescore_shards(
    files: FilePath | Sequence[FilePath], output: FilePath, *, config: RunConfig | FilePath, format: str | None = None, resume: bool = True
) -> list[Shard]:
    """Rescore each file into the folder ``output``, under its own name and in its own format, with Ray Data.

    A Ray cluster that is running is used (``ray.init`` or RAY_ADDRESS), else one is started on this machine for the
    call. There are as many actors as ``config`` has devices, at most one for each file. With ``"cuda"`` each has its own GPU.

    Args:
        files: a folder with a file for each shard, a pattern such as ``lists/*.jsonl``, or paths. Of a folder or pattern, ``output``
            is left out.
        output: the folder, which may have outputs of an earlier call: these files are not rescored.
        config: LMs, text steps, weights, decision and devices: a RunConfig or the path of an ``attlm.toml``.
        format: the format of all files. Default: recognised by their content.
        resume: keep the scores of an interrupted file next to its output.

    Returns:
        The result of each file that was not there already.

    Raises:
        InputError: ray is missing, there are no files, two files have one name, an output is its own file, ``output`` has outputs of
            other settings or LMs, another run fills it, an LM has no weight or is an object, or the decision makes texts that are in
            no list.
    """
    run = run_config(config)
    if here := [lm.name for lm in run.lms if lm.loaded is not None]:
        raise InputError(f"{', '.join(here)}: an LM that is an object lives in this process; name its file to use it in others")
    require_weights(run)
    require_context(run)
    if isinstance(files, str | os.PathLike):
        shards_given = find_shards(os.fspath(files), Path(output))
    else:
        shards_given = [os.fspath(file) for file in files]
    if not shards_given:
        raise InputError("there are no files to rescore")
    todo = _unfinished(shards_given, Path(output), run)
    ray = _import_ray()
    Path(output).mkdir(parents=True, exist_ok=True)
    if not todo:
        _require_settings(Path(output), _settings_of(run, format))
        return []
    with own_folder(Path(output) / RUNNING, os.fspath(output)):  # a run of other settings would replace these while there is no output
        _require_settings(Path(output), _settings_of(run, format))
        todo = [shard for shard in todo if not Path(shard["output"]).exists()]
        return _rescored(ray, todo, run, format, resume) if todo else []


def _rescored(ray: ModuleType, todo: list[dict[str, str]], run: RunConfig, format_name: str | None, resume: bool) -> list[Shard]:
    """Return the result of each shard of ``todo``, see ``_unfinished``. Raises InputError for devices of two kinds."""
    folder, first = str(Path.cwd()), run.devices[0]
    on_gpu = first.device.startswith("cuda")
    if any(device.device.startswith("cuda") != on_gpu for device in run.devices):
        raise InputError("--engine ray takes devices of one kind: several of cpu, or several of cuda")
    of_actor = replace(run, devices=(replace(first, device="cuda") if on_gpu else first,))

    class Actor(ShardRescorer):  # arguments of a constructor could be lost before an actor is started again
        def __init__(self) -> None:
            super().__init__(of_actor, folder, format_name, resume)

    with _started(ray):
        shards = ray.data.from_items(todo, override_num_blocks=len(todo))
        pool = ray.data.ActorPoolStrategy(size=min(len(run.devices), len(todo)), max_tasks_in_flight_per_actor=1)
        found = shards.map(Actor, compute=pool, num_gpus=1 if on_gpu else None, num_cpus=None if on_gpu else 1).take_all()
    return [
        Shard(row["path"], row["output"], row["lists"], row["error"], (*filter(None, row["notes"].split("\n")), *split))
        for row, split in zip(found, _split_conversations(found), strict=True)
    ]


def _unfinished(files: Sequence[str], output: Path, config: RunConfig) -> list[dict[str, str]]:
    """Return the absolute paths of the files without an output, and of their outputs.

    Raises InputError if the decision makes texts that are in no list, two files have one name, or an output is its own file.
    """
    if config.decision.makes_text:
        raise InputError(
            f"{config.decision.rule} makes texts that are in no list: --engine ray writes lists; rescore one file with --to 1best"
        )
    if len({Path(file).name for file in files}) != len(files):
        raise InputError("two of the files have one name: their outputs would be one", path=output)
    outputs = [(output / Path(file).name).absolute() for file in files]
    if any(to.exists() and Path(file).exists() and to.samefile(file) for file, to in zip(files, outputs, strict=True)):
        raise InputError("is the folder of the files to rescore: name another folder for the output", path=output)
    return [{"path": str(Path(file).absolute()), "output": str(to)} for file, to in zip(files, outputs, strict=True) if not to.exists()]


def _settings_of(run: RunConfig, format_name: str | None) -> dict[str, Any]:
    """Return what decides on the outputs. Files are named by their contents, because another machine has them elsewhere."""
    decision, added, context = replace(run.decision, scales={}), run.candidates, run.context
    settings: dict[str, Any] = {
        "weights": run.weights,
        "text": run.text.signature(),
        "decision": [str(decision), decision.text.signature(), decision.keep_incomplete],
        "confidence": str(run.confidence),
        "context": context and [context.kind, _digest(Path(context.argument)) if context.kind == "file" else context.argument],
        "candidates": [added.candidates, added.digests(), *map(_digest, (added.phrases, added.corrector))],
        "corrector": [added.corrector_languages, added.corrector_prefix],
        "format": format_name,
        "precision": run.devices[0].precision,
        "normaliser": run.devices[0].normaliser,
    }
    for lm in run.lms:
        entry = written_table(lm.by_files(), LM_ENTRIES, Path.cwd())
        options = {name: value for name, value in entry.items() if name not in NAMES_OF_FILES}
        texts = [text and text.signature() for text in (lm.text, lm.source_text)]
        settings[f"LM {lm.name}"] = [options, texts, [_digest(path) for path in lm.all_files]]
    return json.loads(json.dumps(settings))


def _digest(path: Path | None) -> str | None:
    """Return the SHA-256 of a file or folder; of what is neither, such as a name in the cache of Hugging Face, the name."""
    if path is None:
        return None
    if not path.exists():
        return str(path)
    return sha256_of_folder(path) if path.is_dir() else sha256(path)


def _require_settings(output: Path, settings: Mapping[str, Any]) -> None:
    """Raise InputError if the outputs in a folder were made with other settings; write these if the folder has none."""
    path = output / SETTINGS_FILE
    if path.exists() and any(file.name[0] != "." and UNFINISHED not in file.name for file in output.iterdir()):
        try:
            held = dict(json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            raise InputError(
                "is not what an earlier run has written: delete it, or name another folder for the output", path=path
            ) from None
        if changed := sorted(name for name in {*held, *settings} if held.get(name) != settings.get(name)):
            raise InputError(
                f"has outputs of a run with other settings ({', '.join(changed)}): name another folder for the output, or delete these "
                f"outputs (or {SETTINGS_FILE}, to keep them)",
                path=output,
            )
    else:
        with whole_file(str(path)) as file:
            file.write(json.dumps(settings, indent=1) + "\n")


@contextmanager
def _started(ray: ModuleType) -> Iterator[None]:
    """Use the running Ray cluster, or start one for the block."""
    started = not ray.is_initialized()
    if started:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield
    finally:
        if started:
            ray.shutdown()


def _split_conversations(found: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return for each shard a warning about each of its conversations that an earlier shard has begun."""
    first: dict[str, str] = {}
    warnings: list[list[str]] = [[] for _ in found]
    for row, of_shard in zip(found, warnings, strict=True):
        for name in json.loads(row["conversations"]):
            if name in first:
                of_shard.append(
                    f"WARNING: conversation {name!r} is in {Path(first[name]).name} too, and each part was scored by itself: put all of "
                    "its lists into one file"
                )
            first.setdefault(name, row["path"])
    return warnings


def _import_ray() -> ModuleType:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody unless the user wants it
    try:
        import ray
        import ray.data
    except ImportError:
        raise InputError("Ray is not installed: pip install 'attlm-fairseq[ray]'") from None
    return ray
