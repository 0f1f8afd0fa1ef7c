"""The one exception that means: what the user gave cannot be used."""

from __future__ import annotations

import re

MAX_MESSAGE = 2000  # characters
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # C0, DEL and C1


def visible(text: str) -> str:
    """The text with each control character as ``\\xNN``: ids, names and words come from files, and a terminal would obey them."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def require_utf8(text: str, what: str) -> None:
    """Raises InputError where a text of the command line has other bytes, which Python hands on as halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} is not UTF-8 (character {error.start + 1})") from None


class InputError(Exception):
    """Unusable input: a file, a line, an option, a model.

    The message is one line that says where (file and line number), what was found, what is expected and what to do.
    The command line prints it without a traceback and ends with exit code 2.
    """

    def __init__(self, what: str, *, path: object | None = None, line: int | None = None) -> None:
        super().__init__(in_one_line(what, path, line))


class InputWarning(UserWarning):
    """Input that can be used and is perhaps not what was meant. The command line prints it as one line."""

    def __init__(self, what: str, *, path: object | None = None, line: int | None = None) -> None:
        super().__init__(in_one_line(what, path, line))


def in_one_line(what: str, path: object | None, line: int | None) -> str:
    """A message with its place in front; the middle of one that quotes very much is left out."""
    where = "" if path is None else f"{path}:" if line is None else f"{path}:{line}:"
    message = visible(" ".join(f"{where} {what}".split()))
    if len(message) <= MAX_MESSAGE:
        return message
    return f"{message[: MAX_MESSAGE // 2]} [..] {message[-MAX_MESSAGE // 2 :]}"


class NoDictionaryError(InputError):
    """A checkpoint whose ``dict.txt`` is not found. Who has an option that names one tells so at the end of the message."""


class UnknownFormatError(InputError):
    """A file that is in none of the formats that are recognised."""
