"""Independent parts of a computation side by side on the cores of the processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


def side_by_side(function: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
    """``function`` of each part, in their order: each in a thread of its own, with an even share of the threads that torch has.

    Threads that share one matrix product wait for each other hundreds of times a second, which costs little on idle cores and several
    times the product on busy ones; threads with work of their own do not. Modes that torch keeps for each thread (inference, autocast)
    are for the function to set.
    """
    if len(parts) == 1:
        return [function(parts[0])]
    threads = torch.get_num_threads()

    def call(part: Part) -> Result:
        torch.set_num_threads(max(1, threads // len(parts)))  # of this thread
        return function(part)

    try:
        with ThreadPoolExecutor(len(parts)) as pool:
            return list(pool.map(call, parts))
    finally:
        torch.set_num_threads(threads)
