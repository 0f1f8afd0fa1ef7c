"""N-best lists of Moses, and the similar ones of Joshua, Marian and older Moses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import CARRIAGE_RETURNS, TextSource
from attlm_fairseq.nbest.formats.lines import grouped, one_line, split_end, write_lines
from attlm_fairseq.nbest.formats.number_texts import is_written_number, number, written
from attlm_fairseq.nbest.formats.own_text import is_rescored, own_text, text_of
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFormat
from attlm_fairseq.nbest.formats.score_names import fresh_names
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

DECODER = "decoder"  # the score of the total field, as the decoder wrote it
KEPT = "DecoderTotal"  # the feature in which it is kept when rescoring replaces that field
WORD_SCORES = "WordScores"  # Marian's, one value a word: not a feature
_ID = re.compile(r"[^\s|{\[][^\s|]*")  # does not begin as JSON in which a text has |||
_FIRST_LINE = re.compile(rf"\s*{_ID.pattern}[ \t]*\|\|\|")
NO_TOTAL = f"No{KEPT}"  # the feature which says that the decoder had no total, and that the field is the total of rescoring
_HAS_KEPT = re.compile(rf"(?<!\S)({KEPT}|{NO_TOTAL})=")
_BARE = re.compile(r"f\d+")  # what scores without a name are called: a missing one is an error
_ALIGNED = re.compile(r"\d+-\d+")
_FROM_OPENNMT = "write text<TAB>score, and give the number of hypotheses of each sentence: --format nemo:K"
_SCORE = re.compile(r"\s*(?:-\d+\.\d+|\d+\.\d{6})\s*")


def _legal(name: str) -> str:
    first, *others = re.findall("[A-Za-z0-9]+", name) or ["LM"]
    legal = first + "".join(part[0].upper() + part[1:] for part in others)
    return legal if legal[0].isalpha() else "LM" + legal


def _score_name(name: str) -> str:
    """Return what a score of another format is called when it is read back."""
    base, _, place = name.rpartition(".")
    return name if name == DECODER else f"{_legal(base)}.{place}" if base and place.isdecimal() else _legal(name)


class MosesFormat(NbestFormat):
    """``id ||| hypothesis ||| features ||| total``; consecutive lines with the same id form a list, which is ``sparse``."""

    name = "moses"
    holds = Holds(scores=True, decimals=6, score_name=_score_name, sparse=True, one_line=True)

    def matches(self, head: str) -> bool:
        return _FIRST_LINE.match(head) is not None

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        shape: tuple[int, bool, bool] | None = None
        others: set[str] = set()

        def parse(text: str, line: int, _after_blank: bool) -> tuple[str, Hypothesis]:
            nonlocal shape
            found = _recognise(split_end(text)[0], source.name, line)
            if shape is None and len(found.fields) == 2 and _SCORE.fullmatch(found.fields[0]):
                message = f"found {quoted(text)}: a score stands before the text, and no id, as OpenNMT-tf writes it; {_FROM_OPENNMT}"
                raise InputError(message, path=source.name, line=line)
            found_shape = (len(found.fields), bool(found.features), found.total is not None)
            shape = shape or found_shape
            if found_shape != shape:
                message = f"{_described(found_shape)}, but the first line has {_described(shape)}: is the line cut short?"
                raise InputError(message, path=source.name, line=line)
            others.update(_others(found))
            return found.fields[0].strip(), Hypothesis(found.fields[1].strip(" \t"), _scores(found, source.name, line))

        for nbest in grouped(source, self.name, parse):
            nbest.sparse = not any(_BARE.fullmatch(name) for hypothesis in nbest.hypotheses for name in hypothesis.scores)
            own_text(nbest, self.name).extras = tuple(sorted(others))
            yield nbest

    def written_id(self, nbest: NbestList) -> str:
        return one_line(nbest.id).strip()

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        names = _Names()
        write_lines(lists, out, self.name, lambda nbest: [self._line(nbest, hypothesis, names) for hypothesis in nbest.hypotheses])

    def _line(self, nbest: NbestList, hypothesis: Hypothesis, names: _Names) -> str:
        if text_of(nbest, self.name) is None or hypothesis.verbatim is None:
            return _new_line(nbest, hypothesis, names)
        if not is_rescored(hypothesis):
            return hypothesis.verbatim.own
        body, end = split_end(hypothesis.verbatim.own)
        found = _recognise(body, "", 0)
        fields = found.fields
        own_total = fields[found.total].strip() if found.total is not None else ""
        if hypothesis.total is not None:
            total = written(hypothesis.total, "total", nbest)
            if found.total is None:
                _insert(fields, len(fields), total)
            else:
                fields[found.total] = fields[found.total].replace(fields[found.total].strip(), total)
        names.keep(hypothesis)
        added = _features(nbest, hypothesis.lm_scores, names.of_lm_scores)
        if hypothesis.total is not None and not any(_HAS_KEPT.search(fields[i]) for i in found.features):
            added = f"{added} {f'{KEPT}= {own_total}' if own_total else f'{NO_TOTAL}= 1'}".lstrip()
        if added and found.features:
            field = fields[found.features[-1]]
            kept = field.rstrip()
            fields[found.features[-1]] = f"{kept} {added}{field[len(kept) :] or ' '}"
        elif added:
            # before the total, which is told from other fields by following the features
            _insert(fields, len(fields) - (hypothesis.total is not None) if found.total is None else found.total, added)
        return "|||".join(fields) + end


@dataclass(slots=True)
class _Line:
    fields: list[str]
    features: list[int]  # the fields that hold features
    total: int | None  # the field that holds the total


def _split(body: str) -> list[str]:
    """Return the fields as they stand between the separators; a longer row of bars is a separator only if it is several of them."""
    if "||||" not in body:
        return body.split("|||")
    fields = []
    start = 0
    for bars in re.finditer(r"\|{3,}", body):
        if len(bars[0]) % 3 == 0:
            for cut in range(bars.start(), bars.end(), 3):
                fields.append(body[start:cut])
                start = cut + 3
    return [*fields, body[start:]]


def _recognise(body: str, path: str, line: int) -> _Line:
    fields = _split(body)
    if len(fields) < 2 or not fields[0].strip():
        raise InputError(f"found {quoted(body)}: expected 'id ||| hypothesis ||| features ||| total'", path=path, line=line)
    if "\r" in body and any("\r" in field for field in (fields[0], *fields[2:])):
        raise InputError(CARRIAGE_RETURNS, path=path, line=line)
    rest = range(2, len(fields))
    named = [i for i in rest if _begins_with_name(fields[i])]
    if named:
        after = named[-1] + 1
        if after == len(fields) or (not is_written_number(fields[after]) and all(map(_ALIGNED.fullmatch, fields[after].split()))):
            return _Line(fields, named, None)
        return _Line(fields, named, after)
    numeric = [i for i in rest if is_written_number((fields[i].split() or [""])[0])]
    if not numeric or len(fields[numeric[-1]].split()) > 1:
        return _Line(fields, numeric, None)
    total = numeric.pop()
    if not numeric and total > 2 and not fields[total - 1].strip():
        numeric = [total - 1]  # no features on this line, but a field for them
    return _Line(fields, numeric, total)


def _others(found: _Line) -> Iterator[str]:
    """Yield what the fields of a line are called that are neither id, text, features nor total."""
    for i, field in enumerate(found.fields[2:], 2):
        words = field.split()
        if words and i not in found.features and i != found.total:
            is_named = words[0].startswith(f"{WORD_SCORES}=")
            yield WORD_SCORES if is_named else "alignments" if all(map(_ALIGNED.fullmatch, words)) else f"the field {i + 1}"


def _begins_with_name(field: str) -> bool:
    first = (field.split() or [""])[0]
    if first[-1:] in ("=", ":") and len(first) > 1:
        return first[:-1] != WORD_SCORES
    name, equals, _ = first.rpartition("=")
    return bool(equals) and name != WORD_SCORES and re.fullmatch(r"[\d,-]*", name) is None  # 0-1=0-1 is an alignment


def _values(found: _Line, path: str, line: int) -> tuple[list[float], dict[str, list[float]]]:
    """Return the values of a line's features: those without a name, and those of each name."""
    bare: list[float] = []
    named: dict[str, list[float]] = {}
    for i in found.features:
        values = bare
        name = None
        for token in found.fields[i].split():
            prefix = value = ""
            if token[-1] in "=:":
                prefix = token[:-1]
            elif "=" in token:
                prefix, _, value = token.rpartition("=")
            if not prefix:
                values.append(number(token, name or "a feature without a name", path, line))
                continue
            if name is not None and not values:
                raise InputError(f"the feature {name} has no value", path=path, line=line)
            name = prefix
            values = named.setdefault(name, [])
            if value:
                values.append(number(value, name, path, line))
        if name is not None and not values:
            raise InputError(f"the feature {name} has no value", path=path, line=line)
    return bare, named


def _scores(found: _Line, path: str, line: int) -> dict[str, float]:
    bare, named = _values(found, path, line)
    scores = {f"f{i}": value for i, value in enumerate(bare, 1)}
    for name, values in named.items():
        if len(values) == 1 and name != DECODER:
            scores[name] = values[0]
        else:
            scores.update((f"{name}.{i}", value) for i, value in enumerate(values, 1))
    if KEPT in scores:
        scores[DECODER] = scores.pop(KEPT)
    elif NO_TOTAL in scores:
        del scores[NO_TOTAL]
    elif found.total is not None:
        scores[DECODER] = number(found.fields[found.total].strip(), "the total", path, line)
    return scores


def _insert(fields: list[str], place: int, text: str) -> None:
    """Add a field, with spaces at the separators."""
    if not fields[place - 1].endswith(" "):
        fields[place - 1] += " "
    fields.insert(place, f" {text} " if place < len(fields) else f" {text}")


def _described(shape: tuple[int, bool, bool]) -> str:
    count, features, total = shape
    return f"{count} fields {'with' if features else 'without'} features and {'with' if total else 'without'} total"


class _Names:
    """The names of scores and features in a file: a feature has one name in all lines, and no two features of a line share one.

    If a line has a feature with a name that an LM got in earlier lines, the LM gets another name from there on.
    """

    def __init__(self) -> None:
        self._scores: dict[str, str] = {}
        self._lm_scores: dict[str, str] = {}
        self._taken = {DECODER, KEPT, NO_TOTAL}
        self._own: set[str] = set()
        self._first: frozenset[str] | None = None

    def check(self, nbest: NbestList, hypothesis: Hypothesis) -> None:
        """Raise InputError if a hypothesis has other scores than the first of the file, unless its list says that they are 0."""
        if nbest.sparse:
            return
        self._first = frozenset(hypothesis.scores) if self._first is None else self._first
        if different := sorted(self._first ^ hypothesis.scores.keys()):
            what, others = ("no", "have") if different[0] in self._first else ("a", "lack")
            raise nbest.error(
                f"list {nbest.id}, hypothesis {hypothesis.rank} has {what} score {different[0]}, which others {others}: in Moses' format "
                "it would be a 0; write another one, such as --to jsonl"
            )

    def keep(self, hypothesis: Hypothesis) -> None:
        """Reserve the names of a hypothesis' own scores, under which its line has them."""
        self._own = {name.partition(".")[0] for name in hypothesis.scores}
        self._taken |= self._own

    def of_scores(self, feature: str) -> str:
        return self._of(feature, self._scores)

    def of_lm_scores(self, feature: str) -> str:
        return self._of(feature, self._lm_scores)

    def _of(self, feature: str, names: dict[str, str]) -> str:
        if feature not in names or names[feature] in self._own:
            names |= fresh_names([feature], self._taken, _legal)
            self._taken.add(names[feature])
        return names[feature]


def _features(nbest: NbestList, scores: dict[str, float], name_of: Callable[[str], str]) -> str:
    """``Name= value ..``: scores called ``Name.1``, ``Name.2``, .. are one feature."""
    values: dict[str, list[str]] = {}
    for name, value in scores.items():
        base, _, place = name.rpartition(".")
        is_one_of_several = base not in scores and f"{base}.2" in scores and place == str(len(values.get(base, ())) + 1)
        values.setdefault(base if is_one_of_several else name, []).append(written(value, name, nbest))
    return " ".join(f"{name_of(feature)}= {' '.join(numbers)}" for feature, numbers in values.items())


def _new_line(nbest: NbestList, hypothesis: Hypothesis, names: _Names) -> str:
    """Return the line of a hypothesis that was read from another format."""
    text = one_line(hypothesis.text)
    if "|||" in text:
        raise nbest.error(f"list {nbest.id!r}: a text with '|||' cannot be written in Moses' format")
    if not _ID.fullmatch(nbest.id):
        told = "is empty, has white space or | in it, or begins with [ or {"
        raise nbest.error(
            f"the id {quoted(nbest.id)} {told}: lines of Moses would not be recognised with it; write another one, such as jsonl"
        )
    names.check(nbest, hypothesis)
    total = own_total = hypothesis.scores.get(DECODER)
    scores = {name: value for name, value in hypothesis.scores.items() if name != DECODER}
    features = [_features(nbest, scores, names.of_scores), _features(nbest, hypothesis.lm_scores, names.of_lm_scores)]
    if hypothesis.total is not None:
        total = hypothesis.total
        features.append(f"{NO_TOTAL}= 1" if own_total is None else f"{KEPT}= {written(own_total, DECODER, nbest)}")
    fields = [nbest.id, text, " ".join(filter(None, features))]
    if total is not None:
        fields.append(written(total, "total", nbest))
    return " ||| ".join(fields) + "\n"
