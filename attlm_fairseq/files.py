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
import shutil
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from attlm_fairseq.errors import InputError, InputWarning

if TYPE_CHECKING:
    from typing_extensions import Buffer  # of collections.abc from Python 3.12 on

HEAD = 1 << 16  # bytes by which a format is recognised
_PIECE = 1 << 16
_GZIP_MAGIC = b"\x1f\x8b"
# The second, opened by its name, would lose what `>> FILE` is to be added to.
STANDARD_OUTPUT = ("-", "/dev/stdout")
CARRIAGE_RETURNS = "found lines that end in a carriage return alone, as on old Macs: convert the file, for example with tr '\\r' '\\n'"


class TextSource:
    """The text of a file, ``-`` for standard input, gzip recognised by content; UTF-8, anything else is an InputError.

    ``name`` is the file's, for messages. ``head`` is the beginning of the text, at most 64 KiB, without a byte order mark.
    ``lines`` or ``pieces`` gives the whole of it, once. With ``text`` that is the text, and ``path`` only names it.
    """

    def __init__(self, path: str, expected: str = "an n-best list", text: str | None = None) -> None:
        self.name = "<stdin>" if path == "-" else path
        self._file: BinaryIO = _opened_source(path) if text is None else io.BytesIO(text.encode())
        self._keep_open = path == "-" and text is None
        self._line: int | None = None  # the line being read, for messages
        with self._readable():
            magic = _read_up_to(self._file, len(_GZIP_MAGIC))
            self._bytes: BinaryIO | gzip.GzipFile = _rejoin(magic, self._file)
            if magic == _GZIP_MAGIC:
                self._bytes = gzip.GzipFile(fileobj=self._bytes, mode="rb")
            head = _read_up_to(self._bytes, HEAD)
        self._bytes = _rejoin(head, self._bytes)
        self.head = self._decoded_head(head)
        if not head:
            raise InputError(f"the file is empty: expected {expected}", path=self.name)

    def lines(self, keep_mark: bool = False) -> Iterator[str]:
        """The lines with their ends, split at ``\\n`` and nowhere else.

        A byte order mark at the beginning of the file is not part of the text. ``keep_mark`` keeps it, for formats that write it back.
        Warns of a last line without its end, if there are others: the file may have been cut short inside a number or a text.
        """
        if "\n" not in self.head and "\r" in self.head.rstrip("\r"):
            raise InputError(CARRIAGE_RETURNS, path=self.name)
        self._line = 1
        text = "\n"
        with self._closing(), self._readable():
            for line in self._bytes:
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise self._not_utf8(error, self._line, error.start) from None
                yield text if keep_mark or self._line > 1 else text.removeprefix("\ufeff")
                self._line += 1
        if not text.endswith("\n") and self._line > 2:
            warnings.warn(
                InputWarning(
                    "the last line has no line end: if the file was cut short, what it holds is not whole",
                    path=self.name,
                    line=self._line - 1,
                ),
                stacklevel=2,
            )

    def pieces(self) -> Iterator[str]:
        """The text in pieces of 64 KiB, a byte order mark at its beginning included."""
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


def _opened_source(path: str) -> BinaryIO:
    if path == "-" and sys.stdin is None:
        raise InputError("standard input is closed: name a file", path="<stdin>")
    try:
        return sys.stdin.buffer if path == "-" else Path(path).open("rb")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None


def head_of(path: Path) -> str:
    """The beginning of a text file."""
    source = TextSource(str(path))
    source.close()
    return source.head


class _Joined(io.RawIOBase):
    def __init__(self, head: bytes, rest: BinaryIO | gzip.GzipFile) -> None:
        super().__init__()
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        found = self._head[: len(view)] or self._rest.read(len(view))
        self._head = self._head[len(found) :]
        view[: len(found)] = found
        return len(found)


def _rejoin(head: bytes, rest: BinaryIO | gzip.GzipFile) -> BinaryIO:
    """The stream with what was read ahead put back; a pipe cannot be rewound."""
    return io.BufferedReader(_Joined(head, rest), _PIECE)


def _read_up_to(stream: BinaryIO | gzip.GzipFile, count: int) -> bytes:
    found = b""
    while len(found) < count and (more := stream.read(count - len(found))):
        found += more
    return found


class _Out(io.FileIO):
    """A file whose write errors (a full disk) are the user's to know, not a traceback."""

    def write(self, data: Buffer) -> int:
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
    target = _led_to(path)
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
        why = f"{place.name} next to it is a link: remove it" if error.errno == errno.ELOOP else error.strerror
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
    target = _led_to(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError("there already: this format is written as a folder, give the name of a new one", path=path)
    try:
        with own_folder(target.with_name(f".{target.name}.part"), path) as place:
            yield place
            place.replace(target)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=path) from None


@contextlib.contextmanager
def own_folder(place: Path, path: str) -> Iterator[Path]:
    """An empty folder that no other process has, removed at the end; what a killed process left in it is removed before.

    ``path`` is what is written there, for the message. Raises InputError if another process has it, and OSError.
    """
    while True:
        with contextlib.suppress(FileExistsError):
            place.mkdir()
        try:
            folder = _lock_folder(place, must=False)
            break
        except FileNotFoundError:  # removed between the two by its owner, or by whoever took it for left behind
            continue
        except BlockingIOError:
            raise InputError("another attlm is writing this: wait for it, or name another", path=path) from None
    try:
        for left in place.iterdir():
            remove(left)
        yield place
    finally:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(folder), place.stat()):  # rather than one that another process made after this was moved
                shutil.rmtree(place, ignore_errors=True)
        os.close(folder)


def remove_left_behind(folder: Path, pattern: str) -> None:
    """Remove the folders of these names that ``own_folder`` made for processes that were killed."""
    for place in folder.glob(pattern):
        with contextlib.suppress(OSError):  # it has an owner, or is not ours to remove
            left = _lock_folder(place, must=True)
            shutil.rmtree(place, ignore_errors=True)
            os.close(left)


def _lock_folder(place: Path, *, must: bool) -> int:
    """Keep a folder for this process until the descriptor returned is closed, as the system does however the process ends.

    Raises BlockingIOError if another process has it, FileNotFoundError if it has just gone, and if it ``must`` be locked OSError on a
    file system without locks.
    """
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if must or isinstance(error, BlockingIOError):
                raise
        if not os.path.samestat(os.fstat(folder), place.stat()):  # its owner has just moved or removed it
            raise FileNotFoundError(place)
    except BaseException:
        os.close(folder)
        raise
    return folder


def remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _led_to(path: str) -> Path:
    """What a name leads to. Raises InputError for a link that leads to itself, which writing would replace."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise InputError("is a link that leads to itself: remove it, or name another file", path=path)
    return target


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


def _text(binary: BinaryIO | gzip.GzipFile) -> TextIO:
    return io.TextIOWrapper(binary, encoding="utf-8", newline="\n")


def _packed(file: BinaryIO) -> gzip.GzipFile:
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0)
