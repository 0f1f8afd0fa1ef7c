"""Scoring raw text from a file or a pipe, a sentence a line, in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from attlm_fairseq.files import TextSource
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
    """The lines of a UTF-8 text without their ends; ``-`` is standard input, gzip is recognised. Raises InputError, also for no lines."""
    for line in TextSource(path, "a sentence a line").lines():
        yield line.rstrip("\r\n").removeprefix("\ufeff")


def count_lines(path: str) -> int:
    """How many lines there are, to know how long the work will take."""
    return sum(1 for _ in read_lines(path))


def _blocks(lines: Iterator[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for line in lines:
        block.append(line)
        if len(block) == BLOCK_LINES:
            yield block
            block = []
    if block:
        yield block
