"""N-best lists in JSON of any other shape: what Hugging Face, pyctcdecode, NeMo, CTranslate2, Whisper, sherpa-onnx and scripts save."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, TextIO

from attlm_fairseq.batching import peeked
from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import FileNotes
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.as_read import is_expanded
from attlm_fairseq.nbest.formats.json_values.batch import Batch, write_batch
from attlm_fairseq.nbest.formats.json_values.completions import response_of_batch
from attlm_fairseq.nbest.formats.json_values.document import Item, stream_items, whole_item, write_document
from attlm_fairseq.nbest.formats.json_values.edits import FORMAT, ListWriter, are_rows, new_item
from attlm_fairseq.nbest.formats.json_values.framing import (
    ARRAY,
    BATCH,
    LINES,
    OBJECT,
    ONE,
    WRAPPED,
    framing_of,
    is_line_of_batch,
    is_several_lines,
    wrapping_keys,
)
from attlm_fairseq.nbest.formats.json_values.layouts import are_texts, id_key_of, layout_of
from attlm_fairseq.nbest.formats.json_values.members import children
from attlm_fairseq.nbest.formats.json_values.place import Place
from attlm_fairseq.nbest.formats.json_values.records import Reader, Record
from attlm_fairseq.nbest.formats.json_values.silence import SilenceReader
from attlm_fairseq.nbest.formats.json_values.text import DECODER
from attlm_fairseq.nbest.formats.lines import filled_lines, split_end, write_lines
from attlm_fairseq.nbest.formats.list_ids import SeenIds, require_one_utterance
from attlm_fairseq.nbest.formats.own_text import text_of
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFormat
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.verbatim import FileText, HypothesisText, ListText

_MATCHES = re.compile(r"\s*[\[{]\s*[\"\[{\]}]")


class JsonFormat(NbestFormat):
    """Utterances one per line, in an array, in an object by id, or in an object that holds one of these (see ``json_values.records``).

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
            framing = LINES if is_several_lines(text) else ONE
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
        if is_line_of_batch(item.value):
            text, file = file.start + item.raw + file.end, FileText(self.name, framing=LINES)
            return _lists(_items_of_lines(TextSource(source.name, text=text), file), file, reader)
        if (batch := Batch.of(item.value)) is not None:
            file.framing, file.start, file.end = BATCH, file.start + item.raw + file.end, ""
            return _lists(batch.items(item.line), file, reader)
        _require_one(item, source.name)
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
            write_batch(given, out, text.file)
        else:
            is_one = text is not None and text.file.framing == ONE
            write_document(_one_only(given) if is_one else given, out, self.name, ListWriter().item, "{}", new_item)


def _require_one(item: Item, path: str) -> None:
    """Raise InputError for a document that may be one utterance with several references, or several with one text and one reference."""
    layout = layout_of(item.value)
    if layout is None or layout.container is None or id_key_of(item.value) is not None or not are_texts(layout.hypotheses):
        return
    count = len(layout.hypotheses)
    for key in keys.REFERENCES:
        references = None if key in (layout.container, *keys.OF_HYPOTHESES_TOO) else item.value.get(key)
        if isinstance(references, list) and len(references) == count > 1 and are_texts(references):
            raise InputError(
                f"{count} texts under {quoted(layout.container)} and {count} references under {quoted(key)}: add 'ids', a list with the id "
                "of each text's utterance, or 'id' if they are of one utterance",
                path=path,
                line=item.line,
            )


def _wrapped(item: Item) -> tuple[int, int] | None:
    """Return the first character and the end of the array or object of utterances in a document; None if there is none."""
    begin = end = 0
    for key in wrapping_keys(item.value) if isinstance(item.value, dict) else ():
        begin, end = next((child.value, child.end) for child in children(item.raw, begin) if child.key == key)
    return (begin, end) if end else None


def _items_within(item: Item, file: FileText, path: str, begin: int, end: int) -> Iterator[Item]:
    start, rest = len(file.start) + begin, item.raw[end:] + file.end
    source = TextSource(path, text=file.start + item.raw[:end])
    yield from stream_items(source, file, item.raw[begin], start)
    file.end += rest


def _items_of_lines(source: TextSource, file: FileText) -> Iterator[Item]:
    notes = FileNotes(source.name)
    for before, line, line_number in filled_lines(source, file):
        body, end = split_end(line)
        try:
            value = DECODER.decode(body)
        except (ValueError, RecursionError) as error:
            raise InputError(f"not valid JSON ({error}): expected one whole value per line", path=source.name, line=line_number) from None
        if is_line_of_batch(value):
            notes.add("the responses of a batch, which are written without what is around them")
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
    reader.scores.set_apart_counts(first_lists)
    silence = SilenceReader(reader.notes.path)
    for number, item in enumerate(items, 1):
        unfilled = ""
        if (filled := silence.filled(item.raw, item.value)) != item.raw:
            unfilled, item = item.raw, replace(item, raw=filled, value=DECODER.decode(filled))
        called = f"utterance {quoted(item.key)}" if item.key is not None else f"item {number}"
        place = Place(called, item.raw.lstrip(" \t"), reader.notes.path, item.line, is_number=item.key is None)
        record = reader.record(item.value, place, first=number == 1)
        name = place.text(item.key) if item.key is not None else place.id(record.id, count)
        if current is None or not current.goes_on(record, name):
            if not seen.add(name):
                raise InputError(
                    f"the utterance {quoted(name)} is there twice: {_advice(record, file)}", path=reader.notes.path, line=item.line
                )
            if current is not None:
                yield current.nbest
            current, count = _Growing.begin(name, item, record, file, reader.notes.path, unfilled), count + 1
        elif file.framing != LINES:
            current.text.own += item.before
        current.add(item, record)
    if current is None:
        raise InputError("no n-best list in it", path=reader.notes.path)
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


def _one_only(lists: Iterable[NbestList]) -> Iterator[NbestList]:
    for count, nbest in enumerate(lists):
        if count:
            raise InputError("the file is one list, these are several: write jsonl instead")
        yield nbest
