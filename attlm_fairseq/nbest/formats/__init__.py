"""The n-best formats, one per module, and the functions that find, read and write them.

A format reads and writes one list at a time, so a file may be larger than memory. It keeps verbatim what it does not
understand. Formats convert scores when they read and write: inside the program, scores are natural logs and sums.
``docs/formats.md`` says what each of them reads and writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from attlm_fairseq import extensions
from attlm_fairseq.errors import InputError, UnknownFormatError, shown
from attlm_fairseq.files.folders import whole_folder
from attlm_fairseq.files.reading import ByteSource, TextSource
from attlm_fairseq.files.writing import is_stream, whole_file
from attlm_fairseq.nbest.formats.as_read import all_current, has_changed
from attlm_fairseq.nbest.formats.ctm import CtmFormat
from attlm_fairseq.nbest.formats.espnet import EspnetFolder
from attlm_fairseq.nbest.formats.fairseq import FairseqFormat
from attlm_fairseq.nbest.formats.hyporadise import HyporadiseFormat
from attlm_fairseq.nbest.formats.icefall import IcefallFormat
from attlm_fairseq.nbest.formats.json_lists import JsonFormat
from attlm_fairseq.nbest.formats.jsonl import JsonlFormat
from attlm_fairseq.nbest.formats.kaldi import KaldiFolder, KaldiFormat
from attlm_fairseq.nbest.formats.lines import whole_lines
from attlm_fairseq.nbest.formats.mlm import MlmFormat
from attlm_fairseq.nbest.formats.moses import MosesFormat
from attlm_fairseq.nbest.formats.nemo import NemoFormat
from attlm_fairseq.nbest.formats.not_lists import advice_on, advice_on_bytes
from attlm_fairseq.nbest.formats.one_best import ONE_BEST, ONE_BEST_STYLES, write_one_best
from attlm_fairseq.nbest.formats.plain import PlainFormat
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFolderFormat, NbestFormat
from attlm_fairseq.nbest.formats.srilm import SrilmFolder, SrilmFormat
from attlm_fairseq.nbest.formats.table import CsvFormat, TsvFormat
from attlm_fairseq.nbest.formats.text import TextFormat
from attlm_fairseq.nbest.nbest_list import NbestList

__all__ = [
    "CONVERTIBLE",
    "CONVERTIBLE_FOLDERS",
    "FOLDER_FORMATS",
    "FORMATS",
    "ONE_BEST",
    "ONE_BEST_STYLES",
    "OTHER_OUTPUTS",
    "OWN_NAMES",
    "Holds",
    "NbestFolderFormat",
    "NbestFormat",
    "find_format",
    "find_target",
    "format_of",
    "holding_new",
    "open_nbest",
    "source_of",
    "write_nbest",
    "write_one_best",
]

_OWN_FORMATS = (  # in the order in which they are tried: plain takes almost anything
    MosesFormat(),
    FairseqFormat(),
    HyporadiseFormat(),
    MlmFormat(),
    JsonlFormat(),
    JsonFormat(),
    CsvFormat(),
    IcefallFormat(),
    SrilmFormat(),
    NemoFormat(),
    TsvFormat(),
    CtmFormat(),
    KaldiFormat(),
    PlainFormat(),
    TextFormat(),
)
_OWN_FOLDERS = (EspnetFolder(), KaldiFolder(), SrilmFolder())
OTHER_OUTPUTS = ("same", *ONE_BEST, "sausage")  # what --to means besides formats
OWN_NAMES = tuple(sorted({form.name for form in (*_OWN_FORMATS, *_OWN_FOLDERS)}))

if TYPE_CHECKING:  # at run time by __getattr__
    FOLDER_FORMATS: dict[str, NbestFolderFormat]
    """The formats of folders by name."""
    FORMATS: dict[str, NbestFormat | NbestFolderFormat]
    """Every format by its name; kaldi and srilm are the single file, their folders are in ``FOLDER_FORMATS``."""
    CONVERTIBLE: tuple[str, ...]
    CONVERTIBLE_FOLDERS: tuple[str, ...]
    """The names of formats that can hold lists read from another one."""


class _Registered(NamedTuple):
    """The formats of this package and of others, in the order in which they are tried."""

    added: tuple[NbestFormat | NbestFolderFormat, ...]
    folders: dict[str, NbestFolderFormat]
    files: dict[str, NbestFormat]
    all: dict[str, NbestFormat | NbestFolderFormat]


@cache
def _registered() -> _Registered:
    """Return all formats. Those of other packages are imported at the first use, as they import modules of this package.

    Raises:
        InputError: one cannot be loaded, is no format, or has no name that a format can have.
    """
    added = extensions.load(extensions.FORMATS)
    names = {*OWN_NAMES, *OTHER_OUTPUTS}
    for form in added:
        if not isinstance(form, NbestFormat | NbestFolderFormat):
            expected = "a subclass of NbestFormat or NbestFolderFormat"
            raise InputError(f"an entry point of {extensions.FORMATS} names {shown(form)}: expected {expected}")
        name, module = getattr(form, "name", None), type(form).__module__
        if not isinstance(name, str) or re.fullmatch(r"[a-z0-9]+([_-][a-z0-9]+)*", name) is None:
            expected = "a name of small letters and digits, perhaps with - and _ between them"
            raise InputError(f"the n-best format {type(form).__name__} of {module} has the name {name!r}: expected {expected}")
        if name in names:
            raise InputError(f"two n-best formats or outputs are called {name}: rename that of {module}")
        names.add(name)
    folders = {form.name: form for form in (*added, *_OWN_FOLDERS) if isinstance(form, NbestFolderFormat)}
    files = {form.name: form for form in (*added, *_OWN_FORMATS) if isinstance(form, NbestFormat)}
    return _Registered(added, folders, files, folders | files)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        match name:
            case "FOLDER_FORMATS":
                return _registered().folders
            case "FORMATS":
                return _registered().all
            case "CONVERTIBLE":
                return tuple(form.name for form in _registered().files.values() if form.holds)
            case "CONVERTIBLE_FOLDERS":
                return tuple(form.name for form in _registered().folders.values() if form.holds)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# where decoders that run in parallel put their folders: ESPnet's logdir, Kaldi's rescoring
_PARTS = ("output.*", "logdir/output.*", "archives.*")


def find_format(name: str) -> NbestFormat | NbestFolderFormat:
    """Return the format of a name in ``FORMATS``; ``nemo:8`` is NeMo's with beam size 8, ``plain:5`` has 5 lines for each list.

    Raises:
        InputError: there is no format of this name, or it does not take this argument.
    """
    base, colon, argument = name.partition(":")
    if colon and base in _registered().files:
        return _registered().files[base].with_argument(argument)
    if name not in _registered().all:
        names = ", ".join(sorted(_registered().all))
        raise InputError(f"unknown n-best format {name!r}: expected one of {names} (nemo:K and plain:K with the number of hypotheses)")
    return _registered().all[name]


def find_target(name: str, path: str, source: NbestFormat | NbestFolderFormat | None = None) -> NbestFormat | NbestFolderFormat:
    """Return the format of a name, to write lists read from the format ``source`` to a path.

    A format that exists both as file and as folder is the folder if the path ends in ``/``, if the lists come from such a
    folder (except to a stream, such as standard output), or if the file cannot hold them.

    Raises:
        InputError: there is no format of this name, or the path ends in ``/`` and the format is a file.
    """
    form, folder = find_format(name), _registered().folders.get(name)
    comes_from_folder = source is folder and (Path(path).is_dir() or not is_stream(path))
    if folder is not None and (path.endswith("/") or comes_from_folder or (form.holds is None and form is not source)):
        return folder
    if path.endswith("/") and not isinstance(form, NbestFolderFormat):
        raise InputError(f"a folder, but {name} is a file: name one", path=path)
    return form


def format_in_name(path: str) -> str | None:
    """Return the name of the format that a path ends in, as in ``lists.csv`` or ``lists.moses.gz``; None if it ends in none."""
    ending = Path(path.removesuffix("/").removesuffix(".gz")).suffix[1:].lower()
    return ending if ending in ONE_BEST or ending in _registered().all else None


def holding_new(form: NbestFormat | NbestFolderFormat | None, path: str) -> NbestFormat | NbestFolderFormat:
    """Return the format for lists of ``form`` after new hypotheses have joined them: ``form`` if it can hold them, else jsonl.

    A folder's format is only for a ``path`` that ends in ``/``.
    """
    if form is None or form.holds is None or (isinstance(form, NbestFolderFormat) and not path.endswith("/")):
        return find_format("jsonl")
    return form if isinstance(form, NbestFolderFormat) else find_format(form.name)  # without K, which is that of the lists as read


def source_of(nbest: NbestList) -> NbestFormat | NbestFolderFormat | None:
    """Return the format that a list was read from; None if it is of no file, or has changed since."""
    if nbest.verbatim is None or has_changed(nbest):
        return None
    return (_registered().folders if nbest.verbatim.file_name else _registered().all).get(nbest.verbatim.file.format)


def open_nbest(path: str | Sequence[str], format: str | None = None) -> tuple[NbestFormat | NbestFolderFormat, Iterator[NbestList]]:
    """Return the format of a file or folder, and an iterator that reads its lists on demand.

    Args:
        path: a UTF-8 file, plain or gzip, ``-`` for standard input, a folder (ESPnet, Kaldi with costs, SRILM) or
            several SRILM files.
        format: name of the format; None recognises it by content. ``nemo:K`` and ``plain:K`` cannot be recognised.

    Raises:
        InputError: at once for errors in the first 64 KiB, later from the iterator.
    """
    form = find_format(format) if format is not None else None
    if not isinstance(path, str):
        if form is not None and form.name != "srilm":
            raise InputError(f"several files: only srilm has one file for each list, {form.name} has not")
        return _registered().folders["srilm"], SrilmFolder().read_files([Path(one) for one in path])
    if path != "-" and os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        return _open_folder(Path(path), form)
    if isinstance(form, NbestFolderFormat):
        raise InputError(f"a file: expected a folder, as {form.name} has it", path=path)
    read = ByteSource(path, "an n-best list")
    if (advice := advice_on_bytes(read.beginning)) is not None:
        raise InputError(f"is {advice}", path=path)
    source = TextSource(read)
    found = form or _recognise(source)
    return found, found.read(source)


def write_nbest(lists: Iterable[NbestList], fmt: NbestFormat | NbestFolderFormat, path: str) -> None:
    """Write the lists in a format. ``path`` is ``-`` for standard output, a file (compressed if its name ends in .gz) or a new folder.

    It appears under its name, or a file replaces another, only when it is whole; whether a file may be replaced is for
    the caller to ask. If the lists are a sequence, and one has changed since it was read, all are written as new lists.
    Raises InputError if there are no lists, or the format or UTF-8 cannot hold one, or for what the file system refuses.
    """
    if isinstance(lists, Sequence):
        lists = all_current(lists, fmt.keeps)
    if isinstance(fmt, NbestFolderFormat):
        if path == "-":
            raise InputError(f"{fmt.name} is written as a folder, not to standard output: give a name for the folder")
        with whole_folder(path) as folder:
            fmt.write_folder(lists, folder)
        return
    with whole_file(path) as out:
        fmt.write(lists, out)


def _open_folder(folder: Path, form: NbestFormat | NbestFolderFormat | None) -> tuple[NbestFolderFormat, Iterator[NbestList]]:
    if form is not None and form.name not in _registered().folders:
        raise InputError(f"a folder: expected a file, as {form.name} has it", path=folder)
    candidates = _registered().folders.values() if form is None else [_registered().folders[form.name]]
    for candidate in candidates:
        if form is not None or _matches(candidate, folder):
            return candidate, candidate.read_folder(folder)
    for parts in _PARTS:
        found = [path for path in sorted(folder.glob(parts)) if path.is_dir() and any(_matches(form, path) for form in candidates)]
        if found:
            advice = f"join them: attlm convert {folder}/{parts} -o lists.jsonl"
            folders = f"{len(found)} folder{'s' if len(found) > 1 else ''}"
            raise InputError(f"holds n-best lists in {folders}, such as {found[0].name}; {advice}", path=folder)
    tried = ", ".join(_registered().folders)
    raise InputError(f"not recognised as a folder of n-best lists (tried {tried}): name its format with --format", path=folder)


def _matches(form: NbestFormat | NbestFolderFormat, what: Any) -> bool:
    """Return whether a format matches the beginning of a file, or a folder.

    Raises:
        InputError: the format is of another package, and fails. It must not keep files of other formats from being read.
    """
    matches = form.matches if isinstance(form, NbestFormat) else form.matches_folder
    with extensions.failures_named(form, "recognise lists", "name the format of the lists with --format, and mend or uninstall it"):
        return matches(what)


def format_of(head: str, own: bool = False) -> NbestFormat | None:
    """Return the format of a file that begins with ``head`` (``TextSource.head``); None if no format fits.

    ``own``: of this package's formats alone, where lists are not expected.
    """
    head = whole_lines(head)
    if not head.strip() or advice_on(head) is not None:
        return None
    if own:
        return next((form for form in _OWN_FORMATS if form.matches(head)), None)
    return next((form for form in _registered().files.values() if _matches(form, head)), None)


def _recognise(source: TextSource) -> NbestFormat:
    if not source.head.strip():
        raise InputError("nothing but blank lines: expected an n-best list", path=source.name)
    found = format_of(source.head)
    if found is not None:
        return found
    if (advice := advice_on(source.head)) is not None:
        raise InputError(f"is {advice}", path=source.name)
    if (ending := Path(source.name.removesuffix(".gz")).suffix[1:].lower()) in (CsvFormat.name, TsvFormat.name):
        return _registered().files[ending]  # which says what its header lacks
    tried = ", ".join(name for name in _registered().files if name != TextFormat.name)
    advice = f"name its format with --format; {TextFormat.name} is one text per line, {PlainFormat.name}:K has K lines for each list"
    raise UnknownFormatError(f"not recognised as an n-best list (tried {tried}): {advice}", path=source.name)
