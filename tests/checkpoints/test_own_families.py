"""A family of another package: found by its entry point, without which it is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PLUGIN = """
from attlm_fairseq.modules.families import FAMILIES, Family
from attlm_fairseq.modules.memory import PlainReader
from attlm_fairseq.modules.recurrence import RNN

FAMILIES["own_lm"] = Family(RNN, PlainReader)
"""
WRITE = """
from pathlib import Path
import own_families
from lm_files import write_checkpoint
write_checkpoint(Path("lm.pt"), ["a", "b"], _name="own_lm_small")
"""
RESCORE = """
import sys
from attlm_cli.main import main
main(["rescore", "lists.txt", "--lm", "lm=lm.pt", "--weight", "lm=1", *sys.argv[1:]])
"""


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Path:
    """A folder with the package as pip installs it, and next to it a checkpoint and lists."""
    monkeypatch.chdir(tmp_path)
    info = tmp_path / "site" / "own_families-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-families\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[attlm_fairseq.families]\nown = own_families\n")
    (tmp_path / "site" / "own_families.py").write_text(PLUGIN)
    (tmp_path / "lists.txt").write_text("0 ||| a b ||| d= -1\n0 ||| b ||| d= -2\n1 ||| b a ||| d= -1\n")
    run(WRITE, tmp_path / "site", TESTS)
    return tmp_path / "site"


def run(program: str, *folders: Path, arguments: tuple[str, ...] = (), code: int = 0) -> subprocess.CompletedProcess:
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, "-c", program, *arguments], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert found.returncode == code, found.stderr
    return found


def test_a_package_adds_families_by_an_entry_point(installed):
    found = run(RESCORE, installed).stdout
    assert found.count("lm=") == 3
    assert run(RESCORE, installed, arguments=("--devices", "cpu:2")).stdout == found


def test_fairseqs_own_models_load_beside_it(installed):
    """An unknown architecture imports the package, and then fairseq's plugin registers the families of this package alone."""
    program = """
import own_families, attlm_fairseq.plugin
attlm_fairseq.plugin.register()
from fairseq.models import MODEL_REGISTRY
assert "attentive_lstm" in MODEL_REGISTRY and "own_lm" not in MODEL_REGISTRY
"""
    run(program, installed)


@pytest.mark.parametrize("mistake", ["raise RuntimeError('boom')", "import sys; sys.exit(0)", "import no_such_module"])
def test_a_package_that_cannot_be_imported_is_named(installed, mistake):
    (installed / "own_families.py").write_text(mistake)
    told = run(RESCORE, installed, code=2).stderr
    assert "own-families adds models by the entry point own = own_families (attlm_fairseq.families), which cannot be imported: " in told
    assert "Traceback" not in told


def test_without_the_package_its_models_are_refused(installed):
    told = run(RESCORE, code=2).stderr
    assert "lm.pt: architecture 'own_lm_small' is none of this package's: attentive_lstm_lm, " in told
    assert "a package with the entry point attlm_fairseq.families (docs/adding-a-model.md)" in told
