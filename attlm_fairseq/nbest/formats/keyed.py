"""Kaldi-style tables, ``key value`` lines, and several of them read in step."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.folders import file_inside
from attlm_fairseq.files.reading import TextSource, head_of
from attlm_fairseq.nbest.formats.lines import WholeLines, split_end
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

_LINE = re.compile(r"(\S+)[ \t]?(.*)", re.DOTALL)


@dataclass(slots=True)
class KeyedLine:
    key: str
    value: str
    line: int
    raw: str


def parse_keyed(line: str, path: str, line_number: int) -> KeyedLine:
    """Return the parts of a line ``key value``; the value may be empty.

    Raises:
        InputError: the line is empty, or begins with white space or a byte order mark instead of a key.
    """
    match = _LINE.fullmatch(split_end(line)[0])
    if match is None or line.startswith("\ufeff"):
        raise InputError(f"found {quoted(line)}: expected a key at the beginning of the line", path=path, line=line_number)
    return KeyedLine(match[1], match[2], line_number, line)


class Table:
    """A file of ``key value`` lines, read in order."""

    def __init__(self, path: Path) -> None:
        source = TextSource(str(path))
        self.path = source.name
        self._lines = (parse_keyed(line, self.path, number) for number, line in enumerate(source.lines(keep_mark=True), 1))
        self.next: KeyedLine | None = None
        self._advance()

    def _advance(self) -> None:
        self.next = next(self._lines, None)

    def take(self, key: str) -> KeyedLine | None:
        line = self.next
        if line is None or line.key != key:
            return None
        self._advance()
        return line

    def require(self, key: str) -> KeyedLine:
        line = self.take(key)
        if line is None:
            found = f"key {quoted(self.next.key)}" if self.next else "the end of the file"
            message = f"found {found}, expected {quoted(key)}: the files have to hold the same keys in the same order"
            raise InputError(message, path=self.path, line=self.next.line if self.next else None)
        return line

    def require_end(self) -> None:
        """InputError if there are lines that nobody has taken."""
        if self.next is not None:
            message = f"the key {quoted(self.next.key)} is not in the texts, or not in this place: put the files into the same order"
            raise InputError(message, path=self.path, line=self.next.line)


def tables_beside(text: Path) -> list[str]:
    """Return the names of the other files of a folder that begin with the same key as ``text``, sorted."""
    key = re.split(r"\s", head_of(text), maxsplit=1)[0].encode()
    found = []
    for path in sorted(text.parent.iterdir()):
        if path != text and path.is_file():
            with path.open("rb") as file:
                if re.match(re.escape(key) + rb"\s", file.read(len(key) + 1)):
                    found.append(path.name)
    return found


class TableWriter:
    """Writes many files of a new folder (of ``whole_folder``) at once, each opened when its first line comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._files: dict[str, WholeLines] = {}
        self._names: set[str] | None = None

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.__exit__(kind, error, trace)

    def put_all(self, lines: dict[str, str], folder: str, nbest: NbestList, hypothesis: Hypothesis) -> None:
        """Add the lines of a hypothesis to the files of these names in a folder; all hypotheses must have lines in the same files."""
        self._names = self._names or set(lines)
        if different := sorted(self._names ^ lines.keys()):
            what = f"list {nbest.id}, hypothesis {hypothesis.rank} has {'no' if different[0] in self._names else 'a'} {different[0]}"
            raise nbest.error(f"{what}, unlike the first: all hypotheses need the same scores; write jsonl instead")
        for name, line in lines.items():
            self.put(folder + name, line)

    def put(self, name: str, line: str) -> None:
        """Add a line to the file of that name, which may have a folder in it."""
        if name not in self._files:
            path = self._folder / name
            path.parent.mkdir(exist_ok=True)
            self._files[name] = WholeLines(self._stack.enter_context(file_inside(path)))
        self._files[name].put(line)


def require_key(key: str) -> str:
    """Return the key if a table can hold it. Raises InputError otherwise."""
    if re.search(r"\s", key) or not key or key.startswith("\ufeff"):
        raise InputError(f"the id {quoted(key)} is empty or has white space in it: tables of keys cannot hold it")
    return key


def file_name(name: str) -> str:
    return re.sub(r"[\s/=]+", "_", name).lstrip(".") or "_"
