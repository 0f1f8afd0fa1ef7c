"""icefall's ``recogs-*.txt``: the reference of each utterance and what was recognised, as lists of words in Python's notation."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from typing import TextIO

from attlm_fairseq.errors import InputError, quoted
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.formats.lines import numbered, write_lines
from attlm_fairseq.nbest.formats.list_ids import SeenIds
from attlm_fairseq.nbest.formats.own_text import own_text, text_of_hypothesis
from attlm_fairseq.nbest.formats.protocol import NbestFormat
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.verbatim import FileText, HypothesisText, ListText

_LINE = re.compile(r"([^\t\n]+):\t(ref|hyp)=(\[.*\])\s*")
_TIMES = re.compile(r"([^\t\n]+):\t(timestamp_(?:ref|hyp))=\[.*\]\s*")


class IcefallFormat(NbestFormat):
    """``id:<TAB>ref=['a', 'b']``, then ``id:<TAB>hyp=['a']``, one line per hypothesis; most files have one.

    Lines ``timestamp_ref=`` and ``timestamp_hyp=`` stay with the line before them and are not read.
    """

    name = "icefall"
    has_scores = False

    def matches(self, head: str) -> bool:
        return _LINE.fullmatch(head.partition("\n")[0]) is not None

    def parse(self, source: TextSource) -> Iterator[NbestList]:
        path = source.name
        file = FileText(self.name)
        text = ListText(file)
        seen = SeenIds()
        current: NbestList | None = None
        before = ""
        for number, line in numbered(source, file):
            if not line.strip(" \r\n"):
                before += line
                continue
            times = _TIMES.fullmatch(line)
            if times is not None and current is not None and current.id == times[1]:
                if current.hypotheses:
                    text_of_hypothesis(current, current.hypotheses[-1]).own += before + line
                else:
                    text.before += before + line
                text.extras = tuple(sorted({*text.extras, times[2]}))
                before = ""
                continue
            found = _LINE.fullmatch(line)
            words = _words(found[3]) if found else None
            if found is None or words is None:
                raise InputError(
                    f"found {quoted(line)}: expected ID:<TAB>ref=['word', ..] or ID:<TAB>hyp=['word', ..]", path=path, line=number
                )
            name, kind = found[1], found[2]
            if kind == "ref":
                if not seen.add(name):
                    raise InputError(f"the utterance {quoted(name)} is there twice", path=path, line=number)
                if current is not None:
                    yield _with_hypotheses(current)
                text = ListText(file, before + line)
                current = NbestList(name, [], (words,), number, text, path=path)
            elif current is None or current.id != name:
                raise InputError(f"the hypothesis of {quoted(name)} comes without its reference before it", path=path, line=number)
            else:
                text.size += 1
                current.hypotheses.append(Hypothesis(words, rank=text.size, verbatim=HypothesisText(before + line)))
            before = ""
        if current is None:
            raise InputError("no n-best list in it", path=path)
        file.end = before
        yield _with_hypotheses(current)

    def put(self, lists: Iterable[NbestList], out: TextIO) -> None:
        write_lines(lists, out, self.name, _lines)


def _words(written: str) -> str | None:
    """Return the words of a list in Python's notation, joined by spaces; None if the text is not such a list."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            words = ast.literal_eval(written)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return " ".join(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


def _with_hypotheses(nbest: NbestList) -> NbestList:
    if not nbest.hypotheses:
        raise nbest.error(f"the reference of {quoted(nbest.id)} has no hypothesis after it")
    return nbest


def _lines(nbest: NbestList) -> list[str]:
    own_text(nbest, IcefallFormat.name)
    return [text_of_hypothesis(nbest, hypothesis).own for hypothesis in nbest.hypotheses]
