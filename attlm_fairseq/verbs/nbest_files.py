"""Read and write n-best lists."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from attlm_fairseq.batching import peeked
from attlm_fairseq.nbest import formats
from attlm_fairseq.nbest.formats import ONE_BEST, find_target, source_of
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.verbs.arguments import FilePath, check_file
from attlm_fairseq.verbs.lists import Lists, NbestFile, lists_to_write
from attlm_fairseq.verbs.references import References, with_references


def read_nbest(path: NbestFile | FilePath, references: References | None = None, *, format: str | None = None) -> list[NbestList]:
    """Read the n-best lists of a file or folder.

    For lists that do not fit in memory, use ``rescore`` with an output instead.

    Args:
        path: a file, plain or gzip, ``-`` for standard input, or a folder (ESPnet, Kaldi, SRILM); or an ``NbestFile`` with its format.
        references: references to attach: files, texts in the order of the lists, or texts by id.
        format: name of the format, such as ``"moses"`` or ``"nemo:8"``; None recognises it by content.

    Returns:
        The lists in file order. Scores are natural logs.

    Raises:
        InputError: the input is wrong; the message names file and line.
    """
    file = replace(path, format=format or path.format) if isinstance(path, NbestFile) else NbestFile(path, format)
    lists = file.open()[1]
    return list(lists if references is None else with_references(lists, references))


def write_nbest(lists: Lists, path: FilePath, format: str | None = None) -> None:
    """Write n-best lists, hypotheses in their current order, with ``lm_scores`` and ``total`` if set.

    Args:
        lists: the lists. Unchanged lists written in the format they were read in come out byte for byte.
        path: a file (``.gz`` compresses), which is replaced if it exists; ``-`` for standard output, or a new folder. It appears
            only when complete.
        format: name of the format; None: the end of the path, if that is the name of a format (``lists.csv``, ``lists.moses.gz``),
            else jsonl. One that exists both as file and as folder is written as a folder if ``path`` ends in
            ``/``, if the lists were read from such a folder, or if the file cannot hold them (srilm). ``1best``,
            ``1best-kaldi`` and ``1best-sclite`` write the text of each 1-best hypothesis.

    Raises:
        InputError: there are no lists, the format or UTF-8 cannot hold one, or the file cannot be written.
    """
    check_file(path, format)
    path, given = os.fspath(path), lists_to_write(lists)
    format = format or formats.format_in_name(path) or "jsonl"
    if format in ONE_BEST:
        formats.write_one_best(given, path, style=ONE_BEST[format])
    else:
        first, opened = peeked(given)
        target = find_target(format, path, source_of(first) if first else None)
        formats.write_nbest(given if isinstance(given, Sequence) else opened, target, path)
