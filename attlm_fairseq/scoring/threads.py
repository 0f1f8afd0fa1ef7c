"""Independent parts of a computation side by side on the cores of the CPU."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch

ONE_AT_A_TIME = threading.Lock()  # torch's number of threads is partly the whole program's

Part = TypeVar("Part")
Result = TypeVar("Result")


class StoppedError(Exception):
    """Another part has failed, or the program is interrupted."""


def side_by_side(function: Callable[[Part, Callable[[], None]], Result], parts: Sequence[Part]) -> list[Result]:
    """``function`` of each part, in their order: each in a thread of its own, with an even share of the threads that torch has.

    The function also gets something to call now and then, which raises ``StoppedError`` where its result is no longer wanted: Python
    waits for its threads. Programs that call this from several threads at once take turns.

    Threads that share one matrix product wait for each other hundreds of times a second, which costs little on idle cores and several
    times the product on busy ones; threads with work of their own do not. Modes that torch keeps for each thread (inference, autocast)
    are for the function to set.
    """
    if len(parts) == 1:
        return [function(parts[0], lambda: None)]
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise StoppedError

    def call(part: Part) -> Result:
        torch.set_num_threads(max(1, threads // len(parts)))  # of this thread
        try:
            return function(part, check)
        except BaseException:
            stop.set()
            raise

    with ONE_AT_A_TIME, ThreadPoolExecutor(len(parts)) as pool:
        threads = torch.get_num_threads()
        futures = [pool.submit(call, part) for part in parts]
        try:
            wait(futures)  # a part that fails stops the others
            failed = [error for future in futures if (error := future.exception()) is not None]
            if failed:  # the failure itself, not that the others were stopped
                raise next((error for error in failed if not isinstance(error, StoppedError)), failed[0])
            return [future.result() for future in futures]
        finally:
            stop.set()
            torch.set_num_threads(threads)
