"""Lattices in HTK's standard lattice format (SLF), one in a file: of HTK, of SRILM's ``lattice-tool``, of Julius and others.

A word stands on its link, or on the node in which the link ends. The scales in the header and ``wdpenalty`` are the decoder's
weights. A scale that is not there is 1, as in SRILM, or 0 for SRILM's further scores ``x1`` to ``x9``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
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
    **{"a": "acoustic", "l": "lm", "n": "ngram", "r": "pronunciation", "ds": "duration"},
    **{name: name for name in _FURTHER},
}
_SCALES = {"acoustic": "acscale", "lm": "lmscale", "ngram": "ngscale", "pronunciation": "prscale", "duration": "duscale"}
_ENDINGS = (".lat", ".slf", ".htk")
_SHORT = {  # names of fields that have two
    **{"UTTERANCE": "U", "NODES": "N", "LINKS": "L", "START": "S", "END": "E", "WORD": "W"},
    **{"time": "t", "acoustic": "a", "language": "l", "ngram": "n"},
}
_FIELD = re.compile(r"""\s*([^\s=]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|(?!")\S*)""")
_HEADER = re.compile(r"\ufeff?(?:[ \t]*(?:#.*)?\r?\n)*[ \t]*(?:VERSION|V|UTTERANCE|U|SUBLAT|S|base|lmname|lmscale|NODES|N|LINKS|L)\s*=")
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")


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
        self._header_lines: dict[str, int] = {}  # the line of each field of the header
        self._nodes: dict[int, str] = {}  # words
        self._times: dict[int, float] = {}
        self._links: dict[str, tuple[dict[str, str], int]] = {}  # with the line of each

    def read(self) -> Lattice:
        for line, text in enumerate(self.source.lines(), 1):
            if text.strip() == ".":
                raise self._error("has sub-lattices, which are not read", line)
            if text.strip() and not text.lstrip().startswith("#"):
                self._read(self._fields(text, line), line)
        if self.source.name == STDIN and (named := self._header.get("U")):
            self.lattice.id = PurePath(named).stem
        return self._lattice()

    def _fields(self, text: str, line: int) -> dict[str, str]:
        """Return the fields of a line, those with two names by the short one."""
        fields: dict[str, str] = {}
        place = 0
        while text[place:].strip():
            found = _FIELD.match(text, place)
            if found is None:
                expected = "expected fields such as J=0 S=0 E=1 W=word a=-12.5 l=-1.2, with each quote closed"
                raise self._error(f"found {quoted(text[place:].strip())}: {expected}", line)
            name = _SHORT.get(found[1], found[1])
            if name in fields:
                raise self._error(f"has the field {name} twice: expected it once in a line", line)
            fields[name] = _unquoted(found[2])
            place = found.end()
        return fields

    def _read(self, fields: dict[str, str], line: int) -> None:
        if "I" in fields:
            self._read_node(fields, line)
        elif "J" in fields:
            if self._links.setdefault(fields["J"], (fields, line))[1] != line:
                raise self._error(f"has the number of an earlier link, {quoted(fields['J'])}: expected another number J= for each", line)
        else:
            self._header |= fields
            self._header_lines |= dict.fromkeys(fields, line)

    def _read_node(self, fields: Mapping[str, str], line: int) -> None:
        if "L" in fields:
            raise self._error("has sub-lattices, which are not read", line)
        if scores := [name for name in fields if name in _SCORES]:
            what_to_do = "expected them on links, as lattice-tool writes them without -htk-scores-on-nodes"
            raise self._error(f"has scores on a node, such as {scores[0]}: {what_to_do}", line)
        node = self._whole(fields["I"], "I", line)
        if node in self._nodes:
            raise self._error(f"has the number of an earlier node, {node}: expected another number I= for each", line)
        self._nodes[node] = fields.get("W", "")
        if "t" in fields:
            self._times[node] = self._number(fields["t"], "t", line)

    def _lattice(self) -> Lattice:
        self._check_header()
        lattice, unit, seconds = self.lattice, self._unit(), self._seconds()
        has_times = 0 < len(self._nodes) == len(self._times)
        named = {_SCORES[name] for fields, _ in self._links.values() for name in fields if name in _SCORES}
        lattice.names = tuple(name for name in NAMES if name in named or (name in USUAL and (named or not self._links)))
        for fields, line in self._links.values():
            start, end = self._node(fields, "S", line), self._node(fields, "E", line)
            word = fields.get("W", self._nodes.get(end, ""))
            scores = {_SCORES[name]: self._score(value, name, unit, line) for name, value in fields.items() if name in _SCORES}
            lattice.state(max(start, end))
            of_link = tuple(scores.get(name, 0.0) for name in lattice.names)
            begins, ends = self._times.get(start, 0.0), self._times.get(end, 0.0)
            if has_times and ends < begins:
                raise self._error(f"ends at {ends * seconds:g} s, before it begins at {begins * seconds:g} s", line)
            lattice.arcs[start].append(Arc(end, "" if word in NO_WORDS else word, of_link, ends - begins))
        begin = self._set_ends()
        if has_times:
            lattice.unit, lattice.begin = seconds, begin * seconds
        self._set_weights(unit)
        return lattice

    def _check_header(self) -> None:
        if self._header.get("dir", "f").lower().startswith("b"):
            raise self._error("is a backward lattice (dir=b): expected a forward one", self._header_lines["dir"])
        for name, what, found in (("N", "nodes", len(self._nodes)), ("L", "links", len(self._links))):
            told = self._whole_of_header(name)
            if told is None or (found != told and (found or name == "L")):
                raise self._error(f"has {found} {what}, and its header says {told}: is the file cut short?")

    def _set_ends(self) -> float:
        """Find the start and the end: the header's, or else the only node without links to it or from it. Return the time of the start.

        A lattice without nodes has neither, and no path.
        """
        lattice, no_scores = self.lattice, (0.0,) * len(self.lattice.names)
        targets = {arc.target for arcs in lattice.arcs for arc in arcs}
        sources = {state for state, arcs in enumerate(lattice.arcs) if arcs}
        nodes = targets | sources or set(self._nodes)
        lattice.state(0)
        if not nodes:
            return 0.0
        first = lattice.start = self._end("start", nodes - targets)
        lattice.finals[self._end("end", nodes - sources)] = no_scores
        word = self._nodes.get(first, "")
        if word and word not in NO_WORDS:  # words of nodes are on the arcs into them, and end at the nodes' times
            lattice.arcs.append([Arc(first, word, no_scores, self._times.get(first, 0.0))])
            lattice.start = len(lattice.arcs) - 1
        return self._times.get(first, 0.0) if lattice.start == first else 0.0

    def _end(self, name: str, found: Collection[int]) -> int:
        """Return the start or the end: the one that the header names, or else the only one found."""
        node = self._whole_of_header(name)
        if node is None:
            if len(found) != 1:
                told = ", ".join(map(str, sorted(found))) or "none"
                raise self._error(f"has the {name} nodes {told}: expected one, or {name}=NODE in its header")
            [node] = found
        elif node not in (self._nodes or range(max(len(self.lattice.arcs), self._whole_of_header("N") or 0))):
            raise self._error(f"{name} is {node}, which is no node of the lattice", self._header_lines[name])
        self.lattice.state(node)
        return node

    def _set_weights(self, unit: float | None) -> None:
        weights = {}
        for name in self.lattice.names:
            scale = _SCALES.get(name, f"{name}scale")
            weights[name] = self._number_of_header(scale, 0.0 if name in _FURTHER else 1.0)
        penalty = self._number_of_header("wdpenalty", 0.0)
        self.lattice.weights = {**weights, WORDS: penalty * (1.0 if unit is None else unit)}

    def _unit(self) -> float | None:
        """Return the natural logarithm of the header's base; None if scores are no logarithms."""
        base = self._number_of_header("base", math.e)
        if base < 0 or base == 1:
            raise self._error(f"has the base {base:g} of logarithms", self._header_lines["base"])
        return math.log(base) if base else None

    def _seconds(self) -> float:
        """Return the seconds of a time of 1."""
        seconds = self._number_of_header("tscale", 1.0)
        if seconds <= 0:
            raise self._error(f"tscale is {seconds:g}: expected a number above 0", self._header_lines["tscale"])
        return seconds

    def _score(self, value: str, name: str, unit: float | None, line: int) -> float:
        found = self._number(value, name, line)
        if unit is not None:
            return found * unit
        if found <= 0:
            raise self._error(f"{name} is {value}: with base=0 expected a likelihood above 0", line)
        return math.log(found)

    def _node(self, fields: Mapping[str, str], name: str, line: int) -> int:
        if name not in fields:
            raise self._error(f"a link has no {name}=: expected the nodes S= and E=", line)
        node = self._whole(fields[name], name, line)
        if self._nodes and node not in self._nodes:
            raise self._error(f"{name} is {node}, which is no node of the lattice", line)
        return node

    def _whole_of_header(self, name: str) -> int | None:
        return self._whole(self._header[name], name, self._header_lines[name]) if name in self._header else None

    def _number_of_header(self, name: str, otherwise: float) -> float:
        return self._number(self._header[name], name, self._header_lines[name]) if name in self._header else otherwise

    def _whole(self, value: str, name: str, line: int) -> int:
        if (found := whole_number(value)) is None:
            raise self._error(f"{name} is {quoted(value)}: expected a whole number", line)
        return found

    def _number(self, value: str, name: str, line: int) -> float:
        return number(value, name, self.source.name, line)

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
