"""Recognise the content of files: SHA-256, and whether a file has changed since it was loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

from attlm_fairseq.errors import InputError


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
