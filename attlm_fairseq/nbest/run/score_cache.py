"""The scores of an unfinished run on disk, so that the same command continues after an interruption with the same result.

A SQLite table maps a hash to the scores of a block of hypotheses. The hash covers the block, the LMs' signatures and the
settings that affect scores, but not the weights, which are applied later. Each block is one transaction with a checksum:
a killed run leaves only whole blocks, and damaged blocks are scored again. What is written is left to the system to put on the
disk, because waiting for it would take longer than many turns of a conversation; after a power cut the file may be damaged.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from attlm_fairseq import __version__
from attlm_fairseq.errors import InputError, InUseError
from attlm_fairseq.files.writing import is_stream
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.run.block import Block
from attlm_fairseq.nbest.run.block_scores import BlockScores, Margin
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.walk import Group, History, Turn, TurnScores
from attlm_fairseq.nbest.run.workers import Workers
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.oov import OOVCount
from attlm_fairseq.scoring.scorer import Scorer

SQLITE_MAGIC = b"SQLite format 3\0"
APPLICATION_ID = 0x61746C6D  # at byte 68 of the file: attlm's, not another program's database
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")  # of a journal's beginning, and of its end if that names a journal of several databases
OLDER_START = b'{"attlm": "'  # how a file of attlm 0.1 begins
SCHEMA = 'CREATE TABLE scores (block TEXT PRIMARY KEY, scores TEXT NOT NULL, "check" TEXT NOT NULL) WITHOUT ROWID'


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
            if self.path is not None and self.path.exists() and _kind(self.path) == "cache":
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
        with self._opened(self.path) as database:
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
        with self._opened(self.path) as database:
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
            scores = _looked_up(database, key, sum(len(nbest.hypotheses) for nbest in turn.values()))
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
                _write(database, path, key, turn.scores)
                own.add(key)
            yield turn.scores

    def _continued(
        self, database: sqlite3.Connection, path: Path, identity: str, workers: Workers, blocks: Iterator[Block]
    ) -> Iterator[BlockScores]:
        held, margin = 0, None
        for block in blocks:
            key = _key(identity, block.digest())
            scores = _looked_up(database, key, len(block))
            if scores is None:
                if _holds(database, key):
                    note(f"note: {path.name} is damaged: everything after {held} hypotheses is scored again")
                elif not held and _holds(database):
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
            _write(database, path, keys.popleft(), scores)
            yield scores

    def finish(self) -> None:
        """Delete the file: the output is whole. The output is on the disk before."""
        if self.path is not None and self.path.exists():
            os.sync()
            _delete(self.path)

    @contextmanager
    def _opened(self, path: Path) -> Iterator[sqlite3.Connection]:
        """Open the file while the block runs. If it holds no scores afterwards, as after an error of the input, it is deleted."""
        with closing(self._open(path)) as database:
            try:
                yield database
            finally:
                if not _holds(database):
                    _delete(path)

    def _open(self, path: Path) -> sqlite3.Connection:
        """Open the file for this run alone, or create it; delete one that is damaged or older, with a line to the user."""
        kind = _kind(path)
        if kind == "other":
            raise InputError("is in the way of the scores of an unfinished run: move it, or use --no-resume", path=path)
        try:
            if kind != "older" and not _deletes_another(path.with_name(f"{path.name}-journal")):
                return _connect(path)
        except (sqlite3.Error, ValueError) as error:
            if "locked" in str(error):
                raise InUseError("another attlm is using this file: wait for it, or write another output", path=path) from None
            kind = "damaged" if path.exists() and path.stat().st_size else "new"
        kind = "damaged" if kind == "cache" else kind
        if kind != "new":
            note(f"note: {path.name} is {'of an older attlm' if kind == 'older' else 'damaged'}: its lists are scored again")
        try:
            _delete(path)
            return _connect(path)
        except (sqlite3.Error, OSError) as error:
            raise InputError(f"cannot be written: {error}", path=path) from None


def _is_changed(scorer: Scorer) -> bool:
    return scorer.changed or any(map(_is_changed, scorer.members))


def _key(identity: str, what: str) -> str:
    return hashlib.sha256(f"{identity} {what}".encode()).hexdigest()


def _looked_up(database: sqlite3.Connection, key: str, size: int) -> BlockScores | None:
    """Return the scores of ``size`` hypotheses; None if they are not there, or are not as they were written."""
    try:
        row = database.execute('SELECT scores, "check" FROM scores WHERE block = ?', (key,)).fetchone()
    except sqlite3.Error:  # such as a text that is not UTF-8
        return None
    return _decoded(row[0], row[1], size) if row else None


def _holds(database: sqlite3.Connection, key: str | None = None) -> bool:
    """Return whether the cache has an entry of this key, or any; also if it cannot be read."""
    try:
        return database.execute("SELECT 1 FROM scores WHERE block = ?1 OR ?1 IS NULL LIMIT 1", (key,)).fetchone() is not None
    except sqlite3.Error:
        return True


def _write(database: sqlite3.Connection, path: Path, key: str, scores: BlockScores) -> None:
    text = json.dumps(_as_json(scores))
    try:
        database.execute("INSERT OR REPLACE INTO scores VALUES (?, ?, ?)", (key, text, _checksum(text)))
    except sqlite3.Error as error:
        raise InputError(f"cannot be written: {error}", path=path) from None


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _kind(path: Path) -> str:
    """Return "cache" (also for a damaged one, or none), "older" or "other" (also for a link, which could lead to any file, and a pipe)."""
    try:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            return "other"
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        return "cache"
    except OSError:
        return "other"
    if head and OLDER_START.startswith(head[: len(OLDER_START)]):
        return "older"
    cut_short = head.startswith(SQLITE_MAGIC) and len(head) < 72
    return "cache" if not head or cut_short or head[68:72] == APPLICATION_ID.to_bytes(4, "big") else "other"


def _deletes_another(journal: Path) -> bool:
    """Return whether a journal is not of this cache alone: SQLite deletes the file that a journal of several databases names at its end."""
    if journal.is_symlink():
        return True
    try:
        with journal.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - len(JOURNAL_MAGIC)))
            return file.read() == JOURNAL_MAGIC
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _connect(path: Path) -> sqlite3.Connection:
    """Open a cache, locked until it is closed. Raises sqlite3.Error or ValueError if it is locked or not as it was written."""
    database = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "locking_mode = EXCLUSIVE", "synchronous = OFF"):
            database.execute(f"PRAGMA {pragma}")
        database.execute("BEGIN EXCLUSIVE")
        schema = [sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
        if not schema:
            database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            database.execute(SCHEMA)
        database.execute("COMMIT")
        if schema not in ([], [SCHEMA]) or database.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise ValueError("not as it was written")
    except BaseException:
        database.close()
        raise
    return database


def _delete(path: Path) -> None:
    """Delete a cache, and what SQLite keeps next to it."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        path.with_name(f"{path.name}{suffix}").unlink(missing_ok=True)


def _as_json(scores: BlockScores) -> dict[str, Any]:
    oov = {name: [count.words, dict(count.unknown), count.examples] for name, count in scores.oov.items()}
    return {"values": scores.values, "oov": oov, "notes": scores.notes, "margin": scores.margin}


def _decoded(text: Any, check: Any, size: int) -> BlockScores | None:
    """Return the scores of ``size`` hypotheses; None for anything but what was written."""
    try:
        content = json.loads(text) if _checksum(text) == check else {}
        values = {name: [float(value) for value in column] for name, column in content["values"].items()}
        if any(len(column) != size or not all(map(math.isfinite, column)) for column in values.values()):
            return None
        oov = {}
        for name, (words, unknown, examples) in content["oov"].items():
            oov[name] = OOVCount(name)
            oov[name].words = int(words)
            oov[name].unknown = Counter({word: int(count) for word, count in unknown.items()})
            oov[name].examples = [str(example) for example in examples]
        margin = None if content["margin"] is None else Margin(float(content["margin"][0]), int(content["margin"][1]))
        return BlockScores(values, oov, {name: str(note) for name, note in content["notes"].items()}, margin)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None
