"""What killed runs leave behind, and outputs that two runs write."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_runs import refused

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.folders import own_folder, remove_left_behind, whole_folder
from attlm_fairseq.files.writing import whole_file
from attlm_fairseq.scoring.ngrams.ngram_estimation import TEMPORARY, NgramOptions, estimate_ngram

HOLDING = """
import sys, time
from pathlib import Path
from attlm_fairseq.files.folders import own_folder

with own_folder(Path(sys.argv[1]), "x") as folder:
    (folder / "part").write_text("much")
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that has the folder ``.attlm-ngram-other.arpa``."""
    process = subprocess.Popen([sys.executable, "-c", HOLDING, str(tmp_path / f"{TEMPORARY}other.arpa")], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_model_removes_what_killed_runs_left_and_nothing_else(tmp_path, holder):
    (tmp_path / "text").write_text("a b\nb a c\nc\n" * 5)
    (tmp_path / f"{TEMPORARY}abcdef").mkdir()
    (tmp_path / f"{TEMPORARY}abcdef" / "model.arpa").write_text("half")
    (tmp_path / "kept").mkdir()
    (tmp_path / f"{TEMPORARY}link").symlink_to(tmp_path / "kept")
    owned = tmp_path / f"{TEMPORARY}other.arpa"

    def left() -> list[str]:
        estimate_ngram(tmp_path / "text", tmp_path / "lm.arpa", 2, NgramOptions(discount_fallback=True))
        return sorted(path.name for path in tmp_path.iterdir())

    assert left() == [f"{TEMPORARY}link", owned.name, "kept", "lm.arpa", "text"]
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert left() == [f"{TEMPORARY}link", "kept", "lm.arpa", "text"]


def test_two_processes_never_share_a_folder(tmp_path, holder):
    owned = tmp_path / f"{TEMPORARY}other.arpa"
    with pytest.raises(InputError, match="out: another attlm is writing this"), own_folder(owned, "out"):
        pass
    remove_left_behind(tmp_path, f"{TEMPORARY}*")
    assert (owned / "part").read_text() == "much"


def test_a_folder_begins_empty_and_leaves_nothing(tmp_path):
    part = tmp_path / ".out.part"
    (part / "of a killed run").mkdir(parents=True)
    (part / "file").write_text("x")
    with whole_folder(str(tmp_path / "out")) as folder:
        assert list(folder.iterdir()) == []
        (folder / "file").write_text("x")
        with pytest.raises(InputError, match="another attlm"), whole_folder(str(tmp_path / "out")):
            pass
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*")] == [Path("out"), Path("out/file")]


def test_a_link_to_itself_is_not_replaced(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    for write in (whole_file, whole_folder):
        with pytest.raises(InputError, match="loop: is a link that leads to itself"), write(str(loop)):
            pass
    assert loop.is_symlink()


def test_a_model_of_a_killed_run_is_made_again(tmp_path):
    """attlm ngram killed at any moment: the next run leaves the model and nothing besides."""
    (tmp_path / "text").write_text("".join(f"w{i % 500} w{i * 7 % 500} w{i * 13 % 100}\n" for i in range(20_000)))
    command = [sys.executable, "-m", "attlm_cli.main", "ngram", "text", "-o", "lm.arpa", "--order", "3", "--discount-fallback"]
    started = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(f"{TEMPORARY}*/*")) and started.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    started.kill()
    started.wait()
    assert list(tmp_path.glob(f"{TEMPORARY}*")), "it was killed too late"
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lm.arpa", "text"]


@pytest.mark.parametrize("context", ["file:nosuch", "file:some"])
def test_an_error_before_the_first_score_leaves_nothing(folder, context):
    lines = [json.dumps({"id": f"u{number}", "hyps": [{"text": "a dog"}, {"text": "a cat"}]}) for number in range(3)]
    (folder / "lists.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "some").write_text("u0 c\n")
    refused("rescore", "lists.jsonl", "--lm", "lm.pt", "--weight", "lm=1", "--context", context, "-o", "out.jsonl")
    assert not list(folder.glob("out*"))
