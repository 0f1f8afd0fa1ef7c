"""benchmarks/training_speed.py: models that fail, and the dtypes one after another, without training anything."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def speed(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("training_speed")
    for constant, value in {"SIZE": 12, "VOCABULARY": 50, "SENTENCES": 2}.items():
        monkeypatch.setattr(module, constant, value)
    return module


WORKER = """import json, sys
for answer in ({start}):
    print(json.dumps(answer), flush=True)
for line in sys.stdin:
    if line.strip() == "step" and {dies}:
        sys.exit("RuntimeError: the step changed no weights")
    print(json.dumps([0.5, 0.25] if line.strip() == "step" else {{"peak": 2**20, "outside": None}}), flush=True)
"""


def test_a_model_that_fails_is_a_row_and_the_others_are_measured(speed, monkeypatch, capsys):
    running, most = set(), []

    class Fake(speed.Worker):
        def __init__(self, model, dtype, device, text):
            script = WORKER.format(start="" if model == "RNN" else "[1000, 6000],", dies=model == "single")
            real = speed.subprocess.Popen
            with monkeypatch.context() as patched:
                patched.setattr(speed.subprocess, "Popen", lambda command, **options: real([sys.executable, "-c", script], **options))
                super().__init__(model, dtype, device, text)
            if model == "RNN":
                self.process.kill()
            running.add((model, dtype))
            most.append(len(running))

        def close(self):
            super().close()
            running.remove((self.model, self.dtype))

    monkeypatch.setattr(speed, "Worker", Fake)
    monkeypatch.setattr(sys, "argv", ["training_speed.py", "--models", "plain,single,RNN", "--dtypes", "float32,mkldnn", "--steps", "2"])
    speed.main()
    lines = capsys.readouterr().out.splitlines()[2:]
    names = [line[:20].strip() for line in lines if "GFLOP/s" not in line]
    assert names == 2 * [speed.BASELINE, "plain", "single", "RNN"]
    assert lines[1].split()[:6] == ["plain", "float32", "0.0", "M", "2", "1.0"]
    assert lines[2].split(maxsplit=2) == ["single", "float32", "failed: RuntimeError: the step changed no weights"]
    assert lines[3].split(maxsplit=2)[:2] == ["RNN", "float32"]
    assert "failed: exit code -9" in lines[3]
    assert max(most) == 4
    assert not running
    assert torch.backends.mkldnn.matmul.fp32_precision == "none"
