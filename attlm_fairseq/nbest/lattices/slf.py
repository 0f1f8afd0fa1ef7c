"""Lattices in HTK's standard lattice format (SLF), one in a file: of HTK, of SRILM's ``lattice-tool``, of Julius and others.

A word stands on its link, or on the node in which the link ends. The scales in the header and ``wdpenalty`` are the decoder's
weights. A scale that is not there is 1, as in SRILM, or 0 for SRILM's further scores ``x1`` to ``x9``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from attlm_fairseq.errors import InputError
from attlm_fairseq.files import STDIN, TextSource
from attlm_fairseq.nbest.formats.lines import number, quoted
from attlm_fairseq.nbest.lattices.lattice import WORDS, Arc, Lattice
from attlm_fairseq.numeric import whole_number

NO_WORDS = frozenset({"!NULL", "!SENT_START", "!SENT_END", "<s>", "</s>"})
USUAL = ("acoustic", "lm")  # 0 in a lattice that lacks them
_FURTHER = [f"x{number}" for number in range(1, 10)]
NAMES = (*USUAL, "ngram", "pronunciation", "duration", *_FURTHER)
_SCORES = {
    **{"a": "acoustic", "acoustic": "acoustic", "l": "lm", "language": "lm", "n": "ngram", "ngram": "ngram"},
    **{"r": "pronunciation", "ds": "duration"},
    **{name: name for name in _FURTHER},
}
_SCALES = {"acoustic": "acscale", "lm": "lmscale", "ngram": "ngscale", "pronunciation": "prscale", "duration": "duscale"}
_ENDINGS = (".lat", ".slf", ".htk")
_FIELD = re.compile(r"""\s*([^\s=]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\S*)""")
_HEADER = re.compile(r"\ufeff?(?:[ \t]*(?:#.*)?\r?\n)*[ \t]*(?:VERSION|V|UTTERANCE|U|SUBLAT|S|base|lmname|lmscale|NODES|N|LINKS|L)\s*=")
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_NODES, _LINKS = ("NODES", "N"), ("LINKS", "L")


def is_slf(beginning: bytes) -> bool:
    return _HEADER.match(beginning.decode("utf-8", errors="replace")) is not None


def name_of(path: str) -> str:
    """Return the id of the utterance whose lattice is in this file: its name without ``.gz``, ``.lat``, ``.slf`` and ``.htk``."""
    name = PurePath(path.removesuffix(".gz")).name
    return next((name.removesuffix(ending) for ending in _ENDINGS if name.endswith(ending)), name)


class _Reader:
    """Reads the lattice of one file."""

    def __init__(self, source: TextSource) -> None:
        self.source = source
        self.lattice = Lattice(name_of(source.name), NAMES, {}, path=source.name)
        self._header: dict[str, str] = {}
        self._nodes: dict[int, str] = {}  # words
        self._times: dict[int, float] = {}
        self._links: list[tuple[dict[str, str], int]] = []  # with the line of each

    def read(self) -> Lattice:
        for line, text in enumerate(self.source.lines(), 1):
            if text.strip() == ".":
                raise self._error("has sub-lattices, which are not read", line)
            if text.strip() and not text.lstrip().startswith("#"):
                self._read(self._fields(text, line), line)
        if self.source.name == STDIN and (named := self._header.get("UTTERANCE", self._header.get("U"))):
            self.lattice.id = PurePath(named).stem
        return self._lattice()

    def _fields(self, text: str, line: int) -> dict[str, str]:
        fields, place = {}, 0
        while text[place:].strip():
            found = _FIELD.match(text, place)
            if found is None:
                raise self._error(f"found {quoted(text[place:].strip())}: expected fields such as J=0 S=0 E=1 W=word a=-12.5 l=-1.2", line)
            fields[found[1]] = _unquoted(found[2])
            place = found.end()
        return fields

    def _read(self, fields: dict[str, str], line: int) -> None:
        if "I" in fields:
            if "L" in fields:
                raise self._error("has sub-lattices, which are not read", line)
            node = self._whole(fields["I"], "I", line)
            self._nodes[node] = fields.get("W", fields.get("WORD", ""))
            if (time := fields.get("t", fields.get("time"))) is not None:
                self._times[node] = self._number(time, "t", line)
            if any(name in fields for name in ("a", "acoustic")):
                raise self._error("has acoustic scores on nodes: expected them on links", line)
        elif "J" in fields:
            self._links.append((fields, line))
        else:
            self._header |= fields

    def _lattice(self) -> Lattice:
        if self._header.get("dir", "f").lower().startswith("b"):
            raise self._error("is a backward lattice (dir=b): expected a forward one")
        for names, found in ((_NODES, len(self._nodes)), (_LINKS, len(self._links))):
            told = next((self._header[name] for name in names if name in self._header), None)
            if told is None or (found != self._whole(told, names[0]) and (found or names is _LINKS)):
                raise self._error(f"has {found} {names[0].lower()}, and its header says {told}: is the file cut short?")
        lattice = self.lattice
        unit = self._unit()
        has_times = 0 < len(self._nodes) == len(self._times)
        named = {_SCORES[name] for fields, _ in self._links for name in fields if name in _SCORES}
        lattice.names = tuple(name for name in NAMES if name in named or (named and name in USUAL))
        for fields, line in self._links:
            start, end = (self._node(fields, names, line) for names in (("S", "START"), ("E", "END")))
            word = fields.get("W", fields.get("WORD", self._nodes.get(end, "")))
            scores = {_SCORES[name]: self._score(value, name, unit, line) for name, value in fields.items() if name in _SCORES}
            lattice.state(max(start, end))
            of_link = tuple(scores.get(name, 0.0) for name in lattice.names)
            duration = self._times.get(end, 0.0) - self._times.get(start, 0.0)
            if has_times and duration < 0:
                raise self._error(f"ends at {self._times[end]:g} s, before it begins at {self._times[start]:g} s", line)
            lattice.arcs[start].append(Arc(end, "" if word in NO_WORDS else word, of_link, duration))
        self._set_ends()
        if has_times:
            lattice.unit, lattice.begin = 1.0, self._times[lattice.start]
        self._set_weights(unit)
        return lattice

    def _set_ends(self) -> None:
        """Find the start and the end: the header's, or else the only node without links to it or from it."""
        lattice = self.lattice
        targets = {arc.target for arcs in lattice.arcs for arc in arcs}
        used = targets | {state for state, arcs in enumerate(lattice.arcs) if arcs}
        found = {"start": sorted(used - targets), "end": sorted(state for state in used if not lattice.arcs[state])}
        for name in found:
            if name in self._header:
                found[name] = [self._whole(self._header[name], name)]
            if len(found[name]) != 1 or found[name][0] not in used:
                told = ", ".join(map(str, found[name])) or "none"
                raise self._error(f"has the {name} nodes {told}: expected one, or {name}=NODE in its header")
        [lattice.start], [end] = found["start"], found["end"]
        lattice.finals[end] = (0.0,) * len(lattice.names)

    def _set_weights(self, unit: float | None) -> None:
        weights = {}
        for name in self.lattice.names:
            scale = _SCALES.get(name, f"{name}scale")
            weights[name] = self._number(self._header.get(scale, "0" if name in _FURTHER else "1"), scale)
        penalty = self._number(self._header.get("wdpenalty", "0"), "wdpenalty")
        self.lattice.weights = {**weights, WORDS: penalty * (1.0 if unit is None else unit)}

    def _unit(self) -> float | None:
        """Return the natural logarithm of the header's base; None if scores are no logarithms."""
        base = self._number(self._header.get("base", str(math.e)), "base")
        if base < 0 or base == 1:
            raise self._error(f"has the base {base:g} of logarithms")
        return math.log(base) if base else None

    def _score(self, value: str, name: str, unit: float | None, line: int) -> float:
        found = self._number(value, name, line)
        if unit is not None:
            return found * unit
        if found <= 0:
            raise self._error(f"{name} is {value}: with base=0 expected a likelihood above 0", line)
        return math.log(found)

    def _node(self, fields: Mapping[str, str], names: tuple[str, str], line: int) -> int:
        value = next((fields[name] for name in names if name in fields), None)
        if value is None:
            raise self._error(f"a link has no {names[0]}=: expected the nodes S= and E=", line)
        node = self._whole(value, names[0], line)
        if self._nodes and node not in self._nodes:
            raise self._error(f"{names[0]} is {node}, which is no node of the lattice", line)
        return node

    def _whole(self, value: str, name: str, line: int | None = None) -> int:
        if (found := whole_number(value)) is None:
            raise self._error(f"{name} is {quoted(value)}: expected a whole number", line)
        return found

    def _number(self, value: str, name: str, line: int | None = None) -> float:
        return number(value, name, self.source.name, line or 0)

    def _error(self, message: str, line: int | None = None) -> InputError:
        return InputError(message, path=self.source.name, line=line)


def _unquoted(value: str) -> str:
    r"""Return a value without quotes. HTK writes other bytes than ASCII as octal numbers, ``\303\244``."""
    text = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
    if "\\" not in text:
        return text
    as_bytes = _ESCAPE.sub(lambda found: chr(int(found[1], 8)) if len(found[1]) == 3 else found[1], text)
    try:
        return as_bytes.encode("latin-1").decode("utf-8")
    except UnicodeError:  # the value holds letters such as ä as they are, so its numbers are no bytes of UTF-8
        return as_bytes


def read_slf(source: TextSource) -> Iterator[Lattice]:
    """Yield the lattice of a file.

    Raises:
        InputError: a line is wrong, the file is cut short, or the lattice is of a kind that is not read.
    """
    yield _Reader(source).read()
