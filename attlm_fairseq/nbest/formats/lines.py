"""Functions that line-based formats share: numbers, line ends, grouping lines into lists, writing lists."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TextIO

from attlm_fairseq.errors import InputError, visible
from attlm_fairseq.files.reading import HEAD, TextSource
from attlm_fairseq.nbest.nbest_list import DECODER_SCORES, Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import FileText, HypothesisText, ListText

LN2 = math.log(2.0)
TOTAL = "total"  # the name under which rescoring's total is written: never read back as a score


def text_of(nbest: NbestList, format_name: str) -> ListText | None:
    """Return the list's verbatim text if it was read in this format."""
    verbatim = nbest.verbatim
    return verbatim if verbatim is not None and verbatim.file.format == format_name else None


def own_text(nbest: NbestList, format_name: str) -> ListText:
    """Return the list's verbatim text, for formats that write only what they have read.

    Raises:
        InputError: the list was not read from this format.
    """
    text = text_of(nbest, format_name)
    if text is None:
        message = f"only a list that was read from {format_name}, with its id, texts and scores unchanged, can be written as {format_name}"
        raise nbest.error(f"list {nbest.id}: {message}; write jsonl instead")
    return text


def text_of_hypothesis(nbest: NbestList, hypothesis: Hypothesis) -> HypothesisText:
    """Return the hypothesis' verbatim text, for the formats that write only what they have read."""
    if hypothesis.verbatim is None:
        raise nbest.error(f"list {nbest.id}: hypothesis {hypothesis.rank} was not read from this file; write jsonl instead")
    return hypothesis.verbatim


def main_score(scores: Collection[str]) -> str | None:
    """Return the name of the decoder's own score: the only one, or the one that formats call so."""
    return next(iter(scores)) if len(scores) == 1 else next((name for name in DECODER_SCORES if name in scores), None)


def required_main_score(nbest: NbestList, hypothesis: Hypothesis) -> str:
    """Return the name of the decoder's own score, for formats that need one.

    Raises:
        InputError: the hypothesis has no score, or several and none of them has a name in DECODER_SCORES.
    """
    name = main_score(hypothesis.scores)
    if name is None:
        found = f"none of its scores ({', '.join(hypothesis.scores)}) is called" if hypothesis.scores else "it has no score, such as"
        needed = f"{found} {' or '.join(DECODER_SCORES)}: the format needs the decoder's own"
        raise nbest.error(f"list {nbest.id}, hypothesis {hypothesis.rank}: {needed}; write jsonl instead")
    return name


def is_rescored(hypothesis: Hypothesis) -> bool:
    """Return whether there is anything to write that was not read."""
    return bool(hypothesis.lm_scores) or hypothesis.total is not None


def is_own(hypothesis: Hypothesis) -> bool:
    """Return whether a hypothesis was read with its list. Of an expanded list, some were not."""
    return hypothesis.verbatim is not None


def added_scores(hypothesis: Hypothesis) -> dict[str, float]:
    """Return the scores that a hypothesis has got since it was read; a new hypothesis has got all."""
    known = () if hypothesis.verbatim is None else hypothesis.verbatim.names
    if len(known) == len(hypothesis.scores):
        return {}
    return {name: score for name, score in hypothesis.scores.items() if name not in known}


def place_of(nbest: NbestList, hypothesis: Hypothesis) -> int:
    """Return the place of a hypothesis among those of its list as read, from 0."""
    return text_of_hypothesis(nbest, hypothesis).place


def is_as_read(nbest: NbestList, text: ListText) -> bool:
    """Return whether a list is still what its text says."""
    hypotheses = nbest.hypotheses
    in_order = all(is_own(hypothesis) and place_of(nbest, hypothesis) == place for place, hypothesis in enumerate(hypotheses))
    return in_order and len(hypotheses) == text.size and not any(is_rescored(one) or added_scores(one) for one in hypotheses)


def quoted(found: str) -> str:
    """Return what was found, short enough for a message."""
    return repr(shortened(found))


def shortened(found: str) -> str:
    """Return what was found, short enough for a message, without quotes."""
    return found if len(found) <= 60 else found[:57] + "..."


def number(found: str, what: str, path: object, line: int) -> float:
    """Return a finite number.

    Raises:
        InputError: ``found`` is not a number, or is not finite.
    """
    if not is_number(found) or "_" in found:  # float() takes 1_000
        raise InputError(f"{shortened(what)} is {quoted(found)}: expected a number", path=path, line=line)
    value = float(found)
    if not math.isfinite(value):
        raise InputError(f"{shortened(what)} is {shortened(found.strip())}: expected a finite number", path=path, line=line)
    return value


def is_number(found: str) -> bool:
    """Return whether ``found`` is written as a number; nan and inf count, so that ``number`` can refuse them by name."""
    try:
        float(found)
    except ValueError:
        return False
    return True


def written(value: float, name: str, nbest: NbestList) -> str:
    """Return a score as ``decimal`` does. Raises InputError if it is not finite, since no reader would take it back."""
    if not math.isfinite(value):
        raise InputError(f"list {nbest.id}: the score {name} is {value}: only finite scores can be written")
    return decimal(value)


def decimal(value: float) -> str:
    """Return a number with 6 decimals, or 7 digits if it is so small that these would lose some of them."""
    text = f"{value:.6f}"
    if abs(value) < 0.1 and not math.isclose(float(text), value, rel_tol=1e-6):
        return f"{value:.7g}"
    return "0.000000" if text == "-0.000000" else text


def fresh_names(
    names: Iterable[str], taken: Iterable[str], legal: Callable[[str], str], compared: Callable[[str], str] = str
) -> dict[str, str]:
    """Return each name in its legal form; where a score of that name is there already, a number from 2 is appended.

    Two names are the same if ``compared`` returns the same for both.
    """
    used = set(map(compared, taken))
    fresh = {}
    for name in names:
        candidate = base = legal(name)
        tries = 1
        while compared(candidate) in used:
            tries += 1
            candidate = f"{base}{tries}"
        used.add(compared(candidate))
        fresh[name] = candidate
    return fresh


def whole_lines(head: str) -> str:
    """Return the beginning of a file (``TextSource.head``) without its last line, if that may be cut short."""
    return head[: head.rindex("\n") + 1] if len(head.encode()) > HEAD - 8 and "\n" in head else head


def one_word(name: str) -> str:
    """Return a score name without white space or ``=``, for fields that are split at them."""
    return re.sub(r"[\s=]+", "_", name)


def one_line(text: str) -> str:
    """Return the text with tabs and line breaks, which no line-based format can hold, as spaces."""
    return re.sub(r"[\t\r\n]", " ", text)


def split_end(line: str) -> tuple[str, str]:
    """Return a line without its end, and the end. Several carriage returns are of the end: a file that was converted twice has them."""
    body = line.removesuffix("\n").rstrip("\r")
    return body, line[len(body) :]


def numbered(source: TextSource, file: FileText) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers from 1; a byte order mark goes to ``file.start``."""
    for line_number, line in enumerate(source.lines(keep_mark=True), 1):
        if line_number == 1 and line.startswith("\ufeff"):
            file.start = "\ufeff"
            line = line[1:]
        if line:
            yield line_number, line


def filled_lines(source: TextSource, file: FileText) -> Iterator[tuple[str, str, int]]:
    """Yield the lines that are not blank with the blank lines before them and their numbers; ``file.end`` gets the last blank lines."""
    before = ""
    for line_number, line in numbered(source, file):
        if line.strip(" \t\r\n"):
            yield before, line, line_number
            before = ""
        else:
            before += line
    file.end = before


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


def grouped(source: TextSource, format_name: str, parse: Callable[[str, int, bool], tuple[str, Hypothesis]]) -> Iterator[NbestList]:
    """Yield the lists of a file with one hypothesis per line; the lines of a list are consecutive.

    ``parse(line, line number, comes after a blank line)`` returns the list's id and the hypothesis; its rank and verbatim
    text are set here if ``parse`` has not set them. Blank lines may stand only between lists. An id that returns after other
    ids is an error: merging would reorder the file, and a second list would lose its reference.
    """
    file = FileText(format_name)
    path = source.name
    seen = SeenIds()
    current: NbestList | None = None
    text = ListText(file)
    blank = ""
    blank_line = 0
    for line_number, line in numbered(source, file):
        if not line.strip(" \r\n"):
            blank_line = blank_line if blank else line_number
            blank += line
            continue
        name, hypothesis = parse(line, line_number, bool(blank))
        if current is not None and current.id == name:
            if blank:
                raise InputError(f"blank line inside the list of id {name}: remove it", path=path, line=blank_line)
        else:
            if not seen.add(name):
                message = f"the list of id {name} continues here after other ids: put its lines together (sort by id, keeping the order)"
                raise InputError(message, path=path, line=line_number)
            if current is not None:
                yield current
            text = ListText(file, blank)
            current = NbestList(name, [], line=line_number, path=path, verbatim=text)
        blank = ""
        current.hypotheses.append(hypothesis)
        hypothesis.rank = hypothesis.rank or len(current.hypotheses)
        hypothesis.verbatim = hypothesis.verbatim or HypothesisText(line)
        text.size += 1
    if current is None:
        raise InputError("no n-best list in it", path=path)
    file.end = blank
    yield current


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


class WholeLines:
    """Writes lines to a file. A line without an end, the last of its own file, gets one if another line follows."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._unfinished = False

    def put(self, text: str) -> None:
        """Write one or more lines, or nothing."""
        if text:
            self._out.write("\n" + text if self._unfinished else text)
            self._unfinished = not text.endswith("\n")


def write_lines(
    lists: Iterable[NbestList],
    out: TextIO,
    format_name: str,
    lines_of: Callable[[NbestList], Iterable[str]],
    separator: Callable[[NbestList], str] = lambda nbest: "",
) -> None:
    """Write lists that consist of whole lines, ``lines_of(list)``, with the known text around them.

    ``separator(list)`` is written before a list, except the first, that has no text of its own before it.
    """
    file: FileText | None = None
    lines = WholeLines(out)
    for i, nbest in enumerate(lists):
        text = text_of(nbest, format_name)
        if text is not None:
            file = text.file
            if not i:
                out.write(file.start)
        before = (text.before if text is not None else "") or (separator(nbest) if i else "")
        lines.put(before)
        for place, line in enumerate(lines_of(nbest)):
            if not i and not place and not before and line.startswith("\ufeff") and not (file is not None and file.start):
                line = f"\ufeff{line}"  # a first line that begins with this character needs a mark before it, or its own is taken for one
            lines.put(line)
    lines.put(file.end if file is not None else "")
