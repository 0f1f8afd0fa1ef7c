"""Processes that are forked after a model was loaded, such as those of ``multiprocessing`` on Linux and of pre-forking servers."""

from __future__ import annotations

import os
from functools import cache, partial


@cache
def one_thread_in_forks() -> None:
    """Let each process that is forked from now on compute with one thread: it has none of OpenMP's, and would wait for them for ever."""
    import torch

    os.register_at_fork(after_in_child=partial(torch.set_num_threads, 1))
