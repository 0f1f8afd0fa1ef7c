"""The papers' recipes run from text to perplexity, at toy sizes; and what they do to a text before that."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOY = ["--cpu", "--decoder-embed-dim", "12", "--max-epoch", "1"]


@pytest.fixture
def corpus(tmp_path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    article = ["", " = An Article = ", "", " the dog sees = a cat = ", "", " = = Part = = ", "", " a cat sees the dog . ", ""]
    lines = [*article, " = Another = ", "", " no ."]
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("\n".join(lines * 4) + "\n")
    return folder


def run(recipe: str, *arguments: object, work: Path, **variables: str) -> str:
    """A recipe as a user runs it, but with this checkout as its plugin."""
    # fairseq looks for --user-dir from where it is started, in the recipe's folder or its folder for a corpus
    for folder in (work, work / "ptb"):
        folder.mkdir()
        (folder / "attlm_fairseq").symlink_to(ROOT / "attlm_fairseq")
    programs = work.parent / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "attlm").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m attlm_cli.main "$@"\n')
    (programs / "attlm").chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    result = subprocess.run(
        ["bash", ROOT / "examples" / recipe / "run.sh", *map(str, arguments)],
        env=os.environ | {"PATH": path, "WORK": str(work), **variables},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-3000:]
    return result.stdout


def test_salton(corpus, tmp_path):
    printed = run("salton2018", "ptb", corpus, *TOY, "--decoder-hidden-size", 12, work=tmp_path / "work")
    assert "| ppl " in printed
    header, values = (line.split("\t") for line in printed.splitlines()[-2:])
    assert header[:3] == ["lm", "ppl", "ppl_salton2017"]
    assert float(values[1]) > float(values[2]) > 1


def test_liu(corpus, tmp_path):
    printed = run("liu2016", corpus, *TOY, "--decoder-hidden-size", 12, work=tmp_path / "work", SYSTEMS="entropy", EPOCHS="1")
    assert "(the first 12 of 24 columns)" in printed
    assert [line.split("\t")[0] for line in printed.splitlines()[-2:]] == ["lstm", "entropy"]


def test_daniluk(corpus, tmp_path):
    printed = run("daniluk2017", corpus, *TOY, "--decoder-hidden-size", 36, work=tmp_path / "work")
    assert "48 lines, 8 articles" in printed
    carried, anew = (float(line.split()[-1]) for line in printed.splitlines() if line.startswith("| ppl"))
    assert min(carried, anew) > 0
    assert carried != anew


def test_articles_begin_at_titles_between_blank_lines():
    found = importlib.util.spec_from_file_location("prepare", ROOT / "examples" / "daniluk2017" / "prepare.py")
    prepare = importlib.util.module_from_spec(found)
    found.loader.exec_module(prepare)
    lines = ["", " = A title = ", "", " = = Section = = ", "", " a = b = ", " = not alone = ", " text ", "", " = B = "]
    assert [number for number, line in enumerate(prepare.marked(lines)) if line == "<document>"] == [1, 10]
    assert [line for line in prepare.marked(lines) if line != "<document>"] == [" ".join(line.split()) for line in lines]
