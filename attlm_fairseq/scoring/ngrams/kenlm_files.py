"""KenLM's files: ARPA text, also compressed, and its own binary format."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

import kenlm

from attlm_fairseq import magic
from attlm_fairseq.errors import InputError

MAX_EXPLANATION = 4000  # characters kept of KenLM's message, which may quote a whole line
TRIAL_CPU_SECONDS = 60  # CPU time, since wall time depends on the load; a valid file takes milliseconds

BINARY_ORDER = 88  # offset of the order in KenLM's binary header: one byte
BINARY_COUNTS = 108  # offset of its n-gram counts: 8 bytes each
OPEN_BY_MAGIC: dict[bytes, Callable[..., object]] = {magic.GZIP: gzip.open, magic.BZIP2: bz2.open, magic.XZ: lzma.open}


def read_ngram_counts(path: Path) -> tuple[int, ...]:
    """Return how many n-grams of each order, from 1 up, the header of an ARPA or KenLM binary file states.

    Raises:
        InputError: the file cannot be read, or has no header of an ARPA or KenLM binary file.
    """
    try:
        with path.open("rb") as file:
            start = file.read(BINARY_COUNTS + 8 * 255)  # the order is one byte
        if start.startswith(magic.KENLM_BINARY):
            return struct.unpack_from(f"<{start[BINARY_ORDER]}Q", start, BINARY_COUNTS)
        with _open_arpa(path, start) as file:
            return tuple(_arpa_counts(file))
    except (OSError, EOFError, ValueError, struct.error, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"has no readable header of an ARPA or KenLM file ({error})", path=path) from None


def _open_arpa(path: Path, start: bytes) -> IO[bytes]:
    for first, opener in OPEN_BY_MAGIC.items():
        if start.startswith(first):
            return cast(IO[bytes], opener(path, "rb"))
    return path.open("rb")


def _arpa_counts(file: IO[bytes]) -> list[int]:
    counts: list[int] = []
    for line in file:
        if line.startswith(b"ngram "):
            counts.append(int(line.partition(b"=")[2]))
        elif line.startswith(b"\\") and counts:
            return counts
    raise ValueError("no \\1-grams: section")


def read_unigrams(path: Path) -> list[str]:
    """Return the entries of an ARPA file's 1-grams, special symbols included, in file order.

    Raises:
        InputError: the file cannot be read, is a KenLM binary file, or has 1-grams that are malformed or not UTF-8.
    """
    words: list[str] = []
    try:
        with path.open("rb") as file:
            start = file.read(len(magic.KENLM_BINARY))
        if start.startswith(magic.KENLM_BINARY):
            raise InputError("is a KenLM binary file; give the ARPA file it was made from, or a list of its words", path=path)
        with _open_arpa(path, start) as file:
            within = False
            for line in file:
                if line.startswith(b"\\"):
                    if within:
                        break
                    within = line.strip() == b"\\1-grams:"
                elif within and line.strip(b"\n\r"):
                    words.append(line.split(b"\t")[1].rstrip(b"\r\n").decode("utf-8"))
    except (OSError, EOFError, IndexError, UnicodeDecodeError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"has no readable 1-grams of an ARPA file ({error})", path=path) from None
    return words


def load_kenlm(path: Path) -> kenlm.Model:
    """Load an ARPA or KenLM binary file.

    Raises:
        InputError: there is no such file, KenLM cannot load it, or it is a damaged binary file.
    """
    if not path.is_file():
        raise InputError("is not a file; an ARPA file or a KenLM binary file is expected", path=path)
    config = kenlm.Config()
    config.show_progress = False
    config.arpa_complain = kenlm.ARPALoadComplain.NONE
    require_safe_binary(path)
    try:
        return _loaded(path, config)
    except UnicodeDecodeError as error:  # KenLM's message quotes bytes of the file that are not UTF-8
        message = error.object.decode("utf-8", "backslashreplace")
    except (OSError, EOFError, RuntimeError, lzma.LZMAError, zlib.error) as error:
        message = str(error)
    with path.open("rb") as file:
        explanation = gist(message, f"it begins with {file.read(20)!r}")
    raise InputError(f"cannot be loaded as an ARPA file or a KenLM binary file: {explanation}", path=path)


def _loaded(path: Path, config: kenlm.Config) -> kenlm.Model:
    """Load a file, also a compressed one that this KenLM cannot read: its wheels for Python 3.13 and later are built without zlib."""
    try:
        return kenlm.Model(os.fsencode(path), config)
    except (OSError, RuntimeError) as error:
        if "support was not compiled in" not in str(error):
            raise
    with path.open("rb") as file:
        start = file.read(max(map(len, OPEN_BY_MAGIC)))
    with tempfile.TemporaryDirectory(prefix="attlm-arpa-") as folder:
        unpacked = Path(folder) / "lm.arpa"
        with _open_arpa(path, start) as packed, unpacked.open("wb") as out:
            shutil.copyfileobj(packed, out)
        return kenlm.Model(os.fsencode(unpacked), config)


_TRIAL = """
import signal, sys
signal.setitimer(signal.ITIMER_PROF, float(sys.argv[2]))
sys.path[:] = sys.argv[3:]
import kenlm
config = kenlm.Config()
config.show_progress = False
config.load_method = kenlm.LoadMethod.LAZY
model = kenlm.Model(sys.argv[1], config)
for word in ["<unk>", "</s>", "the", "a", ".", *map(str, range(200))]:
    model.score(" ".join([word] * 3))
"""


def require_safe_binary(path: Path) -> None:
    """Raise InputError for a damaged KenLM binary file that crashes a test process. KenLM itself checks little of the file.

    Damage that the test does not reach can still crash the process later, at the words that it concerns.
    """
    with path.open("rb") as file:
        if not file.read(len(magic.KENLM_BINARY)).startswith(magic.KENLM_BINARY):
            return
    command: list[str | bytes] = [sys.executable, "-I", "-c", _TRIAL, os.fsencode(path), str(TRIAL_CPU_SECONDS), *sys.path]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if result.returncode >= 0:
        return
    if result.returncode == -signal.SIGPROF:
        how = f"no answer in {TRIAL_CPU_SECONDS} seconds of CPU time"
    else:
        how = signal.strsignal(-result.returncode) or f"signal {-result.returncode}"
    raise InputError(f"is a damaged KenLM binary file: KenLM ends with it ({how}); build it again from its ARPA file", path=path)


def gist(message: str, otherwise: str = "(no message)") -> str:
    """Remove the source location, the failed condition and the file name from a message of KenLM.

    Args:
        message: what KenLM says. Where it quotes bytes that are not UTF-8, all of it may be lost on its way to Python.
        otherwise: what to return if nothing remains.
    """
    message = message[:MAX_EXPLANATION]
    message = re.sub(r"^Cannot read model .*? \((.*)\)$", r"\1", message, flags=re.DOTALL)
    thrown = re.search(r"\S+:\d+ in .* threw [\w:]+(?: because `.*?')?\.\s+(.*)", message, re.DOTALL)
    return thrown[1] if thrown else (message.strip() or otherwise).splitlines()[-1]
