"""Read text and bytes: files, standard input, plain or gzip."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import re
import sys
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from attlm_fairseq import magic
from attlm_fairseq.errors import InputError, InputWarning, reason_of

if TYPE_CHECKING:
    from typing_extensions import Buffer  # of collections.abc from Python 3.12 on

HEAD = 1 << 16  # bytes at the beginning of a file from which its format is recognised
_PIECE = 1 << 16
STDIN = "<stdin>"  # the name of standard input for messages
_NOT_READ = {"bzip2": rb"BZh[1-9]1AY&SY", "xz": rb"\xfd7zXZ\x00", "zstd": rb"\x28\xb5\x2f\xfd", "zip": rb"PK\x03\x04"}
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
        raise InputError(f"cannot be read: {reason_of(error)}", path=path) from None


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
