"""Score blocks of hypotheses in this process, or in several processes of this machine.

Both return the results in the order of the blocks and read blocks on demand, so a list may be larger than memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import state_of
from attlm_fairseq.nbest.corrections.corrections import Corrections, in_batches
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.run.block import Block
from attlm_fairseq.nbest.run.block_scores import BlockScorer, BlockScores, Margin
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.walk import Group, TurnScores, light, walk
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.unknown_words.oov import OOVCount

if TYPE_CHECKING:
    from concurrent.futures import Future

Work = TypeVar("Work")
Result = TypeVar("Result")

WAITING = 2  # blocks read ahead per process, so that none waits for work


class Workers(Protocol):
    """Loaded LMs, in this process or in others; a context manager that ends the other processes."""

    @property
    def scorer(self) -> BlockScorer | None:
        """Return the LMs in this process, which stay after the context ends; None if only other processes have them."""

    def expand(self, lists: Iterable[NbestList]) -> Iterable[NbestList]:
        """Return the lists, in order, with the candidates of the run if it adds any."""

    def score(self, blocks: Iterable[Block], margin: Margin | None = None) -> Iterator[BlockScores]:
        """Yield the scores of each block, in order. ``margin``: see ``BlockScorer.score``; None: the first block's is used for all."""

    def walk(self, groups: Iterable[Group]) -> Iterator[Iterable[TurnScores]]:
        """Yield the scores of the turns of each group of conversations, in order. See ``walk.walk``."""

    def signatures(self) -> dict[str, Mapping[str, Any]]:
        """Return, by LM, what is needed to reproduce its scores."""

    def advise(self, count: OOVCount) -> str | None:
        """Return the text steps that would make the unknown words of an LM known."""


class OneProcess(contextlib.AbstractContextManager):
    def __init__(self, scorer: BlockScorer, config: RunConfig | None = None) -> None:
        """Score with ``scorer``. ``config``: the run whose candidates join lists; None adds none."""
        self.scorer = scorer
        self._config = config or RunConfig()

    def expand(self, lists: Iterable[NbestList]) -> Iterable[NbestList]:
        spec = self._config.candidates
        return spec.load().expand_all(lists, spec.candidates) if self._config.adds_candidates else lists

    def score(self, blocks: Iterable[Block], margin: Margin | None = None) -> Iterator[BlockScores]:
        for block in blocks:
            scores = self.scorer.score(block, margin)
            margin = scores.margin
            yield scores

    def walk(self, groups: Iterable[Group]) -> Iterator[Iterable[TurnScores]]:
        return (walk(self.scorer, group) for group in groups)

    def signatures(self) -> dict[str, Mapping[str, Any]]:
        return self.scorer.signatures()

    def advise(self, count: OOVCount) -> str | None:
        return self.scorer.advise(count)

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is no other process."""


TRACKER_SAYS = "ignore:resource_tracker"
"""Warning option that Python's resource tracker inherits: its messages about a killed process do not help the user."""


class Processes(contextlib.AbstractContextManager):
    """One process of this machine per device in ``computes``, each with its own LMs."""

    scorer = None

    def __init__(self, config: RunConfig, computes: Sequence[DeviceConfig], features: Sequence[str] = ()) -> None:
        import multiprocessing  # here: a single process does without
        from concurrent.futures import ProcessPoolExecutor

        on_cpu = sum(compute.device == "cpu" for compute in computes)
        threads = max(1, (os.cpu_count() or 1) // on_cpu) if on_cpu else None
        if TRACKER_SAYS not in sys.warnoptions:
            sys.warnoptions.append(TRACKER_SAYS)
        context = multiprocessing.get_context("spawn")  # a fork would inherit threads of torch that do not run in it
        places = context.SimpleQueue()
        for compute in computes:
            places.put(compute)
        self._count, self._config = len(computes), config
        files = {path: state_of(path) for lm in config.lms for path in lm.all_files}
        self._pool = ProcessPoolExecutor(self._count, context, _start, (config, places, tuple(features), threads, files))

    def expand(self, lists: Iterable[NbestList]) -> Iterable[NbestList]:
        if not self._config.adds_candidates:
            return lists
        return self._expanded(lists)

    def _expanded(self, lists: Iterable[NbestList]) -> Iterator[NbestList]:
        waiting: deque[list[NbestList]] = deque()

        def batches() -> Iterator[list[NbestList]]:
            for of_batch in in_batches(lists):
                waiting.append(of_batch)
                yield [*light(dict(enumerate(of_batch))).values()]

        for expanded in self._in_order(_expand, batches()):
            yield from map(_with_texts_of_file, expanded, waiting.popleft())

    def score(self, blocks: Iterable[Block], margin: Margin | None = None) -> Iterator[BlockScores]:
        blocks = iter(blocks)
        for block in islice(blocks, 1):
            if not block.rest or margin is not None:
                blocks = chain([block], blocks)
                break
            scores = self._result(self._submit(_with_lms, BlockScorer.score, block))  # the other blocks wait for its margin
            margin = scores.margin
            yield scores
        yield from self._in_order(partial(_with_lms, partial(BlockScorer.score, margin=margin)), blocks)

    def walk(self, groups: Iterable[Group]) -> Iterator[Iterable[TurnScores]]:
        return self._in_order(partial(_with_lms, _walk), (replace(group, turns=[light(turn) for turn in group.turns]) for group in groups))

    def _in_order(self, function: Callable[[Work], Result], work: Iterable[Work]) -> Iterator[Result]:
        """Yield the results of all pieces of work in order; only few pieces are read ahead."""
        waiting: deque[Future] = deque()
        work = iter(work)
        while True:
            waiting.extend(self._submit(function, piece) for piece in islice(work, WAITING * self._count - len(waiting)))
            if not waiting:
                return
            yield self._result(waiting.popleft())

    def signatures(self) -> dict[str, Mapping[str, Any]]:
        return self._result(self._submit(_with_lms, BlockScorer.signatures))

    def advise(self, count: OOVCount) -> str | None:
        return self._result(self._submit(_with_lms, BlockScorer.advise, count))

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:  # an interrupted run does not wait for work that nobody wants
            pool: Any = self._pool
            for process in list((pool._processes or {}).values()):
                process.terminate()
            # who writes work into a full pipe, or reads a result that was cut, waits for as long as this process could be the other side
            pool._call_queue._reader.close()
            pool._result_queue._writer.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, function: Callable[..., Any], *arguments: Any) -> Future:
        with _dead_process_is_told(), _interrupts_blocked():
            return self._pool.submit(function, *arguments)

    def _result(self, future: Future) -> Any:
        with _dead_process_is_told():
            return future.result()


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start processes that Ctrl-C and the end of a terminal, which reach the whole group, do not stop: they inherit the mask, and
    their parent ends them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _dead_process_is_told() -> Iterator[None]:
    from concurrent.futures.process import BrokenProcessPool

    try:
        yield
    except BrokenProcessPool:
        raise InputError(
            "a scoring process has died, perhaps for lack of memory: try fewer --devices or less --memory. A Python script that uses "
            'several devices begins its work below `if __name__ == "__main__":`'
        ) from None


_scorer: BlockScorer | InputError  # of a process of the pool
_candidates: CandidateSpec


def _start(config: RunConfig, places: Any, features: tuple[str, ...], threads: int | None, files: Mapping[Path, object]) -> None:
    global _scorer, _candidates
    threading.Thread(target=_end_with_parent, daemon=True).start()
    compute, _candidates = places.get(), config.candidates
    if threads is not None and "OMP_NUM_THREADS" not in os.environ:
        os.environ["OMP_NUM_THREADS"] = str(threads)  # before torch is imported
    try:
        _scorer = BlockScorer.load(config, compute, features)
    except InputError as error:  # an initialiser that raises would break the pool without saying why
        _scorer = error
    for path, before in files.items():  # or processes would score with different LMs
        if state_of(path) != before:
            _scorer = InputError("has changed while the processes loaded it: start again when it is complete", path=path)


def _end_with_parent() -> None:
    """End this process with its parent. A killed parent cannot say so, and its processes would keep their LMs in memory for good."""
    import multiprocessing.connection

    if (parent := multiprocessing.parent_process()) is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _with_lms(function: Callable[..., Result], *arguments: Any) -> Result:
    """Return what a function of the LMs of this process returns. Raises InputError if they could not be loaded."""
    if isinstance(_scorer, InputError):
        raise _scorer
    return function(_scorer, *arguments)


@cache
def _corrections() -> Corrections:
    """Return the corrections of the run, loaded when lists first need them."""
    return _candidates.load()


def _expand(lists: list[NbestList]) -> list[NbestList]:
    return list(_corrections().expand_all(lists, _candidates.candidates))


def _with_texts_of_file(expanded: NbestList, read: NbestList) -> NbestList:
    """Return an expanded list with what its file says of it and of the hypotheses that were read, which ``light`` took away."""
    own = [replace(hypothesis, verbatim=one.verbatim) for hypothesis, one in zip(expanded.hypotheses, read.hypotheses, strict=False)]
    return replace(expanded, verbatim=read.verbatim, hypotheses=own + expanded.hypotheses[len(own) :])


def _walk(scorer: BlockScorer, group: Group) -> list[TurnScores]:
    return list(walk(scorer, group))
