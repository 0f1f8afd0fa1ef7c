"""A training on a CPU keeps the memory that it frees."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from fairseq.data import Dictionary

from attlm_fairseq.tasks import _trained_task
from attlm_fairseq.tasks.sentence_reset_lm import SentenceResetLMConfig, SentenceResetLMTask

SCRIPT = """
import resource
import torch
from attlm_fairseq.tasks._freed_memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(16_000_000)  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
first = faults()
print(keep_freed_memory())
faults()
print(faults() < first / 5)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is the C library of Linux")
@pytest.mark.parametrize(
    ("variable", "kept"), [(None, ["True", "True"]), ("GLIBC_TUNABLES=glibc.malloc.trim_threshold=131072", ["False", "False"])]
)
def test_memory_is_kept_unless_the_environment_says_how(variable, kept):
    own = {name: value for name, value in os.environ.items() if not name.startswith(("GLIBC_TUNABLES", "MALLOC_"))}
    if variable:
        name, _, value = variable.partition("=")
        own[name] = value
    found = subprocess.run([sys.executable, "-c", SCRIPT], env=own, capture_output=True, text=True, check=True)
    assert found.stdout.split() == kept


@pytest.mark.parametrize(("device", "calls"), [("cpu", 1), ("meta", 0)])
def test_a_training_on_a_cpu_keeps_it(monkeypatch, device, calls):
    called = []
    monkeypatch.setattr(_trained_task, "keep_freed_memory", lambda: called.append(1))
    task = SentenceResetLMTask(SentenceResetLMConfig(data=""), Dictionary())
    task.begin_epoch(1, torch.nn.Linear(1, 1, device=device))
    assert len(called) == calls
