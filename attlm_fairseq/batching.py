"""Consecutive items in batches of about one size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def batch_by_size(
    items: Iterable[Item], limits: Iterator[int], size: Callable[[Item], int], most: int | None = None
) -> Iterator[list[Item]]:
    """Yield the items in order, in batches that end with the item at which their sizes sum to the next of ``limits`` or more.

    A batch also ends at ``most`` items; None is any number. No item is read before it is needed.
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
    """Yield the items in order, in batches of at most ``area`` positions, all padded to the longest, and at most ``most`` items.

    None is any number. An item that is longer than ``area`` is a batch by itself.
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
