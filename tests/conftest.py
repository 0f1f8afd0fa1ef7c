"""Tests, and the programs they start, use this checkout, also where an older copy is installed.

``attlm_cli``, the installed name of ``cli/``, is here a link in ``tests/checkout``. fairseq looks a bare ``--user-dir attlm_fairseq`` up
beside itself, that is in the installed copy: tests give it the path of the checkout's ``attlm_fairseq``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKOUT = [str(ROOT), str(ROOT / "tests" / "checkout")]

sys.path[:0] = CHECKOUT
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side, and what they compute is small
os.environ["PYTHONPATH"] = os.pathsep.join([*CHECKOUT, *filter(None, [os.environ.get("PYTHONPATH")])])
