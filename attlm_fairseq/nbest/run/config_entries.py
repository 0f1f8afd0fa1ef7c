"""Entries of an ``attlm.toml``: reading, checking and writing. An error names the table, the entry and what is expected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attlm_fairseq import numeric
from attlm_fairseq.errors import InputError
from attlm_fairseq.text import Step, TextPipeline, parse_steps


@dataclass(frozen=True)
class Place:
    """The place of an entry, for error messages: the file, the table (``lm.big``, ``weights``) and the name in it."""

    path: Path
    table: str = ""
    name: str = ""

    @property
    def inner(self) -> Place:
        """Return the place of the table that the entry is."""
        return Place(self.path, f"{self.table}.{self.name}" if self.table else self.name)

    def unexpected(self, value: object, expected: str) -> InputError:
        """Return the error for a value of a wrong kind."""
        return self.problem(f" = {value!r}, expected {expected}")

    def error(self, problem: object) -> InputError:
        """Return the error for a problem of this entry, or of the whole table if the place has no name."""
        return self.problem(f": {problem}" if self.name else f" {problem}")

    def problem(self, what: str) -> InputError:
        """Return the error with this text after the names of table and entry."""
        return InputError(f"[{self.table}]{f' {self.name}' if self.name else ''}{what}", path=self.path)


Reader = Callable[[Any, Place], Any]  # returns the value of an entry, or raises InputError
Writer = Callable[[Any, Path], Any]  # returns the entry of a value, for a file in this folder (absolute)


@dataclass(frozen=True)
class Entry:
    """An entry of a table, which corresponds to an attribute of an object.

    Attributes:
        read: returns the attribute's value for an entry.
        write: returns the entry for a value.
        attribute: name of the attribute; "" if it is the entry's name.
        always: write the entry even if the attribute has its default value.
    """

    read: Reader
    write: Writer = lambda value, folder: value
    attribute: str = ""
    always: bool = False


Entries = Mapping[str, Entry]


def read_table(table: Any, entries: Entries, place: Place) -> dict[str, Any]:
    """Return the attributes that a table gives. Raises InputError for an entry that is not known or has a wrong value."""
    only(as_table(table, place), entries, f"an entry of [{place.table}]", place.path)
    return {
        entries[name].attribute or name: entries[name].read(value, Place(place.path, place.table, name)) for name, value in table.items()
    }


def written_table(of: object, entries: Entries, folder: Path) -> dict[str, Any]:
    """Return the table of a dataclass object for a file in ``folder`` (absolute). Attributes with their default value are left out."""
    table = {}
    for name, entry in entries.items():
        attribute = entry.attribute or name
        value = getattr(of, attribute)
        if entry.always or value != _default(of, attribute):
            table[name] = entry.write(value, folder)
    return table


def _default(of: Any, attribute: str) -> Any:
    field = of.__dataclass_fields__[attribute]
    return field.default_factory() if callable(field.default_factory) else field.default


def as_table(value: Any, place: Place) -> dict[str, Any]:
    """Return a value that must be a table.

    Raises:
        InputError: the value is not a table.
    """
    if not isinstance(value, dict):
        raise InputError(f"`{place.table.rpartition('.')[2]}` is {value!r}, expected a table [{place.table}]", path=place.path)
    return value


def only(entries: Mapping[str, Any], known: Collection[str], what: str, path: Path) -> None:
    """Raise InputError for an entry that is not known."""
    for name in entries:
        if name not in known:
            raise InputError(f"{name!r} is not {what}; known are {', '.join(sorted(known))}", path=path)


def checked(is_right: Callable[[Any], bool], expected: str, convert: Callable[[Any], Any] = lambda value: value) -> Reader:
    def read(value: Any, place: Place) -> Any:
        if not is_right(value):
            raise place.unexpected(value, expected)
        return convert(value)

    return read


def parsed(parse: Callable[[str], Any], expected: str = "") -> Reader:
    """Return a reader of texts that are parsed; of numbers, too, unless ``expected`` says which text is expected."""

    def read(value: Any, place: Place) -> Any:
        if expected and not isinstance(value, str):
            raise place.unexpected(value, expected)
        try:
            return parse(str(value))
        except InputError as error:
            raise place.error(error) from None

    return read


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def file(value: Any, place: Place) -> Path:
    """Read a file name, which is relative to the folder of the ``attlm.toml``.

    Raises:
        InputError: the value is not a text.
    """
    if not isinstance(value, str):
        raise place.unexpected(value, "a file name")
    return place.path.parent / value


def relative(path: Path, folder: Path) -> str:
    """Return the name of a file relative to a folder, if it is in there.

    Raises InputError for a name that is not UTF-8, or that is relative to another folder than the present one.
    """
    if not path.is_absolute() and not path.exists():
        folder_then = "the folder that was the current one when it was given"
        raise InputError(f"there is no such file below {Path.cwd()}: save from {folder_then}, or give whole paths", path=path)
    path = path.absolute()
    written = str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
    try:
        written.encode()
    except UnicodeEncodeError:
        raise InputError("attlm.toml, which is UTF-8, cannot hold this name: give the file or its folder another", path=path) from None
    return written


NUMBER = checked(*numeric.FINITE)
NOT_NEGATIVE = checked(*numeric.NOT_NEGATIVE)
WHOLE_NUMBER = checked(*numeric.WHOLE_NUMBER)
_STEPS: Entries = {"steps": Entry(checked(is_texts, 'a list such as ["unicode:nfc", "lowercase"]'))}


def text_steps(value: Any, place: Place) -> TextPipeline:
    """Read a table of text steps, ``steps = [..]``.

    Raises:
        InputError: the value is not a table, it has another entry than ``steps``, or a step is unknown or wrong.
    """
    found = read_table(value, _STEPS, place.inner)
    try:
        return parse_steps(found.get("steps", ()), place.path.parent)
    except InputError as error:
        raise place.inner.error(error) from None


def written_steps(pipeline: TextPipeline, folder: Path) -> dict[str, Any]:
    steps = (Step(step.name, relative(Path(step.argument), folder)) if step.needs_file else step for step in pipeline.steps)
    return {"steps": list(map(str, steps))}


FILE = Entry(file, relative)
STEPS = Entry(text_steps, written_steps)
