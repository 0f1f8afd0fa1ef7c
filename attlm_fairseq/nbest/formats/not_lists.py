"""Files that users take for n-best lists and that are none: what to do about each."""

from __future__ import annotations

import re

_TIME = r"\d+:\d\d(?::\d\d)?[.,]\d+"
_ADVICE = {
    re.compile(rf"\s*(?:WEBVTT\b|\d+[ \t]*\r?\n{_TIME}[ \t]+-->[ \t]+{_TIME})"): (
        "subtitles: one text for each time, no n-best list; `attlm score` and `attlm ppl` take plain text, one sentence per line"
    ),
    re.compile(r"start\tend\ttext\r?\n"): (
        "Whisper's table of segments: one text for each time, no n-best list; see docs/formats.md#from-a-decoder-in-python"
    ),
    re.compile(r"\s*(?:#.*\n)*VERSION=\d"): (
        "a lattice (SLF): expected n-best lists; make them with SRILM: `lattice-tool -read-htk -in-lattice-list LIST -nbest-decode 100 "
        "-out-nbest-dir DIR`, then give DIR"
    ),
    re.compile(r"\S+[ \t]*\r?\n\d+[ \t]+\d+[ \t]+\S+[ \t]+[-+\d.e]*,[-+\d.e]*,[\d_]*[ \t]*\r?\n"): (
        "a lattice of Kaldi: expected n-best lists; make them with Kaldi's lattice-to-nbest, nbest-to-linear and int2sym.pl, see "
        "docs/formats.md#no-n-best-lists"
    ),
    re.compile(r"(?:wav|utt) \S+\r?\ncandidate [-+\d.e]+ "): (
        "WeNet's n-best output: expected id<TAB>score<TAB>text; docs/formats.md#no-n-best-lists has a line of awk that makes it"
    ),
}


def advice_on(head: str) -> str | None:
    """Return what a file that begins with ``head`` is and what to do, if it is one of these; else None."""
    return next((advice for form, advice in _ADVICE.items() if form.match(head)), None)
