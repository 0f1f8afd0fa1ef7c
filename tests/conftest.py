"""Tests, and the programs they start, use this checkout, also where an older copy is installed.

fairseq looks a bare ``--user-dir attlm_fairseq`` up
next to itself, in the installed copy: tests give it the path of the checkout's ``attlm_fairseq``.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
CHECKOUT = [str(ROOT), str(ROOT / "cli")]

sys.path[:0] = CHECKOUT
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side, and what they compute is small
os.environ["PYTHONPATH"] = os.pathsep.join([*CHECKOUT, *filter(None, [os.environ.get("PYTHONPATH")])])

pytest_plugins = ["cli_runs", "fairseq_runs", "small_models"]  # helpers with fixtures


# By their time, of which the number of their tests says little.
SLOWEST_FILES = (
    "verbs/test_shards.py",
    "training/test_training.py",
    "nbest/test_workers.py",
    "project/test_examples.py",
    "training/test_fairseq_commands.py",
    "training/test_dictionary_of_weights.py",
    "project/test_packaging.py",
    "decoding/test_fairseq_fusion_commands.py",
    "training/test_presets.py",
    "checkpoints/test_hostile_pickles.py",
    "cli/test_cli_corrections.py",
    "project/test_fuzz.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """In every process of tests, whichever of them it runs: see there. pytest-xdist keeps the order of the files."""
    import pretend_device

    pretend_device.register()
    gc.disable()  # until the tests begin: what their files import stays
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slowest files: one that begins last keeps one process busy when the others have ended."""
    places = {ROOT / "tests" / name: place for place, name in enumerate(SLOWEST_FILES)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_runtest_setup() -> None:
    """Let the package's loggers speak as in a new process: what other tests import or run can switch loggers off."""
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "attlm_fairseq":
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)


def pytest_collection_finish() -> None:
    """Spare the collector all that was imported, which is most of what there is."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def pretended_device() -> Iterator[None]:
    """For tests that use it: without a GPU the device is there always, but what makes tensors on it only for them."""
    import pretend_device

    if torch.cuda.is_available():
        pytest.skip("the pretended device is not registered next to a GPU, whose backward passes it would break")
    with pretend_device.made_there():
        yield
