"""Read and write files: standard streams, plain and gzip text. An interrupted run leaves no partial output."""

from __future__ import annotations

import codecs
import contextlib
import errno
import fcntl
import gzip
import hashlib
import io
import os
import re
import resource
import shutil
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from attlm_fairseq import magic
from attlm_fairseq.errors import InputError, InputWarning, InUseError

if TYPE_CHECKING:
    from typing_extensions import Buffer  # of collections.abc from Python 3.12 on

HEAD = 1 << 16  # bytes at the beginning of a file from which its format is recognised
_PIECE = 1 << 16
STDIN = "<stdin>"  # the name of standard input for messages
NOT_WRITTEN = (".bz2", ".xz", ".zst", ".zip")
_NOT_READ = {"bzip2": rb"BZh[1-9]1AY&SY", "xz": rb"\xfd7zXZ\x00", "zstd": rb"\x28\xb5\x2f\xfd", "zip": rb"PK\x03\x04"}
# /dev/stdout counts, too: opened by name, it would truncate the FILE of `>> FILE`
STANDARD_OUTPUT = ("-", "/dev/stdout")
CARRIAGE_RETURNS = "found lines that end in a carriage return alone, as on old Macs: convert the file, for example with tr '\\r' '\\n'"


class ByteSource:
    """The bytes of a file; ``-`` is standard input, gzip is recognised by content.

    Attributes:
        name: the file's name for messages.
        beginning: the first bytes, at most 64 KiB.
        bytes: a stream of all bytes. Errors that it raises become InputErrors within ``readable``.
        line: the line being read, for messages.
    """

    def __init__(self, path: str, expected: str, text: str | None = None) -> None:
        """Open a file, or take ``text``, of which ``path`` is only the name. ``expected``: what an empty file is not."""
        self.name = STDIN if path == "-" else path
        self._file: BinaryIO = _opened_source(path) if text is None else io.BytesIO(text.encode())
        self._keep_open = path == "-" and text is None
        self.line: int | None = None
        with self.readable():
            first = _read_up_to(self._file, len(magic.GZIP))
            stream: BinaryIO | gzip.GzipFile = _rejoin(first, self._file)
            if first == magic.GZIP:
                stream = gzip.GzipFile(fileobj=stream, mode="rb")
            self.beginning = _read_up_to(stream, HEAD)
        self.bytes = _rejoin(self.beginning, stream)
        if packer := next((name for name, magic in _NOT_READ.items() if re.match(magic, self.beginning)), None):
            raise InputError(f"is compressed with {packer}: expected plain text or gzip; decompress the file", path=self.name)
        if not self.beginning:
            raise InputError(f"the file is empty: expected {expected}", path=self.name)

    def close(self) -> None:
        """Stop reading and close the file, unless it is standard input."""
        if not self._keep_open:
            self._file.close()

    @contextlib.contextmanager
    def readable(self) -> Iterator[None]:
        """Raise InputError for an error in reading."""
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(f"the gzip data is damaged or cut short: {error}", path=self.name, line=self.line) from None
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=self.name, line=self.line) from None


class TextSource:
    """The text of a UTF-8 file; ``-`` is standard input, gzip is recognised by content. Other encodings raise InputError.

    ``name`` is the file's name for messages. ``head`` is the beginning of the text, at most 64 KiB, without a byte
    order mark. ``lines`` or ``pieces`` returns the whole text, once. If ``text`` is given, it is the text and ``path``
    only its name.
    """

    def __init__(self, path: str | ByteSource, expected: str = "an n-best list", text: str | None = None) -> None:
        self._source = path if isinstance(path, ByteSource) else ByteSource(path, expected, text)
        self.name = self._source.name
        self.close = self._source.close
        self.head = self._decoded_head(self._source.beginning)

    def lines(self, keep_mark: bool = False) -> Iterator[str]:
        """Yield the lines with their ends. Only ``\\n`` ends a line.

        Warns if the last of several lines has no line end: the file may have been cut short inside a number or a text.

        Args:
            keep_mark: keep a byte order mark at the beginning of the file, for formats that write it back.
        """
        if "\n" not in self.head and "\r" in self.head.removesuffix("\r"):
            raise InputError(CARRIAGE_RETURNS, path=self.name)
        source = self._source
        source.line = 1
        text = "\n"
        with contextlib.closing(source), source.readable():
            for line in source.bytes:
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise self._not_utf8(error, source.line, error.start) from None
                yield text if keep_mark or source.line > 1 else text.removeprefix("\ufeff")
                source.line += 1
        if not text.endswith("\n") and source.line > 2:
            warnings.warn(
                InputWarning(
                    "the last line has no line end: if the file was cut short, what it holds is not whole",
                    path=self.name,
                    line=source.line - 1,
                ),
                stacklevel=2,
            )

    def pieces(self) -> Iterator[str]:
        """Yield the text in pieces of 64 KiB, including a byte order mark at its beginning."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        source, line = self._source, 1
        with contextlib.closing(source), source.readable():
            while True:
                source.line = line
                piece = source.bytes.read(_PIECE)
                try:
                    text = decoder.decode(piece, final=not piece)
                except UnicodeDecodeError as error:
                    raise self._not_utf8(error, line + error.object.count(b"\n", 0, error.start)) from None
                line += text.count("\n")
                if text:
                    yield text
                if not piece:
                    return

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


def _opened_source(path: str) -> BinaryIO:
    if path == "-" and sys.stdin is None:
        raise InputError("standard input is closed: name a file", path=STDIN)
    try:
        return sys.stdin.buffer if path == "-" else Path(path).open("rb")
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise InputError(f"cannot be read: {_reason(error)}", path=path) from None


def _reason(error: OSError | ValueError) -> str:
    """Return why a file cannot be used, and what to do if the system allows no more open files."""
    reason = str(getattr(error, "strerror", error))
    if getattr(error, "errno", None) != errno.EMFILE:
        return reason
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{reason}: the system allows {allowed}; ask for more (`ulimit -n`), or use a format with one file, such as jsonl"


def head_of(path: Path) -> str:
    """Return the beginning of a text file, at most 64 KiB."""
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
    """Return a stream that first repeats ``head``, which was already read: a pipe cannot be rewound."""
    return io.BufferedReader(_Joined(head, rest), _PIECE)


def _read_up_to(stream: BinaryIO | gzip.GzipFile, count: int) -> bytes:
    found = b""
    while len(found) < count and (more := stream.read(count - len(found))):
        found += more
    return found


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
            if hasattr(sys.stdout, "buffer"):
                shutil.copyfileobj(spool, sys.stdout.buffer)
                sys.stdout.buffer.flush()
            else:  # of a notebook, or an io.StringIO
                with io.TextIOWrapper(spool, encoding="utf-8", errors="surrogateescape", newline="") as whole:
                    shutil.copyfileobj(whole, sys.stdout)
        return
    if is_stream(path):  # check the path as given: /dev/fd/63 of a shell's <(..) does not resolve to a file
        with _opened(Path(path), path) as file, _text(_packed(file) if path.endswith(".gz") else file) as text:
            yield text
        return
    target = _led_to(path)
    if target.exists() and not os.access(target, os.W_OK):
        raise InputError("is write-protected: name another file, or allow writing with chmod u+w", path=path)
    place = target.with_name(f".{target.name}.part")
    with _locked(place, path):
        try:
            with (
                _opened(place, path, without_following_links) as file,
                _packed(file) if path.endswith(".gz") else file as binary,
                _text(binary) as text,
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


def refuse_filled(path: str) -> Path:
    """Return the folder that a path means. Raises InputError if it is a file or a folder that is not empty, or in no folder."""
    target = _led_to(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError("already exists; name a new folder", path=path)
    if not target.parent.is_dir():
        raise InputError("cannot be written: the folder that it is in does not exist", path=path)
    return target


@contextlib.contextmanager
def whole_folder(path: str) -> Iterator[Path]:
    """Create a folder that appears under its name only if the block ends without an error.

    Raises InputError if the path is a file or a folder that is not empty.
    """
    target = refuse_filled(path)
    try:
        with own_folder(target.with_name(f".{target.name}.part"), path) as place:
            yield place
            place.replace(target)
    except OSError as error:
        raise InputError(f"cannot be written: {_reason(error)}", path=path) from None


@contextlib.contextmanager
def file_inside(place: Path) -> Iterator[TextIO]:
    """Open a new UTF-8 text file in the folder of a ``whole_folder``, compressed if its name ends in .gz.

    Raises:
        OSError: it cannot be written; ``whole_folder`` names the folder that the user gave.
    """
    with place.open("wb") as file, _packed(file) if place.suffix == ".gz" else file as binary, _text(binary) as text:
        yield text


@contextlib.contextmanager
def own_folder(place: Path, path: str) -> Iterator[Path]:
    """Create an empty folder locked for this process, and remove it at the end. Contents that a killed process left are removed.

    Args:
        place: the folder.
        path: the output that it is for, for messages.

    Raises:
        InputError: another process holds the folder.
        OSError: the folder cannot be created.
    """
    while True:
        with contextlib.suppress(FileExistsError):
            place.mkdir()
        try:
            folder = _lock_folder(place, must=False)
            break
        except FileNotFoundError:  # another process removed it between mkdir and the lock
            continue
        except BlockingIOError:
            raise InUseError("another attlm is writing this: wait for it, or name another", path=path) from None
    try:
        for left in place.iterdir():
            with contextlib.suppress(FileNotFoundError):  # a program that the killed process had started may still remove its own files
                remove(left)
        yield place
    finally:
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(folder), place.stat()):  # false: another process made this folder after ours was moved
                shutil.rmtree(place, ignore_errors=True)
        os.close(folder)


def remove_left_behind(folder: Path, pattern: str) -> None:
    """Remove the folders matching ``pattern`` that killed processes left behind in ``own_folder``."""
    for place in folder.glob(pattern):
        with contextlib.suppress(OSError):  # another process holds it, or it belongs to another user
            left = _lock_folder(place, must=True)
            shutil.rmtree(place, ignore_errors=True)
            os.close(left)


def _lock_folder(place: Path, *, must: bool) -> int:
    """Lock a folder for this process until the returned descriptor is closed; the system closes it if the process dies.

    Raises:
        BlockingIOError: another process holds the folder.
        FileNotFoundError: the folder has just been removed.
        OSError: the file system has no locks and ``must`` is set.
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
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _led_to(path: str) -> Path:
    """Return the path with links resolved. Raises InputError for a link that leads to itself: writing would replace it."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise InputError("is a link that leads to itself: remove it, or name another file", path=path)
    return target


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal; the file may be larger than memory. Raises InputError if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    return digest.hexdigest()


def sha256_of_folder(folder: Path) -> str:
    """Return the SHA-256 of the names and contents of the files that stand in a folder. Raises InputError if one cannot be read."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        digest.update(f"{path.name}\0{sha256(path)}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def state_of(path: Path) -> tuple[tuple[str, int, int], ...]:
    """Return names, sizes and times of change of a file, or of the files in a folder. Nothing if it cannot be read."""
    try:
        found = [(one.name, one.stat()) for one in (sorted(path.iterdir()) if path.is_dir() else [path])]
    except OSError:
        return ()
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in found)


class FileHash:
    """The SHA-256 of a file, read once, when it is first needed. A file that has changed since then is never read again."""

    def __init__(self, path: Path) -> None:
        """Note the state of the file, which has just been loaded. Raises InputError if it is missing."""
        self.path = path
        self._loaded = self._state()
        self._digest: str | None = None

    def digest(self) -> str:
        """Return the SHA-256 in hexadecimal. Raises InputError if the file has changed or gone since it was loaded."""
        if self._digest is None:
            self.require_unchanged()
            self._digest = sha256(self.path)
        return self._digest

    def require_unchanged(self) -> None:
        """Raise InputError if the file has changed or gone since it was loaded. One that was copied has not, if its SHA-256 is known."""
        size, _ = state = self._state()
        if state != self._loaded and not (size == self._loaded[0] and self._digest is not None and sha256(self.path) == self._digest):
            raise InputError("has changed since it was loaded: load it again", path=self.path)

    def _state(self) -> tuple[int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", path=self.path) from None
        return found.st_size, found.st_mtime_ns


def _text(binary: BinaryIO | gzip.GzipFile) -> TextIO:
    return io.TextIOWrapper(binary, encoding="utf-8", newline="\n")


def _packed(file: BinaryIO) -> gzip.GzipFile:
    return gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0)
