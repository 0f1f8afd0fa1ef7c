"""Limits of the system, as on a full disk or with many open files."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def limited(kind: int, value: int) -> Iterator[None]:
    """Set a soft limit of ``resource``, such as RLIMIT_FSIZE, while the block runs."""
    limits = resource.getrlimit(kind)
    resource.setrlimit(kind, (value, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(kind, limits)
