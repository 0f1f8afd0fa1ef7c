"""N-best lists in JSON of any other shape: what Hugging Face, pyctcdecode, NeMo, CTranslate2, Whisper, sherpa-onnx and scripts save."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TextIO

from attlm_fairseq.batching import peeked
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.as_read import is_expanded
from attlm_fairseq.nbest.formats.completions import OF_BATCH, response_of_batch
from attlm_fairseq.nbest.formats.json_document import Item, stream_items, whole_item, write_document
from attlm_fairseq.nbest.formats.json_edits import FORMAT, ListWriter, are_rows, new_item
from attlm_fairseq.nbest.formats.json_text import (
    DECODER,
    Place,
    after_space,
    children,
    dumped,
    members_in,
)
from attlm_fairseq.nbest.formats.lines import (
    SeenIds,
    filled_lines,
    is_as_read,
    own_text,
    quoted,
    require_one_utterance,
    split_end,
    text_of,
    write_lines,
)
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFormat
from attlm_fairseq.nbest.formats.records import Reader, Record, id_key_of, layout_of
from attlm_fairseq.nbest.formats.silence import SilenceReader
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.verbatim import FileText, HypothesisText, ListText

_MATCHES = re.compile(r"\s*[\[{]\s*[\"\[{\]}]")

# How the lists stand in a file
LINES = "lines"  # one JSON value per line
ARRAY = "["  # the items of one array
OBJECT = "{"  # the values of one object, by id
WRAPPED = "wrapped"  # the items of an array or object that is a value of an object
ONE = "one"  # the document is one list
BATCH = "batch"  # one object, whose members are lists with one value per utterance


class JsonFormat(NbestFormat):
    """Utterances one per line, in an array, in an object by id, or in an object that holds one of these (see ``records``).

    Lists from other formats are written as an object by id.
    """

    name = FORMAT
    holds = Holds(references=True, sources=True, scores=True, score_name=keys.as_member)

    def matches(self, head: str) -> bool:
        return _MATCHES.match(head) is not None

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        framing = framing_of(source.head)
        if framing == ONE and "\n" not in source.head.strip():  # the first of several lines may be longer than the head
            text = "".join(source.pieces())
            framing = LINES if _is_several_lines(text) else ONE
            source = TextSource(source.name, text=text)
        file = FileText(self.name, framing=framing)
        reader = Reader(source.name)
        if framing == LINES:
            return _lists(_items_of_lines(source, file), file, reader)
        if framing in (ARRAY, OBJECT):
            return _lists(stream_items(source, file, framing), file, reader)
        return self._read_whole(source, file, reader)

    def _read_whole(self, source: TextSource, file: FileText, reader: Reader) -> Iterator[NbestList]:
        item = whole_item(source, file)
        if _is_line_of_batch(item.value):
            text, file = file.start + item.raw + file.end, FileText(self.name, framing=LINES)
            return _lists(_items_of_lines(TextSource(source.name, text=text), file), file, reader)
        if (batch := Batch.of(item.value)) is not None:
            file.framing, file.start, file.end = BATCH, file.start + item.raw + file.end, ""
            return _lists(batch.items(item.line), file, reader)
        if layout_of(item.value) is not None or (found := _wrapped(item)) is None:
            return _lists([item], file, reader)
        file.framing = WRAPPED
        return _lists(_items_within(item, file, source.name, *found), file, reader)

    def keeps(self, nbest: NbestList) -> bool:
        own = text_of(nbest, self.name)
        if own is None or own.file.framing == BATCH or not is_expanded(nbest):
            return False
        return not (own.numbered and are_rows(nbest))  # a row without an id is a list by itself: another one would be another list

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        first, given = peeked(lists)
        if first is None:
            return
        text = text_of(first, self.name)
        if text is not None and text.file.framing == LINES:
            write_lines(given, out, self.name, ListWriter().lines)
        elif text is not None and text.file.framing == BATCH:
            _write_batch(given, out, text.file)
        else:
            is_one = text is not None and text.file.framing == ONE
            write_document(_one_only(given) if is_one else given, out, self.name, ListWriter().item, "{}", new_item)


def framing_of(head: str) -> str:
    """Return how the lists stand in a file that begins with ``head``, perhaps cut short."""
    at = after_space(head, 0)
    opening = head[at : at + 1]
    try:
        value, end = DECODER.raw_decode(head, at)
    except (ValueError, RecursionError):  # cut short, or broken: who reads it says where
        return _framing_of_first_member(head)
    after = after_space(head, end)
    if _is_line_of_batch(value):
        return LINES
    if head[after : after + 1] in ("{", "[") and "\n" in head[end:after]:
        return LINES
    if layout_of(value) is not None and not (isinstance(value, list) and all(isinstance(item, str | dict) for item in value)):
        return ONE
    if isinstance(value, dict) and (Batch.of(value) is not None or _wrapping_keys(value) or _is_faulty_list(value)):
        return ONE
    return ARRAY if opening == "[" else OBJECT


def _is_line_of_batch(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() >= {*OF_BATCH} and layout_of(value) is None


def _is_several_lines(text: str) -> bool:
    """Return whether the first of several lines is a whole JSON value."""
    first, _, rest = text.removeprefix("\ufeff").lstrip().partition("\n")
    try:
        return bool(rest.strip()) and DECODER.decode(first.rstrip()) is not None
    except (ValueError, RecursionError):
        return False


def _framing_of_first_member(head: str) -> str:
    first = next(members_in(head), None)
    if first is None:
        return _framing_of_first_value(head)
    key, opening, value = first
    known = key in (*keys.HYPOTHESES, *keys.UTTERANCES, *keys.SEGMENTS, *keys.REFERENCES, *keys.IDS, *OF_BATCH)
    if not known and opening in ("[", "{"):
        # a value that is whole and no utterance, such as Deepgram's metadata, stands next to what holds the utterances
        is_utterance = value is None or layout_of(value) is not None or (isinstance(value, dict) and _is_faulty_list(value))
        return OBJECT if is_utterance else ONE
    first_line, line_end, _ = head.lstrip().partition("\n")
    return LINES if line_end and first_line.rstrip().endswith("}") else ONE


def _framing_of_first_value(head: str) -> str:
    """Return how the lists stand in an array that is cut short: as they would if its first value were the only one."""
    at = after_space(head, 0)
    try:
        begin = after_space(head, at + 1)
        _, end = DECODER.raw_decode(head, begin)
    except (ValueError, RecursionError):
        return ARRAY
    return framing_of(f"[{head[begin:end]}]") if head[at : at + 1] == "[" else ARRAY


def _is_faulty_list(value: dict[str, Any]) -> bool:
    """Return whether an object has a list where hypotheses stand, so that it is one utterance, which its reader refuses with the reason."""
    return any(isinstance(value.get(key), list) for key in keys.HYPOTHESES)


def _wrapping_key(value: dict[str, Any]) -> str | None:
    for key in (*keys.UTTERANCES, *keys.SEGMENTS):
        found = value.get(key)
        members = list(found.values()) if isinstance(found, dict) else found
        if isinstance(members, list) and members and layout_of(members[0]) is not None:
            return key
    return None


def _wrapping_keys(value: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys that lead to the utterances of a document, one or two (Amazon's results.segments); none if it has none."""
    for key in keys.UTTERANCES:
        found = value.get(key)
        if isinstance(found, dict) and not _is_by_id(found) and (inner := _wrapping_key(found)) is not None:
            return key, inner
    found = _wrapping_key(value)
    return () if found is None else (found,)


def _is_by_id(value: dict[str, Any]) -> bool:
    """Return whether an object has utterances by id: all members are utterances, and not all keys are names of what holds utterances."""
    return not value.keys() <= {*keys.UTTERANCES, *keys.SEGMENTS} and all(layout_of(member) is not None for member in value.values())


def _wrapped(item: Item) -> tuple[int, int] | None:
    """Return the first character and the end of the array or object of utterances in a document; None if there is none."""
    begin = end = 0
    for key in _wrapping_keys(item.value) if isinstance(item.value, dict) else ():
        begin, end = next((child.value, child.end) for child in children(item.raw, begin) if child.key == key)
    return (begin, end) if end else None


def _items_within(item: Item, file: FileText, path: str, begin: int, end: int) -> Iterator[Item]:
    start, rest = len(file.start) + begin, item.raw[end:] + file.end
    source = TextSource(path, text=file.start + item.raw[:end])
    yield from stream_items(source, file, item.raw[begin], start)
    file.end += rest


def _items_of_lines(source: TextSource, file: FileText) -> Iterator[Item]:
    told = False
    for before, line, line_number in filled_lines(source, file):
        body, end = split_end(line)
        try:
            value = DECODER.decode(body)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not valid JSON ({error}): expected one whole value per line", path=source.name, line=line_number) from None
        if _is_line_of_batch(value):
            if not told:
                note(f"note: {source.name}: the responses of a batch, which are written without what is around them")
            told = True
            line = response_of_batch(body, value, source.name, line_number) + end
            value = DECODER.decode(line)
        yield Item(None, before, line, value, line_number)


@dataclass
class _Growing:
    """A list as it is read: one item, or one row after another with the same id.

    Attributes:
        nbest: the list.
        text: what it is in the file.
        is_row: whether its items are rows, one hypothesis each.
        known: what its rows tell about the utterance.
    """

    nbest: NbestList
    text: ListText
    is_row: bool
    known: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def begin(cls, name: str, item: Item, record: Record, file: FileText, path: str, unfilled: str) -> _Growing:
        text = ListText(file, item.before)
        text.numbered, text.unfilled = item.key is None and record.id is None, unfilled
        return cls(NbestList(name, [], (), item.line, text, path=path, source=record.source), text, record.is_row)

    def goes_on(self, record: Record, name: str) -> bool:
        return self.is_row and record.is_row and record.id is not None and name == self.nbest.id

    def add(self, item: Item, record: Record) -> None:
        """Add the hypotheses of an item. Raises InputError if it is a row of another utterance than those before."""
        nbest, text = self.nbest, self.text
        text.own += item.raw
        for hypothesis in record.hypotheses:
            hypothesis.rank = len(nbest.hypotheses) + 1
            if self.is_row:
                hypothesis.verbatim = HypothesisText((item.before if text.size else "") + item.raw)
            nbest.hypotheses.append(hypothesis)
            text.size += 1
        if self.is_row:
            told = {"references": " / ".join(filter(str.strip, record.references)), "offsets": item.value.get("offset")}
            require_one_utterance(self.known, told, nbest.id, nbest.path, item.line)
        if record.source != nbest.source:  # of rows: it is no sentence that all of them translate
            nbest.source = None
            text.extras = (*text.extras, "source")
        if not any(nbest.references):
            nbest.references = record.references or nbest.references
        text.extras = tuple(sorted({*text.extras, *record.extras}))


def _lists(items: Iterable[Item], file: FileText, reader: Reader) -> Iterator[NbestList]:
    """Yield the lists of a file: one per utterance, or one per sequence of rows with the same id."""
    seen, count = SeenIds(), 0
    current: _Growing | None = None
    first_lists, items = _first_lists(items)
    reader.set_apart_counts(first_lists)
    silence = SilenceReader(reader.path)
    for number, item in enumerate(items, 1):
        unfilled = ""
        if (filled := silence.filled(item.raw, item.value)) != item.raw:
            unfilled, item = item.raw, replace(item, raw=filled, value=DECODER.decode(filled))
        called = f"utterance {quoted(item.key)}" if item.key is not None else f"item {number}"
        place = Place(called, item.raw.lstrip(" \t"), reader.path, item.line, is_number=item.key is None)
        record = reader.record(item.value, place, first=number == 1)
        name = place.text(item.key) if item.key is not None else place.id(record.id, count)
        if current is None or not current.goes_on(record, name):
            if not seen.add(name):
                raise InputError(f"the utterance {quoted(name)} is there twice: {_advice(record, file)}", path=reader.path, line=item.line)
            if current is not None:
                yield current.nbest
            current, count = _Growing.begin(name, item, record, file, reader.path, unfilled), count + 1
        elif file.framing != LINES:
            current.text.own += item.before
        current.add(item, record)
    if current is None:
        raise InputError("no n-best list in it", path=reader.path)
    yield current.nbest


def _first_lists(items: Iterable[Item]) -> tuple[list[list[dict[str, Any]]], Iterator[Item]]:
    """Return the hypotheses that are objects, of each of the first lists, and an iterator over all items."""
    given = iter(items)
    taken: list[Item] = []
    lists: list[list[dict[str, Any]]] = []
    before = None
    for item in given:
        taken.append(item)
        layout = layout_of(item.value)
        id_key = id_key_of(item.value) if layout is not None and layout.is_row and item.key is None else None
        name = None if id_key is None else str(item.value[id_key])
        if name is None or name != before:
            if len(lists) == keys.COUNTED_LISTS:
                break
            lists.append([])
        lists[-1] += [found for found in (layout.hypotheses if layout is not None else ()) if isinstance(found, dict)]
        before = name
    return lists, chain(taken, given)


def _advice(record: Record, file: FileText) -> str:
    """Return what to do about a second utterance of one id. Whole lists may be of two utterances: joining them would mix these."""
    if record.is_row:
        return "put its hypotheses together"
    takes_both = " (--format jsonl takes several lists of one id)" if file.framing == LINES and record.container == "hyps" else ""
    return f"give each list an id of its own{takes_both}"


@dataclass(slots=True)
class Batch:
    """Utterances whose values stand in lists, ``{"texts": [[..], [..]], "sequences_scores": [[..], [..]]}``.

    Attributes:
        per_list: members with one value per utterance.
        shared: members that all utterances share.
        returned: number of texts per utterance, if they follow each other in a flat list; else 0.
        nested: members of a flat batch that have one value per utterance in the file, too, such as lists of references.
    """

    per_list: dict[str, list[Any]]
    shared: dict[str, Any]
    returned: int = 0
    nested: frozenset[str] = frozenset()

    @staticmethod
    def of(value: Any) -> Batch | None:
        if not isinstance(value, dict):
            return None
        for key in keys.HYPOTHESES:
            texts = value.get(key)
            if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
                returned = next((value[name] for name in keys.RETURNED if isinstance(value.get(name), int)), len(texts))
                return _flat_batch(value, len(texts), returned) if 0 < returned < len(texts) and len(texts) % returned == 0 else None
            if isinstance(texts, list) and texts and all(isinstance(text, list) and layout_of(text) for text in texts):
                scores = [column for name, column in value.items() if keys.is_score_column(name) and isinstance(column, list)]
                if any(len(column) == len(texts) and not isinstance(column[0], list) for column in scores):
                    return None  # texts that are lists of tokens
                per_list = {name: column for name, column in value.items() if isinstance(column, list) and len(column) == len(texts)}
                return Batch(per_list, {name: shared for name, shared in value.items() if name not in per_list})
        return None

    def items(self, line: int) -> Iterator[Item]:
        for members in zip(*self.per_list.values(), strict=True):
            value = dict(zip(self.per_list, members, strict=True)) | self.shared
            if "ids" in self.per_list:
                value["id"] = value.pop("ids")
            yield Item(None, "", dumped(value, allow_nan=True), value, line)

    def document(self, utterances: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the document with these utterances, as ``items`` gave them or changed."""
        known = {*self.per_list, *self.shared, "id"}
        added = dict.fromkeys(key for utterance in utterances for key in utterance if key not in known)
        columns = {key: [utterance.get("id" if key == "ids" else key) for utterance in utterances] for key in [*self.per_list, *added]}
        if self.returned:
            for key, column in columns.items():
                parts = [part for part in column if isinstance(part, list) and key not in self.nested]
                if len(parts) == len(column):
                    columns[key] = list(chain(*parts))
        return columns | self.shared


def _flat_batch(value: dict[str, Any], size: int, returned: int) -> Batch:
    columns = {key: column for key, column in value.items() if isinstance(column, list) and len(column) in (size, size // returned)}
    nested = frozenset(key for key, column in columns.items() if len(column) < size)
    per_list = {
        key: column if key in nested else [column[i : i + returned] for i in range(0, size, returned)] for key, column in columns.items()
    }
    return Batch(per_list, {key: shared for key, shared in value.items() if key not in per_list}, returned, nested)


def _one_only(lists: Iterable[NbestList]) -> Iterator[NbestList]:
    for count, nbest in enumerate(lists):
        if count:
            raise InputError("the file is one list, these are several: write jsonl instead")
        yield nbest


def _write_batch(lists: Iterable[NbestList], out: TextIO, file: FileText) -> None:
    template = DECODER.decode(file.start.lstrip("\ufeff"))
    batch = Batch.of(template)
    if batch is None:
        raise InputError("not what was read")
    writer = ListWriter()
    texts = []
    for nbest in lists:
        own = own_text(nbest, JsonFormat.name)
        writer.tell_of_confidences(nbest)
        texts.append(own.as_read if is_as_read(nbest, own) else writer.with_hypotheses(own.own, nbest))
        if batch.returned and len(nbest.hypotheses) != batch.returned:
            raise nbest.error(f"list {nbest.id} has {len(nbest.hypotheses)} hypotheses: all lists of the file have {batch.returned}")
    if texts == [item.raw for item in batch.items(1)]:
        out.write(file.start)
        return
    document = batch.document([DECODER.decode(text) for text in texts])
    members = {key: document[key] for key in [*template, *(key for key in document if key not in template)]}
    out.write(dumped(members, allow_nan=True) + "\n")
