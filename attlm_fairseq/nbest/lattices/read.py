"""Read the lattices of files and folders. The format is recognised by content."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import ByteSource, TextSource
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.lattices import kaldi, slf
from attlm_fairseq.nbest.lattices.lattice import Lattice

EXPECTED = "lattices of Kaldi (binary or text archives, such as lat.1.gz) or in HTK's format (SLF)"
_NAME = re.compile(r"lat\.\d+(?:\.gz)?|.+\.(?:lat|slf|htk)(?:\.gz)?")


def read_lattices(
    paths: Iterable[str | os.PathLike[str]], symbols: Mapping[int, str] | None = None, frame_shift: float | None = None
) -> Iterator[Lattice]:
    """Yield the lattices of files, in their order, and of folders: their files ``lat.1.gz``, ``NAME.lat``, ``NAME.slf`` and so on.

    Args:
        paths: files and folders.
        symbols: the words by their numbers, if the lattices have numbers.
        frame_shift: seconds of a frame of Kaldi's alignments; None: words get no times.

    Raises:
        InputError: a file cannot be read or is none of these, or as in ``kaldi`` and ``slf``.
    """
    for path in paths:
        for file in _files(os.fspath(path)):
            yield from _of_file(file, symbols, frame_shift)


def _files(path: str) -> list[str]:
    if not Path(path).is_dir():
        return [path]
    files = sorted(file.name for file in Path(path).iterdir() if file.is_file())
    found = list(filter(_NAME.fullmatch, files))
    if not found:
        raise InputError("no lattices in this folder: expected files called lat.1.gz, NAME.lat, NAME.slf or NAME.htk.gz", path=path)
    if others := [name for name in files if name not in found]:
        note(f"note: {path}: {len(others)} files with other names than lat.1.gz or NAME.lat are not read, such as {others[0]}")
    in_order = sorted(found, key=lambda name: [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)])
    return [str(Path(path, name)) for name in in_order]


def _of_file(path: str, symbols: Mapping[int, str] | None, frame_shift: float | None) -> Iterator[Lattice]:
    source = ByteSource(path, EXPECTED)
    try:
        if kaldi.is_binary(source.beginning):
            yield from kaldi.read_binary(source, symbols, frame_shift)
            return
        reads_slf = slf.is_slf(source.beginning)
        if not reads_slf and not kaldi.is_text(source.beginning):
            raise InputError(f"holds no lattices: expected {EXPECTED}", path=source.name)
        if reads_slf and frame_shift is not None:
            raise InputError("SLF has its own times: leave --frame-shift out, which is for lattices of Kaldi", path=source.name)
        text = TextSource(source)
        yield from slf.read_slf(text, symbols) if reads_slf else kaldi.read_text(text, symbols, frame_shift)
    finally:
        source.close()
