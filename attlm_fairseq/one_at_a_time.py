"""What only one thread of a process may do at a time: it changes standard error, or a whole package, while it lasts."""

from __future__ import annotations

import threading

LOADING = threading.RLock()
"""Held while a package loads a file that it would speak about on standard error."""
