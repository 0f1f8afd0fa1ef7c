"""A cache of results by history. Its size is bounded in bytes, and it does not keep histories alive."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

CACHE_BYTES = 256 * 1024 * 1024  # the default size for each language model


class SharedByCopies:
    """Base class of objects that ``copy.deepcopy`` shares instead of copying: they are large and, to a user, immutable."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict) -> Self:
        return self


class HistoryCache:
    """Values by history. If their total size exceeds ``max_bytes``, the least recently used values are dropped.

    Keys are compared by identity and held by weak references. When a decoder drops a state, its value is dropped at once. A signal, such
    as that of a timeout, can prevent this. Then the value stays for a while, and no other history gets it.
    A dropped value can be computed again from its history, so a small cache costs only time. The cache is thread-safe.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0  # held now
        self._entries: OrderedDict[int, tuple[weakref.ref, Any, int]] = OrderedDict()
        self._lock = RLock()  # re-entrant: garbage collection of a history may call back within any method

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, history: object) -> Any | None:
        """Return the value, or None if it was never stored or was dropped."""
        with self._lock:
            entry = self._entries.get(id(history))
            if entry is None or entry[0]() is not history:
                return None
            self._entries.move_to_end(id(history))
            return entry[1]

    def put(self, history: object, value: Any, size: int) -> None:
        """Store a value of ``size`` bytes. A value larger than the whole cache is ignored and drops no others."""
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
