"""Where the text comes from and goes to: standard input and output, plain and gzip files; nothing half-written stays behind."""

from __future__ import annotations

import codecs
import contextlib
import errno
import fcntl
import gzip
import hashlib
import io
import os
import secrets
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from attlm_fairseq.errors import InputError

HEAD = 1 << 16  # bytes by which a format is recognised
_PIECE = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"
# The second, opened by its name, would lose what `>> FILE` is to be added to.
STANDARD_OUTPUT = ("-", "/dev/stdout")


class TextSource:
    """The text of a file, ``-`` for standard input, gzip recognised by content; UTF-8, anything else is an InputError.

    ``head`` is the beginning of the text, at most 64 KiB, without a byte order mark. :meth:`lines` or :meth:`pieces` gives
    the whole of it, once.
    """

    def __init__(self, path: str, expected: str = "an n-best list") -> None:
        self.name = "<stdin>" if path == "-" else path
        if path == "-" and sys.stdin is None:
            raise InputError("standard input is closed: name a file", path=self.name)
        try:
            self._file: BinaryIO = sys.stdin.buffer if path == "-" else Path(path).open("rb")  # noqa: SIM115 - closed when the text has been read
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=path) from None
        self._keep_open = path == "-"
        self._line: int | None = None  # the line being read, for messages
        with self._readable():
            magic = _read_up_to(self._file, len(_GZIP_MAGIC))
            self._bytes: BinaryIO = _rejoin(magic, self._file)
            if magic == _GZIP_MAGIC:
                self._bytes = gzip.GzipFile(fileobj=self._bytes, mode="rb")
            head = _read_up_to(self._bytes, HEAD)
        self._bytes = _rejoin(head, self._bytes)
        self.head = self._decoded_head(head)
        if not head:
            raise InputError(f"the file is empty: expected {expected}", path=self.name)

    def lines(self) -> Iterator[str]:
        """The lines with their ends, split at ``\\n`` and nowhere else."""
        self._line = 1
        with self._closing(), self._readable():
            for line in self._bytes:
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise self._not_utf8(error, self._line, error.start) from None
                yield text
                self._line += 1

    def pieces(self) -> Iterator[str]:
        """The text in pieces of 64 KiB."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        self._line = 1
        with self._closing(), self._readable():
            while True:
                piece = self._bytes.read(_PIECE)
                try:
                    text = decoder.decode(piece, final=not piece)
                except UnicodeDecodeError as error:
                    raise self._not_utf8(error, self._line + error.object.count(b"\n", 0, error.start)) from None
                self._line += text.count("\n")
                if text:
                    yield text
                if not piece:
                    return

    def close(self) -> None:
        """Stop reading."""
        if not self._keep_open:
            self._file.close()

    def _decoded_head(self, head: bytes) -> str:
        try:
            return codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD).removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            before = head[: error.start]
            raise self._not_utf8(error, before.count(b"\n") + 1, len(before) - before.rfind(b"\n") - 1) from None

    def _not_utf8(self, error: UnicodeDecodeError, line: int, column: int | None = None) -> InputError:
        where = "" if column is None else f" at byte {column + 1} of the line"
        found = f"0x{error.object[error.start]:02x}"
        return InputError(f"not UTF-8: found {found}{where}; convert the file, for example with iconv", path=self.name, line=line)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"the gzip data is damaged or cut short: {error}", path=self.name, line=self._line) from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=self.name, line=self._line) from None

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.close()


def head_of(path: Path) -> str:
    """The beginning of a text file."""
    source = TextSource(str(path))
    source.close()
    return source.head


class _Joined(io.RawIOBase):
    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        super().__init__()
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        found = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(found) :]
        buffer[: len(found)] = found
        return len(found)


def _rejoin(head: bytes, rest: BinaryIO) -> BinaryIO:
    """The stream with what was read ahead put back; a pipe cannot be rewound."""
    return io.BufferedReader(_Joined(head, rest), _PIECE)


def _read_up_to(stream: BinaryIO, count: int) -> bytes:
    found = b""
    while len(found) < count and (more := stream.read(count - len(found))):
        found += more
    return found


class _Out(io.FileIO):
    """A file whose write errors (a full disk) are the user's to know, not a traceback."""

    def write(self, data: bytes) -> int | None:
        try:
            return super().write(data)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path=self.name) from None


def is_stream(path: str) -> bool:
    """Whether an output is standard output, a device or a pipe: written to directly, with nothing to read first and nothing to replace."""
    return path in STANDARD_OUTPUT or (Path(path).exists() and not Path(path).is_file())


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[TextIO]:
    """A UTF-8 text file that appears under its name only when the block ends without an error; ``-`` is standard output.

    A name in .gz is compressed, without a time stamp. A link stays, and what it leads to is written. What is not a regular file (a
    device, a pipe) is written to directly. Raises InputError if it cannot be written.
    """
    if path in STANDARD_OUTPUT:
        with tempfile.TemporaryFile() as spool, _text(spool) as text:
            try:
                yield text
                text.flush()
            except OSError as error:
                if error.errno != errno.ENOSPC or error.filename is not None:
                    raise
                held = f"{error.strerror}, where standard output waits until it is whole: name a file with -o, or a folder in TMPDIR"
                raise InputError(held, path=tempfile.gettempdir()) from None
            spool.seek(0)
            sys.stdout.flush()
            shutil.copyfileobj(spool, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        return
    if is_stream(path):  # asked of the name as given: what the shell calls /dev/fd/63 has no other
        with _opened(Path(path), path) as file, _text(_packed(file) if path.endswith(".gz") else file) as text:
            yield text
        return
    target = Path(os.path.realpath(path))
    place = target.with_name(f".{target.name}.part")
    with _locked(place, path):
        try:
            with (
                _opened(place, path, without_following_links) as file,
                _packed(file) if path.endswith(".gz") else file as binary,
                _text(binary) as text,
            ):
                yield text
            place.replace(target)
        except BaseException:
            place.unlink(missing_ok=True)
            raise


def _opened(place: Path, path: str, opener: Callable[[str, int], int] | None = None) -> BinaryIO:
    try:
        return io.BufferedWriter(_Out(place, "wb", opener=opener))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path) from None


def without_following_links(path: str, flags: int) -> int:
    """An opener for files with names that can be guessed: whoever may write to their folder could lead them to any file of the user's."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


@contextlib.contextmanager
def _locked(place: Path, path: str) -> Iterator[None]:
    """Keep a file for this process, and make it where there is none; the system lets go of it however the process ends."""
    try:
        file = open(place, "ab", opener=without_following_links)  # noqa: SIM115 - closed below
    except OSError as error:
        why = f"{place.name} beside it is a link: remove it" if error.errno == errno.ELOOP else error.strerror
        raise InputError(f"cannot be written: {why}", path=path) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = os.path.samestat(os.fstat(file.fileno()), place.stat())  # not what another process has just finished and renamed
        except (BlockingIOError, FileNotFoundError):
            taken = False
        except OSError:  # a file system without locks
            taken = True
        if not taken:
            raise InputError("another attlm is writing this file: wait for it, or name another", path=path)
        yield


@contextlib.contextmanager
def whole_folder(path: str) -> Iterator[Path]:
    """A folder that appears under its name only when the block ends without an error. Raises InputError if there is one already."""
    target = Path(os.path.realpath(path))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError("there already: this format is written as a folder, give the name of a new one", path=path)
    place = _beside(target)
    try:
        place.mkdir()
        yield place
        place.replace(target)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path) from None
    finally:
        shutil.rmtree(place, ignore_errors=True)


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal; the file may be larger than the memory. Raises InputError where it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    return digest.hexdigest()


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")


def _text(binary: BinaryIO) -> TextIO:
    return io.TextIOWrapper(binary, encoding="utf-8", newline="\n")


def _packed(file: BinaryIO) -> BinaryIO:
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0)
