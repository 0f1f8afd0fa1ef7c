"""The long suite: damaged and hostile input of every kind for a given time, and runs killed at random moments.

    make fuzz SECONDS=3600                          everything, from another seed each day
    python tests/fuzz/run.py --kind lists --seed 7 --cases 1    one case again, as a failure prints it
    python tests/fuzz/run.py --kind kills --cases 50            so many cases, however long they take

Each kind runs in a process of its own, one slice of the time after another, so that a crash or a hang is seen. Prints cases, refusals
(one clear line, what is wanted of damaged input), kills and failures (a traceback, other bytes, a crash, a hang) of each kind. A failure
is printed with its seed, and its files are kept. The exit code is 1 if there was any.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

SHARES = {
    "lists": 1, "references": 1, "config": 1, "dictionary": 1, "options": 1, "pickles": 1, "checkpoint_bytes": 1, "folder": 1, "arpa": 1,
    "kenlm_binary": 1, "text_files": 1, "corrections": 1, "cloze_questions": 1, "adaptation": 1, "kills": 4, "resume_file": 3,
}  # fmt: skip
"""The kinds of input, and how many slices of the time each gets in a round: those that start runs need more."""
SLICE = 60.0  # seconds
COUNTS = ("cases", "refused", "kills", "failures")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="time for all kinds; not with --cases")
    parser.add_argument("--cases", type=int, help="so many cases of each kind, however long they take")
    parser.add_argument("--seed", type=int, default=int(date.today().strftime("%Y%m%d")) * 1_000_000)
    parser.add_argument("--kind", action="append", choices=SHARES)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-cases"), help="folder for what failed")
    given = parser.parse_args()
    kinds = given.kind or list(SHARES)
    totals = {kind: dict.fromkeys(COUNTS, 0) | {"seconds": 0.0, "next": given.seed} for kind in kinds}
    end = time.monotonic() + (given.seconds if given.cases is None else math.inf)
    with tempfile.TemporaryDirectory() as work:
        os.environ["FUZZ_SHARED"] = work
        while kinds and time.monotonic() < end:
            for kind in kinds:
                if (seconds := min(SLICE * SHARES[kind], end - time.monotonic())) > 0:
                    cases = math.inf if given.cases is None else given.cases - totals[kind]["cases"]
                    run_slice(kind, totals[kind], seconds, cases, Path(work) / kind, given.keep)
            report(totals)
            kinds = [kind for kind in kinds if given.cases is None or totals[kind]["cases"] < given.cases]
    sys.exit(any(counts["failures"] for counts in totals.values()))


def run_slice(kind: str, counts: dict, seconds: float, cases: float, work: Path, keep: Path) -> None:
    """Let a worker go on from the next seed, and add what it counted."""
    (work / "files").mkdir(parents=True, exist_ok=True)
    (work / "counts").write_text(json.dumps(dict.fromkeys(COUNTS, 0)))
    (work / "seed").write_text(str(counts["next"]))
    started = time.monotonic()
    worker = Path(__file__).with_name("worker.py")
    command = [sys.executable, str(worker), kind, str(counts["next"]), str(seconds), str(cases), str(work)]
    result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    counts["seconds"] += time.monotonic() - started
    for name, value in json.loads((work / "counts").read_text() or "{}").items():
        counts[name] += value
    seed = int((work / "seed").read_text())
    counts["next"] = seed + 1
    if result.returncode:
        how = signal.strsignal(-result.returncode) if result.returncode < 0 else f"exit code {result.returncode}"
        (work / f"failure-{seed}.txt").write_text(f"{kind} {seed}\nthe process ended: {how}\n{result.stderr[-5000:]}")
        counts["cases"] += 1
        counts["failures"] += 1
    for failure in work.glob("failure-*.txt"):
        why = failure.read_text().strip()
        print(f"FAILURE --kind {kind} --seed {failure.stem.removeprefix('failure-')} --cases 1: {why.splitlines()[-1][:300]}", flush=True)
        kept = keep / f"{kind}-{failure.stem.removeprefix('failure-')}"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        failure.rename(kept / "why.txt")
        if failure.stem == f"failure-{seed}":  # its files are still there; those of others come again with their seeds
            shutil.copytree(work / "files", kept / "files", dirs_exist_ok=True)


def report(totals: dict[str, dict]) -> None:
    print(f"{'kind':<18}" + "".join(f"{name:>10}" for name in (*COUNTS, "seconds")))
    for kind, counts in totals.items():
        print(f"{kind:<18}" + "".join(f"{counts[name]:>10,}" for name in COUNTS) + f"{counts['seconds']:>10.0f}")
    print(f"{'all':<18}" + "".join(f"{sum(counts[name] for counts in totals.values()):>10,}" for name in COUNTS), flush=True)


if __name__ == "__main__":
    main()
