"""JSON of several utterances in one object, whose members are lists with one value per utterance, as scripts save a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from typing import Any, TextIO

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.json_values.document import Item
from attlm_fairseq.nbest.formats.json_values.edits import FORMAT, ListWriter
from attlm_fairseq.nbest.formats.json_values.layouts import id_key_of, layout_of
from attlm_fairseq.nbest.formats.json_values.text import DECODER, dumped
from attlm_fairseq.nbest.formats.own_text import is_as_read, own_text
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.verbatim import FileText


@dataclass(slots=True)
class Batch:
    """Utterances whose values stand in lists, ``{"texts": [[..], [..]], "sequences_scores": [[..], [..]]}``.

    Attributes:
        per_list: members with one value per utterance.
        shared: members that all utterances share.
        returned: number of texts per utterance, if they follow each other in a flat list; else 0.
        nested: members of a flat batch that have one value per utterance in the file, too, such as lists of references.
        texts: of a flat batch with an id for each text, the member with the texts; else empty.
    """

    per_list: dict[str, list[Any]]
    shared: dict[str, Any]
    returned: int = 0
    nested: frozenset[str] = frozenset()
    texts: str = ""

    @staticmethod
    def of(value: Any) -> Batch | None:
        if not isinstance(value, dict):
            return None
        for key in keys.HYPOTHESES:
            texts = value.get(key)
            if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
                ids = value.get("ids")
                of_each = isinstance(ids, list) and len(ids) == len(texts) > 1 and id_key_of(value) is None
                if isinstance(ids, list) and of_each and all(isinstance(name, str | int) and not isinstance(name, bool) for name in ids):
                    return _by_ids(value, key, ids)
                returned = next((value[name] for name in keys.RETURNED if isinstance(value.get(name), int)), len(texts))
                return _flat_batch(value, len(texts), returned) if 0 < returned < len(texts) and len(texts) % returned == 0 else None
            if isinstance(texts, list) and texts and all(isinstance(text, list) and layout_of(text) for text in texts):
                scores = [column for name, column in value.items() if keys.is_score_column(name) and isinstance(column, list)]
                in_words = not any(" " in word for words in texts for word in words if isinstance(word, str))
                of_one = in_words and id_key_of(value) is not None
                if of_one or any(len(column) == len(texts) and not isinstance(column[0], list) for column in scores):
                    return None  # texts that are lists of tokens
                per_list = {name: column for name, column in value.items() if isinstance(column, list) and len(column) == len(texts)}
                return Batch(per_list, {name: shared for name, shared in value.items() if name not in per_list})
        return None

    def items(self, line: int) -> Iterator[Item]:
        for members in zip(*self.per_list.values(), strict=True):
            value = dict(zip(self.per_list, members, strict=True)) | self.shared
            if "ids" in self.per_list:
                ids = value.pop("ids")
                value["id"] = ids[0] if self.texts else ids
            yield Item(None, "", dumped(value, allow_nan=True), value, line)

    def document(self, utterances: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the document with these utterances, as ``items`` gave them or changed."""
        known = {*self.per_list, *self.shared, "id"}
        added = dict.fromkeys(key for utterance in utterances for key in utterance if key not in known)
        columns = {key: [utterance.get("id" if key == "ids" else key) for utterance in utterances] for key in [*self.per_list, *added]}
        if self.texts:
            columns["ids"] = [name for name, utterance in zip(columns["ids"], utterances, strict=True) for _ in utterance[self.texts]]
        if self.returned or self.texts:
            for key, column in columns.items():
                parts = [part for part in column if isinstance(part, list) and key not in self.nested]
                if len(parts) == len(column):
                    columns[key] = list(chain(*parts))
        return columns | self.shared


def _by_ids(value: dict[str, Any], texts: str, ids: list[Any]) -> Batch:
    """Return the batch of texts that follow each other in a flat list, with the id of its utterance for each."""
    ends = list(accumulate(len(list(run)) for _, run in groupby(ids)))
    parts = list(zip([0, *ends[:-1]], ends, strict=True))
    columns = {key: column for key, column in value.items() if isinstance(column, list) and len(column) in (len(ids), len(parts))}
    nested = frozenset(key for key, column in columns.items() if len(column) < len(ids))
    per_list = {key: column if key in nested else [column[begin:end] for begin, end in parts] for key, column in columns.items()}
    return Batch(per_list, {key: shared for key, shared in value.items() if key not in per_list}, nested=nested, texts=texts)


def _flat_batch(value: dict[str, Any], size: int, returned: int) -> Batch:
    columns = {key: column for key, column in value.items() if isinstance(column, list) and len(column) in (size, size // returned)}
    nested = frozenset(key for key, column in columns.items() if len(column) < size)
    per_list = {
        key: column if key in nested else [column[i : i + returned] for i in range(0, size, returned)] for key, column in columns.items()
    }
    return Batch(per_list, {key: shared for key, shared in value.items() if key not in per_list}, returned, nested)


def write_batch(lists: Iterable[NbestList], out: TextIO, file: FileText) -> None:
    template = DECODER.decode(file.start.lstrip("\ufeff"))
    batch = Batch.of(template)
    if batch is None:
        raise InputError("not what was read")
    writer = ListWriter()
    texts = []
    for nbest in lists:
        own = own_text(nbest, FORMAT)
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
