"""What the Makefile would do: which torch it installs, and where it refuses to work. Nothing is installed."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def make(*arguments: object, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    # not what a make that runs these tests hands on
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CUDA", "VENV")}
    return subprocess.run(["make", *map(str, arguments)], cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "stamp"),
    [
        (["install"], "torch"),
        (["gpu"], "torch1"),
        (["gpu", "CUDA="], "torch"),
        (["install", "CUDA=yes"], "torch1"),
        (["gpu", "CUDA=0"], "torch"),
    ],
)
def test_torch_with_cuda_has_a_stamp_of_its_own(tmp_path, arguments, stamp):
    """So that `make gpu` after `make` installs it."""
    printed = make("-n", *arguments, f"VENV={tmp_path}").stdout
    assert f"touch {tmp_path}/done/{stamp}\n" in printed


@pytest.mark.parametrize(("installed", "forced"), [("2.13.0+cpu", 1), ("2.13.0", 0)])
def test_cuda_replaces_a_torch_for_cpus_alone(tmp_path, installed, forced):
    """A python that only says which torch it has, and writes down how pip is called."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / "venv").touch()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then echo {installed}; else echo "$*" >> {tmp_path}/called; fi\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    result = make(f"{tmp_path}/done/torch1", "CUDA=1", f"VENV={tmp_path}")
    assert result.returncode == 0, result.stdout + result.stderr
    called = (tmp_path / "called").read_text().splitlines()
    assert [line.split()[-1].partition("==")[0] for line in called] == ["torch"] * (1 + forced)
    assert ["--force-reinstall --no-deps" in line for line in called] == [True] * forced + [False]


def test_a_path_with_a_space_is_refused_in_one_line(tmp_path):
    folder = tmp_path / "a folder"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    for result in (make("-n", "install", folder=folder), make("-n", "install", f"VENV={folder}")):
        assert result.returncode == 2
        [line] = result.stderr.splitlines()
        assert "make cannot work in a path with a space" in line
