"""Estimate an n-gram LM from text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.clauses import takes_clauses
from attlm_fairseq.scoring.ngrams import ngram_estimation
from attlm_fairseq.scoring.ngrams.ngram_estimation import DEFAULT_NGRAM, NgramOptions, NgramReport
from attlm_fairseq.verbs.arguments import FilePath, check_file, text_lines


def estimate_ngram(
    text: FilePath | Iterable[str], output: FilePath, order: int, options: NgramOptions = DEFAULT_NGRAM, lmplz: Path | None = None
) -> NgramReport:
    """Estimate an unpruned n-gram model with interpolated modified Kneser-Ney smoothing, by KenLM's ``lmplz``.

    Lines are split into words at white space; a blank line is an empty sentence. ``<s>``, ``</s>``, ``<unk>`` and ``<UNK>`` in
    the text are refused, unless ``skip_symbols`` allows them, or ``unk_in_text`` the last two.

    Args:
        text: a file with one sentence per line (gzip is recognised; ``-`` is standard input), or lines.
        output: the model, a name in ``.arpa`` or ``.bin``. It is replaced only by a complete model.
        order: length of the longest n-grams, 2 to 6.
        options: options of the estimation.
        lmplz: the program; None: the one on PATH or next to Python, or built once into the user's cache folder.

    Returns:
        The counts of the text and of the model's n-grams, and the orders that got fallback discounts.

    Raises:
        InputError: the text is unreadable, too small or holds n-best lists, the order is not supported,
            ``output`` has another ending or cannot be written, or lmplz is missing or fails.
    """
    check_file(output, None)
    lines = text_lines(text)
    if isinstance(lines, TextSource) and takes_clauses(lines.head.splitlines()):
        note(
            f"note: {lines.name} has no spaces between words, so clauses count as words: `attlm convert {shlex.quote(str(text))} "
            "--format text --to 1best --text characters` divides them"
        )
    return ngram_estimation.estimate_ngram(lines, Path(output), order, options, lmplz)
