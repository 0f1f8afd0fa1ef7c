"""Measure on a GPU all that needs one, in under 40 minutes, and write each result to one file at once. `make gpu` runs it.

The order: tests that run on CUDA; training speed of every family in float32, TF32 and bfloat16 against fairseq's
`lstm_lm`; speed of rescoring and of a decoder's steps; on several GPUs, whether two processes have the loss of one; then
PTB in the remaining time, if its folder is given. PTB continues when the program is run again. A step that fails or takes
too long is recorded, and the next begins. Without a GPU the program says so and ends with exit code 2.

    python tools/measure_gpu.py [--output build/gpu] [--minutes 38] [--ptb FOLDER]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

import torch

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {"tests": 480, "training speed": 600, "rescoring and decoding": 420, "several GPUs": 240}  # seconds, at most
SHORTEST_TRAINING = 60  # seconds: with less time left PTB is not begun
# seconds to wait after each. On SIGINT, pytest still prints the failures so far; on SIGTERM it prints nothing
SIGNALS = {signal.SIGINT: 30, signal.SIGTERM: 10, signal.SIGKILL: 10}


def steps(output: Path, ptb: Path | None, gpus: int) -> dict[str, list[str]]:
    """Return the command of each step, by name."""
    python = [sys.executable, "-u"]
    pytest = [*python, "-m", "pytest", "-vv", "--tb=short", "-n", "0"]  # twice -v: pyproject.toml has a -q
    commands = {
        "tests": [*pytest, "-m", "cuda and not several_gpus", "tests"],
        "training speed": [*python, "benchmarks/training_speed.py", "--device", "cuda", "--dtypes", "float32,tf32,bf16", "--steps", "20"],
        "rescoring and decoding": [*python, "benchmarks/gpu_scoring.py", "--lists", "200"],
    }
    if gpus > 1:
        commands["several GPUs"] = [*pytest, "-m", "several_gpus", "tests"]
    if ptb is not None:
        recipe = [
            "bash",
            "examples/salton2017/run.sh",
            "ptb",
            str(ptb),
            "--user-dir",
            str(ROOT / "attlm_fairseq"),
            "--compute-dtype",
            "bf16",
        ]
        commands["PTB"] = ["env", f"WORK={output / 'ptb'}", *recipe]
    return commands


def run(command: list[str], seconds: float, report: TextIO) -> str:
    """Run a command in a process group of its own, its output into the report as it comes. Return how it ended."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "cli"), os.environ.get("PYTHONPATH", "")])}
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=report, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        stop(process)
        return f"stopped after {seconds:.0f} s"
    except BaseException:  # Ctrl-C reaches this process alone
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return f"{'done' if code == 0 else f'failed with exit code {code}'} after {time.monotonic() - began:.0f} s"


def stop(process: subprocess.Popen) -> None:
    """End a process and its group."""
    try:
        for number, seconds in SIGNALS.items():
            os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
                break
    finally:
        with contextlib.suppress(ProcessLookupError):  # what the process has started may go on without it
            os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu", help="folder of report.txt and of the training")
    parser.add_argument("--minutes", type=float, default=38, help="in all")
    parser.add_argument("--ptb", type=Path, help="folder with train, valid and test of the Penn Treebank, .txt or .txt.gz")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("measure_gpu.py: there is no GPU that torch can use; run `make gpu` on a machine that has one", file=sys.stderr)
        return 2
    output, end = options.output.resolve(), time.monotonic() + 60 * options.minutes
    output.mkdir(parents=True, exist_ok=True)
    ptb = options.ptb.resolve() if options.ptb else None
    with (output / "report.txt").open("a", encoding="utf-8") as report:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=report, flush=True)

        names = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
        say(f"\n== {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC; {names}; torch {torch.__version__}, CUDA {torch.version.cuda}")
        for name, command in steps(output, ptb, torch.cuda.device_count()).items():
            seconds = min(end - time.monotonic(), LIMITS.get(name, 60 * options.minutes))
            if seconds < SHORTEST_TRAINING:
                say(f"-- {name}: not begun, there is no time left")
                continue
            say(f"-- {name}: {shlex.join(command)}")
            say(f"-- {name}: {run(command, seconds, report)}")
    print(f"all of it: {output / 'report.txt'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
