"""TOML documents that keep their form and comments: parsing, with the line of an error, and changing entries."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attlm_fairseq.errors import InputError

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def in_utf8(value: Any) -> Any:
    """Return a record with ``\\udcNN`` for the bytes of the command line and of file names that are not UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {in_utf8(name): in_utf8(entry) for name, entry in value.items()}
    return list(map(in_utf8, value)) if isinstance(value, list | tuple) else value


def set_entry(table: MutableMapping[str, Any], name: str, value: Any) -> None:
    """Set an entry. An existing table is changed entry by entry, so that equal entries keep their form and comments.

    A table with others in between (``[lm.a] [text] [lm.b]``) is not a ``Table``: tomlkit cannot delete from it.
    """
    from tomlkit.items import Table

    old = table.get(name)
    if isinstance(old, Table) and isinstance(value, Mapping):
        for gone in [key for key in old if key not in value]:
            del old[gone]
        for key, entry in value.items():
            set_entry(old, key, entry)
    elif old is None or old != value:
        table[name] = value


def parse_toml(path: Path) -> TOMLDocument:
    import tomlkit  # here: a run without attlm.toml does not wait for it
    from tomlkit.exceptions import TOMLKitError

    text = ""
    try:
        text = path.read_bytes().decode("utf-8").removeprefix("\ufeff")  # what editors on Windows begin a file with
        return tomlkit.parse(text)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 (byte {error.start})", path=path) from None
    except TOMLKitError as error:
        line = getattr(error, "line", None) or _line_of_second_key(text)
        raise InputError(f"is not TOML: {error}", path=path, line=line) from None


def _line_of_second_key(text: str) -> int | None:
    """Return the line with a key that is there already, which tomlkit does not tell."""
    import tomlkit
    from tomlkit.exceptions import KeyAlreadyPresent, TOMLKitError

    lines = text.splitlines(keepends=True)
    for number in range(1, len(lines) + 1):
        try:
            tomlkit.parse("".join(lines[:number]))
        except KeyAlreadyPresent:
            return number
        except TOMLKitError:
            continue  # within a value of several lines
    return None
