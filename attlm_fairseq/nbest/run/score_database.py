"""The file of the scores of an unfinished run: a SQLite table from the hash of a block to its scores.

What is written is left to the system to put on the disk, because waiting for it would take longer than many turns of a conversation;
after a power cut the file may be damaged. A file of others in its place is not touched.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from attlm_fairseq.errors import InputError, InUseError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.run.block_scores import BlockScores, Margin
from attlm_fairseq.scoring.unknown_words.oov import OOVCount

SQLITE_MAGIC = b"SQLite format 3\0"
APPLICATION_ID = 0x61746C6D  # at byte 68 of the file: attlm's, not another program's database
JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")  # of a journal's beginning, and of its end if that names a journal of several databases
OLDER_START = b'{"attlm": "'  # how a file of attlm 0.1 begins
SCHEMA = 'CREATE TABLE scores (block TEXT PRIMARY KEY, scores TEXT NOT NULL, "check" TEXT NOT NULL) WITHOUT ROWID'


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file while the block runs. If it holds no scores afterwards, as after an error of the input, it is deleted."""
    with closing(_open(path)) as database:
        try:
            yield database
        finally:
            if not holds(database):
                delete(path)


def _open(path: Path) -> sqlite3.Connection:
    """Open the file for this run alone, or create it; delete one that is damaged or older, with a line to the user."""
    kind = kind_of(path)
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
        delete(path)
        return _connect(path)
    except (sqlite3.Error, OSError) as error:
        raise InputError(f"cannot be written: {error}", path=path) from None


def read_scores(database: sqlite3.Connection, key: str, size: int) -> BlockScores | None:
    """Return the scores of ``size`` hypotheses; None if they are not there, or are not as they were written."""
    try:
        row = database.execute('SELECT scores, "check" FROM scores WHERE block = ?', (key,)).fetchone()
    except sqlite3.Error:  # such as a text that is not UTF-8
        return None
    return _decoded(row[0], row[1], size) if row else None


def holds(database: sqlite3.Connection, key: str | None = None) -> bool:
    """Return whether the cache has an entry of this key, or any; also if it cannot be read."""
    try:
        return database.execute("SELECT 1 FROM scores WHERE block = ?1 OR ?1 IS NULL LIMIT 1", (key,)).fetchone() is not None
    except sqlite3.Error:
        return True


def write_scores(database: sqlite3.Connection, path: Path, key: str, scores: BlockScores) -> None:
    text = json.dumps(_as_json(scores))
    try:
        database.execute("INSERT OR REPLACE INTO scores VALUES (?, ?, ?)", (key, text, _checksum(text)))
    except sqlite3.Error as error:
        raise InputError(f"cannot be written: {error}", path=path) from None


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def kind_of(path: Path) -> str:
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


def delete(path: Path) -> None:
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
