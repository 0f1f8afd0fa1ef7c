"""Read files of references and of other texts: lines, STM, CTM, JSON, tables.

An STM file (NIST) is read by its fields: its ids are those of the recordings, and the segments of a recording are joined. So are the
words of a CTM file, in the order of their begin times. A recording without words has no line there.

In a JSON file, or a table with a header, the field names tell ids and texts apart (``formats/keys.py``). The text of an
utterance is its reference, or its only text. Ids in such a file count like ids on lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import itemgetter

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import format_of, keys
from attlm_fairseq.nbest.formats.ctm import NUMBER, CtmFormat, recordings
from attlm_fairseq.nbest.formats.json_values.text import DECODER, first_value, members_in
from attlm_fairseq.nbest.formats.lines import one_line, whole_lines
from attlm_fairseq.nbest.formats.table import ReferenceCsv, ReferenceTsv
from attlm_fairseq.nbest.formats.text import TextFormat, repeated
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.word_times import Time

JSON = ("json", "jsonl", "hyporadise", "mlm")
TABLES = (ReferenceCsv.name, ReferenceTsv.name)
NAMED = (*JSON, *TABLES)  # formats of names, in which references may stand
TEXT = TextFormat.name  # one text per line
REFS_BY = "--refs-by"
NO_ID = frozenset((*keys.IDS, *keys.UTTERANCES, *keys.REFERENCES))  # keys by which a JSON object is no texts by id
_STM = re.compile(  # file, channel, speaker, begin, end, perhaps a label, words
    rf"\s*(?P<id>\S+)\s+(?P<channel>\S+)\s+\S+\s+(?P<begin>{NUMBER})\s+(?P<end>{NUMBER})"
    r"(?:\s+(?P<label><(?!(?i:unk)>)[^<>\s]*>))?(?P<text>\s.*)?",
    re.DOTALL,
)
STM_IGNORED = "ignore_time_segment_in_scoring"  # the text of a segment that no scorer counts
_STM_MARKUP = re.compile(r"(?:^|\s)(?:[{}]|\([^()\s]+\))(?=\s|$)")  # alternatives `{ a / b }` and words that may be missing `(uh)`
_BRACES = re.compile(r"\{([^{}]*)\}")  # alternatives are the surer of the two: a line of text may end with an id `(spk-1)`
_SLASH = re.compile(r"\s/\s")


@dataclass(frozen=True)
class TextFile:
    """A file with one text per line, without line ends.

    Attributes:
        path: the file, for messages.
        lines: the texts.
        ids: ids that the file holds apart from the texts (JSON, tables); None if it has none.
        option: the command-line option that decides how lines are matched, for messages.
        sparse: whether a list without a line has a text without words, as in CTM.
        unscored: the times of each line that are not scored, as in STM; empty if there are none.
    """

    path: str
    lines: Sequence[str]
    ids: Sequence[str] | None = None
    option: str = REFS_BY
    sparse: bool = False
    unscored: Sequence[tuple[Time, ...]] = ()

    @property
    def force_order(self) -> str:
        """Return advice for words that were mistaken for ids."""
        return f"{self.option} order takes the lines as they are, in the order of the lists"


def read_text_file(path: str, expected: str = "one text per line", option: str = REFS_BY) -> TextFile:
    """Read a UTF-8 file, plain or gzip, ``-`` for standard input.

    Raises:
        InputError: the file cannot be read, is empty or is not UTF-8.
    """
    return TextFile(path, without_ends(list(TextSource(path, expected).lines())), option=option)


def read_references(paths: Sequence[str]) -> list[TextFile]:
    """Read reference files, of which JSON and tables may have several references for each id: one TextFile for each of them.

    Raises InputError for a file that cannot be read, is empty or is not UTF-8.
    """
    return [of_path for path in paths for of_path in _reference_files(path)]


def _reference_files(path: str) -> list[TextFile]:
    source = TextSource(path, "one reference per line")
    form = format_of(source.head)
    if form is None or form.like_text or form.name in TABLES:  # a header of an id and a reference makes no n-best list
        form = next((table for table in (ReferenceCsv(), ReferenceTsv()) if table.matches(whole_lines(source.head))), form)
    if form is None or form.name not in NAMED:
        return [_text_lines(path, source)]
    text = "".join(source.pieces())
    json_text = text.removeprefix("\ufeff")
    if form.name in JSON and first_value(json_text) is None:
        if next(members_in(json_text), None) is None:  # lines such as `[[noise]] a b`
            return [_text_lines(path, TextSource(path, text=text))]
        try:
            DECODER.decode(json_text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not valid JSON ({error}): is the file cut short?", path=path) from None
    texts = _texts_by_name(text) if form.name in JSON else None
    by_name = form.name in TABLES or (texts is not None and not json_text.lstrip().startswith("["))
    if texts is None:
        lists = list(form.read(TextSource(path, text=text)))
        texts = {nbest.id: _references_of(nbest) for nbest in lists}
        if twice := repeated([nbest.id for nbest in lists]):
            raise InputError(f"{twice}: expected each id once", path=path)
    ids = list(texts)
    known_ids = ids if by_name or ids != positions(ids) else None
    columns = zip_longest(*texts.values(), fillvalue="")  # a list that has fewer of them has blank ones, which are left out
    return [TextFile(path, [one_line(line) for line in column], known_ids) for column in columns]


def _text_lines(path: str, source: TextSource) -> TextFile:
    lines = without_ends(list(source.lines()))
    if found := _stm_file(path, lines) or _ctm_file(path, lines):
        return found
    if marked := sum(any(map(_SLASH.search, _BRACES.findall(line))) for line in lines):
        note(_of_markup(path, f"{marked} of {len(lines)} lines"))
    return TextFile(path, lines)


def _of_markup(path: str, where: str) -> str:
    return (
        f"WARNING: {path}: {where} have alternatives such as {{ a / b }} or optional words such as (uh), "
        "which count as words: error rates will be too high"
    )


def read_as_ctm(path: str) -> str:
    """Return the note that a file is read as CTM."""
    return f"note: {path} is read as CTM: the ids are those of the recordings, and a list without a line has no words"


def _ctm_file(path: str, lines: Sequence[str]) -> TextFile | None:
    """Return the text of each recording of a CTM file, its words in the order of their begin times; None for any other file.

    Raises InputError if the file is damaged, or a recording has words of two channels.
    """
    text = "".join(f"{line}\n" for line in lines)
    if not CtmFormat().matches(text):
        return None
    found = recordings(TextSource(path, text=text))
    note(read_as_ctm(path))
    return TextFile(path, [nbest.hypotheses[0].text for nbest in found], [nbest.id for nbest in found], sparse=True)


def _is_likely(segment: re.Match[str]) -> bool:
    """Return whether it is a segment of STM rather than a text of digits."""
    return bool(segment["label"]) or float(segment["begin"]) <= float(segment["end"])


def _stm_time(segment: re.Match[str], path: str, line: int) -> Time:
    """Return begin and end of a segment. Raises InputError if it ends before it begins."""
    begin, end = float(segment["begin"]), float(segment["end"])
    if end < begin:
        what = f"this segment of an STM file ends at {segment['end']} s, before it begins at {segment['begin']} s"
        raise InputError(f"found {quoted(segment.string)}: {what}", path=path, line=line)
    return begin, end


def _stm_text(segment: re.Match[str]) -> str:
    return (segment["text"] or "").strip()


def _stm_file(path: str, lines: Sequence[str]) -> TextFile | None:
    """Return the text of each recording of an STM file, its segments in the order of their begin times; None for any other file.

    Raises:
        InputError: most lines have the fields of STM, but not all: the others are cut or damaged. Or a segment ends before
            it begins, or a recording has text of two channels.
    """
    rows = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith(";;")]
    found_rows = [(number, found) for number, line in rows if (found := _STM.fullmatch(line))]
    if 2 * sum(_is_likely(found) for _, found in found_rows) <= len(rows):
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
    ignored: dict[str, list[tuple[str, Time]]] = {}  # with their channels
    channels: dict[str, str] = {}
    marked = 0
    counted = [found for _, found in found_rows if _stm_text(found).lower() != STM_IGNORED]
    all_labelled = all(found["label"] for found in counted if _stm_text(found))
    for number, found in found_rows:
        of_recording = segments.setdefault(found["id"], [])
        text, time = _stm_text(found), _stm_time(found, path, number)
        if text.lower() == STM_IGNORED:
            ignored.setdefault(found["id"], []).append((found["channel"], time))
            continue
        if found["label"] and not all_labelled and "," not in found["label"]:
            text = f"{found['label']} {text}".strip()  # a word such as <noise>: only labels with a comma are sure
        if text:
            _one_channel(channels, found, path, number)
        marked += _STM_MARKUP.search(text) is not None
        of_recording.append((time[0], text))
    texts = {name: " ".join(text for _, text in sorted(found, key=itemgetter(0)) if text) for name, found in segments.items() if found}
    if not texts:
        return None
    note(f"note: {path} is read as STM: the ids are those of the recordings, and the segments of a recording are one reference")
    if marked:
        note(_of_markup(path, f"{marked} of {len(found_rows)} segments"))
    unscored = [tuple(time for channel, time in ignored.get(name, ()) if channel == channels.get(name, channel)) for name in texts]
    return TextFile(path, list(texts.values()), list(texts), unscored=unscored if any(unscored) else ())


def _one_channel(channels: dict[str, str], found: re.Match[str], path: str, line: int) -> None:
    """Keep the channel of a line's recording. Raises InputError if an earlier line of it has another one."""
    if (channel := channels.setdefault(found["id"], found["channel"])) != found["channel"]:
        raise InputError(
            f"found channel {found['channel']} after channel {channel} of {found['id']!r}, expected one channel of each recording: "
            "keep the lines of one channel in a file of its own",
            path=path,
            line=line,
        )


def _texts_by_name(text: str) -> dict[str, tuple[str, ...]] | None:
    """Return the texts of a JSON object of texts by id, or of an array of texts; None for any other document.

    In an object, an id may have an array of several texts.
    """
    try:
        value = DECODER.decode(text.removeprefix("\ufeff").strip())
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list) and all(isinstance(member, str) for member in value):
        value = dict(zip(positions(value), value, strict=True))
    if not isinstance(value, dict) or not value or not NO_ID.isdisjoint(value):
        return None
    texts = {name: (member,) if isinstance(member, str) else member for name, member in value.items()}
    if all(isinstance(of_id, tuple | list) and of_id and all(isinstance(text, str) for text in of_id) for of_id in texts.values()):
        return {name: tuple(of_id) for name, of_id in texts.items()}
    return None


def _references_of(nbest: NbestList) -> tuple[str, ...]:
    """Return the references of an utterance, or its text if it has only that."""
    if nbest.references:
        return nbest.references
    if len(nbest.hypotheses) == 1:
        return (nbest.hypotheses[0].text,)
    raise nbest.error(
        f"the utterance {nbest.id!r} has {len(nbest.hypotheses)} texts and none named as its reference: expected ref, reference, refs, .."
    )


def positions(items: Sequence[object]) -> list[str]:
    """Return ids for items that have none: their positions from 0."""
    return [str(place) for place, _ in enumerate(items)]


def without_ends(lines: Sequence[str]) -> list[str]:
    return [line.removesuffix("\n").removesuffix("\r") for line in lines]
