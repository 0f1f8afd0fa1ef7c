"""Scoring of plain text from a file or a pipe, one sentence per line, in blocks of lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice, repeat

from attlm_fairseq.batching import batch_by_size
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import note
from attlm_fairseq.scoring.context.context_walk import SENTENCES_AT_ONCE, in_order, stretches
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore
from attlm_fairseq.scoring.unknown_words.oov import OOVCount
from attlm_fairseq.text import TextPipeline, split_texts

BLOCK_LINES = 4096  # scored together
_MARKED = re.compile(r"\s*<s>\s|(?:.*\s)?</s>\s*$")


@dataclass(frozen=True, slots=True)
class ScoredLine:
    """A line with its scores.

    Attributes:
        number: its number in the file, from 1.
        text: the line as read.
        words: the words that each LM sees, in the order of the LMs.
        scores: the score of each LM.
    """

    number: int
    text: str
    words: tuple[list[str], ...]
    scores: tuple[SentenceScore, ...]


@dataclass(frozen=True)
class ScoredText:
    """The result of ``score_text``.

    Attributes:
        lines: yields every line that is scored, in order, as it is scored.
        oov: the unknown words of each LM in the lines read so far.
        scores_end: whether each LM scores the sentence end.
    """

    lines: Iterator[ScoredLine]
    oov: list[OOVCount]
    scores_end: Sequence[bool]


class SourceLines:
    """The source sentences of a text, line by line: a file (``-`` is standard input) or lines."""

    def __init__(self, lines: str | Iterable[str], texts: Sequence[TextPipeline]) -> None:
        """Open the lines. ``texts`` has the text normalisation of source sentences for each LM."""
        self.path = lines if isinstance(lines, str) else None
        self._lines = iter(read_lines(lines) if isinstance(lines, str) else lines)
        self._texts = texts
        self._taken = 0

    def take(self, count: int) -> list[list[list[str]]]:
        """Return the words of the next ``count`` lines for each LM, ``[lm][line]``. Raises InputError if there are fewer."""
        found = list(islice(self._lines, count))
        self._taken += len(found)
        if len(found) < count:
            raise InputError(f"{self._taken} source sentences are fewer than the lines of the text: expected one per line", path=self.path)
        return split_texts(self._texts, found)

    def check_end(self) -> None:
        """Raise InputError if there are more lines than were taken."""
        if next(self._lines, None) is not None:
            raise InputError(f"more than {self._taken} source sentences, but the text has {self._taken} lines", path=self.path)


def score_text(
    text: str | TextSource | Iterable[str],
    scorers: Sequence[Scorer],
    texts: Sequence[TextPipeline],
    on_progress: Callable[[int], object] | None = None,
    context: ContextSpec | None = None,
    sources: SourceLines | None = None,
) -> ScoredText:
    """Score every line of a file or of lines, blank ones included, with every LM, each with its own text pipeline.

    With a ``context`` each line is scored after those before it in its document; the blank lines that separate documents are not scored.

    Raises InputError: no such file, not UTF-8, no line at all, or another number of source lines.
    """
    oov = [OOVCount(scorer.name) for scorer in scorers]

    def scored() -> Iterator[ScoredLine]:
        lines = read_lines(text) if isinstance(text, str | TextSource) else text
        if context is not None:
            yield from in_order(_in_context(lines, scorers, texts, context, oov, on_progress))
            return
        numbers = count(1)
        for block in batch_by_size(lines, repeat(BLOCK_LINES), lambda _: 1):
            words = split_texts(texts, block)
            translated = sources.take(len(block)) if sources else None
            scores = [
                scorer.score_translations(sentences, translated[place]) if translated and scorer.uses_source else scorer.score(sentences)
                for place, (scorer, sentences) in enumerate(zip(scorers, words, strict=True))
            ]
            for counted, sentences, column in zip(oov, words, scores, strict=True):
                counted.add(sentences, (score.oov for score in column))
            for line, of_line, scores_of_line in zip(block, zip(*words, strict=True), zip(*scores, strict=True), strict=True):
                yield ScoredLine(next(numbers), line, of_line, scores_of_line)
            if on_progress:
                on_progress(len(block))
        if sources:
            sources.check_end()

    return ScoredText(scored(), oov, [scorer.scores_end for scorer in scorers])


def _in_context(
    lines: Iterable[str],
    scorers: Sequence[Scorer],
    texts: Sequence[TextPipeline],
    context: ContextSpec,
    oov: Sequence[OOVCount],
    on_progress: Callable[[int], object] | None,
) -> Iterator[tuple[int, ScoredLine]]:
    """Yield the lines with their places: some of each document, then the next ones, since documents are scored in parallel."""
    for documents in context.documents(lines):
        later: list[dict[int, Scorer]] = [dict.fromkeys(range(len(documents)), scorer) for scorer in scorers]
        for stretch in stretches(documents, SENTENCES_AT_ONCE):
            columns = []
            for scorer, pipeline, of_lm, counted in zip(scorers, texts, later, oov, strict=True):
                requests = [
                    (of_lm[place], [list(pipeline.words(line.text)) for line in of_document]) for place, of_document in stretch.items()
                ]
                walked = scorer.walk(requests)
                of_lm.update(zip(stretch, (one.later for one in walked), strict=True))
                columns.append(
                    [pair for (_, words), one in zip(requests, walked, strict=True) for pair in zip(words, one.scores, strict=True)]
                )
                counted.add([words for words, _ in columns[-1]], (score.oov for _, score in columns[-1]))
            for line, *of_lms in zip(chain.from_iterable(stretch.values()), *columns, strict=True):
                words, scores = zip(*of_lms, strict=True)
                yield line.place, ScoredLine(line.number, line.text, words, scores)
            if on_progress:
                on_progress(sum(map(len, stretch.values())))


def read_lines(text: str | TextSource) -> Iterator[str]:
    """Yield the lines of a UTF-8 text without their ends; ``-`` is standard input. Logs how many have marks of sentences as words.

    Raises:
        InputError: the file cannot be read, is empty or is not UTF-8.
    """
    return _lines_of(TextSource(text, "one sentence per line") if isinstance(text, str) else text)


def _lines_of(source: TextSource) -> Iterator[str]:
    marked = 0
    for line in source.lines():
        marked += "s>" in line and _MARKED.match(line) is not None
        yield line.rstrip("\r\n")
    if marked:
        note(
            f"WARNING: {source.name}: {marked} lines begin with <s> or end with </s>, which count as words, mostly unknown ones: "
            r"LMs add sentence ends themselves; `sed -E 's/^ *<s> *//; s/ *<\/s> *$//'` removes these"
        )


def count_lines(path: str) -> int:
    """Return the number of lines, for the progress display."""
    return sum(1 for _ in read_lines(path))
