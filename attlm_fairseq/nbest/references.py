"""Read reference files and match their lines with n-best lists.

The rule for a file with one text per line:

| ``by`` | line of a list |
|---|---|
| ``"order"`` | line i belongs to list i; there are as many lines as lists |
| ``"number"`` | the list's id is the line number, counted from 0; some lines may match no list |
| ``"id"`` | every line carries an utterance id, ``id text`` or ``text (id)``; some lines may match no list |
| None | by id if the lines carry distinct ids, exactly those of the lists; else by order |

An STM file (NIST) is read by its fields: its ids are those of the recordings, and the segments of a recording are joined. So are the
words of a CTM file, in the order of their begin times. A recording without words has no line there.

In a JSON file, or a table with a header, the field names tell ids and texts apart (``formats/keys.py``). The text of an
utterance is its reference, or its only text. Ids in such a file count like ids on lines.

Without ``by``, an ambiguous file is refused, and the message names the option that decides. A file is ambiguous if only
some lines carry ids of the lists, if the lines carry other ids, or if the lists' ids are the line numbers in another
order.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Literal, get_args

from attlm_fairseq.errors import InputError
from attlm_fairseq.files import TextSource
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import LIKE_TEXT, NbestFolderFormat, find_format, format_of, open_nbest
from attlm_fairseq.nbest.formats.json_text import DECODER, first_value, members_in
from attlm_fairseq.nbest.formats.lines import one_line, quoted, whole_lines
from attlm_fairseq.nbest.formats.table import ReferenceCsv, ReferenceTsv
from attlm_fairseq.nbest.formats.text import TextFormat, keyed, like_ids, numbered_last, repeated
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

By = Literal["order", "number", "id"]
JSON = ("json", "jsonl", "hyporadise", "mlm")
TABLES = (ReferenceCsv.name, ReferenceTsv.name)
NAMED = (*JSON, *TABLES)  # formats of names, in which references may stand
TEXT = TextFormat.name  # one text per line
REFS_BY = "--refs-by"

_STM = re.compile(  # file, channel, speaker, begin, end, perhaps a label, words
    r"\s*(?P<id>\S+)\s+(?P<channel>\S+)\s+\S+\s+(?P<begin>[0-9]+(?:\.[0-9]*)?)\s+(?P<end>[0-9]+(?:\.[0-9]*)?)"
    r"(?:\s+(?P<label><(?!(?i:unk)>)[^<>\s]*>))?(?P<text>\s.*)?",
    re.DOTALL,
)
_CTM = re.compile(
    r"\s*(?P<id>\S+)\s+(?P<channel>\S+)\s+(?P<begin>[0-9]+(?:\.[0-9]*)?)\s+[0-9]+(?:\.[0-9]*)?\s+(?P<word>\S+)(?:\s+-?[0-9.e+-]+)?\s*"
)
_STM_IGNORED = "ignore_time_segment_in_scoring"  # the text of a segment that no scorer counts
_STM_MARKUP = re.compile(r"(?:^|\s)(?:[{}]|\([^()\s]+\))(?=\s|$)")  # alternatives `{ a / b }` and words that may be missing `(uh)`
_NUMBERED = re.compile(r"(?P<before>.*?)(?P<number>[0-9]{1,18})(?P<after>[^0-9]*)", re.DOTALL)  # the last number of an id


@dataclass(frozen=True)
class TextFile:
    """A file with one text per line, without line ends.

    Attributes:
        path: the file, for messages.
        lines: the texts.
        ids: ids that the file holds apart from the texts (JSON, tables); None if it has none.
        option: the command-line option that decides how lines are matched, for messages.
        sparse: whether a list without a line has a text without words, as in CTM.
    """

    path: str
    lines: Sequence[str]
    ids: Sequence[str] | None = None
    option: str = REFS_BY
    sparse: bool = False

    @property
    def force_order(self) -> str:
        """Return advice for words that were mistaken for ids."""
        return f"{self.option} order takes the lines as they are, in the order of the lists"


def read_text_file(path: str, expected: str = "one text per line", option: str = REFS_BY) -> TextFile:
    """Read a UTF-8 file, plain or gzip, ``-`` for standard input.

    Raises:
        InputError: the file cannot be read, is empty or is not UTF-8.
    """
    return TextFile(path, _without_ends(list(TextSource(path, expected).lines())), option=option)


def read_references(paths: Sequence[str]) -> list[TextFile]:
    """Read reference files. Raises InputError for one that cannot be read, is empty or is not UTF-8."""
    return [_reference_file(path) for path in paths]


def _reference_file(path: str) -> TextFile:
    source = TextSource(path, "one reference per line")
    form = format_of(source.head)
    if form is None or form.like_text or form.name in TABLES:  # a header of an id and a reference makes no n-best list
        form = next((table for table in (ReferenceCsv(), ReferenceTsv()) if table.matches(whole_lines(source.head))), form)
    if form is None or form.name not in NAMED:
        return _text_lines(path, source)
    text = "".join(source.pieces())
    json_text = text.removeprefix("\ufeff")
    if form.name in JSON and first_value(json_text) is None:
        if next(members_in(json_text), None) is None:  # lines such as `[[noise]] a b`
            return _text_lines(path, TextSource(path, text=text))
        try:
            DECODER.decode(json_text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not valid JSON ({error}): is the file cut short?", path=path) from None
    texts = _texts_by_name(text) if form.name in JSON else None
    if texts is None:
        lists = list(form.read(TextSource(path, text=text)))
        texts = {nbest.id: _reference_of(nbest) for nbest in lists}
    ids = list(texts)
    return TextFile(path, [one_line(line) for line in texts.values()], ids if ids != _places(ids) else None)


def _text_lines(path: str, source: TextSource) -> TextFile:
    lines = _without_ends(list(source.lines()))
    return _stm_file(path, lines) or _ctm_file(path, lines) or TextFile(path, lines)


def _ctm_file(path: str, lines: Sequence[str], option: str = REFS_BY) -> TextFile | None:
    """Return the text of each recording of a CTM file, its words in the order of their begin times; None for any other file.

    Raises InputError if a recording has words of two channels.
    """
    rows = {number: line for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith(";;")}
    found = {number: row for number, line in rows.items() if (row := _CTM.fullmatch(line))}
    if not found or len(found) < len(rows):
        return None
    words: dict[str, list[tuple[float, str]]] = {}
    channels: dict[str, str] = {}
    for number, row in found.items():
        _one_channel(channels, row, path, number)
        words.setdefault(row["id"], []).append((float(row["begin"]), row["word"]))
    note(f"note: {path} is read as CTM: the ids are those of the recordings, and a list without a line has no words")
    texts = [" ".join(word for _, word in sorted(of_recording, key=itemgetter(0))) for of_recording in words.values()]
    return TextFile(path, texts, list(words), option, sparse=True)


def _segment(line: str) -> re.Match[str] | None:
    found = _STM.fullmatch(line)
    return found if found and float(found["begin"]) <= float(found["end"]) else None


def _stm_text(segment: re.Match[str]) -> str:
    return (segment["text"] or "").strip()


def _stm_file(path: str, lines: Sequence[str]) -> TextFile | None:
    """Return the text of each recording of an STM file, its segments in the order of their begin times; None for any other file.

    Raises:
        InputError: most lines have the fields of STM, but not all: the others are cut or damaged. Or a recording has text of two channels.
    """
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith(";;")]
    found_rows = [(number, found) for number, line in rows if (found := _segment(line))]
    if 2 * len(found_rows) <= len(rows):
        return None
    if len(found_rows) < len(rows):
        damaged = min({number for number, _ in rows} - {number for number, _ in found_rows})
        raise InputError(
            f"found {quoted(lines[damaged - 1])}, expected the fields of an STM file, as most lines have them: recording, channel, "
            "speaker, begin, end, perhaps a label, words",
            path=path,
            line=damaged,
        )
    segments: dict[str, list[tuple[float, str]]] = {}
    channels: dict[str, str] = {}
    marked = 0
    counted = [found for _, found in found_rows if _stm_text(found).lower() != _STM_IGNORED]
    all_labelled = all(found["label"] for found in counted if _stm_text(found))
    for number, found in found_rows:
        of_recording = segments.setdefault(found["id"], [])
        text = _stm_text(found)
        if text.lower() == _STM_IGNORED:
            continue
        if found["label"] and not all_labelled and "," not in found["label"]:
            text = f"{found['label']} {text}".strip()  # a word such as <noise>: only labels with a comma are sure
        if text:
            _one_channel(channels, found, path, number)
        marked += _STM_MARKUP.search(text) is not None
        of_recording.append((float(found["begin"]), text))
    texts = {name: " ".join(text for _, text in sorted(found, key=itemgetter(0)) if text) for name, found in segments.items() if found}
    if not texts:
        return None
    note(f"note: {path} is read as STM: the ids are those of the recordings, and the segments of a recording are one reference")
    if marked:
        note(
            f"WARNING: {path}: {marked} of {len(found_rows)} segments have alternatives such as {{ a / b }} or optional words "
            "such as (uh), which count as words: error rates will be too high"
        )
    return TextFile(path, list(texts.values()), list(texts))


def _one_channel(channels: dict[str, str], found: re.Match[str], path: str, line: int) -> None:
    """Keep the channel of a line's recording. Raises InputError if an earlier line of it has another one."""
    if (channel := channels.setdefault(found["id"], found["channel"])) != found["channel"]:
        raise InputError(
            f"found channel {found['channel']} after channel {channel} of {found['id']!r}, expected one channel of each recording: "
            "keep the lines of one channel in a file of its own",
            path=path,
            line=line,
        )


def _texts_by_name(text: str) -> dict[str, str] | None:
    """Return the texts of a JSON object of texts by id, or of an array of texts; None for any other document."""
    try:
        value = DECODER.decode(text.removeprefix("\ufeff").strip())
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list):
        value = dict(zip(_places(value), value, strict=True))
    return value if isinstance(value, dict) and all(isinstance(member, str) for member in value.values()) else None


def _reference_of(nbest: NbestList) -> str:
    """Return the reference of an utterance, or its text if it has only that."""
    if len(nbest.references) == 1 or (not nbest.references and len(nbest.hypotheses) == 1):
        return nbest.references[0] if nbest.references else nbest.hypotheses[0].text
    found = f"{len(nbest.references)} references" if nbest.references else f"{len(nbest.hypotheses)} texts and none named as its reference"
    raise nbest.error(f"the utterance {nbest.id!r} has {found}: expected one (ref, reference, text, ..)")


def attach_references(lists: Iterable[NbestList], references: Sequence[TextFile] | None, by: By | None = None) -> list[NbestList]:
    """Return copies of the lists with their references, one from each file. Blank ones are left out unless all are blank.

    Logs lines that match no list, and a warning if the lists' numbered ids are sorted as text.

    Args:
        lists: the lists.
        references: files that replace the lists' own references; None: every list must have its own.
        by: how lines are matched with lists; see the module docstring.

    Raises:
        InputError: a list has no reference, or a file does not fit the lists.
    """
    lists = list(lists)
    if references is None:
        bare = [nbest for nbest in lists if not nbest.references]
        if bare:
            others = f", like {len(bare)} of {len(lists)}" if len(bare) > 1 else ""
            some = "" if len(bare) == len(lists) else "; --partial-refs leaves such lists out"
            raise bare[0].error(f"list {bare[0].id!r} has no reference{others}: give files with one line per list (--refs){some}")
        note_silence([nbest.references for nbest in lists], "the lists' own references")
        return lists
    ids = [nbest.id for nbest in lists]
    matched = [match_lines(ids, file, by) for file in references]
    if len({found.by_id for found in matched}) > 1:
        without = next(found.file.path for found in matched if not found.by_id)
        raise InputError(f"its lines carry no ids of the lists, those of the other files do; {matched[0].file.force_order}", path=without)
    for found in matched:
        if found.left_over and by == "id":
            counts = f"{len(ids)} lists, {len(found.file.lines)} references with ids"
            name, count = found.left_over[0], len(found.left_over)
            note(f"note: {found.file.path}: {count} references are of no list and left over, the first of id {name!r}: {counts}")
    if matched[0].by_id and (twice := _repeated_id(lists)) is not None:
        note(f"WARNING: several lists have the id {twice!r}, and the same reference: if they are other utterances, it is wrong for some")
    if by is None and not any(found.by_id for found in matched) and (warning := sorted_as_text(ids)):
        note(warning)
    given = [_given(texts) for texts in zip(*(found.texts for found in matched), strict=True)]
    note_silence(given, str(matched[0].file.path))
    return [replace(nbest, references=texts) for nbest, texts in zip(lists, given, strict=True)]


def _repeated_id(lists: Iterable[NbestList]) -> str | None:
    """Return the first id of several lists; None if there is none."""
    counts = Counter(nbest.id for nbest in lists)
    return next((name for name, count in counts.items() if count > 1), None)


def with_known_references(
    lists: Iterable[NbestList], references: Sequence[TextFile] | None, by: By | None = None
) -> tuple[list[NbestList], By | None]:
    """Return the lists that have a reference, and how the lines of the files are matched with them. Logs how many have none.

    With files, a list has a reference if its id stands in each of them.

    Raises:
        InputError: no list has one, or ``by`` is by order.
    """
    lists = list(lists)
    if references is None:
        kept = [nbest for nbest in lists if nbest.references]
    else:
        if by == "order":
            raise InputError("lists without references are found by ids: --partial-refs does not go with --refs-by order")
        kept = lists
        for file in references:
            names = {str(number) for number in range(len(file.lines))} if by == "number" else _ids_in(file, [nbest.id for nbest in lists])
            kept = [nbest for nbest in kept if nbest.id in names]
        by = by or "id"
    if not kept:
        by_id = "" if references is None else ", by the ids in the files: without ids, nothing tells which lists have none"
        raise InputError(f"none of the {len(lists)} lists has a reference{by_id}")
    if len(kept) < len(lists):
        note(f"note: {len(lists) - len(kept)} of {len(lists)} lists have no reference and are left out")
    return kept, by


def _ids_in(file: TextFile, ids: Sequence[str]) -> set[str]:
    """Return the ids of lists that stand in a file, read in the way in which most do."""
    found: set[str] = set()
    for as_written in _keyed_of(file):
        names = {name for name, _ in as_written}
        normalised = {unicodedata.normalize("NFC", name) for name in names}
        known = {name for name in ids if name in names or unicodedata.normalize("NFC", name) in normalised}
        found = max(found, known, key=len)
    return found


def note_silence(references: Sequence[Sequence[str]], where: str) -> None:
    """Log how many of the lists have blank references only, unless all or none have."""
    silent = sum(not any(text.strip() for text in texts) for texts in references)
    if 0 < silent < len(references):
        note(
            f"note: {where}: {silent} of {len(references)} references are blank, that is, silence: every word of their lists "
            "counts as wrong"
        )


def check_by(by: By | None) -> None:
    """Raise InputError for an unknown way to match lines with lists."""
    if by is not None and by not in get_args(By):
        raise InputError(f"by {by!r}: expected one of {', '.join(get_args(By))}, or None")


@dataclass(frozen=True)
class MatchedLines:
    """The text of each list, in the order of the lists, and the ids of lines that belong to no list."""

    file: TextFile
    texts: list[str]
    by_id: bool = False
    left_over: Sequence[str] = ()


def match_lines(ids: Sequence[str], file: TextFile, by: By | None = None) -> MatchedLines:
    """Find the line of each list by the rule in the module docstring.

    Raises:
        InputError: the numbers of lines and lists differ, ids are missing, repeated or of no list, an id is not a
            line number (``by`` is "number"), or the file is ambiguous.
    """
    if file.sparse:
        return _match_sparse(ids, file, by)
    if by == "number":
        return MatchedLines(file, [file.lines[_line_number(name, file)] for name in ids])
    if by != "order":
        found = _match_ids(ids, file, by)
        if found is not None:
            return found
    if len(file.lines) != len(ids):
        raise InputError(
            f"{len(file.lines)} lines, but there are {len(ids)} lists: in this order they must correspond one to one "
            f"({file.option} number: the lists' ids are line numbers; {file.option} id: lines carry ids)",
            path=file.path,
        )
    places = _places(ids)
    if by is None and ids != places and set(ids) == set(places):
        raise InputError(
            f"the lists' ids are the numbers 0 to {len(ids) - 1} in another order, and the lines have no ids: "
            f"say {file.option} number (the id is the line number) or {file.option} order",
            path=file.path,
        )
    return MatchedLines(file, list(file.lines))


def _match_sparse(ids: Sequence[str], file: TextFile, by: By | None) -> MatchedLines:
    """Match by ids; lists without a line have no words. Raises InputError if the file has none of the ids, or others."""
    names = file.ids or ()
    known, texts = set(ids), dict(zip(names, file.lines, strict=True))
    left_over = [name for name in names if name not in known]
    if not known.intersection(names) or (left_over and by is None):
        more = "" if len(left_over) == len(names) else f"; {file.option} id ignores such lines"
        raise InputError(f"no list has the id {left_over[0]!r} (the first list is {ids[0] if ids else ''!r}){more}", path=file.path)
    return MatchedLines(file, [texts.get(name, "") for name in ids], True, left_over)


def _match_ids(ids: Sequence[str], file: TextFile, by: By | None) -> MatchedLines | None:
    """Match by the ids that the lines carry; None if they carry none.

    Raises InputError if only some lines carry ids, or if ``by`` is "id" and they do not.
    """
    problem = ""
    for as_written in _keyed_of(file):
        ids, lines = _in_one_form(ids, as_written)
        names = [name for name, _ in lines]
        known = set(ids).intersection(names)
        texts = dict(lines)
        if by is None and all(map(str.isdecimal, ids)) and not all(map(str.isdecimal, names)):
            known = set()  # a number may be the first word of a text
        if len(texts) == len(names) and len(known) == len(set(ids)) and ids:
            left_over = [name for name in names if name not in known]
            if left_over and by is None:
                raise InputError(
                    f"no list has the id {left_over[0]!r}: {len(ids)} lists, {len(names)} lines with ids; {file.option} id "
                    "ignores such lines",
                    path=file.path,
                    line=names.index(left_over[0]) + 1 if file.ids is None else None,
                )
            return MatchedLines(file, [texts[name] for name in ids], True, left_over)
        if 2 * len(known) > len(names) or (known and by == "id"):
            problem = problem or _why_not(ids, names)
        elif by is None and (file.ids is not None or like_ids(lines) or numbered_last(file.lines, lines) or _same_numbers(ids, names)):
            problem = problem or f"its lines carry ids such as {names[0]!r}, which no list has (the first is {ids[0] if ids else ''!r})"
    if by == "id" or problem:
        expected = "expected 'id text' or 'text (id)' in every line, each id once"
        raise InputError(f"{problem or 'its lines do not carry the ids of the lists'}; {expected}; {file.force_order}", path=file.path)
    return None


def _same_numbers(ids: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether the lines begin with the numbers of the lists in another form, such as 001 for 1."""
    if not all(name.isascii() and name.isdecimal() and len(name) <= 18 for name in (*ids, *names)):
        return False
    return 1 < len(names) == len(ids) and len({*map(int, names)}) == len(names) and {*map(int, names)} == {*map(int, ids)}


def _in_one_form(ids: Sequence[str], lines: list[tuple[str, str]]) -> tuple[Sequence[str], list[tuple[str, str]]]:
    """Return the lists' ids and the (id, text) of lines: in Unicode's form NFC if all ids match only then, else as they are.

    File names of macOS are in NFD, which looks the same.
    """
    if not {name for name, _ in lines}.isdisjoint(ids):
        return ids, lines
    composed, composed_lines = [_composed(name) for name in ids], [(_composed(name), text) for name, text in lines]
    if len(set(composed)) == len(set(ids)) and {name for name, _ in composed_lines}.issuperset(composed):
        return composed, composed_lines
    return ids, lines


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _why_not(ids: Sequence[str], names: Sequence[str]) -> str:
    """Return why lines with these ids do not give each list exactly one line."""
    if (twice := repeated(names)) is not None:
        return twice
    known = set(names)
    missing = [name for name in ids if name not in known]
    counts = f"{len(set(ids)) - len(set(missing))} of {len(ids)} lists have a line with their id, list {missing[0]!r} has none"
    return f"{counts} (--partial-refs leaves such lists out)"


def _keyed_of(file: TextFile) -> list[list[tuple[str, str]]]:
    """Return (id, text) of each line, once for each way in which the file can be read."""
    return keyed(file.lines) if file.ids is None else [list(zip(file.ids, file.lines, strict=True))]


def _given(references: Sequence[str]) -> tuple[str, ...]:
    return tuple(text for text in references if text.strip()) or tuple(references)


def _line_number(name: str, file: TextFile) -> int:
    if name.isascii() and name.isdecimal() and len(name) <= 18 and int(name) < len(file.lines):
        return int(name)
    raise InputError(f"list {name!r}: its id is not a line number from 0 to {len(file.lines) - 1}; see {file.option}", path=file.path)


def _places(items: Sequence[object]) -> list[str]:
    """Return ids for items that have none: their positions from 0."""
    return [str(place) for place, _ in enumerate(items)]


def sorted_as_text(ids: Sequence[str]) -> str | None:
    """Return a warning if numbered ids are sorted as text (utt_10 before utt_2), as files in a folder are; else None."""
    if list(ids) != sorted(ids):
        return None
    for first, second in pairwise(ids):
        before, after = _NUMBERED.fullmatch(first), _NUMBERED.fullmatch(second)
        alike = before and after and before.group("before", "after") == after.group("before", "after")
        if before and after and alike and int(before["number"]) > int(after["number"]):
            return (
                f"WARNING: the lists are sorted by their ids as text ({first} before {second}), and references go by order: if "
                "theirs is that of the numbers, they are other lists'. Give references with ids, or say --refs-by order"
            )
    return None


def read_texts(path: str, by: By | None = None) -> list[NbestList]:
    """Read one text per line, or the texts of a CTM file, as lists of one hypothesis. Ids come from the lines, or are their positions.

    Args:
        path: the file.
        by: ``"id"`` requires ids. With None, ids are taken if all lines have one, and a note says so. An id is a distinct
            first word, or last word in parentheses, each with a digit, dash or underscore.

    Raises:
        InputError: the file cannot be read, or not every line has an id of its own.
    """
    text = "".join(TextSource(path, "one text per line").pieces())
    ctm = _ctm_file(path, _without_ends(list(TextSource(path, text=text).lines())))
    if ctm is not None and ctm.ids is not None:
        return [_one_text(name, words) for name, words in zip(ctm.ids, ctm.lines, strict=True)]
    return list(TextFormat("order" if by == "number" else by).read(TextSource(path, text=text)))


def read_further(
    path: str, format_name: str | None, first: Sequence[NbestList], first_path: str, by: By | None = None, option: str = REFS_BY
) -> list[NbestList]:
    """Read another system's file for the utterances of ``first``: n-best lists, or one text per line.

    A file holds texts if its format is not recognised or ``format_name`` is "text". It also does if its format can look
    like plain lines and it has one line per list, unless ``format_name`` names that format and it gives as many lists.
    "text:id" and "text:order" are formats like any other: their lists are matched like n-best lists.

    Lists are matched by id if the ids are the same, else by order if one side has no ids of its own. Texts are matched
    by the rule in the module docstring.

    Returns:
        The lists in the order of ``first``, and a note on how the file was read.

    Raises:
        InputError: the file is of other utterances.
    """
    named = find_format(format_name) if format_name not in (None, TEXT) else None
    if (path != "-" and Path(path).is_dir()) or isinstance(named, NbestFolderFormat):
        return in_order_of(first, list(open_nbest(path, format_name)[1]), path, first_path)
    source = TextSource(path)
    form = None if format_name == TEXT else named or format_of(source.head)
    text = "".join(source.pieces())
    lines = list(TextSource(path, text=text).lines())
    if form is not None and (isinstance(form, TextFormat) or form.name not in LIKE_TEXT or len(lines) != len(first)):
        return in_order_of(first, list(form.read(TextSource(path, text=text))), path, first_path)
    if named is not None:
        lists: list[NbestList] = []
        with contextlib.suppress(InputError):
            lists = list(named.read(TextSource(path, text=text)))
        if len(lists) == len(first):
            return in_order_of(first, lists, path, first_path)
    ids = [nbest.id for nbest in first]
    try:
        texts = _without_ends(lines)
        found = match_lines(ids, _ctm_file(path, texts, option) or TextFile(path, texts, option=option), by)
    except InputError as error:
        raise InputError(f"{error}{f'; if it holds n-best lists, say --format {form.name}' if form else ''}") from None
    if format_name != TEXT:
        note(f"note: {path} is not an n-best list: read as one text per line{', with ids' if found.by_id else ''}")
    return [_one_text(name, text) for name, text in zip(ids, found.texts, strict=True)]


def in_order_of(first: Sequence[NbestList], lists: list[NbestList], path: str, first_path: str) -> list[NbestList]:
    """Return the lists in the order of ``first``: by id if the ids are the same, else as they are if one side has no ids.

    Raises:
        InputError: both sides have ids, but other ones, or one of them repeated and in another order; or the numbers of lists differ.
    """
    ids, ids_of_first = ([nbest.id for nbest in of_file] for of_file in (lists, first))
    if sorted(ids) == sorted(ids_of_first) and len(set(ids)) == len(ids):
        by_id = {nbest.id: nbest for nbest in lists}
        return [by_id[name] for name in ids_of_first]
    if len(first) > 1 and ids != ids_of_first and all(of_file != _places(of_file) for of_file in (ids, ids_of_first)):
        known, known_of_first = set(ids), set(ids_of_first)
        if known == known_of_first:
            repeated = next(name for of_file in (ids, ids_of_first) for name, count in Counter(of_file).items() if count > 1)
            raise InputError(
                f"the id {repeated!r} is that of several lists, which are not in the order of {first_path}: give each list an id of its "
                "own, or the lists the same order",
                path=path,
            )
        missing = [name for name in ids_of_first if name not in known]
        unknown = [name for name in ids if name not in known_of_first]
        raise InputError(
            f"not the lists of {first_path}: {len(missing)} of its ids are missing{_first(missing)}, {len(unknown)} are unknown there"
            f"{_first(unknown)}; compare lists of the same utterances",
            path=path,
        )
    if len(ids) != len(ids_of_first):
        raise InputError(f"{len(ids)} lists, but {first_path} has {len(first)}: compare lists of the same utterances", path=path)
    return lists


def _first(names: Sequence[str]) -> str:
    return f" (first: {names[0]!r})" if names else ""


def _without_ends(lines: Sequence[str]) -> list[str]:
    return [line.removesuffix("\n").removesuffix("\r") for line in lines]


def _one_text(name: str, text: str) -> NbestList:
    return NbestList(name, [Hypothesis(text, rank=1)])
