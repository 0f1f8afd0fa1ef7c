"""The one exception that means: what the user gave cannot be used."""

from __future__ import annotations


class InputError(Exception):
    """Unusable input: a file, a line, an option, a model.

    The message is one line that says where (file and line number), what was found, what is expected and what to do.
    The command line prints it without a traceback and ends with exit code 2.
    """

    def __init__(self, what: str, *, path: object | None = None, line: int | None = None) -> None:
        where = "" if path is None else f"{path}:" if line is None else f"{path}:{line}:"
        super().__init__(" ".join(f"{where} {what}".split()))


class UnknownFormatError(InputError):
    """A file that is in none of the formats that are recognised."""
