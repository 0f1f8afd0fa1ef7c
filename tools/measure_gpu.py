"""Measure on a GPU all that needs one, in the minutes there are, and write each result to one file at once. `make gpu` runs it.

The order: tests that run on CUDA; layers by cuDNN, by loops and by CUDA graphs; training speed of every family in float32, TF32 and
bfloat16 against fairseq's `lstm_lm`; speed of rescoring and of a decoder's steps; on several GPUs, whether two processes have the loss
of one. If the folder of Penn Treebank is given, the LMs of ROWS train on it side by side from the beginning, in TF32. They wait while
speed is measured, and are tested in the end. They continue when the program is run again. A step that fails or takes too long is
recorded, and the next begins. Without a GPU the program says so and ends with exit code 2.

    python tools/measure_gpu.py [--output build/gpu] [--minutes 38] [--ptb FOLDER] [--steps "training speed"] [--rows averaging,combined]
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
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TextIO

import torch

ROOT = Path(__file__).resolve().parents[1]
SHARES = {"tests": 0.2, "layers": 0.07, "training speed": 0.25, "rescoring and decoding": 0.1, "several GPUs": 0.1}  # of the time, at most
TEST_OF_ROWS = 0.08  # of the time
ROWS = {
    "plain": {"FAMILY": "plain_lstm_lm"},
    "averaging": {"FAMILY": "averaging_lstm_lm"},
    "single": {"FAMILY": "attentive_lstm_lm", "SCORE": "single"},
    "combined": {"FAMILY": "attentive_lstm_lm", "SCORE": "combined"},
}
# seconds to wait after each. On SIGINT, pytest still prints the failures so far; on SIGTERM it prints nothing
SIGNALS = {signal.SIGINT: 30, signal.SIGTERM: 10, signal.SIGKILL: 10}


def steps(gpus: int) -> dict[str, list[str]]:
    """Return the command of each step, by name."""
    python = [sys.executable, "-u"]
    pytest = [*python, "-m", "pytest", "-vv", "--tb=short"]  # twice -v: pyproject.toml has a -q
    # not the folder: to import all tests takes longer than these take
    files = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/**/test_*.py")) if "mark.cuda" in path.read_text("utf-8")]
    commands = {
        "tests": [*pytest, "-n", "auto", "--maxprocesses", "8", "-m", "cuda and not several_gpus", *files],
        "layers": [*python, "benchmarks/gpu_recurrences.py"],
        "training speed": [*python, "benchmarks/training_speed.py", "--device", "cuda", "--dtypes", "tf32,bf16,float32", "--no-profile"],
        "rescoring and decoding": [*python, "benchmarks/gpu_scoring.py", "--lists", "100"],
        "several GPUs": [*pytest, "-n", "0", "-m", "several_gpus", *files],
    }
    return {name: command for name, command in commands.items() if gpus > 1 or name != "several GPUs"}


def environment(**more: str) -> dict[str, str]:
    """Return the environment in which steps run: this checkout is the package."""
    paths = [str(ROOT), str(ROOT / "cli"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


def begin(command: list[str], output: TextIO, **more: str) -> subprocess.Popen:
    """Start a command in a process group of its own, with more environment variables."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a shell's background job: what it starts would ignore the signal, too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(**more),
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def finish(process: subprocess.Popen, seconds: float, began: float | None = None) -> str:
    """Wait for a process that began then (default: now), and end its group if it takes longer from now on. Return how it ended."""
    began = time.monotonic() if began is None else began
    try:
        code = process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        waited = time.monotonic() - began
        stop(process)
        return f"stopped after {waited:.0f} s"
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


def begin_rows(output: Path, ptb: Path, names: Sequence[str], started: dict[str, subprocess.Popen]) -> None:
    """Start the training of some of ROWS, or let it continue."""
    for name in names:
        folder = output / name
        folder.mkdir(parents=True, exist_ok=True)
        command = ["bash", "examples/salton2017/run.sh", "ptb", str(ptb), "--user-dir", str(ROOT / "attlm_fairseq")]
        with (folder / "output.txt").open("a", encoding="utf-8") as file:
            tf32 = {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1", "OMP_NUM_THREADS": "1"}
            started[name] = begin(command, file, WORK=str(folder), SEEDS="", **tf32, **ROWS[name])


@contextlib.contextmanager
def paused(processes: dict[str, subprocess.Popen]) -> Iterator[None]:
    """Stop the groups of processes for a while."""

    def send(number: int) -> None:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)

    send(signal.SIGSTOP)
    try:
        yield
    finally:
        send(signal.SIGCONT)


def test_of_rows(output: Path) -> list[str]:
    """Return the command that measures the best LM of each row on the test text; nothing if there is none yet."""
    found = [(name, path) for name in ROWS for path in sorted((output / name).glob("ptb/*/checkpoint_best.pt"))]
    if not found:
        return []
    program = [sys.executable, "-c", "from attlm_cli.main import main; main()"]
    text = found[0][1].parents[1] / "test.txt"  # the same for all rows
    return [*program, "ppl", str(text), *(word for name, path in found for word in ("--lm", f"{name}={path}")), "--device", "cuda"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu", help="folder of report.txt and of the trainings")
    parser.add_argument("--minutes", type=float, default=38, help="in all")
    parser.add_argument("--ptb", type=Path, help="folder with train, valid and test of the Penn Treebank, .txt or .txt.gz")
    parser.add_argument("--steps", default=",".join(SHARES), help="joined by commas; default %(default)s")
    parser.add_argument("--rows", default=",".join(ROWS), help="LMs to train on PTB, joined by commas; default %(default)s")
    options = parser.parse_args()
    asked, names_of_rows = options.steps.split(","), options.rows.split(",")
    if unknown := {*asked} - SHARES.keys() | {*names_of_rows} - ROWS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: there are the steps {', '.join(SHARES)} and the rows {', '.join(ROWS)}")
    if not torch.cuda.is_available():
        print("measure_gpu.py: there is no GPU that torch can use; run `make gpu` on a machine that has one", file=sys.stderr)
        return 2
    output, ends = options.output.resolve(), time.monotonic() + 60 * options.minutes
    output.mkdir(parents=True, exist_ok=True)
    with (output / "report.txt").open("a", encoding="utf-8") as report:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=report, flush=True)

        def do(name: str, command: list[str], seconds: float) -> None:
            say(f"-- {name}: {shlex.join(command)}")
            say(f"-- {name}: {finish(begin(command, report), seconds)}")

        names = ", ".join(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count()))
        say(f"\n== {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC; {names}; torch {torch.__version__}, CUDA {torch.version.cuda}")
        rows: dict[str, subprocess.Popen] = {}
        for number in (signal.SIGTERM, signal.SIGHUP):  # or trainings that wait would wait for good
            if signal.getsignal(number) != signal.SIG_IGN:  # as it is under nohup
                signal.signal(number, lambda number, _: sys.exit(128 + number))
        rows_began = time.monotonic()
        try:
            if options.ptb:
                begin_rows(output / "ptb", options.ptb.resolve(), names_of_rows, rows)
            for name, command in steps(torch.cuda.device_count()).items():
                with paused({} if name == "tests" else rows):
                    if name in asked:
                        do(name, command, 60 * options.minutes * SHARES[name])
            for name, process in rows.items():
                left = ends - time.monotonic() - 60 * options.minutes * TEST_OF_ROWS
                say(f"-- PTB, {name}: {finish(process, max(1, left), rows_began)}")
        finally:
            for process in rows.values():
                if process.poll() is None:
                    stop(process)
        if command := test_of_rows(output / "ptb") if rows else []:
            do("PTB, test", command, max(10, ends - time.monotonic()))
    print(f"all of it: {output / 'report.txt'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
