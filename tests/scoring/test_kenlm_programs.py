"""Finding and building KenLM's programs, with scripts in place of the compiler: what is built is `make kenlm`'s, which other tests run."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.ngrams import kenlm_programs
from attlm_fairseq.scoring.ngrams.kenlm_programs import PROGRAMS, build_programs, cache_folder, find_program

CMAKE = """#!/bin/sh
echo "$@" >> {log}
case "$1" in
    -S) mkdir -p "$4" ;;
    --build) {sleep} 0.2; mkdir -p "$2/bin"; for program in build_binary query lmplz; do echo built > "$2/bin/$program"; done ;;
esac
"""


@pytest.fixture
def machine(tmp_path, monkeypatch) -> Path:
    """An empty PATH, cache folder and environment of Python."""
    for name in ("path", "python", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("ATTLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kenlm_programs.sys, "executable", str(tmp_path / "python" / "python"))
    return tmp_path


@pytest.fixture
def tools(machine, monkeypatch) -> Path:
    """Scripts that pretend to compile; returns the file in which cmake's calls are counted."""
    log = machine / "log"
    cmake = CMAKE.format(log=log, sleep=shutil.which("sleep", path="/usr/bin:/bin"))
    for name, script in {"cmake": cmake, "g++": "#!/bin/sh\n", "make": "#!/bin/sh\n"}.items():
        write_program(machine / "path" / name, script)
    monkeypatch.setenv("PATH", f"{machine / 'path'}:/usr/bin:/bin")
    monkeypatch.setattr(kenlm_programs, "_fetch_source", lambda work, source: source.mkdir())
    return log


def write_program(path: Path, script: str = "#!/bin/sh\n") -> Path:
    path.write_text(script)
    path.chmod(0o755)
    return path


def test_programs_are_taken_from_where_they_are(machine):
    (cache_folder() / "bin").mkdir(parents=True)
    places = [cache_folder() / "bin", machine / "python", machine / "path", machine]
    for place in places:  # each is preferred to those before it
        write_program(place / "lmplz")
        assert find_program("lmplz", sibling=machine / "build_binary") == place / "lmplz"


def test_missing_tools_are_named_all_at_once(machine):
    write_program(machine / "path" / "cmake")
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler, make: install them"):
        find_program("lmplz")
    assert list((machine / "cache").iterdir()) == []


def test_programs_are_built_once_into_the_cache(tools, capsys):
    assert find_program("lmplz").read_text() == "built\n"
    assert "building it once into" in capsys.readouterr().err
    assert find_program("build_binary") == cache_folder() / "bin" / "build_binary"
    assert capsys.readouterr().err == ""
    assert sorted(path.name for path in (cache_folder() / "bin").iterdir()) == sorted(PROGRAMS)


def test_two_runs_at_once_build_once(tools):
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(build_programs, [cache_folder()] * 2))
    assert tools.read_text().count("--build") == 1


def test_a_killed_build_leaves_nothing_behind(tools):
    remains = cache_folder() / ".building-killed"
    remains.mkdir(parents=True)
    build_programs(cache_folder())
    assert not remains.exists()
    assert sorted(path.name for path in cache_folder().iterdir()) == [".kenlm-lock", "bin"]


def test_a_failed_build_is_one_line_with_the_compilers_words(tools, machine):
    write_program(
        machine / "path" / "cmake",
        "#!/bin/sh\n[ $1 = -S ] && mkdir -p $4 && exit\necho warning; echo 'x.cc: error: no'; echo done; exit 2\n",
    )
    with pytest.raises(InputError, match=r"at `cmake --build .*: x\.cc: error: no$"):
        build_programs(cache_folder())
    assert not (cache_folder() / "bin").exists()


def test_another_source_than_the_known_one_is_refused(tmp_path, monkeypatch):
    """Before pip runs its setup.py to learn what it is."""
    setup, index, work = tmp_path / "setup.py", tmp_path / "index", tmp_path / "work"
    setup.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom setuptools import setup\nsetup(name='kenlm', version='0.3.0')\n")
    index.mkdir()
    work.mkdir()
    with tarfile.open(index / "kenlm-0.3.0.tar.gz", "w:gz") as packed:
        packed.add(setup, "kenlm-0.3.0/setup.py")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    with pytest.raises(InputError, match="DO NOT MATCH THE HASHES"):
        kenlm_programs._fetch_source(work, tmp_path / "source")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("filters", [True, False])
def test_the_source_is_unpacked_by_pythons_with_and_without_filters(tmp_path, monkeypatch, filters):
    """Python 3.11.2, that of Debian 12, has none."""
    archive, recipe = tmp_path / "kenlm-0.3.0.tar.gz", tmp_path / "CMakeLists.txt"
    recipe.write_text("find_package(Boost COMPONENTS\n  program_options\n  system\n)\n")
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(recipe, "kenlm-0.3.0/CMakeLists.txt")
    monkeypatch.setattr(kenlm_programs, "_pip", lambda *_: [sys.executable, "-c", ""])
    monkeypatch.setattr(kenlm_programs, "SOURCE_SHA256", hashlib.sha256(archive.read_bytes()).hexdigest())
    if not filters:
        extract, all_of_it = tarfile.TarFile.extractall, {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
        monkeypatch.setattr(tarfile.TarFile, "extractall", lambda self, path: extract(self, path, **all_of_it))
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    kenlm_programs._fetch_source(tmp_path, tmp_path / "source")
    assert (tmp_path / "source" / "CMakeLists.txt").read_text() == "find_package(Boost COMPONENTS\n  program_options\n)\n"


def test_a_cache_that_cannot_be_written_is_said(tools, machine, monkeypatch):
    (machine / "file").write_text("")
    monkeypatch.setenv("ATTLM_CACHE", str(machine / "file"))
    with pytest.raises(InputError, match="set ATTLM_CACHE"):
        find_program("lmplz")


def test_a_user_without_a_home_needs_none_for_programs_on_path(machine, monkeypatch):
    """A container's user without an entry in /etc/passwd."""
    for name in ("ATTLM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory.")))
    with pytest.raises(InputError, match="there is no home folder to build it in: set ATTLM_CACHE"):
        find_program("lmplz")
    assert find_program("lmplz", sibling=write_program(machine / "lmplz")) == machine / "lmplz"


def test_libraries_are_copied_from_a_folder_with_a_space(machine, monkeypatch):
    boost, target = machine / "my cache" / "lib", machine / "target"
    boost.mkdir(parents=True)
    (boost / "libboost_thread.so.1").write_text("library")
    lines = f"\tlinux-vdso.so.1 (0x1)\n\tlibboost_thread.so.1 => {boost}/libboost_thread.so.1 (0x2)\n\tlibc.so.6 => /lib/libc.so.6 (0x3)\n"
    write_program(machine / "path" / "ldd", f"#!/bin/sh\ncat <<'END'\n{lines}END\n")
    monkeypatch.setenv("PATH", f"{machine / 'path'}:/usr/bin:/bin")
    kenlm_programs._copy_libraries(machine / "lmplz", boost, target)
    assert [path.name for path in target.iterdir()] == ["libboost_thread.so.1"]
