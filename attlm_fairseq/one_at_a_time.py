"""A lock for loading that only one thread of a process may do at a time, because it changes standard error or another package."""

from __future__ import annotations

import threading

LOADING = threading.RLock()
"""Hold this lock while standard error is redirected, or while transformers loads a model."""
