"""The wheel that `pip install .` builds: all of the package is in it, and its commands work from any directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import fairseq
import pytest

import attlm_fairseq

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """Built from a copy, so that nothing of an earlier build gets in and none of this one stays in the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("attlm_fairseq", "cli"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    output = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", output, source]
    subprocess.run(command, check=True, cwd=output)
    [path] = output.iterdir()
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory) -> Path:
    """The wheel unpacked beside fairseq, as in a normal install."""
    folder = tmp_path_factory.mktemp("site")
    wheel.extractall(folder)
    # Links to its files in folders of its own: a link to the folder would lead back to where fairseq is installed.
    shutil.copytree(Path(fairseq.__file__).parent, folder / "fairseq", copy_function=os.symlink)
    return folder


def run(site: Path, cwd: Path, *arguments: object) -> str:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], check=True, cwd=cwd, env=environment, text=True, stdout=subprocess.PIPE
    ).stdout


def test_wheel_holds_every_file_of_the_package_and_nothing_else(wheel):
    files = [path for folder in ("attlm_fairseq", "cli") for path in (ROOT / folder).rglob("*.*") if path.suffix in (".py", ".html")]
    expected = {path.relative_to(ROOT).as_posix().removeprefix("cli/") for path in files}
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected


def test_metadata(wheel):
    [metadata] = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA")]
    assert "\nName: attlm-fairseq\n" in metadata
    assert f"\nVersion: {attlm_fairseq.__version__}\n" in metadata
    assert 'Requires-Dist: fairseq==0.12.2; python_version < "3.11"' in metadata
    assert 'Requires-Dist: fairseq-fixed==0.12.3.1; python_version >= "3.11"' in metadata
    [entry_points] = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/entry_points.txt")]
    assert "attlm = attlm_cli.main:main" in entry_points


def test_attlm_runs_installed(site, tmp_path):
    script = "import attlm_cli.main, sys; print(attlm_cli.main.__file__); sys.argv = ['attlm', '--help']; attlm_cli.main.main()"
    output = run(site, tmp_path, "-c", script)
    assert output.startswith(str(site / "attlm_cli"))
    assert "rescore" in output


@pytest.mark.slow
def test_fairseq_finds_the_user_dir_by_its_name_from_any_directory(site, tmp_path):
    script = """
import sys
from fairseq import options
options = options.parse_args_and_arch(options.get_training_parser())  # what fairseq-train begins with
print(sys.modules["attlm_fairseq"].__file__, options.arch, options.cut_sentences)
"""
    task = ["--task", "sentence_reset_lm", "--cut-sentences", "35", "--arch", "attentive_lstm_lm_ptb"]
    imported, arch, cut_sentences = run(site, tmp_path, "-c", script, "DATA", "--user-dir", "attlm_fairseq", *task).splitlines()[-1].split()
    assert Path(imported).resolve() == (site / "attlm_fairseq" / "__init__.py").resolve()
    assert (arch, cut_sentences) == ("attentive_lstm_lm_ptb", "35")


def test_importing_the_package_is_cheap(site, tmp_path):
    script = "import sys, attlm_fairseq; print(attlm_fairseq.__file__, sorted({'torch', 'fairseq', 'numpy', 'kenlm'} & set(sys.modules)))"
    assert run(site, tmp_path, "-c", script) == f"{site / 'attlm_fairseq' / '__init__.py'} []\n"
