"""The wheel that `pip install .` builds: all of the package is in it, and its commands work from any directory."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import symtable
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import fairseq
import pytest
from lm_files import write_arpa

import attlm_fairseq

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """Built from a copy, so that nothing of an earlier build gets in and none of this one stays in the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.py", "pyproject.toml", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    for name in ("attlm_fairseq", "cli"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    left = source / "build" / "lib" / "attlm_fairseq" / "deleted.py"  # by an earlier build
    left.parent.mkdir(parents=True)
    left.write_text("")
    output = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", output, source]
    subprocess.run(command, check=True, cwd=output)
    [path] = output.iterdir()
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory) -> Path:
    """The wheel unpacked next to fairseq, as in a normal install."""
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
    kinds = (".py", ".typed", ".html", ".md")
    files = [path for folder in ("attlm_fairseq", "cli/attlm_cli") for path in (ROOT / folder).rglob("*.*") if path.suffix in kinds]
    files.remove(ROOT / "attlm_fairseq" / "README.md")
    expected = {path.relative_to(ROOT).as_posix().removeprefix("cli/") for path in files}
    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == expected


def test_the_source_distribution_is_enough_for_tests_and_docs(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout to compare with")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    for name in tracked:
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "source" / name)
    command = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", tmp_path / "dist"]
    subprocess.run(command, check=True, cwd=tmp_path / "source", capture_output=True)
    [path] = (tmp_path / "dist").iterdir()
    with tarfile.open(path) as packed:
        held = {member.name.partition("/")[2] for member in packed if member.isfile()}
    assert {name for name in tracked if not name.startswith(".")} <= held
    assert not [name for name in held if name.endswith((".pyc", ".pt"))]


def requirements(wheel) -> list[str]:
    [metadata] = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA")]
    return re.findall("^Requires-Dist: (.*)$", metadata, re.MULTILINE)


def test_the_quickstart_names_all_that_is_needed_without_torch(wheel):
    base = {re.match(r"[\w-]+", name)[0] for name in requirements(wheel) if "extra ==" not in name}
    command = (ROOT / "docs" / "quickstart.md").read_text().partition("pip install --no-deps .\n")[2].partition("#")[0]
    named = {re.match(r"[\w-]+", word)[0] for word in shlex.split(command.replace("\\\n", " "))[2:]}
    assert named == base - {"torch", "ufal-kenlm"}


def test_metadata(wheel):
    [metadata] = [wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/METADATA")]
    assert "\nName: attlm-fairseq\n" in metadata
    assert f"\nVersion: {attlm_fairseq.__version__}\n" in metadata
    base, train = (
        [name for name in requirements(wheel) if ("extra ==" in name) is extra and "decoding" not in name] for extra in (False, True)
    )
    assert not [name for name in base if name.startswith("fairseq")]
    assert [name for name in train if name.startswith("fairseq")] == [
        'fairseq==0.12.2; python_version < "3.11" and extra == "train"',
        'fairseq-fixed==0.12.3.1; (python_version >= "3.11" and python_version < "3.13") and extra == "train"',
    ]
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


WITHOUT = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from attlm_cli.main import main
for command in sys.argv[2:]:
    try:
        main(command.split(), standalone_mode=True)
    except SystemExit as end:
        assert not end.code, (command, end.code)
"""


def test_kenlm_alone_needs_neither_torch_nor_fairseq(tmp_path):
    words = ["a", "b", "c"]
    write_arpa(tmp_path / "lm.arpa", words)
    lists = [{"id": word, "ref": f"{word} a", "hyps": [{"text": f"{word} {other}"} for other in words]} for word in words]
    (tmp_path / "lists.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in lists))
    (tmp_path / "text.txt").write_text("a b c\n")
    commands = [
        "tune lists.jsonl --kenlm lm.arpa --folds 0",
        "rescore lists.jsonl -o rescored.jsonl",
        "eval lists.jsonl rescored.jsonl --report report.html",
        "ppl text.txt --kenlm lm.arpa",
        "score text.txt --kenlm lm.arpa",
        "mix text.txt --kenlm a=lm.arpa --kenlm b=lm.arpa -o mix.toml",
    ]
    subprocess.run([sys.executable, "-c", WITHOUT, "torch,fairseq", *commands], check=True, cwd=tmp_path)
    assert (tmp_path / "rescored.jsonl").exists()
    assert (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("package", "command", "install"),
    [
        ("torch", "score text.txt --lm lm.pt", "'torch'"),
        ("rapidfuzz", "eval lists.jsonl --metric wer", "'rapidfuzz'"),
        ("sentencepiece", "score text.txt --kenlm lm.arpa --text sentencepiece:lm.arpa", "attlm-fairseq[subword]"),
    ],
)
def test_a_missing_package_is_one_line_that_says_what_to_install(tmp_path, package, command, install):
    write_arpa(tmp_path / "lm.arpa", ["a"])
    (tmp_path / "text.txt").write_text("a\n")
    (tmp_path / "lm.pt").write_bytes(b"PK\x03\x04")
    (tmp_path / "lists.jsonl").write_text(json.dumps({"id": "1", "ref": "a", "hyps": [{"text": "a"}]}) + "\n")
    arguments = [sys.executable, "-c", WITHOUT, package, command]
    done = subprocess.run(arguments, cwd=tmp_path, text=True, capture_output=True)
    [line] = [line for line in done.stderr.splitlines() if line.startswith("attlm: error: ")]
    assert package in line
    assert install in line
    assert f"({command!r}, 2)" in done.stderr


def scopes(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for inner in table.get_children():
        yield from scopes(inner)


@pytest.mark.parametrize("folder", ["attlm_fairseq", "cli"])
def test_no_comprehension_hides_a_variable_that_a_closure_needs(folder):
    """Python 3.12 and 3.13.0 lose a function's free variable if a comprehension in the function has one of that name."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for scope in scopes(symtable.symtable(path.read_text(), str(path), "exec")):
            free = {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_free()}
            for inner in scope.get_children():
                if inner.get_name() in ("listcomp", "dictcomp", "setcomp"):
                    own = {symbol.get_name() for symbol in inner.get_symbols() if symbol.is_local()}
                    found += [(str(path), inner.get_lineno(), name) for name in free & own]
    assert not found
