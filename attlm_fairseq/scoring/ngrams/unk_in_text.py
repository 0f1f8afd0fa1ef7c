"""``<unk>`` as a word of the text. ``lmplz`` has no option for it: a placeholder is estimated, and renamed in the ARPA file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import kenlm

from attlm_fairseq.scoring.ngrams.kenlm_files import load_kenlm
from attlm_fairseq.text.symbols import START, UNKNOWN

PLACEHOLDER = "\x01unk\x01"  # what lmplz sees: no text holds control characters


def rename_placeholder(arpa: Path, output: Path) -> None:
    """Write the ARPA file with ``<unk>`` in place of the placeholder, so that both become one event.

    After every history h, p'(<unk> | h) = p(placeholder | h) + p(<unk> | h). All other probabilities stay, so the sum is 1
    as before. Only n-grams that end in the placeholder get a new probability. lmplz writes no n-gram with ``<unk>``: after
    all other histories both terms back off with the same weight. So does their sum.

    Args:
        arpa: the output of lmplz; the placeholder is among its words.
        output: the file to write.
    """
    model = load_kenlm(arpa)
    order, old, unknown = 0, PLACEHOLDER.encode(), UNKNOWN.encode()
    with arpa.open("rb") as lines, output.open("wb") as out:
        for line in lines:
            if line.startswith(b"ngram 1="):
                line = b"ngram 1=%d\n" % (int(line.partition(b"=")[2]) - 1)
            elif line.startswith(b"\\"):
                order = int(line[1 : line.index(b"-")]) if b"-grams:" in line else 0
            elif order and line.strip(b"\n"):
                log10, text, *backoff = line.rstrip(b"\n").split(b"\t")
                words = text.split(b" ")
                if words == [unknown]:
                    continue  # its probability joins the placeholder's
                if old in words:
                    if words[-1] == old:
                        log10 = b"%.8g" % _joined(float(log10), _log10_unknown(model, [word.decode() for word in words[:-1]]))
                    text = b" ".join(unknown if word == old else word for word in words)
                    line = b"\t".join([log10, text, *backoff]) + b"\n"
            out.write(line)


def _log10_unknown(model: kenlm.Model, history: Sequence[str]) -> float:
    """Return log10 p(<unk> | history), a sentence's beginning only if it starts with ``<s>``."""
    state, following = kenlm.State(), kenlm.State()
    if history and history[0] == START:
        model.BeginSentenceWrite(state)
        history = history[1:]
    else:
        model.NullContextWrite(state)
    for word in history:
        model.BaseScore(state, word, following)
        state, following = following, state
    return model.BaseScore(state, UNKNOWN, following)


def _joined(*log10: float) -> float:
    """Return log10 of the sum of probabilities, at most 0: rounding must not make it a probability above 1."""
    return min(0.0, math.log10(math.fsum(10**value for value in log10)))
