"""Read folders of ``fairseq-preprocess --only-source``: their dictionary, and the lines of a split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq import utils
from fairseq.data import Dictionary, data_utils

from attlm_fairseq.errors import InputError
from attlm_fairseq.tasks._special_words import refuse_other_words


def read_dictionary(data: str | None) -> Dictionary:
    """Read ``dict.txt`` of data folders joined by ``:``. Raises InputError if it is damaged, or a later folder has another one."""
    if not data:
        raise InputError("no data folder given; name the folder written by fairseq-preprocess --only-source")
    first, *others = utils.split_paths(data)
    path = Path(first, "dict.txt")
    if not path.is_file():
        raise InputError(
            "there is no dict.txt: write this folder with fairseq-preprocess --only-source. For --lm-path, copy the LM's dict.txt here, "
            "or give --task translation_with_lm --lms, which finds it",
            path=path.parent,
        )
    try:
        dictionary = Dictionary.load(str(path))
        content = path.read_bytes()
    except Exception as error:  # fairseq raises almost anything
        raise InputError(f"is no dictionary of fairseq-preprocess: {' '.join(str(error).split())}", path=path) from None
    if len(dictionary) == dictionary.nspecial:
        raise InputError("has no words; preprocess the text again", path=path)
    for part in others:
        other = Path(part, "dict.txt")
        if not other.parent.is_dir():
            raise InputError("there is no such folder; correct the data folders, joined by ':'", path=other.parent)
        if other.is_file() and other.read_bytes() != content and Dictionary.load(str(other)).symbols != dictionary.symbols:
            raise InputError(f"is another dictionary than {path}; preprocess each part of the data with --srcdict {path}", path=other)
    return dictionary


def path_of_split(data: str, split: str, epoch: int) -> Path:
    """Return the path of a split in an epoch, without the ending: the parts of the data take turns."""
    parts: Sequence[str] = utils.split_paths(data)
    return Path(parts[(epoch - 1) % len(parts)], split)


def read_lines(path: Path, dictionary: Dictionary, implementation: str | None, combine: bool) -> Any:
    """Return the indexed lines of a split, read as ``--dataset-impl`` says. Raises InputError if there are none."""
    binary = path.with_name(f"{path.name}.bin")
    if binary.is_file() and not binary.stat().st_size:  # numpy cannot map an empty file
        raise InputError("the split is empty; preprocess a text with at least one line", path=path)
    try:
        lines = data_utils.load_indexed_dataset(str(path), dictionary, implementation, combine=combine)
    except Exception as error:  # of a file that is cut short, fairseq and numpy raise almost anything
        raise InputError(
            f"cannot be read ({' '.join(str(error).split())}): is it cut short? Preprocess the text again", path=path
        ) from None
    if lines is None:
        raise InputError(f"there is no split {path.name!r}; preprocess it, or name another with the subset options", path=path.parent)
    if lines.supports_prefetch:  # --dataset-impl cached: nothing can be read before
        lines.prefetch(range(len(lines)))
    refuse_other_words(lines, len(dictionary), str(path))
    return lines
