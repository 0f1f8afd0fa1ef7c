"""The ids of lists: each stands once in a file, and for one utterance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from attlm_fairseq.errors import InputError, quoted, visible
from attlm_fairseq.nbest.nbest_list import NbestList


class SeenIds:
    """The list ids seen so far. Numbers of up to 8 digits take one bit each, so that millions of lists need little memory."""

    def __init__(self) -> None:
        self._bits = bytearray()
        self._others: set[str] = set()

    def add(self, name: str) -> bool:
        if not (name.isascii() and name.isdigit() and len(name) <= 8 and str(int(name)) == name):
            new = name not in self._others
            self._others.add(name)
            return new
        byte, bit = divmod(int(name), 8)
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        new = not self._bits[byte] >> bit & 1
        self._bits[byte] |= 1 << bit
        return new


def writable(
    lists: Iterable[NbestList], what: str, id_of: Callable[[NbestList], str | None] = lambda nbest: nbest.id
) -> Iterator[NbestList]:
    """Yield the lists. ``id_of`` returns the id that a list gets in ``what``, or None if it may be there twice.

    Raises:
        InputError: there are no lists, which no reader would take; a list has the id of an earlier one, or a text that UTF-8 cannot hold.
    """
    seen, nbest = SeenIds(), None
    for nbest in lists:
        nbest.require_utf8()
        name = id_of(nbest)
        if name is not None and not seen.add(name):
            raise nbest.error(
                f"two lists have the id {quoted(name)}: {what} needs a different id for each list; rename one, or write jsonl"
            )
        yield nbest
    if nbest is None:
        raise InputError("there are no lists to write")


def require_one_utterance(known: dict[str, Any], told: Mapping[str, Any], name: str, path: str, line: int) -> None:
    """Add what a row tells about its utterance, by name, to what is known from earlier rows of this id; blank values tell nothing.

    Raises:
        InputError: they differ, so these are rows of two utterances, such as segments of one recording.
    """
    for what, value in told.items():
        if value in (None, "") or value != value:  # nan of pandas
            continue
        before = known.setdefault(what, value)
        if before != value:
            found = f"two rows of id {quoted(name)} have the {what} {quoted(str(before))} and {quoted(str(value))}"
            what_to_do = "give each utterance an id of its own, or another name to what is of hypotheses"
            raise InputError(f"{found}: expected one; {what_to_do}", path=path, line=line)


def file_of_id(nbest: NbestList) -> str:
    """Return the id of a list as the name of a file. Raises InputError if it cannot be one, or programs could not read it."""
    name = nbest.id
    unfit = not name or name.startswith(".") or len(name.encode()) > 200
    if unfit or visible(name) != name or any(c == "/" or c.isspace() for c in name):
        raise nbest.error(
            f"the id {quoted(name)} cannot be the name of a file: it is empty, too long, has a /, white space or control characters, or a "
            "dot first; write jsonl instead"
        )
    return name
