"""Tests, and the programs they start, use this checkout, also where an older copy is installed.

fairseq looks a bare ``--user-dir attlm_fairseq`` up
next to itself, in the installed copy: tests give it the path of the checkout's ``attlm_fairseq``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CHECKOUT = [str(ROOT), str(ROOT / "cli")]

sys.path[:0] = CHECKOUT
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side, and what they compute is small
os.environ["PYTHONPATH"] = os.pathsep.join([*CHECKOUT, *filter(None, [os.environ.get("PYTHONPATH")])])

pytest_plugins = ["cli_runs", "fairseq_runs", "small_models"]  # helpers with fixtures


def pytest_configure() -> None:
    """In every process of tests, whichever of them it runs: see there."""
    import pretend_device

    pretend_device.register()


@pytest.fixture
def pretended_device() -> Iterator[None]:
    """For tests that use it: the device is there always, but what makes tensors on it only for them."""
    import pretend_device

    with pretend_device.made_there():
        yield
