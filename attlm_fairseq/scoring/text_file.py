"""Scoring raw text from a file or a pipe, a sentence a line, in constant memory."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from attlm_fairseq.errors import InputError
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.text import OOVCount, TextPipeline

BLOCK_LINES = 4096  # scored together


@dataclass(frozen=True)
class ScoredText:
    """``lines`` yields, in order, the line number, the words and one score per LM; ``oov`` counts along while it is read."""

    lines: Iterator[tuple[int, list[str], list[SentenceScore]]]
    oov: list[OOVCount]


def score_text(path: str, scorers: Sequence[Scorer], text: TextPipeline, on_progress: Callable[[int], None] | None = None) -> ScoredText:
    """Score every line, blank ones included, with every LM. Raises InputError: no such file, not UTF-8, or no line at all."""
    oov = [OOVCount(scorer.name) for scorer in scorers]

    def scored() -> Iterator[tuple[int, list[str], list[SentenceScore]]]:
        number = 0
        for block in _blocks(read_lines(path)):
            sentences = [text.words(line) for line in block]
            columns = [scorer.score(sentences) for scorer in scorers]
            for count, column in zip(oov, columns, strict=True):
                count.add(sentences, (score.oov for score in column))
            for words, *scores in zip(sentences, *columns, strict=True):
                number += 1
                yield number, words, scores
            if on_progress:
                on_progress(len(block))

    return ScoredText(scored(), oov)


def read_lines(path: str) -> Iterator[str]:
    """The lines of a UTF-8 text, without their ends; ``-`` is standard input, gzip is recognised. Raises InputError, also for no lines."""
    number = 0
    with open_binary(path) as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"byte {error.start + 1} of the line is not UTF-8; convert the text, for instance with iconv", path=path, line=number
                ) from None
    if not number:
        raise InputError("the text is empty; expected a sentence a line", path=path)


def count_lines(path: str) -> int:
    """How many lines there are, to know how long the work will take."""
    with open_binary(path) as file:
        return sum(1 for _ in file)


@contextmanager
def open_binary(path: str) -> Iterator[BinaryIO]:
    """A file or ``-``, decompressed where its content is gzip. Raises InputError where it cannot be read."""
    try:
        if path == "-":
            yield sys.stdin.buffer
            return
        with open(path, "rb") as file:  # noqa: PTH123 - the user's string stays in messages as given
            if file.peek(2)[:2] == b"\x1f\x8b":
                with gzip.open(file) as unzipped:
                    yield unzipped
            else:
                yield file
    except (EOFError, gzip.BadGzipFile) as error:
        raise InputError(f"the gzip file is damaged or cut short ({error})", path=path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None


def _blocks(lines: Iterator[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for line in lines:
        block.append(line)
        if len(block) == BLOCK_LINES:
            yield block
            block = []
    if block:
        yield block
