"""mlm-scoring's JSON: an object of utterances."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import FileNotes
from attlm_fairseq.nbest.formats import keys
from attlm_fairseq.nbest.formats.hypothesis_scores import ScoreReader
from attlm_fairseq.nbest.formats.json_values.added_scores import added_members, exact, references_as_value
from attlm_fairseq.nbest.formats.json_values.document import Item, stream_items, write_document
from attlm_fairseq.nbest.formats.json_values.members import Child, children, with_members, with_values
from attlm_fairseq.nbest.formats.json_values.place import Place
from attlm_fairseq.nbest.formats.json_values.text import dumped
from attlm_fairseq.nbest.formats.list_ids import SeenIds
from attlm_fairseq.nbest.formats.own_text import is_as_read, own_text, place_of
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFormat
from attlm_fairseq.nbest.formats.score_names import TOTAL, fresh_names, required_main_score
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import FileText, ListText
from attlm_fairseq.numeric import is_number

# the first utterance has a key hyp_N, perhaps after other keys, such as ref, whose values are no objects
_MATCHES = re.compile(r'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*\{(?:[^"{}]|"(?:[^"\\]|\\.)*")*?"hyp_[0-9]+"\s*:')
_HYPOTHESIS = re.compile(r"hyp_0*([0-9]+)")


class MlmFormat(NbestFormat):
    """``{"utt1": {"hyp_1": {"score": -1.234, "text": "a b"}, ..., "ref": "a b"}, ...}``, ranked by the numbers in the keys.

    mlm-scoring sorts the keys as text (``hyp_1, hyp_10, hyp_2``). Written: the keys keep their places.
    """

    name = "mlm"
    holds = Holds(references=True, scores=True, score_name=keys.as_member, main_score="score")

    def matches(self, head: str) -> bool:
        return _MATCHES.match(head) is not None

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        file = FileText(self.name)
        seen = SeenIds()
        reader = ScoreReader(FileNotes(source.name))
        for item in stream_items(source, file, "{"):
            if not seen.add(item.key or ""):
                raise InputError(f"the utterance {quoted(item.key or '')} is there twice", path=source.name, line=item.line)
            nbest = _nbest_list(item, source.name)
            nbest.verbatim = ListText(file, item.before, item.raw, len(nbest.hypotheses), extras=_extras(item.value, nbest))
            for name in nbest.verbatim.extras:
                if keys.is_measurement(name):
                    reader.tell_of_measurement(name)
            yield nbest

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        write_document(lists, out, self.name, _text, "{}", _new_item)


def _nbest_list(item: Item, path: str) -> NbestList:
    value = item.value
    place = Place(f"utterance {quoted(item.key or '')}", item.raw, path, item.line)
    if not isinstance(value, dict) or not any(map(_HYPOTHESIS.fullmatch, value)):
        raise place.error(f'is {quoted(item.raw)}: expected {{"hyp_1": {{"score": ..., "text": ...}}, ..., "ref": ...}}')
    hypotheses: list[Hypothesis] = []
    for key in sorted(filter(_HYPOTHESIS.fullmatch, value), key=_number):
        hypotheses.append(_hypothesis(value[key], key, len(hypotheses) + 1, place))
    return NbestList(place.text(item.key or ""), hypotheses, place.references(value.get("ref"), "ref"), item.line, path=path)


def _hypothesis(value: Any, key: str, rank: int, place: Place) -> Hypothesis:
    if not isinstance(value, dict) or "text" not in value or "score" not in value:
        raise place.error(f'is {quoted(json.dumps(value))}: expected {{"score": ..., "text": ...}}', key)
    scores = {
        place.score_name(name, key): place.number(score, key, name)
        for name, score in value.items()
        if name == "score" or (is_number(score) and keys.is_score(name))
    }
    return Hypothesis(place.text(value["text"], key, "text"), scores, rank)


def _extras(value: dict[str, Any], nbest: NbestList) -> tuple[str, ...]:
    """Return the keys of an utterance and its hypotheses whose values are not read."""
    read = {"ref", "text", TOTAL}.union(*(hypothesis.scores for hypothesis in nbest.hypotheses))
    of_hypotheses = [key for name, hypothesis in value.items() if _HYPOTHESIS.fullmatch(name) for key in hypothesis]
    return tuple(sorted({*of_hypotheses, *(key for key in value if not _HYPOTHESIS.fullmatch(key))} - read))


def _text(nbest: NbestList) -> str:
    own = own_text(nbest, MlmFormat.name)
    text = own.own
    if is_as_read(nbest, own):
        return text
    found = [text[child.value : child.end] for child in sorted(filter(_is_hypothesis, children(text)), key=_order)]
    values = []
    for hypothesis in nbest.hypotheses:
        value = found[place_of(nbest, hypothesis)]
        taken = [child.key for child in children(value) if child.key is not None]
        values.append(with_members(value, added_members(hypothesis, nbest, taken, keys.as_member)))
    return with_values(text, values, _is_hypothesis, _order)


def _new_item(nbest: NbestList) -> str:
    """Return the utterance, with its id, of a list that was read from another format."""
    members = {}
    for place, hypothesis in enumerate(nbest.hypotheses, 1):
        main = required_main_score(nbest, hypothesis)
        others = fresh_names([name for name in hypothesis.scores if name != main], ["score", "text"], keys.as_member)
        scores = {"score": hypothesis.scores[main]} | {new: hypothesis.scores[name] for name, new in others.items()}
        own = {name: exact(score, name, nbest) for name, score in scores.items()}
        added = added_members(hypothesis, nbest, [*scores, "text"], keys.as_member)
        members[f"hyp_{place}"] = with_members(dumped({"text": hypothesis.text}), own | added)
    references = {"ref": dumped(references_as_value(nbest))} if nbest.references else {}
    return f"{dumped(nbest.id)}: {with_members('{}', members | references)}"


def _is_hypothesis(child: Child) -> bool:
    return _HYPOTHESIS.fullmatch(child.key or "") is not None


def _order(child: Child) -> tuple[int, str]:
    return _number(child.key or "")


def _number(key: str) -> tuple[int, str]:
    """Return a sort key that orders keys by their numbers, however long."""
    match = _HYPOTHESIS.fullmatch(key)
    digits = match[1] if match else ""
    return len(digits), digits
