"""Checks of the arguments that several library functions have: paths, weights, texts."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Set
from types import NoneType
from typing import Any, TypeAlias, TypeGuard, TypeVar

from attlm_fairseq.errors import InputError, require_type, shown
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.formats import format_of
from attlm_fairseq.numeric import is_finite, is_number

Value = TypeVar("Value")
FilePath: TypeAlias = str | os.PathLike[str]
OnProgress: TypeAlias = Callable[[int], object] | None
EXAMPLES = {"LMs": "'lm.pt'", "weights": "0.5"}


def check_file(path: FilePath, format: str | None) -> None:
    """Raise InputError unless ``path`` is a path that a file can have, and ``format`` a name, or None."""
    require_type("file", path, (str, os.PathLike), "a path")
    try:
        os.stat(path)  # noqa: PTH116 - for what it raises
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InputError("is too long for the name of a file", path=path) from None
    except ValueError as error:  # a zero byte
        raise InputError(f"cannot be the name of a file: {error}", path=path) from None
    require_type("format", format, (str, NoneType), "a name such as 'jsonl'")


def is_real(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number of Python, numpy or torch."""
    return is_number(plain_number(value))


def plain_number(value: Any) -> Any:
    """Return a scalar of numpy or torch as Python's own; any other value as it is."""
    return value.item() if hasattr(value, "item") and not getattr(value, "ndim", 0) else value


def plain_weights(weights: Mapping[str, float]) -> dict[str, float]:
    """Return weights by name as floats. Raises InputError if they are no dictionary, or one is no finite number."""
    require_by_name("weights", weights)
    for name, weight in weights.items():
        if not (is_real(weight) and is_finite(plain_number(weight))):
            raise InputError(f"the weight of {name} is {shown(weight)}: expected a finite number")
    return {name: float(weight) for name, weight in weights.items()}


def require_by_name(what: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise InputError(f"the {what} are {shown(given)}: expected a dictionary by name, such as {{'lm': {EXAMPLES[what]}}}")


def has_labels(values: object) -> bool:
    """Return whether values are a pandas.Series or the like, whose labels would not be looked at."""
    return any(hasattr(values, name) and not callable(getattr(values, name)) for name in ("index", "columns"))


def require_order(what: str, values: object, one: str) -> None:
    """Raise InputError for values without an order, or with labels that would not be looked at. ``one``: what each of them is."""
    if isinstance(values, Set) or has_labels(values):
        advice = f"give {one} by id (`.to_dict()` of a Series), or a list of {one} in their order (`.tolist()`)"
        raise InputError(f"the {what} are a {type(values).__name__}: {advice}")


def ids_as_texts(what: str, given: Mapping[Any, Value]) -> dict[str, Value]:
    """Return values by ids that are texts; whole numbers, as in the dictionary of a Series of pandas, become texts.

    Raises InputError for an id of another type, or two ids with one text.
    """
    found: dict[str, Value] = {}
    for name, value in given.items():
        plain = plain_number(name)
        if not isinstance(plain, str | int) or isinstance(plain, bool):
            raise InputError(f"the {what} have the id {shown(name)}: expected a text or a whole number")
        if str(plain) in found:
            raise InputError(f"the {what} have the id {plain} twice, as a text and as a number: keep one")
        found[str(plain)] = value
    return found


def text_name(text: FilePath | Iterable[str]) -> str:
    return os.fspath(text) if isinstance(text, str | os.PathLike) else "lines of a program"


def text_lines(text: FilePath | Iterable[str], expected: str = "one sentence per line") -> TextSource | Iterable[str]:
    """Return a text, one sentence per line, ready to read: a file (``-`` is standard input) or lines.

    Raises InputError if a file cannot be read or holds n-best lists.
    """
    if not isinstance(text, str | os.PathLike):
        if not isinstance(text, Iterable):
            raise InputError(f"the text is {shown(text)}: expected a file or {expected}")
        return map(_line, text)
    source = TextSource(os.fspath(text), expected)
    form = format_of(source.head, own=True)
    if form is not None and not form.like_text:
        source.close()
        found = f"holds n-best lists ({form.name})"
        raise InputError(f"{found}: expected {expected}; `attlm rescore` and `attlm eval` read lists", path=source.name)
    return source


def no_sentences(text: FilePath | Iterable[str]) -> InputError:
    """Return the error for a text without a sentence, such as blank lines between documents."""
    return InputError("has no sentence: expected one sentence per line", path=text if isinstance(text, str | os.PathLike) else None)


def _line(line: str) -> str:
    if not isinstance(line, str):
        raise InputError(f"found the line {shown(line)}: expected a text")
    return line
