"""Exceptions and warnings for input that cannot be used, with one-line messages."""

from __future__ import annotations

import errno
import re
import resource
from collections.abc import Iterable, Mapping, Sequence, Set, Sized
from numbers import Integral
from typing import cast

MAX_MESSAGE = 2000  # characters
SHOWN_WORDS = 8  # of a sentence in a message
_SEPARATOR = re.compile(r"[ \t\n\v\f\r]")  # what separates words for KenLM; other white space is part of a word
TURNS = "\u202a-\u202e\u2066-\u2069"  # of a character class: what turns the direction of the text after it
_CONTROL = re.compile(rf"[\x00-\x1f\x7f-\x9f\u2028\u2029{TURNS}]")  # and C0, DEL, C1, separators of lines and paragraphs


def visible(text: str) -> str:
    """Return the text with each control character as ``\\xNN`` or ``\\uNNNN``: a terminal would execute those in ids, names or words."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}" if found[0] > "\xff" else f"\\x{ord(found[0]):02x}", text)


def quoted(found: str) -> str:
    """Return what was found, short enough for a message."""
    return repr(shortened(found))


def shortened(found: str) -> str:
    """Return what was found, short enough for a message, without quotes."""
    return found if len(found) <= 60 else found[:57] + "..."


def shown(value: object) -> str:
    """Return a value of the wrong type for a message."""
    return f"{value!r:.60} ({type(value).__name__})"


def require_type(what: str, value: object, types: type | tuple[type, ...], expected: str) -> None:
    """Raise InputError, which says ``what`` the value is, unless it is of these types."""
    if not isinstance(value, types):
        raise InputError(f"the {what} is {shown(value)}: expected {expected}")


def require_whole_number(name: str, value: object, least: int = 0) -> None:
    """Raise InputError, with the name of the argument, unless its value is a whole number that is at least ``least``."""
    expected = f"a whole number, {least} or more"
    if isinstance(value, bool):
        raise InputError(f"the value of {name} is {value}: expected {expected}")
    require_type(f"value of {name}", value, Integral, expected)
    if cast("int", value) < least:
        raise InputError(f"the value of {name} is {value}: expected {expected}")


def require_several(name: str, values: object, expected: str) -> None:
    """Raise InputError, with the name of the argument, if its values are a string, which has one letter after another, or none."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"the value of {name} is {shown(values)}: expected {expected}")


def require_utf8(text: str, what: str) -> None:
    """Raise InputError if ``text`` is no string, or is not UTF-8: Python holds other bytes of the command line as lone surrogates."""
    if not isinstance(text, str):
        raise InputError(f"{what} is {text!r}: expected a string")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} is not UTF-8 (character {error.start + 1})") from None


def require_words(sentence: Sequence[str]) -> None:
    """Raise InputError if a sentence is not a sequence of words. A string would be read as one letter after another."""
    first = next(iter(sentence), "") if isinstance(sentence, Sized) and not isinstance(sentence, Set | Mapping) else None
    if isinstance(sentence, str) or not isinstance(first, str):
        raise InputError(f"found the sentence {sentence!r}: expected a list of words, such as ['a', 'sentence']")


def is_word(word: object) -> bool:
    """Return whether a word is a string that is not empty and has no white space that separates words."""
    return isinstance(word, str) and bool(word) and not _SEPARATOR.search(word)


def not_a_word(word: object) -> InputError:
    """Return the error for what is not ``is_word``."""
    return InputError(f"found the word {word!r}: expected a string that is not empty and has no space, tab or line end")


def beginning(sentence: Sequence[str]) -> str:
    """Return the first words of a sentence in quotes, by which a user finds it."""
    return repr(" ".join([*sentence[:SHOWN_WORDS], *([".."] if len(sentence) > SHOWN_WORDS else [])]))


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file cannot be used, and what to do if the system allows no more open files."""
    reason = str(getattr(error, "strerror", error))
    if getattr(error, "errno", None) != errno.EMFILE:
        return reason
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{reason}: the system allows {allowed}; ask for more (`ulimit -n`), or use a format with one file, such as jsonl"


class InputError(Exception):
    """Raised if an input cannot be used: a file, a line, an option, a model.

    The message is one line: file and line number, what was found, what is expected, and what to do. The command line
    prints it without a traceback and exits with code 2.
    """

    def __init__(self, what: str, *, path: object | None = None, line: int | None = None) -> None:
        super().__init__(in_one_line(what, path, line))


class InUseError(InputError):
    """Raised if another run is writing the output."""


class InputWarning(UserWarning):
    """Warns of input that can be used but may not be what was meant. The command line prints it as one line."""

    def __init__(self, what: str, *, path: object | None = None, line: int | None = None) -> None:
        super().__init__(in_one_line(what, path, line))


def in_one_line(what: str, path: object | None, line: int | None) -> str:
    """Return a message in one line, after its file and line number. The middle of a very long message is left out."""
    where = "" if path is None else f"{path}:" if line is None else f"{path}:{line}:"
    message = visible(" ".join(f"{where} {what}".split()))
    if len(message) <= MAX_MESSAGE:
        return message
    return f"{message[: MAX_MESSAGE // 2]} [..] {message[-MAX_MESSAGE // 2 :]}"


class NoDictionaryError(InputError):
    """Raised if the ``dict.txt`` of a checkpoint is not found. A caller with an option for it names that option in the message."""


class UnknownFormatError(InputError):
    """Raised if the format of a file is not recognised."""
