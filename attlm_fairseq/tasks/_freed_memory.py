"""Memory that a training on a CPU frees and needs again in the next step.

glibc gives large tensors back to the system when they are freed. The next step then gets new pages, which the system has to fill with
zeros first: 5 to 10 % of the time of a step.
"""

from __future__ import annotations

import ctypes
import os
import platform

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_")
TUNABLES = ("glibc.malloc.trim_threshold", "glibc.malloc.mmap_max", "glibc.malloc.mmap_threshold")


def keep_freed_memory() -> bool:
    """Have glibc keep what this process frees for its next allocations, and return whether it does.

    Not if the environment sets this already, nor with another C library.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if platform.libc_ver()[0] != "glibc" or any(map(os.environ.get, OWN_SETTINGS)) or any(name in tunables for name in TUNABLES):
        return False
    set_option = ctypes.CDLL(None).mallopt
    return bool(set_option(M_MMAP_MAX, 0) and set_option(M_TRIM_THRESHOLD, -1))  # -1: the largest number
