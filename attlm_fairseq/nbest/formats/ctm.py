"""NIST's ctm: one word of an answer per line, with its time and confidence."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, TextIO

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.files.writing import whole_file
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats.lines import numbered, write_lines
from attlm_fairseq.nbest.formats.list_ids import SeenIds, writable
from attlm_fairseq.nbest.formats.number_texts import is_written_number, number
from attlm_fairseq.nbest.formats.own_text import own_text, text_of_hypothesis
from attlm_fairseq.nbest.formats.protocol import NbestFormat
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList, Sausage
from attlm_fairseq.nbest.verbatim import FileText, HypothesisText, ListText

CHANNEL = "1"
LATEST = 1e9  # seconds
DECIMALS = 6  # of the end of a word
SCORE = "log_confidence"
MIN_CONFIDENCE = 1e-7  # smaller ones count as this one: ln 0 is no score
COMMENT = ";;"
MADE_UP = "word n of an utterance begins at n - 1 seconds and lasts 1 second"
NO_TIMES = f";; no times in {{}}: {MADE_UP}\n"
FIELDS = "recording, channel, begin, duration, word, perhaps its confidence, type and speaker"
NO_WORDS = frozenset({"non-lex", "misc", "noscore"})  # types of what is no word: noises, and what nobody scores
NUMBER = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_TYPE = "lex|frag|fp|un-lex|for-lex|non-lex|misc|noscore"
_ROW = re.compile(
    rf"\s*(?P<id>\S+)\s+(?P<channel>\S+)\s+(?P<begin>-?{NUMBER})\s+(?P<duration>-?{NUMBER})\s+(?P<word>\S+)"
    rf"(?:\s+(?P<confidence>-?{NUMBER}|NA)(?:\s+(?P<type>{_TYPE})(?:\s+\S+)?)?)?\s*"
)
_ALTERNATIVE = re.compile(r"\s*\S+\s+\S+\s+\*\s+\*\s+<ALT(?:_BEGIN|_END)?>\s*.*", re.DOTALL)


class _Row(NamedTuple):
    name: str
    channel: str
    begin: float
    end: float
    word: str  # "" for what is no word
    confidence: float | None
    typed: bool
    line: int


class CtmFormat(NbestFormat):
    """``recording channel begin duration word [confidence [type [speaker]]]``: one hypothesis for each recording, with times.

    The words of a recording are put in the order of their begin times. A recording without words has no line. Lines that begin with
    ``;;`` are comments. Confidences are kept if all words of the recording have one. If they are from 0 to 1, the sum of their natural
    logs is the score ``log_confidence``.
    """

    name = "ctm"
    has_scores = False

    def matches(self, head: str) -> bool:
        """Return whether most lines have the fields, and some time or confidence has a decimal point, or all lines have them.

        Then not all words are numbers: texts of digits look like CTM otherwise.
        """
        rows = [line for line in head.split("\n") if line.strip() and not _is_comment(line)]
        found = [row for line in rows if (row := _ROW.fullmatch(line))]
        alternatives = sum(_ALTERNATIVE.fullmatch(line) is not None for line in rows)
        if not rows:  # no words at all, which ``parse`` refuses: they are no text
            return any(map(_is_comment, head.split("\n")))
        if any("." in f"{row['begin']}{row['duration']}{row['confidence']}" for row in found):
            return 2 * (len(found) + alternatives) > len(rows)
        return 0 < len(found) == len(rows) and not all(is_written_number(row["word"]) for row in found)

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        file = FileText(self.name)
        seen = SeenIds()
        rows: list[_Row] = []
        before = own = between = ""
        noises = 0
        made_up = False
        for place, line in numbered(source, file):
            if not line.strip() or _is_comment(line):
                made_up = made_up or line.rstrip().endswith(MADE_UP)
                between += line
                continue
            row = _row(line, source.name, place)
            if rows and row.name != rows[0].name:
                yield _of_recording(rows, ListText(file, before, size=1), own, source.name, made_up)
                rows, own = [], ""
            _require_channel(rows, row, source.name)
            if not rows:
                if not seen.add(row.name):
                    what = "continues here after other recordings: put its lines together (sort by recording)"
                    raise InputError(f"the recording {quoted(row.name)} {what}", path=source.name, line=place)
                before, between = between, ""
            own += between + line
            between = ""
            rows.append(row)
            noises += not row.word
        if not rows:
            raise _no_words(source.name)
        file.end = between
        yield _of_recording(rows, ListText(file, before, size=1), own, source.name, made_up)
        if noises:
            note(f"note: {source.name}: {noises} rows of the types {', '.join(sorted(NO_WORDS))} are no words")

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        write_lines(lists, out, self.name, _own_lines)


def recordings(source: TextSource) -> list[NbestList]:
    """Return the lists of a CTM file whose recordings may be mixed, in the order of their first words.

    Raises InputError for a line with other fields, two channels of one recording, or a file without words.
    """
    file = FileText(CtmFormat.name)
    rows: dict[str, list[_Row]] = {}
    for place, line in numbered(source, file):
        if line.strip() and not _is_comment(line):
            row = _row(line, source.name, place)
            of_recording = rows.setdefault(row.name, [])
            _require_channel(of_recording, row, source.name)
            of_recording.append(row)
    if not rows:
        raise _no_words(source.name)
    return [_of_recording(of_recording, ListText(file, size=1), "", source.name) for of_recording in rows.values()]


def _no_words(path: str) -> InputError:
    return InputError("nothing but comments: expected one word per line", path=path)


def _require_channel(rows: Sequence[_Row], row: _Row, path: str) -> None:
    if rows and row.channel != rows[0].channel:
        raise InputError(
            f"found channel {row.channel} after channel {rows[0].channel} of {quoted(row.name)}, expected one channel of each "
            "recording: keep the lines of one channel in a file of its own",
            path=path,
            line=row.line,
        )


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith(COMMENT)


def _row(line: str, path: str, place: int) -> _Row:
    found = _ROW.fullmatch(line)
    if found is None:
        what = "alternatives are not read: keep one of each" if _ALTERNATIVE.fullmatch(line) else f"expected the fields of CTM: {FIELDS}"
        raise InputError(f"found {quoted(line.rstrip())}: {what}", path=path, line=place)
    begin, duration = (number(found[name], f"the {name}", path, place) for name in ("begin", "duration"))
    confidence = None if found["confidence"] in (None, "NA") else number(found["confidence"], "the confidence", path, place)
    for name, value in (("begin", begin), ("duration", duration)):
        if value < 0:
            raise InputError(f"the {name} is {value:g} s: expected at least 0 s", path=path, line=place)
    if begin + duration > LATEST:
        raise InputError(f"the word ends at {begin + duration:g} s: expected at most {LATEST:g} s", path=path, line=place)
    word = "" if found["type"] in NO_WORDS else found["word"]
    return _Row(found["id"], found["channel"], begin, round(begin + duration, DECIMALS), word, confidence, bool(found["type"]), place)


def _of_recording(rows: Sequence[_Row], text: ListText, own: str, path: str, made_up: bool = False) -> NbestList:
    """Return the list of a recording. ``made_up``: times of one second for each word are those of ``write_ctm``, and left out."""
    text.file.size += 1
    words = sorted((row for row in rows if row.word), key=attrgetter("begin"))
    confidences = [row.confidence for row in words if row.confidence is not None]
    known = {"channel": rows[0].channel != CHANNEL, "confidence": bool(confidences), "type": any(row.typed for row in rows)}
    text.extras = tuple(name for name, is_known in known.items() if is_known)
    is_probability = bool(words) and len(confidences) == len(words) and all(0 <= confidence <= 1 for confidence in confidences)
    times = tuple((row.begin, row.end) for row in words)
    hypothesis = Hypothesis(
        " ".join(row.word for row in words),
        {SCORE: math.fsum(math.log(max(confidence, MIN_CONFIDENCE)) for confidence in confidences)} if is_probability else {},
        rank=1,
        times=() if made_up and times == tuple((float(place), place + 1.0) for place in range(len(words))) else times,
        confidences=tuple(confidences) if len(confidences) == len(words) else (),
        verbatim=HypothesisText(own),
    )
    return NbestList(rows[0].name, [hypothesis], line=rows[0].line, verbatim=text, path=path)


def _own_lines(nbest: NbestList) -> list[str]:
    own_text(nbest, CtmFormat.name)
    return [text_of_hypothesis(nbest, hypothesis).own for hypothesis in nbest.hypotheses]


def write_ctm(lists: Iterable[NbestList], path: str) -> None:
    """Write ``id channel begin duration word confidence`` for each word of each answer, times in seconds.

    The lists carry their ``sausage``. If a list has no times, a comment says so and each word lasts one second. An
    utterance without words has no line. ``path`` is as in ``write_nbest``. Raises InputError for an id that a line cannot
    hold; nothing is written then.
    """
    told = False
    with whole_file(path) as out:
        for place, nbest in enumerate(writable(lists, "ctm")):
            if not nbest.id or re.search(r"\s", nbest.id) or nbest.id.startswith(";;"):
                raise nbest.error(f"the id {quoted(nbest.id)} is empty, has white space in it or begins with ;; - ctm lines cannot hold it")
            assert nbest.sausage is not None, "a list without confidences"
            if not told and nbest.sausage.answer and not nbest.sausage.times:
                out.write(NO_TIMES.format(f"the list {nbest.id} and others" if place else "the lists"))
                told = True
            out.writelines(_lines(nbest.id, _channel_of(nbest), nbest.sausage))


def _channel_of(nbest: NbestList) -> str:
    """Return the channel of a recording that was read from CTM."""
    for hypothesis in nbest.hypotheses:
        if nbest.verbatim is not None and nbest.verbatim.file.format == CtmFormat.name and hypothesis.verbatim is not None:
            return next((row["channel"] for line in hypothesis.verbatim.own.split("\n") if (row := _ROW.fullmatch(line))), CHANNEL)
    return CHANNEL


def _lines(name: str, channel: str, sausage: Sausage) -> Iterator[str]:
    for place, (word, share) in enumerate(sausage.answer):
        begin, end = sausage.times[place] if sausage.times else (float(place), place + 1.0)
        yield f"{name} {channel} {begin:.2f} {end - begin:.2f} {word} {share:.6f}\n"
