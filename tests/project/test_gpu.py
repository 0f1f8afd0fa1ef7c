"""`make gpu`: without a GPU one line; its steps are there, end in time, and leave what they found."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    return importlib.import_module("measure_gpu")


def test_without_a_gpu_it_is_one_line(tmp_path):
    command = [sys.executable, ROOT / "tools" / "measure_gpu.py", "--output", tmp_path / "gpu"]
    ran = subprocess.run(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stdout == ""
    [line] = ran.stderr.splitlines()
    assert line == "measure_gpu.py: there is no GPU that torch can use; run `make gpu` on a machine that has one"
    assert not (tmp_path / "gpu").exists()
    printed = subprocess.run(["make", "-n", "gpu", "PTB=texts"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert 'tools/measure_gpu.py --ptb "texts"' in printed


def run(tool, command: list[str], seconds: float, report) -> str:
    return tool.finish(tool.begin(command, report), seconds)


def test_the_steps_are_there(tool):
    alone, both = tool.steps(1), tool.steps(2)
    assert list(alone) == ["tests", "layers", "training speed", "rescoring and decoding"]
    assert list(both) == [*alone, "several GPUs"] == list(tool.SHARES)
    assert "cuda and not several_gpus" in both["tests"]
    files = [word for command in both.values() for word in command if word.startswith(("benchmarks/", "tests/"))]
    assert {"tests/modules/test_cuda.py", "tests/decoding/test_decoder_lm.py"} < set(both["tests"])
    assert sum(file.startswith("benchmarks/") for file in files) == 3
    assert all((ROOT / file).is_file() for file in files)
    assert sum(tool.SHARES.values()) + tool.TEST_OF_ROWS < 0.9


def wait_until(reached) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_rows_wait_while_speed_is_measured_and_are_tested(tool, tmp_path, monkeypatch):
    """The script of the example in place of which another one counts, as the training of each row does."""
    counting = "while :; do echo $FAMILY$SCORE >> count; sleep 0.02; done"
    script = tmp_path / "examples" / "salton2017" / "run.sh"
    script.parent.mkdir(parents=True)
    script.write_text(f'mkdir -p "$WORK/ptb/model"; cd "$WORK/ptb"; touch model/checkpoint_best.pt; {counting}')
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    assert tool.test_of_rows(tmp_path / "rows") == []
    rows = {}
    try:
        tool.begin_rows(tmp_path / "rows", tmp_path, list(tool.ROWS), rows)
        counts = {name: tmp_path / "rows" / name / "ptb" / "count" for name in rows}
        wait_until(lambda: all(path.exists() for path in counts.values()))
        with tool.paused(rows):
            time.sleep(0.1)  # until all have seen it
            before = [path.read_text() for path in counts.values()]
            time.sleep(0.3)
            assert [path.read_text() for path in counts.values()] == before
        wait_until(lambda: [path.read_text() for path in counts.values()] != before)
        began = time.monotonic() - 1000
        ended = [tool.finish(process, 0.1, began) for process in rows.values()]
        assert all(re.fullmatch(r"stopped after 1\d\d\d s", how) for how in ended)
    finally:
        for process in rows.values():
            if process.poll() is None:
                tool.stop(process)
    assert [path.read_text().split("\n")[0] for path in counts.values()] == [
        "plain_lstm_lm",
        "averaging_lstm_lm",
        "attentive_lstm_lmsingle",
        "attentive_lstm_lmcombined",
    ]
    command = tool.test_of_rows(tmp_path / "rows")
    assert [word for word in command if "=" in word] == [f"{name}={tmp_path}/rows/{name}/ptb/model/checkpoint_best.pt" for name in rows]
    assert f"{tmp_path}/rows/plain/ptb/test.txt" in command
    shutil.rmtree(tmp_path / "rows" / "plain")  # with --rows there are the LMs asked for
    assert f"{tmp_path}/rows/averaging/ptb/test.txt" in tool.test_of_rows(tmp_path / "rows")


def test_a_step_that_fails_or_takes_too_long_is_recorded(tool, tmp_path):
    with (tmp_path / "report.txt").open("a") as report:
        assert run(tool, [sys.executable, "-c", "print('found')"], 60, report).startswith("done after ")
        assert run(tool, [sys.executable, "-c", "import sys; sys.exit('broken')"], 60, report).startswith("failed with exit code 1 after ")
        assert run(tool, ["sh", "-c", "echo begun; sleep 600 & wait"], 1, report).startswith("stopped after ")
    assert (tmp_path / "report.txt").read_text() == "found\nbroken\nbegun\n"


def test_tests_that_take_too_long_still_say_what_failed(tool, tmp_path):
    (tmp_path / "test_it.py").write_text("import time\ndef test_one():\n    assert 1 == 2\ndef test_two():\n    time.sleep(600)\n")
    command = [sys.executable, "-u", "-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider", "-vv", "--tb=short", "test_it.py"]
    report = tmp_path / "report.txt"
    # a shell's background jobs ignore SIGINT, and their children inherit this
    heeding = ["env", "--default-signal=INT", *command]
    with report.open("a") as file, subprocess.Popen(heeding, cwd=tmp_path, stdout=file, start_new_session=True) as process:
        while "test_two" not in report.read_text():
            assert process.poll() is None
            time.sleep(0.1)
        tool.stop(process)
    assert "E   assert 1 == 2" in report.read_text()


def test_what_ignores_signals_is_killed(tool, tmp_path, monkeypatch):
    monkeypatch.setattr(tool, "SIGNALS", dict.fromkeys(tool.SIGNALS, 1))
    with (tmp_path / "report.txt").open("a") as report:
        assert run(tool, ["sh", "-c", "trap '' INT TERM; while :; do sleep 1; done"], 1, report).startswith("stopped after ")


def test_an_interrupted_measurement_leaves_no_process(tool, tmp_path, monkeypatch):
    started = []

    class Interrupted(subprocess.Popen):
        def wait(self, timeout=None):
            if timeout is None:
                return super().wait()
            started.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(tool.subprocess, "Popen", Interrupted)
    with (tmp_path / "report.txt").open("a") as report, pytest.raises(KeyboardInterrupt):
        run(tool, ["sleep", "600"], 60, report)
    assert started[0].wait() == -9


def test_scoring_at_toy_size(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("gpu_scoring")
    for constant, value in {"SIZE": 12, "VOCABULARY": 50, "WORDS": 5, "HYPOTHESES": 3}.items():
        monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(sys, "argv", ["gpu_scoring.py", "--device", "cpu", "--lists", "2", "--steps", "3"])
    module.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * 2 * (1 + 3)
    assert all("words/s" in line or "microseconds a step" in line for line in lines)
