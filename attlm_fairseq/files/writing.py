"""Write text files that appear whole or not at all: plain, gzip, or standard output."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import io
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from attlm_fairseq.errors import InputError, InUseError

if TYPE_CHECKING:
    from typing_extensions import Buffer  # of collections.abc from Python 3.12 on

NOT_WRITTEN = (".bz2", ".xz", ".zst", ".zip")
# /dev/stdout counts, too: opened by name, it would truncate the FILE of `>> FILE`
STANDARD_OUTPUT = ("-", "/dev/stdout")


class _Out(io.FileIO):
    """A file whose write errors (such as a full disk) become InputErrors, which name the output that the user gave."""

    def __init__(self, place: Path, output: str, opener: Callable[[str, int], int] | None) -> None:
        super().__init__(place, "wb", opener=opener)
        self._output = output

    def write(self, data: Buffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path=self._output) from None


def shown_output(path: str | os.PathLike[str]) -> str:
    """Return how messages call an output."""
    return "standard output" if str(path) == "-" else str(path)


def is_stream(path: str) -> bool:
    """Return whether an output is standard output, a device or a pipe, which is written directly and has nothing to replace."""
    # not Path, which raises for a name that no file can have
    return path in STANDARD_OUTPUT or (os.path.exists(path) and not os.path.isfile(path))  # noqa: PTH110, PTH113


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[TextIO]:
    """Open a UTF-8 text file that appears under its name only if the block ends without an error; ``-`` is standard output.

    A name ending in .gz is compressed, without a time stamp. If the path is a link, its target is written and the link
    stays. A file that is replaced keeps its mode. Devices and pipes are written directly. Raises InputError if the file
    cannot be written, a file of this name is write-protected, or the name ends like that of another kind of compressed file.
    """
    if path.endswith(NOT_WRITTEN):
        raise InputError(f"files are written as text or .gz: name it without {Path(path).suffix}", path=path)
    if path in STANDARD_OUTPUT:
        with tempfile.TemporaryFile() as spool, as_text(spool) as text:
            try:
                yield text
                text.flush()
            except OSError as error:
                if error.errno != errno.ENOSPC or error.filename is not None:
                    raise
                held = f"{error.strerror}, where standard output waits until it is whole: name a file, or another folder in TMPDIR"
                raise InputError(held, path=tempfile.gettempdir()) from None
            spool.seek(0)
            sys.stdout.flush()
            if hasattr(sys.stdout, "buffer"):
                shutil.copyfileobj(spool, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            else:  # of a notebook, or an io.StringIO
                with io.TextIOWrapper(spool, encoding="utf-8", errors="surrogateescape", newline="") as whole:
                    shutil.copyfileobj(whole, sys.stdout)
        return
    if is_stream(path):  # check the path as given: /dev/fd/63 of a shell's <(..) does not resolve to a file
        with _opened(Path(path), path) as file, as_text(packed(file) if path.endswith(".gz") else file) as text:
            yield text
        return
    target = led_to(path)
    if target.exists() and not os.access(target, os.W_OK):
        raise InputError("is write-protected: name another file, or allow writing with chmod u+w", path=path)
    place = target.with_name(f".{target.name}.part")
    with _locked(place, path):
        try:
            with (
                _opened(place, path, without_following_links) as file,
                packed(file) if path.endswith(".gz") else file as binary,
                as_text(binary) as text,
            ):
                if target.exists():  # now, so that nobody else can read a private file while it is written
                    with contextlib.suppress(OSError):  # a file system without modes
                        shutil.copymode(target, place)
                yield text
            place.replace(target)
        except BaseException:
            place.unlink(missing_ok=True)
            raise


def _opened(place: Path, path: str, opener: Callable[[str, int], int] | None = None) -> BinaryIO:
    try:
        return io.BufferedWriter(_Out(place, path, opener))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path) from None


def without_following_links(path: str, flags: int) -> int:
    """Open a file without following links. In a shared folder, a link under a predictable name could lead to any file of the user."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


@contextlib.contextmanager
def _locked(place: Path, path: str) -> Iterator[None]:
    """Create a file if needed and lock it for this process while the block runs; the system unlocks it if the process dies."""
    try:
        file = open(place, "ab", opener=without_following_links)  # noqa: SIM115 - closed below
    except OSError as error:
        why = f"{place.name} next to it is a link: remove it" if error.errno == errno.ELOOP else error.strerror
        raise InputError(f"cannot be written: {why}", path=path) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = os.path.samestat(os.fstat(file.fileno()), place.stat())  # false: another process has just renamed this file
        except (BlockingIOError, FileNotFoundError):
            taken = False
        except OSError:  # a file system without locks
            taken = True
        if not taken:
            raise InUseError("another attlm is writing this file: wait for it, or name another", path=path)
        yield


def led_to(path: str) -> Path:
    """Return the path with links resolved. Raises InputError for a link that leads to itself: writing would replace it."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise InputError("is a link that leads to itself: remove it, or name another file", path=path)
    return target


def as_text(binary: BinaryIO | gzip.GzipFile) -> TextIO:
    """Return a stream that writes UTF-8 text with ``\\n`` at line ends."""
    return io.TextIOWrapper(binary, encoding="utf-8", newline="\n")


def packed(file: BinaryIO) -> gzip.GzipFile:
    """Return a stream that compresses what is written to a file, without name and time stamp."""
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0)
