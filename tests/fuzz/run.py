"""The long suite: damaged and hostile input of every kind for a given time, and runs killed at random moments.

    make fuzz SECONDS=3600                          everything, from another seed each day
    python tests/fuzz/run.py --kind lists --seed 7 --once       one case again, as a failure prints it

Each kind runs in a process of its own, one slice of the time after another, so that a crash or a hang is seen. Prints cases, refusals
(one clear line, what is wanted of damaged input) and failures (a traceback, other bytes, a crash, a hang) of each kind. A failure is
printed with its seed, and its files are kept. The exit code is 1 if there was any.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

KINDS = [
    "lists", "references", "config", "dictionary", "options", "pickles", "checkpoint_bytes", "folder", "arpa", "kenlm_binary", "text_files",
    "corrections", "kills", "resume_file",
]  # fmt: skip
SHARES = {"kills": 4, "resume_file": 3}
SLICE = 60.0  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(date.today().strftime("%Y%m%d")) * 1_000_000)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--cases", type=Path, default=Path("fuzz-cases"), help="folder for what failed")
    parser.add_argument("--once", action="store_true", help="one case of --kind, that of --seed")
    given = parser.parse_args()
    kinds = given.kind or KINDS
    totals = {kind: {"cases": 0, "refused": 0, "failures": 0, "seconds": 0.0, "next": given.seed} for kind in kinds}
    end = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory() as work:
        os.environ["FUZZ_SHARED"] = work
        while True:
            for kind in kinds:
                share = SLICE * SHARES.get(kind, 1)
                left = end - time.monotonic()
                run_slice(kind, totals[kind], 0 if given.once else min(share, left), Path(work) / kind, given.cases)
                if given.once or time.monotonic() > end:
                    break
            if given.once or time.monotonic() > end:
                break
            report(totals)
    report(totals)
    sys.exit(any(counts["failures"] for counts in totals.values()))


def run_slice(kind: str, counts: dict, seconds: float, work: Path, cases: Path) -> None:
    """Let a worker go on from the next seed, and add what it counted."""
    (work / "files").mkdir(parents=True, exist_ok=True)
    (work / "counts").write_text(json.dumps({"cases": 0, "refused": 0, "failures": 0}))
    (work / "seed").write_text(str(counts["next"]))
    started = time.monotonic()
    worker = Path(__file__).with_name("worker.py")
    command = [sys.executable, str(worker), kind, str(counts["next"]), str(seconds), str(work)]
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
        print(f"FAILURE --kind {kind} --seed {failure.stem.removeprefix('failure-')} --once: {why.splitlines()[-1][:300]}", flush=True)
        kept = cases / f"{kind}-{failure.stem.removeprefix('failure-')}"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        failure.rename(kept / "why.txt")
        if failure.stem == f"failure-{seed}":  # its files are still there; those of others come again with their seeds
            shutil.copytree(work / "files", kept / "files", dirs_exist_ok=True)


def report(totals: dict[str, dict]) -> None:
    print(f"{'kind':<18}{'cases':>10}{'refused':>10}{'failures':>10}{'seconds':>10}")
    for kind, counts in totals.items():
        print(f"{kind:<18}{counts['cases']:>10,}{counts['refused']:>10,}{counts['failures']:>10,}{counts['seconds']:>10.0f}")
    print(f"{'all':<18}" + "".join(f"{sum(counts[name] for counts in totals.values()):>10,}" for name in ("cases", "refused", "failures")))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
