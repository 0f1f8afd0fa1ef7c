"""Look ahead in a stream of items, and group consecutive items into batches of about equal size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TypeVar

Item = TypeVar("Item")


def peeked(
    items: Iterable[Item], tells: Callable[[Item], bool] = lambda item: True, most: int | None = None
) -> tuple[Item | None, Iterator[Item]]:
    """Return the first item that ``tells``, or else the first (None if there is none), and an iterator over all items.

    At most ``most`` items are looked at; None is no limit.
    """
    rest = iter(items)
    read: list[Item] = []
    for item in islice(rest, most):
        read.append(item)
        if tells(item):
            return item, chain(read, rest)
    return next(iter(read), None), chain(read, rest)


def batch_by_size(
    items: Iterable[Item], limits: Iterator[int], size: Callable[[Item], int], most: int | None = None
) -> Iterator[list[Item]]:
    """Yield the items in order, in batches. A batch ends when the sizes of its items sum to its limit or more.

    Args:
        items: the items. None is read before it is needed.
        limits: the limit of each batch in turn.
        size: size of an item.
        most: maximum number of items in a batch; None: no maximum.
    """
    batch: list[Item] = []
    total, limit = 0, next(limits)
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= limit or len(batch) == most:
            yield batch
            batch, total, limit = [], 0, next(limits)
    if batch:
        yield batch


def padded_batches(items: Iterable[Item], length: Callable[[Item], int], area: int | None, most: int | None = None) -> Iterator[list[Item]]:
    """Yield the items in order, in batches for padding: number of items times the longest length is at most ``area``.

    Args:
        items: the items.
        length: length of an item.
        area: maximum number of positions, with padding; None: no maximum. A longer item is a batch by itself.
        most: maximum number of items in a batch; None: no maximum.
    """
    batch: list[Item] = []
    longest = 0
    for item in items:
        longest = max(longest, length(item))
        if batch and (len(batch) == most or (area is not None and longest * (len(batch) + 1) > area)):
            yield batch
            batch, longest = [], length(item)
        batch.append(item)
    if batch:
        yield batch
