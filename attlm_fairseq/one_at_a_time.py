"""Locks for what only one thread of a process may do at a time, because it changes standard error or another package."""

from __future__ import annotations

import os
import threading

LOADING = threading.RLock()
"""Hold this lock while standard error is redirected, or while transformers loads a model."""
CUTTING = threading.RLock()
"""Hold this lock while a tokenizer of transformers cuts texts: it keeps what it is told about special tokens."""


def _renewed() -> None:
    """Let a forked process begin with locks that no thread holds that it does not have."""
    for lock in (LOADING, CUTTING):
        if not lock._is_owned():  # type: ignore[attr-defined]
            lock._at_fork_reinit()  # type: ignore[attr-defined]


os.register_at_fork(after_in_child=_renewed)
