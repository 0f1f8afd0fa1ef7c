"""Read and write n-best lists."""

from __future__ import annotations

import os

from attlm_fairseq.nbest import formats
from attlm_fairseq.nbest.formats import find_format
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.verbs.inputs import FilePath, Lists, NbestFile, References, lists_of, with_references
from attlm_fairseq.verbs.rescore import ONE_BEST


def read_nbest(path: FilePath, references: References | None = None, *, format: str | None = None) -> list[NbestList]:
    """Read the n-best lists of a file or folder.

    Args:
        path: a file, plain or gzip, ``-`` for standard input, or a folder (ESPnet, Kaldi, SRILM).
        references: references to attach, as files, texts in the order of the lists, or texts by id.
        format: the name of the format, such as ``"moses"`` or ``"nemo:8"``; None to recognise it by its content.

    Returns:
        The lists in the order of the file. Scores are natural logarithms. ``rescore`` with an output reads lists that are larger
        than memory.

    Raises:
        InputError: with file and line number.
    """
    lists = NbestFile(path, format).open()[1]
    return list(lists if references is None else with_references(lists, references))


def write_nbest(lists: Lists, path: FilePath, format: str = "jsonl") -> None:
    """Write n-best lists, in the order of their hypotheses, with ``lm_scores`` and ``total`` where set.

    Args:
        lists: the lists. Those that were read in the same format and not changed come out byte for byte.
        path: a file (``.gz`` compresses), ``-`` for standard output, or a new folder. It appears when it is whole.
        format: the name of a format; or ``1best``, ``1best-kaldi``, ``1best-sclite`` for the text of each 1-best hypothesis.

    Raises:
        InputError: the format cannot hold a list, or the file cannot be written.
    """
    if format in ONE_BEST:
        formats.write_one_best(lists_of(lists), os.fspath(path), style=ONE_BEST[format])
    else:
        formats.write_nbest(lists_of(lists), find_format(format), os.fspath(path))
