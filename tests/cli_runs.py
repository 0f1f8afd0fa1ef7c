"""The command line, run on small lists."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from lm_files import write_checkpoint

from attlm_cli.main import main
from attlm_fairseq.scoring.ngrams.ngram_estimation import NgramOptions, estimate_ngram

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "a", "ran"]


TEXT = ["the cat sat on the mat", "a dog sat on a mat", "the dog ran", "a cat ran", "", "the cat sat on a dog", "the mat", "a mat"] * 3


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with an n-gram LM, a neural LM and an n-best list, as the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("\n".join(TEXT) + "\n")
    estimate_ngram(tmp_path / "text", tmp_path / "lm.arpa", 2, NgramOptions(discount_fallback=True))
    write_checkpoint(tmp_path / "lm.pt", WORDS)
    lists = [
        {"input": ["the cat sad on the mat", "the cat sat on the mat", "the cats at on the mat"], "output": "the cat sat on the mat"},
        {"input": ["a dog ran", "a dock ran"], "output": "a dog ran"},
        {"input": ["a mad", "a mat"], "output": "a mat"},
    ]
    for nbest in lists:
        nbest["am_score"] = [-0.1 * place - 0.2 for place in range(len(nbest["input"]))]
    (tmp_path / "dev.json").write_text(json.dumps(lists))
    return tmp_path


def run(*arguments: object, stdin: str | bytes | None = None, code: int = 0):
    result = CliRunner().invoke(main, list(map(str, arguments)), input=stdin)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def refused(*arguments: object, stdin: str | bytes | None = None) -> str:
    """The one line with which the command ends with exit code 2."""
    result = run(*arguments, stdin=stdin, code=2)
    told = ("total = ", "text for ", "note: ", "WARNING: no LM given")
    lines = [line for line in result.stderr.splitlines() if not line.startswith(told)]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("attlm: error: ")
    return lines[0]


LISTS = """\
{"id": "u1", "ref": "a b", "hyps": [{"text": "a b", "scores": {"am": -1, "rank": 3}}, {"text": "a", "scores": {"am": -2, "rank": 9}}]}
{"id": "u2", "ref": "a", "hyps": [{"text": "a b", "scores": {"am": -1, "rank": 3}}, {"text": "a", "scores": {"am": -2, "rank": 1}}]}
"""
