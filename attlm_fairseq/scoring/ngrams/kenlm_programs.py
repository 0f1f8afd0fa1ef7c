"""KenLM's programs ``lmplz``, ``build_binary`` and ``query``: find them, or build them from the ``kenlm`` source package.

The Python package ``kenlm`` can query models but not estimate them. ``python -m attlm_fairseq.scoring.ngrams.kenlm_programs
FOLDER`` builds the programs into ``FOLDER/bin``. It needs only the standard library, pip, a C++ compiler and cmake.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attlm_fairseq.errors import InputError

SOURCE = "kenlm==0.3.0"
SOURCE_SHA256 = "c4628bb9fb63c8a6f9240035b8b037385cfc404cb72e933cf48878291edac1e8"
BOOST = "cmeel-boost==1.90.0"  # headers and libraries as a wheel, for systems without Boost
PROGRAMS = ("build_binary", "query", "lmplz")
TOOLS = {"g++": "a C++ compiler", "cmake": "cmake", "make": "make"}


def find_program(name: str, sibling: Path | None = None) -> Path:
    """Find one of KenLM's programs, and build all of them into the user's cache folder if there is none.

    Looks next to ``sibling`` (another of the programs), on PATH, next to Python, and in the cache folder.

    Raises:
        InputError: the program has to be built, and a tool is missing or the build fails.
    """
    for place in (sibling and sibling.parent / name, shutil.which(name), Path(sys.executable).parent / name):
        if place and Path(place).is_file():
            return Path(place)
    cached = cache_folder() / "bin" / name
    if not cached.is_file():
        print(f"attlm: KenLM's {name} is not on PATH; building it once into {cached.parent} (a minute or two)", file=sys.stderr)
        build_programs(cache_folder())
    return cached


def cache_folder() -> Path:
    """Return the folder of the programs that this package builds for itself: one for each version of KenLM.

    Raises InputError if no variable names one, and the user has no home folder.
    """
    try:
        cache = os.environ.get("ATTLM_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attlm"
    except RuntimeError:
        raise InputError("KenLM's lmplz is not on PATH, and there is no home folder to build it in: set ATTLM_CACHE to a folder") from None
    return Path(cache) / SOURCE.replace("==", "-")


def build_programs(folder: Path) -> None:
    """Build the programs into ``folder/bin``, and Boost's libraries into ``folder/lib/kenlm`` if the system has no Boost.

    Two runs at once are safe: the second waits for the first and uses its result. An interrupted build leaves no program behind.

    Raises:
        InputError: a tool is missing, or the build fails; the message holds the tool's last words.
    """
    missing = [what for tool, what in TOOLS.items() if not shutil.which(tool)]
    if not importlib.util.find_spec("pip"):  # uv's environments have none
        missing.append("pip (`python -m ensurepip`)")
    if missing:
        raise InputError(
            f"KenLM's lmplz is not on PATH, and building it needs {', '.join(missing)}: install them (Debian, Ubuntu: apt-get install "
            "g++ cmake make), or put lmplz and build_binary on PATH"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder), tempfile.TemporaryDirectory(prefix=".building-", dir=folder) as work:
            if not (folder / "bin" / "lmplz").exists():
                _build(folder, Path(work))
    except OSError as error:
        raise InputError(
            f"KenLM's programs cannot be built here: {error.strerror}; set ATTLM_CACHE to another folder", path=folder
        ) from None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system releases if the process dies; remove what a killed build left."""
    with (folder / ".kenlm-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for remains in folder.glob(".building-*"):
            shutil.rmtree(remains, ignore_errors=True)
        yield


def _build(folder: Path, work: Path) -> None:
    source, build, boost = work / "source", work / "build", work / "boost"
    _fetch_source(work, source)
    configure = [
        *("cmake", "-S", str(source), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON"),
        "-DCMAKE_INSTALL_RPATH=$ORIGIN/../lib/kenlm",
    ]
    code, _ = _run(configure)
    if code:  # without Boost on the system
        # --no-deps: the wheel's Python side asks for numpy 2, which nothing here uses.
        _require(_pip("install", "--no-deps", "--only-binary", ":all:", "--target", str(boost), BOOST))
        shutil.rmtree(build)
        _require([*configure, f"-DCMAKE_PREFIX_PATH={boost / 'cmeel.prefix'}"])
    _require(["cmake", "--build", str(build), "--parallel", str(min(4, os.cpu_count() or 1)), "--target", *PROGRAMS])
    if boost.exists():
        _copy_libraries(build / "bin" / "lmplz", boost / "cmeel.prefix" / "lib", folder / "lib" / "kenlm")
    (folder / "bin").mkdir(exist_ok=True)
    for program in PROGRAMS:  # lmplz last: it is the sign that all are there
        (build / "bin" / program).replace(folder / "bin" / program)


def _fetch_source(work: Path, source: Path) -> None:
    known = work / "known.txt"
    known.write_text(f"{SOURCE} --hash=sha256:{SOURCE_SHA256}\n", "utf-8")  # pip compares it before it runs anything of the file
    _require(_pip("download", "--no-deps", "--no-binary", "kenlm", "--require-hashes", "-d", str(work), "-r", str(known)))
    [archive] = work.glob("kenlm-*.tar.gz")
    # Python before 3.11.4, such as Debian 12's, has no filters; the file is the known one either way.
    filtered: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as packed:
        packed.extractall(work / "unpacked", **filtered)
    [unpacked] = (work / "unpacked").iterdir()
    unpacked.rename(source)
    # Of Boost's parts these two are for KenLM's own tests, and for Boost before 1.69, for which cmake adds the second by itself.
    recipe = source / "CMakeLists.txt"
    lines = recipe.read_text("utf-8").splitlines(keepends=True)
    recipe.write_text("".join(line for line in lines if line.strip() not in ("system", "unit_test_framework")), "utf-8")


def _copy_libraries(program: Path, boost: Path, target: Path) -> None:
    """Copy those of Boost's libraries that the program is linked with to where its relative rpath looks."""
    linked = subprocess.run(
        ["ldd", str(program)], env={**os.environ, "LD_LIBRARY_PATH": str(boost)}, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    target.mkdir(parents=True, exist_ok=True)
    for path in re.findall(rf"=> ({re.escape(str(boost))}/.+) \(0x", linked):
        shutil.copy(path, target)


def _pip(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", *arguments]


def _run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
    return done.returncode, done.stdout


def _require(command: list[str]) -> None:
    code, said = _run(command)
    if code:
        # Warnings of pip and make's own summary tell nothing: the last line that names an error does.
        lines = [line for line in said.splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else f"exit code {code}")
        raise InputError(f"building KenLM's lmplz failed at `{' '.join(command[:4])} ..`: {reason.strip()}")


if __name__ == "__main__":
    try:
        build_programs(Path(sys.argv[1]).resolve())
    except InputError as problem:
        sys.exit(f"error: {problem}")
