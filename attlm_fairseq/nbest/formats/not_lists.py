"""Files that users take for n-best lists and that are none: what to do about each."""

from __future__ import annotations

import re

_OF_KALDI = "a lattice of Kaldi: expected n-best lists; `attlm lattices FILE --words words.txt -o lists.jsonl` makes them"
_TIME = r"\d+:\d\d(?::\d\d)?[.,]\d+"
_ADVICE = {
    re.compile(rf"\s*(?:WEBVTT\b|\d+[ \t]*\r?\n{_TIME}[ \t]+-->[ \t]+{_TIME})"): (
        "subtitles: one text for each time, no n-best list; `attlm score` and `attlm ppl` take plain text, one sentence per line"
    ),
    re.compile(r"start\tend\ttext\r?\n"): (
        "Whisper's table of segments: one text for each time, no n-best list; see docs/formats.md#from-a-decoder-in-python"
    ),
    re.compile(r"\s*(?:#.*\n)*VERSION=\d"): ("a lattice (SLF): expected n-best lists; `attlm lattices FOLDER -o lists.jsonl` makes them"),
    re.compile(r"\S+[ \t]*\r?\n\d+[ \t]+\d+[ \t]+\S+[ \t]+[-+\d.e]*,[-+\d.e]*,[\d_]*[ \t]*\r?\n"): _OF_KALDI,
    re.compile(r"(?:wav|utt) \S+\r?\ncandidate [-+\d.e]+ "): (
        "WeNet's n-best output: expected id<TAB>score<TAB>text; docs/formats.md#no-n-best-lists has a line of awk that makes it"
    ),
    re.compile(r"(?:\[[^\]\n]*INFO\][^\n]*\n)*\s*SENT \d+: \["): (
        "the log of OpenNMT-py: expected the texts of its -output with --format plain:N, N being that of -n_best; they have no scores"
    ),
}


_BINARY = {re.compile(rb"\S+[ \t]\xd6\xfd\xb2\x7e"): _OF_KALDI}


def advice_on_bytes(beginning: bytes) -> str | None:
    """Return what a file with these first bytes, which is no text, is and what to do, if it is one of these; else None."""
    return next((advice for form, advice in _BINARY.items() if form.match(beginning)), None)


def advice_on(head: str) -> str | None:
    """Return what a file that begins with ``head`` is and what to do, if it is one of these; else None."""
    return next((advice for form, advice in _ADVICE.items() if form.match(head)), None)
