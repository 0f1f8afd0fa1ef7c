"""The n-gram LM with which corrections are searched: its file next to the table, and its estimation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import sha256
from attlm_fairseq.nbest.corrections.table_file import read_table

SEARCH_ORDER = 4


def lm_next_to(table: Path, estimated: Path | None = None) -> Path:
    """Return where the LM of the references is written, next to a table: NAME.arpa.

    Raises InputError if another file has that name: only the LM of an earlier table of this name is replaced, or a copy of
    the ``estimated`` one, which a run leaves that is killed before it writes the table.
    """
    lm = table.with_suffix(".arpa")
    if lm == table:
        raise InputError("is the name of the LM that is written next to the table: give the table another ending, such as .tsv", path=table)
    is_copy = estimated is not None and lm.is_file() and sha256(lm) == sha256(estimated)
    if lm.exists() and not is_copy and not _is_lm_of(lm, table):
        raise InputError(f"would be replaced by the LM of the references: give the table another name than {table.name}", path=lm)
    return lm


def _is_lm_of(lm: Path, table: Path) -> bool:
    try:
        earlier = read_table(table)
    except InputError:  # no table is there
        return False
    return earlier.own_lm == sha256(lm) or (not earlier.own_lm and earlier.lm is not None and earlier.lm.resolve() == lm.resolve())


def estimate_search_lm(texts: Iterable[str], output: Path) -> None:
    """Estimate a KenLM n-gram model of order SEARCH_ORDER from texts.

    Raises:
        InputError: the texts have no words, ``output`` is not a name in ``.arpa`` or ``.bin`` or cannot be written,
            or lmplz is missing or fails.
    """
    from attlm_fairseq.scoring.ngrams.ngram_estimation import NgramOptions, estimate_ngram

    def lines() -> Iterator[str]:
        for text in texts:
            if text.strip():
                yield " ".join(text.replace("\0", "").split()) + "\n"

    estimate_ngram(lines(), output, SEARCH_ORDER, NgramOptions(discount_fallback=True, skip_symbols=True, memory="200M"))
