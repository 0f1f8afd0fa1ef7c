"""One kind of input in a process of its own: ``worker.py KIND FIRST_SEED SECONDS CASES FOLDER``. ``run.py`` starts it and says what it saw.

It ends after so many seconds or cases, whichever comes first, but not without a case.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from random import Random

TESTS = Path(__file__).parents[1]
CHECKOUT = [str(TESTS.parent), str(TESTS.parent / "cli")]
sys.path[:0] = [*CHECKOUT, str(TESTS), str(TESTS / "nbest" / "formats"), str(Path(__file__).parent)]
os.environ["PYTHONPATH"] = os.pathsep.join(CHECKOUT)  # the programs that cases start are those of this checkout, too

HANG_CPU = 60  # seconds of CPU time that no case takes
HANG = 900  # seconds that no case takes on a busy machine, the programs that it starts included
MEMORY = 16 << 30


def main() -> None:
    name, first, seconds, cases, folder = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5])
    warnings.simplefilter("ignore")
    from kinds import KINDS

    from attlm_fairseq.errors import InputError

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    faulthandler.register(signal.SIGPROF, chain=True)  # says where, and ends
    counts = {"cases": 0, "refused": 0, "kills": 0, "failures": 0}
    end = time.monotonic() + seconds
    seed = first
    while not counts["cases"] or (time.monotonic() < end and counts["cases"] < cases):
        (folder / "seed").write_text(str(seed))
        faulthandler.dump_traceback_later(HANG, exit=True)
        signal.setitimer(signal.ITIMER_PROF, HANG_CPU)
        try:
            counts["kills"] += KINDS[name](Random(f"{name} {seed}"), folder / "files") or 0
        except InputError as error:
            counts["refused"] += 1
            if "\n" in str(error):
                failed(folder, name, seed, "a message of several lines")
                counts["failures"] += 1
        except Exception:
            failed(folder, name, seed, traceback.format_exc())
            counts["failures"] += 1
        counts["cases"] += 1
        seed += 1
        (folder / "counts").write_text(json.dumps(counts))
    faulthandler.cancel_dump_traceback_later()


def failed(folder: Path, name: str, seed: int, why: str) -> None:
    (folder / f"failure-{seed}.txt").write_text(f"{name} {seed}\n{why}")


main()
