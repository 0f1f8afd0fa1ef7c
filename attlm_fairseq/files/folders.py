"""Write folders that appear whole or not at all, and folders that this process alone uses."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from attlm_fairseq.errors import InputError, InUseError, reason_of
from attlm_fairseq.files.writing import as_text, led_to, packed


def refuse_filled(path: str) -> Path:
    """Return the folder that a path means. Raises InputError if it is a file or a folder that is not empty, or in no folder."""
    target = led_to(path)
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
        raise InputError(f"cannot be written: {reason_of(error)}", path=path) from None


@contextlib.contextmanager
def file_inside(place: Path) -> Iterator[TextIO]:
    """Open a new UTF-8 text file in the folder of a ``whole_folder``, compressed if its name ends in .gz.

    Raises:
        OSError: it cannot be written; ``whole_folder`` names the folder that the user gave.
    """
    with place.open("wb") as file, packed(file) if place.suffix == ".gz" else file as binary, as_text(binary) as text:
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
    """Remove a file, or a folder with all that it holds; of a link, the link alone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
