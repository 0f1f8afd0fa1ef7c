"""Read and write ``attlm.toml``: the LMs of a rescoring run, the text steps before them and the weights (docs/formats.md)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.writing import is_stream, whole_file
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_entries import Place, as_table, checked, is_text, only, read_table, written_table
from attlm_fairseq.nbest.run.config_tables import TABLES
from attlm_fairseq.nbest.run.toml_files import in_utf8, parse_toml, set_entry
from attlm_fairseq.scoring.context.conversations import ContextSpec

DEFAULT_CONFIG = Path("attlm.toml")
TUNED_ON = "reference_sketch"  # the entry of [tuning] with the fingerprint of the references
RECORDS = ("tuning", "mixing", "fitting")


def read_config(path: Path) -> RunConfig:
    """Read an ``attlm.toml``.

    Raises:
        InputError: the file cannot be read, is not UTF-8 or is not TOML, or an entry is unknown, wrong or does not go
            with another one. The message names the entry.
    """
    document = parse_toml(path).unwrap()
    only(document, {*TABLES, *RECORDS}, "a table", path)
    found = read_table({name: table for name, table in document.items() if name in TABLES}, TABLES, Place(path))
    tuning = as_table(document.get("tuning", {}), Place(path, "tuning"))
    tuned_on = checked(is_text, "a text, as `attlm tune` writes it")(tuning.get(TUNED_ON, ""), Place(path, "tuning", TUNED_ON))
    tuned_with = as_table(tuning.get("lm", {}), Place(path, "tuning.lm"))
    candidates_with = as_table(tuning.get("candidates", {}), Place(path, "tuning.candidates"))
    try:
        return RunConfig(
            **found,
            path=path,
            tuned_on=tuned_on,
            tuned_with=tuned_with,
            candidates_tuned_with=candidates_with,
            context_of_file=found.get("context"),
        )
    except InputError as error:
        raise InputError(str(error), path=path) from None


def write_config(path: Path, config: RunConfig, record: Mapping[str, Any], record_name: str = "tuning", command: str | None = None) -> None:
    """Write an ``attlm.toml``. The file changes at once or not at all.

    Entries of an existing file that stay the same keep their form and comments; those that ``config`` lacks go (see
    ``unused``). The records of other commands stay if what they tell of does: for ``[tuning]`` the weights, for the others
    the LMs. Weights that come from another file bring its ``[tuning]``, by which ``eval`` knows the lists that they have seen.

    Args:
        path: the file; ``-``, a device or a pipe is only written.
        config: LMs, text steps, weights, decision and so on.
        record: how they were found.
        record_name: the table of the record.
        command: the command line, which opens the record.

    Raises:
        InputError: the existing file is not an ``attlm.toml``, or a weight or file name cannot be written.
    """
    import tomlkit

    if not all(map(math.isfinite, config.weights.values())):
        raise InputError(f"weights that are not finite are not written: {config.weights}", path=path)
    held = _held(path)
    document = tomlkit.document() if held is None else parse_toml(path)
    folder = path.absolute().parent
    old, new = written_table(held or RunConfig(), TABLES, folder), written_table(config, TABLES, folder)
    for name in TABLES:
        if name not in new:
            document.pop(name, None)
        elif name == "lm":
            set_entry(document, name, {lm: document[name][lm] if old[name].get(lm) == entry else entry for lm, entry in new[name].items()})
        elif held is None or old.get(name) != new[name]:
            set_entry(document, name, new[name])
    if held is not None and held.weights != config.weights:
        document.pop("tuning", None)
    if held is not None and not all(lm in config.lms for lm in held.lms):
        document.pop("mixing", None)
        document.pop("fitting", None)
    if "tuning" not in document and (tuning := _tuning_of(config)):
        document["tuning"] = tuning
    document[record_name] = in_utf8(({"command": command} if command else {}) | dict(record))
    with whole_file(str(path)) as out:
        out.write(tomlkit.dumps(document))


def context_to_write(config: RunConfig) -> ContextSpec | None:
    """Return the context to write after a run on a text: that of the text, unless ``config`` was read from a file that tells the
    conversations of lists by their ids, which lines of text do not have."""
    held = config.context_of_file
    return config.context if held is None or held.kind not in ("id", "file") else held


def note_kept_context(config: RunConfig) -> None:
    """Log if the context to write is not that of the text."""
    if (kept := context_to_write(config)) != config.context:
        note(f"note: [context] in {config.path} stays {kept}, which is for lists")


def unused(path: Path, config: RunConfig, found: Collection[str] = ()) -> list[str]:
    """Return the tables that ``write_config`` would drop or replace, because ``config`` was read from elsewhere.

    LMs may differ in the settings ``found``, which the run finds. There are no such tables if ``config`` was read from this
    file. Raises InputError if the file is not an ``attlm.toml``, or if a file of ``config`` has a name that cannot be
    written.
    """
    folder = path.absolute().parent
    new = written_table(config, TABLES, folder)
    held = _held(path)
    if held is None or (config.path is not None and path.samefile(config.path)):
        return []
    old = written_table(held, TABLES, folder)

    def kept(entry: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return None if entry is None else {name: value for name, value in entry.items() if name not in found}

    lms = [f"[lm.{name}]" for name, entry in old["lm"].items() if kept(new["lm"].get(name)) != kept(entry)]
    return lms + [f"[{name}]" for name, table in old.items() if name != "lm" and table and new.get(name) != table]


def _tuning_of(config: RunConfig) -> Mapping[str, Any] | None:
    """Return the ``[tuning]`` of the file that ``config`` was read from, if the weights of ``config`` are from it."""
    if config.path is None or not config.weights or (held := _held(config.path)) is None:
        return None
    return parse_toml(config.path).unwrap().get("tuning") if config.weights.items() <= held.weights.items() else None


def _held(path: Path) -> RunConfig | None:
    """Return the configuration in a file that is to be written; None if there is none to read."""
    return read_config(path) if path.is_file() and not is_stream(str(path)) else None
