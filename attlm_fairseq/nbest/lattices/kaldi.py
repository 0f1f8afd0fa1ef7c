"""Lattices of Kaldi, compact or not: archives in binary form (``lat.1.gz``) or as text (``lattice-copy ark:.. ark,t:..``).

A binary archive holds, for each utterance, its id, a space and a vector FST of OpenFst with arcs of the type ``compactlattice44``
or ``lattice4``. In text, a line with the id is followed by lines ``from to word graph,acoustic,alignment`` (not compact:
``from to input word graph,acoustic``), by lines ``state graph,acoustic,alignment`` for ends and by a blank line. Costs that are 0
may be left out. An alignment has one number for each frame, joined by ``_``.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import BinaryIO

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import ByteSource, TextSource
from attlm_fairseq.nbest.formats.number_texts import number
from attlm_fairseq.nbest.lattices.labels import EPSILON, fields_of, labels_of, put_words, texts_among, word_of
from attlm_fairseq.nbest.lattices.lattice import MAX_STATES, Arc, Lattice
from attlm_fairseq.numeric import whole_number

NAMES = ("graph", "acoustic")
WEIGHTS = {"graph": 1.0, "acoustic": 0.1}  # --acoustic-scale of Kaldi's own commands
MAGIC = struct.pack("<i", 2125659606)  # of OpenFst
COMPACT, PLAIN = "compactlattice44", "lattice4"
NO_WORDS = frozenset({"<eps>", "<s>", "</s>"})
LONGEST_NAME = 1000  # bytes of an id or of the name of a type; more is no archive
MAX_FRAMES = 1 << 24  # of an arc
DECIDING = 100  # by so many lattices at the beginning of a text it is decided whether it has words or their numbers
_KEY = re.compile(rb"\S+[ \t]")
_TEXT = re.compile(rb"(?:\S+[ \t]*\r?\n[ \t]*\r?\n)*\S+[ \t]*\r?\n\d+(?:[ \t]+\S+){0,4}[ \t]*\r?\n")


def is_binary(beginning: bytes) -> bool:
    key = _KEY.match(beginning)
    return key is not None and beginning[key.end() :].startswith(MAGIC)


def is_text(beginning: bytes) -> bool:
    return _TEXT.match(beginning) is not None


def read_binary(source: ByteSource, symbols: Mapping[int, str] | None, frame_shift: float | None = None) -> Iterator[Lattice]:
    """Yield the lattices of a binary archive. See ``read_lattices``.

    Raises:
        InputError: the archive is cut short, damaged or of another kind, ``symbols`` is None, or a word is not among them.
    """
    if symbols is None:
        raise InputError("binary lattices have numbers for words: give Kaldi's words.txt (--words graph/words.txt)", path=source.name)
    with source.readable():
        while key := _read_key(source):
            yield _Binary(source.bytes, source.name, key, frame_shift).lattice(symbols)


def _read_key(source: ByteSource) -> str:
    """Return the id of the next utterance; "" at the end."""
    found = b""
    while (byte := source.bytes.read(1)) not in (b" ", b""):
        found += byte
        if len(found) > LONGEST_NAME or byte == b"\0":
            raise InputError("is damaged: expected the id of an utterance and a space before each lattice", path=source.name)
    if found and not byte:
        raise InputError(f"ends after the id {quoted(found.decode(errors='replace'))}: the file is cut short", path=source.name)
    try:
        return found.decode()
    except UnicodeDecodeError:
        raise InputError(f"the id {found!r} is not UTF-8", path=source.name) from None


class _Binary:
    """Reads one binary lattice."""

    def __init__(self, stream: BinaryIO, path: str, key: str, frame_shift: float | None) -> None:
        self._stream = stream
        self._lattice = Lattice(key, NAMES, WEIGHTS, path=path, unit=frame_shift)

    def lattice(self, symbols: Mapping[int, str]) -> Lattice:
        lattice = self._lattice
        if (magic := self._bytes(4)) != MAGIC:
            raise lattice.error(f"begins with the bytes {magic!r}: expected a binary lattice of Kaldi")
        kind, arcs = self._string(), self._string()
        if kind != "vector" or arcs not in (COMPACT, PLAIN):
            raise lattice.error(f"is an FST of the type {quoted(kind)} with arcs {quoted(arcs)}: expected vector, {COMPACT} or {PLAIN}")
        _, flags, _, start, states, _ = self._numbers("<iiQqqq")
        is_empty = (start, states) == (-1, 0)
        if flags or not (is_empty or 0 <= start < states <= MAX_STATES):
            raise lattice.error(f"has {states} states, the start {start} and the flags {flags}: expected states, a start and no flags")
        lattice.start = max(start, 0)
        lattice.state(max(states - 1, 0))
        compact = arcs == COMPACT
        if not compact and lattice.unit is not None:
            raise _without_times(lattice)
        for state in range(states):
            scores = self._scores(*self._numbers("<ff"))
            if compact:
                self._skip_alignment()
            if scores is not None:
                lattice.finals[state] = scores
            (count,) = self._numbers("<q")
            for _ in range(count):
                _, label, *costs = self._numbers("<iiff")
                frames = self._skip_alignment() if compact else 0
                (target,) = self._numbers("<i")
                if not 0 <= target < states:
                    raise lattice.error(f"has an arc to the state {target} of {states}")
                if (found := self._scores(*costs)) is not None:
                    lattice.add(state, Arc(target, word_of(label, symbols, lattice, NO_WORDS), found, frames))
        return lattice

    def _scores(self, graph: float, acoustic: float) -> tuple[float, float] | None:
        """Return the scores that have these costs; None if they are infinite, which ends no path."""
        if math.isinf(graph) and math.isinf(acoustic) and graph > 0 and acoustic > 0:
            return None
        if not (math.isfinite(graph) and math.isfinite(acoustic)):
            raise self._lattice.error(f"has the costs {graph},{acoustic}: expected finite numbers")
        return -graph, -acoustic

    def _skip_alignment(self) -> int:
        """Return the number of frames."""
        (length,) = self._numbers("<i")
        if not 0 <= length <= MAX_FRAMES:
            raise self._lattice.error(f"is damaged: an alignment has {length} frames")
        self._bytes(4 * length)
        return length

    def _string(self) -> str:
        (length,) = self._numbers("<i")
        if not 0 <= length <= LONGEST_NAME:
            raise self._lattice.error(f"is damaged: the name of a type has {length} bytes")
        return self._bytes(length).decode(errors="replace")

    def _numbers(self, form: str) -> tuple:
        return struct.unpack(form, self._bytes(struct.calcsize(form)))

    def _bytes(self, count: int) -> bytes:
        found = self._stream.read(count)
        if len(found) < count:
            raise self._lattice.error("is cut short")
        return found


def _without_times(lattice: Lattice) -> InputError:
    return lattice.error("is not compact, so that its words have no ends: leave --frame-shift out, or use Kaldi's lattice-align-words")


def read_text(source: TextSource, symbols: Mapping[int, str] | None, frame_shift: float | None = None) -> Iterator[Lattice]:
    """Yield the lattices of a text archive. See ``read_lattices``.

    Raises:
        InputError: a line is wrong, labels are numbers and ``symbols`` is None, or a word is not among them.
    """
    lattices = _as_written(source, frame_shift)
    first: list[Lattice] = []
    texts: list[str] = []
    for lattice in lattices:
        first.append(lattice)
        texts = texts_among(labels_of(lattice), NO_WORDS)
        if texts or len(first) == DECIDING:
            break
    if texts and symbols is not None:
        raise first[-1].error(f"has words, such as {texts[0]!r}, not their numbers: leave --words out")
    for lattice in chain(first, lattices):
        yield _with_words(lattice, symbols, are_words=bool(texts))


def _as_written(source: TextSource, frame_shift: float | None) -> Iterator[Lattice]:
    """Yield the lattices of a text archive with the labels of its file for words."""
    lattice: Lattice | None = None
    for line, text in enumerate(source.lines(), 1):
        fields = fields_of(text)
        if not fields:
            if lattice is not None:
                yield lattice
            lattice = None
        elif lattice is None:
            if len(fields) > 1:
                raise InputError(f"found {quoted(text.rstrip())}: expected the id of an utterance", path=source.name, line=line)
            lattice = Lattice(fields[0], NAMES, WEIGHTS, start=-1, path=source.name, line=line, unit=frame_shift)
        else:
            _add_line(lattice, fields, line)
    if lattice is not None:
        yield lattice


def _with_words(lattice: Lattice, symbols: Mapping[int, str] | None, are_words: bool) -> Lattice:
    """Return a lattice as read, with words in place of their numbers. ``are_words``: the labels are words, even digits."""
    if lattice.start < 0:
        lattice.start = 0
        lattice.state(0)
    if symbols is None and not are_words and labels_of(lattice) - NO_WORDS - {str(EPSILON)}:
        raise lattice.error("has numbers for words: give Kaldi's words.txt (--words graph/words.txt)")
    put_words(lattice, ({} if symbols is None else symbols) if not are_words else None, NO_WORDS)
    return lattice


def _add_line(lattice: Lattice, fields: list[str], line: int) -> None:
    """Add an arc, with its label for a word, or an end to a lattice."""
    compact = fields[-1].count(",") == 2
    *states, costs = fields if "," in fields[-1] else (*fields, "0,0")
    numbers, labels = [found for found in map(whole_number, states[:2]) if found is not None], states[2:]
    if not (len(numbers) == len(states[:2]) and (len(states) == 1 or 1 <= len(labels) <= (1 if compact else 2))):
        expected = "expected `from to word graph,acoustic,alignment`, or `state graph,acoustic,alignment` for an end"
        raise InputError(f"found {quoted(' '.join(fields))}: {expected}", path=lattice.path, line=line)
    state = numbers[0]
    lattice.state(state)
    if lattice.start < 0:
        lattice.start = state
    if costs.lower().startswith("infinity,infinity"):  # no end, and no arc
        return
    found = [number(cost or "0", "a cost", lattice.path, line) for cost in costs.split(",")[:2]]
    scores = (-found[0], -found[1])
    if len(numbers) == 1:
        lattice.finals[state] = scores
        return
    if len(labels) > 1 and lattice.unit is not None:
        raise _without_times(lattice)
    target, label = numbers[1], labels[-1]
    alignment = costs.split(",")[2] if compact else ""
    lattice.state(target)
    lattice.arcs[state].append(Arc(target, label, scores, alignment.count("_") + 1 if alignment else 0))
