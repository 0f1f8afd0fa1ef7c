"""The kinds of input of `make fuzz`, a few cases of each: what the long suite needs is there, and undamaged input is taken."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from random import Random

import pytest

from attlm_fairseq.errors import InputError

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "fuzz"), str(TESTS / "nbest" / "formats")]

import killed_runs  # noqa: E402
import kinds  # noqa: E402
import run  # noqa: E402


@pytest.fixture(autouse=True)
def shared(tmp_path_factory, monkeypatch):
    monkeypatch.setitem(os.environ, "FUZZ_SHARED", str(tmp_path_factory.getbasetemp()))


def test_every_kind_is_run():
    assert set(run.SHARES) == set(kinds.KINDS)


QUICK = sorted(set(kinds.KINDS) - {"kills", "resume_file"})


@pytest.mark.parametrize("name", QUICK)
def test_damaged_input_is_used_or_refused(tmp_path, name):
    for seed in range(5):
        with contextlib.suppress(InputError):
            kinds.KINDS[name](Random(f"{name} {seed}"), tmp_path)


@pytest.mark.parametrize("name", sorted(set(QUICK) - {"options", "pickles"}))
def test_whole_input_is_taken(tmp_path, monkeypatch, name):
    """Or else a kind would only try how its own mistake is refused."""
    monkeypatch.setattr(kinds, "spoiled", lambda random, content: content)
    monkeypatch.setattr(kinds, "ALL_SAMPLES", kinds.ALL_SAMPLES[:1])
    taken = 0
    for seed in range(20 if name in ("references", "lists", "folder") else 1):
        try:
            kinds.KINDS[name](Random(f"{name} {seed}"), tmp_path)
            taken += 1
        except InputError:
            if name not in ("references", "lists", "folder"):  # these draw what does not go together, too
                raise
    assert taken


@pytest.mark.parametrize("name", killed_runs.COMMANDS)
def test_a_killed_run_continues_to_the_same_files(tmp_path, name):
    """A run that was faster than its kill is tried again with another moment."""
    assert any(killed_runs.kills(Random(seed), tmp_path, name) for seed in range(3, 13))


def test_a_damaged_resume_file_is_used_or_refused(tmp_path):
    with contextlib.suppress(InputError):
        killed_runs.resume_file(Random(1), tmp_path)
