"""Every n-best format, one a file, behind one door.

A format reads text lines into :class:`NbestList` one list at a time and writes them back the same way, so that a file may be
larger than memory. What a format does not understand it carries along verbatim. Scores are converted here and nowhere
else: inside the program they are natural logarithms and sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.formats.fairseq import FairseqFormat
from attlm_fairseq.nbest.formats.files import HEAD, TextSource, whole_file
from attlm_fairseq.nbest.formats.hyporadise import HyporadiseFormat
from attlm_fairseq.nbest.formats.jsonl import JsonlFormat
from attlm_fairseq.nbest.formats.mlm import MlmFormat
from attlm_fairseq.nbest.formats.moses import MosesFormat
from attlm_fairseq.nbest.formats.one_best import ONE_BEST_STYLES, write_one_best
from attlm_fairseq.nbest.formats.plain import PlainFormat
from attlm_fairseq.nbest.formats.protocol import NbestFolderFormat, NbestFormat
from attlm_fairseq.nbest.nbest_list import NbestList

__all__ = ["FORMATS", "ONE_BEST_STYLES", "NbestFolderFormat", "NbestFormat", "open_nbest", "write_nbest", "write_one_best"]

# in the order in which they are tried: plain takes almost anything
FORMATS: dict[str, NbestFormat] = {
    form.name: form for form in (MosesFormat(), FairseqFormat(), HyporadiseFormat(), MlmFormat(), JsonlFormat(), PlainFormat())
}


def open_nbest(path: str, format: str | None = None) -> tuple[NbestFormat, Iterator[NbestList]]:
    """The format of a file and its lists, read as they are asked for.

    ``path`` may be ``-`` for standard input; gzip is recognised by content, and so is the format unless its name is given. The text
    has to be UTF-8. Raises InputError, here for what can be seen in the first 64 KiB, later from the iterator.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"unknown n-best format {format!r}: expected one of {', '.join(FORMATS)}")
    source = TextSource(path)
    found = FORMATS[format] if format is not None else _recognise(source)
    return found, found.read(source.lines() if found.by_line else source.pieces(), source.name)


def write_nbest(lists: Iterable[NbestList], fmt: NbestFormat, path: str) -> None:
    """Write the lists in a format. ``path`` is ``-`` for standard output or a file, compressed if its name ends in .gz.

    A file appears, or replaces another, only when it is whole; whether it may be replaced is for the caller to ask. Raises
    InputError if the format cannot hold a list or the file cannot be written.
    """
    with whole_file(path) as out:
        fmt.write(lists, out)


def _recognise(source: TextSource) -> NbestFormat:
    head = source.head
    if not head.strip():
        raise InputError("nothing but blank lines: expected an n-best list", path=source.name)
    if len(head.encode()) > HEAD - 8 and "\n" in head:  # perhaps cut in the middle of a line
        head = head[: head.rindex("\n") + 1]
    for candidate in FORMATS.values():
        if candidate.matches(head):
            return candidate
    tried = ", ".join(FORMATS)
    raise InputError(f"not recognised as an n-best list (tried {tried}): name its format with --format", path=source.name)
