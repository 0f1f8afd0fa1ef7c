"""Reading torch files that hold plain data. No code hidden in a file is executed."""

from __future__ import annotations

import argparse
import pickle
import threading
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch

from attlm_fairseq import magic
from attlm_fairseq.errors import InputError

SafeGlobals = list[Callable[..., Any] | tuple[Callable[..., Any], str]]
"""What ``torch.serialization.add_safe_globals`` takes."""
PLAIN_GLOBALS: SafeGlobals = [argparse.Namespace]  # fairseq saves some options as one; a container, it runs nothing
torch.serialization.add_safe_globals(PLAIN_GLOBALS)  # so that torch.load reads what this package wrote
# Before it, a checkpoint can corrupt memory in spite of weights_only (CVE-2026-24747), before 2.6 run code (CVE-2025-32434).
SAFE_TORCH = (2, 10)
BLOCK = 1 << 20  # bytes read at once
_ALLOWING = threading.RLock()


def read_plain_data(path: Path, mapped: bool = False) -> Any:
    """Return the content of a torch file, on the CPU. Raises InputError if it contains anything except data, or is damaged.

    ``mapped``: map tensors from the file, so that reading the other content reads no tensor (zip files only). Damage of the
    tensors is then not seen.
    """
    require_safe_torch()
    try:
        if not path.is_file():
            raise InputError("there is no such file; give a checkpoint written by fairseq-train", path=path)
        with path.open("rb") as file:
            head = file.read(16).lstrip()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    if head.startswith((b"\\data\\", b"mmap lm ")):  # ARPA text, KenLM's binary
        raise InputError("is an n-gram model; expected a neural one. Commands that score take it as --lm or --kenlm", path=path)
    try:
        with allowed_globals(PLAIN_GLOBALS), checked_sparse_tensors(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol")  # whatever it is, the error below says what is wrong
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and head.startswith(magic.TORCH[0]))
    except pickle.UnpicklingError as error:
        raise InputError(f"refused: it is not a checkpoint of plain data or holds code ({first_sentence(error)})", path=path) from None
    except Exception as error:  # broken bytes make torch raise almost anything
        raise InputError(f"is not a checkpoint written by fairseq-train, or is cut short{in_brackets(error)}", path=path) from None
    if not mapped:
        require_undamaged(path)
    return content


def require_undamaged(path: Path) -> None:
    """Raise InputError if bytes of a torch file differ from its checksums, which torch writes but does not compare.

    Files before torch 1.6 have none, nor do those that were written without them (``set_crc32_options``).
    """
    with path.open("rb") as file:
        if not file.read(2).startswith(magic.TORCH[0]):
            return
    try:
        with zipfile.ZipFile(path) as archive:
            for part in archive.infolist():
                if part.CRC:
                    with archive.open(part) as content:
                        while content.read(BLOCK):
                            pass
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
        raise InputError(
            f"is damaged: its content does not match its checksums ({first_sentence(error)}); copy it again", path=path
        ) from None


def is_checkpoint(path: Path) -> bool:
    """Return whether torch wrote the file, rather than KenLM. Raises InputError if the file does not exist."""
    try:
        with path.open("rb") as file:
            return file.read(2).startswith(magic.TORCH)
    except FileNotFoundError:
        raise InputError("there is no such file; give a checkpoint, a folder of attlm export or a KenLM file", path=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None


@contextmanager
def allowed_globals(names: Sequence[Any]) -> Iterator[None]:
    """Context in which torch's ``weights_only`` loading allows exactly these names besides its own; the list is global to the process."""
    with _ALLOWING:
        before = torch.serialization.get_safe_globals()
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals([*names])
        try:
            yield
        finally:
            torch.serialization.clear_safe_globals()
            torch.serialization.add_safe_globals(before)


def checked_sparse_tensors() -> AbstractContextManager[Any]:
    """Let torch refuse files with sparse tensors whose indices are outside the shape; torch before 2.14 accepts them.

    Using such a tensor reads and writes memory outside the tensor.
    """
    return torch.sparse.check_sparse_tensor_invariants()


def require_safe_torch() -> None:
    """Raise InputError if checkpoints can have this torch run code that is hidden in them."""
    major, minor = torch.__version__.split(".")[:2]
    if (int(major), int(minor)) < SAFE_TORCH:
        wanted = ".".join(map(str, SAFE_TORCH))
        raise InputError(f"torch {torch.__version__} can run code hidden in checkpoints; install torch {wanted} or later")


def in_brackets(error: BaseException) -> str:
    """Return `` (gist)`` of an error; "" if it says nothing in words."""
    gist = first_sentence(error)
    return f" ({gist})" if any(map(str.isalpha, gist)) else ""


def first_sentence(error: BaseException) -> str:
    """Return the gist of torch's long explanations without their advice, which would be unsafe here."""
    text = str(error).split("WeightsUnpickler error:")[-1]
    return text.strip().split("\n")[0].split(". ")[0][:200]
