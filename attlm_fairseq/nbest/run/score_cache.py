"""The scores of an unfinished run on disk, so that the same command continues after an interruption with the same result.

A SQLite table maps a hash to the scores of a block of hypotheses. The hash covers the block, the LMs' signatures and the
settings that affect scores, but not the weights, which are applied later. Each block is one transaction with a checksum:
a killed run leaves only whole blocks, and damaged blocks are scored again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from attlm_fairseq.errors import InputError, InUseError
from attlm_fairseq.files.writing import is_stream
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.run.block import Block
from attlm_fairseq.nbest.run.block_scores import BlockScores
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.score_database import delete, holds, kind_of, opened, read_scores, write_scores
from attlm_fairseq.nbest.run.walk import Group, History, Turn, TurnScores
from attlm_fairseq.nbest.run.workers import Workers
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.scorer import Scorer
from attlm_fairseq.version import __version__

UNFINISHED = ".unfinished"  # after the name of an output


class ScoreCache:
    """The cache of one output; without a path, it stores nothing. Created if there is more than one block; ``finish`` deletes it."""

    def __init__(self, path: Path | None, settings: object = None) -> None:
        """``settings``: what decides on scores besides the LMs."""
        self.path = path
        self._settings = settings

    @classmethod
    def of_output(cls, output: str, run: RunConfig, device: DeviceConfig, features: Iterable[str]) -> ScoreCache:
        """Return the cache next to an output, ``OUTPUT.unfinished``; none for standard output, devices and pipes.

        Nor is there one for LMs after other sentences, of which their signatures do not tell.
        """
        is_file = not is_stream(output) or Path(output).is_dir()  # or a folder, which is empty
        if not is_file or any(lm.loaded is not None and _is_changed(lm.loaded) for lm in run.lms):
            return cls(None)
        settings = {"precision": device.precision, "memory": device.memory, "device": device.device.partition(":")[0]}
        settings |= {} if device.normaliser == "exact" else {"normaliser": device.normaliser, "weights": dict(run.weights)}
        settings |= {"features": sorted(features)} | ({} if run.context is None else {"context": str(run.context)})
        place = Path(os.path.realpath(output))
        return cls(place.with_name(f"{place.name}{UNFINISHED}"), settings)

    @contextmanager
    def telling_how_to_continue(self) -> Iterator[None]:
        """If the user interrupts the run, or the input is wrong, say that the same command continues it."""
        try:
            yield
        except InUseError:  # the scores there are the other run's
            raise
        except (InputError, MemoryError, RuntimeError):  # torch's lack of memory is one
            if self.path is not None and self.path.exists() and kind_of(self.path) == "cache":
                note(f"note: the scores so far are in {self.path}: the next run with these LMs goes on from there")
            raise
        except KeyboardInterrupt as error:
            if self.path is None or not self.path.exists():
                raise
            raise type(error)(f"the same command continues: the scores so far are in {self.path}") from None

    def score(self, workers: Workers, blocks: Iterable[Block]) -> Iterator[BlockScores]:
        """Yield the scores of each block in order, as ``workers.score`` does. Blocks in the cache are not scored again.

        Raises InputError if the file cannot be written, is in use by another run, or is not attlm's.
        """
        blocks = iter(blocks)
        first = list(islice(blocks, 2))
        blocks = chain(first, blocks)
        if self.path is None or (len(first) < 2 and not os.path.lexists(self.path)):
            yield from workers.score(blocks)
            return
        with opened(self.path) as database:
            yield from self._continued(database, self.path, self._identity(workers), workers, blocks)

    def walk(self, workers: Workers, groups: Iterable[Group]) -> Iterator[Iterator[BlockScores]]:
        """Yield the scores of each group of conversations in order, as ``workers.walk`` does. Turns in the cache are not scored again.

        Read each group's scores before asking for the next group. Raises InputError as ``score`` does.
        """
        if self.path is None:
            for found in workers.walk(groups):
                yield (turn.scores for turn in found)
            return
        identity = self._identity(workers)
        with opened(self.path) as database:
            own: set[str] = set()  # the keys that this run writes
            known = (self._with_known(database, identity, group, own) for group in groups)
            for found in workers.walk(known):
                yield self._written(database, self.path, identity, found, own)

    def _identity(self, workers: Workers) -> str:
        return json.dumps([__version__, workers.signatures(), self._settings], sort_keys=True, default=str)

    def _with_known(self, database: sqlite3.Connection, identity: str, group: Group, own: Collection[str]) -> Group:
        """Return the group with the scores of its first turns that the cache holds. Tell of those of an earlier run."""
        read: list[Turn] = []
        known: list[BlockScores] = []
        earlier = 0
        history, turns = History(), iter(group.turns)
        for turn in turns:
            read.append(turn)
            key = _key(identity, history.key(turn))
            scores = read_scores(database, key, sum(len(nbest.hypotheses) for nbest in turn.values()))
            if scores is None:
                break
            known.append(scores)
            earlier += key not in own
            history.add(turn, group.chosen(turn, scores).values())
        if earlier:
            note(f"continued: the scores of {earlier} turns of {len(group.choices)} conversations were there already")
        return replace(group, turns=chain(read, turns), known=known)

    def _written(
        self, database: sqlite3.Connection, path: Path, identity: str, found: Iterable[TurnScores], own: set[str]
    ) -> Iterator[BlockScores]:
        for turn in found:  # on the disk before they are handed on
            if not turn.known:
                key = _key(identity, turn.key)
                write_scores(database, path, key, turn.scores)
                own.add(key)
            yield turn.scores

    def _continued(
        self, database: sqlite3.Connection, path: Path, identity: str, workers: Workers, blocks: Iterator[Block]
    ) -> Iterator[BlockScores]:
        held, margin = 0, None
        for block in blocks:
            key = _key(identity, block.digest())
            scores = read_scores(database, key, len(block))
            if scores is None:
                if holds(database, key):
                    note(f"note: {path.name} is damaged: everything after {held} hypotheses is scored again")
                elif not held and holds(database):
                    note(f"note: {path.name} is damaged, or of other lists, LMs or settings: all is scored again")
                blocks = chain([block], blocks)
                break
            held, margin = held + len(block), scores.margin
            yield scores
        if held:
            note(f"continued: the scores of {held} hypotheses were in {path.name} already")
        keys: deque[str] = deque()  # of the blocks that are being scored

        def missing() -> Iterator[Block]:
            for block in blocks:
                keys.append(_key(identity, block.digest()))
                yield block

        for scores in workers.score(missing(), margin):  # on the disk before they are handed on
            write_scores(database, path, keys.popleft(), scores)
            yield scores

    def finish(self) -> None:
        """Delete the file: the output is whole. The output is on the disk before."""
        if self.path is not None and self.path.exists():
            os.sync()
            delete(self.path)


def _is_changed(scorer: Scorer) -> bool:
    return scorer.changed or any(map(_is_changed, scorer.members))


def _key(identity: str, what: str) -> str:
    return hashlib.sha256(f"{identity} {what}".encode()).hexdigest()
