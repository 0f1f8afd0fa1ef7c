"""The scores of an unfinished run on disk, so that the same command started again continues where it stopped.

One line of JSON for each block of hypotheses, in order, with the SHA-256 of their texts and their scores, after a first line that
identifies what scored them. A block is taken from the journal only where both are the same: another list, another LM, another
precision or other features cannot be mixed in. The weights may differ, since they come after. Each line has a checksum: what a disk has
damaged is scored again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from attlm_fairseq import __version__
from attlm_fairseq.errors import InputError
from attlm_fairseq.files import without_following_links
from attlm_fairseq.nbest.run.block_scores import BlockScores
from attlm_fairseq.nbest.run.workers import Workers, text_hash
from attlm_fairseq.scoring.oov import OOVCount


class Journal:
    """The journal of one output; without a path, none. It is written once there is a second block, and :meth:`finish` deletes it."""

    def __init__(self, path: Path | None, settings: object = None, on_resume: Callable[[int], None] = lambda hypotheses: None) -> None:
        """``settings``: what besides the LMs decides on the scores. ``on_resume`` is told how many hypotheses need no scoring again."""
        self.path = path
        self._settings = settings
        self._on_resume = on_resume

    def score(self, workers: Workers, blocks: Iterable[Sequence[str]]) -> Iterator[BlockScores]:
        """As ``workers.score``, but for what the journal has already. Raises InputError where it cannot be written."""
        blocks = iter(blocks)
        if self.path is None:
            yield from workers.score(blocks)
            return
        if self.path.exists() and not self._is_journal():
            raise InputError("is in the way of the scores of an unfinished run, and none: move it, or use --no-resume", path=self.path)
        kept = self._kept(workers) if self.path.exists() else []
        used, hypotheses = 0, 0
        with self._lines(bool(kept)) as lines:
            for block in blocks:
                if used == len(kept) or text_hash(block) != kept[used]:
                    blocks = chain([block], blocks)
                    break
                used, hypotheses = used + 1, hypotheses + len(block)
                yield _read_block(next(lines))
        if used:
            self._on_resume(hypotheses)
        hashes: list[str] = []  # of the blocks that are being scored

        def hashed() -> Iterator[Sequence[str]]:
            for block in blocks:
                hashes.append(text_hash(block))
                yield block

        yield from self._written(workers.score(hashed()), hashes, workers, used)

    def finish(self) -> None:
        """The output is whole: what would be continued is gone, but not before the output is on the disk."""
        if self.path is not None and self.path.exists():
            os.sync()
            self.path.unlink(missing_ok=True)

    def _written(self, scored: Iterator[BlockScores], hashes: list[str], workers: Workers, used: int) -> Iterator[BlockScores]:
        """The same results, each on disk before it is handed on, but for a run that has only one."""
        first = next(scored, None)
        if first is None:
            return
        second = None
        if not used:
            # one block on its own is done before anything could be lost
            yield first
            second = next(scored, None)
            if second is None:
                return
        try:
            with self._opened(workers, used) as file:
                for place, scores in enumerate(chain([first], [second] if second else [], scored)):
                    file.write(_line({"block": hashes[place], **_as_json(scores)}))
                    file.flush()
                    if used or place:
                        yield scores
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", path=self.path) from None

    def _opened(self, workers: Workers, used: int) -> BinaryIO:
        """The file, behind the blocks that were used."""
        if not used:
            file = open(self.path, "wb", opener=without_following_links)  # noqa: SIM115 - the caller closes it
            file.write(_line(self._identity(workers)))
            return file
        with self.path.open("rb") as file:
            end = sum(len(file.readline()) for _ in range(used + 1))
        file = self.path.open("r+b")
        file.truncate(end)
        file.seek(end)
        return file

    def _identity(self, workers: Workers) -> dict[str, str]:
        content = json.dumps([workers.signatures(), self._settings], sort_keys=True, default=str)
        return {"attlm": __version__, "scores of": hashlib.sha256(content.encode()).hexdigest()}

    def _is_journal(self) -> bool:
        """Whether the file is a journal of any run, or of one that was stopped before its first line was whole."""
        try:
            with self.path.open("rb") as file:
                line = file.readline(1000)
        except OSError:  # a folder, or a file of somebody else's
            return False
        begin = b'{"attlm": "'
        return line.startswith(begin) or begin.startswith(line)

    def _kept(self, workers: Workers) -> list[str]:
        """The hashes of the blocks that the journal holds whole, if it is of these LMs."""
        hashes = []
        with self.path.open("rb") as file:
            for number, line in enumerate(file):
                content = _checked(line)
                if content is None or (not number and content != self._identity(workers)):
                    break  # cut short by the interruption, damaged, or of another run
                if number:
                    hashes.append(content["block"])
        return hashes

    def _lines(self, wanted: bool) -> Any:
        return _Lines(self.path if wanted else None)


class _Lines:
    """The lines of a journal behind its first one, as a context."""

    def __init__(self, path: Path | None) -> None:
        self._file = None if path is None else path.open("rb")
        if self._file is not None:
            self._file.readline()

    def __enter__(self) -> Iterator[bytes]:
        return iter(self._file or ())

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _line(content: dict[str, Any]) -> bytes:
    return (json.dumps({**content, "check": _checksum(content)}, ensure_ascii=True) + "\n").encode()


def _checked(line: bytes) -> dict[str, Any] | None:
    """The content of a line; None where it is not what was written."""
    try:
        content = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return None
    if not isinstance(content, dict) or content.pop("check", None) != _checksum(content):
        return None
    return content


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _as_json(scores: BlockScores) -> dict[str, Any]:
    oov = {name: {"words": count.words, "unknown": dict(count.unknown), "examples": count.examples} for name, count in scores.oov.items()}
    return {"values": scores.values, "oov": oov, "notes": scores.notes}


def _read_block(line: bytes) -> BlockScores:
    content = _checked(line)
    oov = {}
    for name, found in content["oov"].items():
        oov[name] = OOVCount(name)
        oov[name].words = found["words"]
        oov[name].unknown = Counter(found["unknown"])
        oov[name].examples = found["examples"]
    return BlockScores(content["values"], oov, content["notes"])
