"""Finding the dictionary of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attlm_fairseq.errors import NoDictionaryError


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
