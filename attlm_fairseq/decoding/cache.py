"""A cache of what was computed for histories, bounded in bytes, that keeps no history alive."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

CACHE_BYTES = 256 * 1024 * 1024  # by default, for each language model


class SharedByCopies:
    """Base of what copies of a program's objects share, because it is costly and, seen from outside, never changes."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict) -> Self:
        return self


class HistoryCache:
    """Values by history, the least recently used ones leaving first once they are larger than ``max_bytes`` together.

    Keys are told apart by identity and held weakly: when a decoder drops its states, their values go with them at once. What has left
    can be computed again from the history, so a small cache costs time and nothing else. Threads may share one.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0  # held now
        self._entries: OrderedDict[int, tuple[weakref.ref, Any, int]] = OrderedDict()
        self._lock = RLock()  # that its holder can take again: a history may be collected within any call

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, history: object) -> Any | None:
        """The value, or None where there is none (any more)."""
        with self._lock:
            entry = self._entries.get(id(history))
            if entry is None:
                return None
            self._entries.move_to_end(id(history))
            return entry[1]

    def put(self, history: object, value: Any, size: int) -> None:
        """Keep a value of ``size`` bytes, if it fits at all; one that does not fit drops no others."""
        key = id(history)
        with self._lock:
            self._drop(key)
            if size > self.max_bytes:
                return
            self._entries[key] = (weakref.ref(history, lambda _: self._drop(key)), value, size)
            self.bytes += size
            while self.bytes > self.max_bytes:
                self._drop(next(iter(self._entries)))

    def _drop(self, key: int) -> None:
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self.bytes -= entry[2]
