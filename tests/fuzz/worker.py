"""One kind of input in a process of its own: ``worker.py KIND FIRST_SEED SECONDS FOLDER``. ``run.py`` starts it and says what it saw."""

from __future__ import annotations

import faulthandler
import json
import resource
import sys
import time
import traceback
import warnings
from pathlib import Path
from random import Random

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS.parent / "cli"), str(TESTS), str(TESTS / "nbest" / "formats"), str(Path(__file__).parent)]

HANG = 60  # seconds that no case takes on a busy machine; one that starts programs has its own limit
MEMORY = 16 << 30


def main() -> None:
    name, first, seconds, folder = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4])
    warnings.simplefilter("ignore")
    from kinds import KINDS, SLOW

    from attlm_fairseq.errors import InputError

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    counts = {"cases": 0, "refused": 0, "failures": 0}
    end = time.monotonic() + seconds
    seed = first
    while time.monotonic() < end or not counts["cases"]:
        (folder / "seed").write_text(str(seed))
        faulthandler.dump_traceback_later(HANG * (10 if name in SLOW else 1), exit=True)
        try:
            KINDS[name](Random(f"{name} {seed}"), folder / "files")
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
