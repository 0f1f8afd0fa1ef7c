"""Parallel computation of independent parts on the cores of the CPU."""

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
    """Raised in a part if another part failed or the program was interrupted."""


def side_by_side(function: Callable[[Part, Callable[[], None]], Result], parts: Sequence[Part]) -> list[Result]:
    """Return the results of ``function`` for each part, in order, computing each part in its own thread.

    The threads share torch's threads evenly. The second argument of ``function`` is a check to be called now and then,
    which raises ``StoppedError`` if the result is no longer needed. Concurrent calls from several threads run one after
    another. torch's per-thread modes (inference mode, autocast) must be set in ``function``.

    Threads that share a matrix product synchronise hundreds of times a second, which on busy cores costs several times
    the product itself. Threads with independent work avoid it.
    """
    if len(parts) == 1:
        return [function(parts[0], lambda: None)]
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise StoppedError

    def call(part: Part) -> Result:
        torch.set_num_threads(max(1, threads // len(parts)))  # the setting of this thread
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
            if failed:  # raise the original failure, not the StoppedError of other parts
                raise next((error for error in failed if not isinstance(error, StoppedError)), failed[0])
            return [future.result() for future in futures]
        finally:
            stop.set()
            torch.set_num_threads(threads)
