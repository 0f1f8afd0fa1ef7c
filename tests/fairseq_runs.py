"""fairseq's commands, run as a user runs them but for the imports, which :mod:`fairseq_programs` does once."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import torch
from fairseq_programs import programs

from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.scoring.perplexity import PerplexityCounter

ROOT = Path(__file__).parents[1]


LOGGING = ["--log-format", "json", "--log-interval", "1", "--num-workers", "0"]


def fairseq(command: str, *arguments: object, check: bool = True, stdin: str | None = None) -> subprocess.CompletedProcess:
    program = programs() / f"fairseq-{command}"
    if command == "train":  # by default as many processes as the machine has GPUs, --cpu or not
        arguments = ("--distributed-world-size", 1, *arguments)
    result = subprocess.run(
        [program, *map(str, arguments)], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300
    )
    assert not check or result.returncode == 0, result.stdout[-5000:]
    if check and "--user-dir" in arguments:
        assert "Warning" not in result.stdout, [line for line in result.stdout.splitlines() if "Warning" in line]
    return result


def logged(result: subprocess.CompletedProcess, kind: str) -> list[dict]:
    """The JSON lines that fairseq logs under a name such as ``valid``."""
    return [json.loads(line.split(f"| {kind} | ", 1)[1]) for line in result.stdout.splitlines() if f"| {kind} | {{" in line]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """A preprocessed corpus with blank lines, a long line and, in the validation text, unknown words: 61 and 43 lines."""
    folder = tmp_path_factory.mktemp("corpus")
    words = ["the", "a", "dog", "cat", "sees", "likes", "big", "small", "old", "green", "and", "or", "house", "tree"]
    generator = torch.Generator().manual_seed(0)

    def text(lines: int, extra: list[str]) -> str:
        made = []
        for number in range(lines):
            length = 0 if number % 9 == 4 else 40 if number == 15 else int(torch.randint(1, 12, (1,), generator=generator))
            made.append(" ".join((words + extra)[int(i)] for i in torch.randint(0, len(words + extra), (length,), generator=generator)))
        return "\n".join(made) + "\n"

    (folder / "train.txt").write_text(text(61, []))
    (folder / "valid.txt").write_text(text(43, ["unheard-of"]))
    fairseq(
        "preprocess", "--only-source", "--trainpref", folder / "train.txt", "--validpref", folder / "valid.txt", "--destdir", folder / "bin"
    )
    return folder


def measured(data: Path, checkpoint: Path) -> PerplexityCounter:
    counter = PerplexityCounter()
    lines = (data / "valid.txt").read_text().split("\n")[:-1]
    for score in NeuralScorer.load([checkpoint]).score([line.split() for line in lines]):
        counter.add(score)
    return counter


def expect_one_line(result: subprocess.CompletedProcess, *parts: str) -> None:
    lines = [line for line in result.stdout.splitlines() if line.startswith("attlm: error:")]
    assert result.returncode == 2, result.stdout[-2000:]
    assert "Traceback" not in result.stdout
    assert len(lines) == 1
    for part in parts:
        assert part in lines[0]
