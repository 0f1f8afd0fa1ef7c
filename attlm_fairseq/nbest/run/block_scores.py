"""LM scores of a block of hypotheses, in the form that is sent between processes and stored in a score cache."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from attlm_fairseq.nbest.features.lm_features import lm_feature
from attlm_fairseq.nbest.run.block import Block
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.numeric import ceil_div
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.scorer import Scorer, Sentence, SentenceScore, note_lines
from attlm_fairseq.scoring.unknown_words.advice import advise
from attlm_fairseq.scoring.unknown_words.oov import OOVCount
from attlm_fairseq.text import TextPipeline, split_texts

SAMPLE_LISTS = 32  # lists on which the error of approximate scores is measured
LONGER = 1.25  # lists longer than those measured by this factor are measured, too
LONGER_LISTS = 8  # at most so many of them in each block


class Margin(NamedTuple):
    """How far approximate scores can mislead, measured on some lists.

    Attributes:
        error: the greatest change of the difference of two totals of a list.
        words: number of words of the longest hypothesis of these lists.
    """

    error: float
    words: int


@dataclass(frozen=True)
class BlockScores:
    """The scores of a block.

    Attributes:
        values: by name of LM or feature, one value per hypothesis.
        oov: unknown words, by LM.
        notes: what the user is told once, by LM.
        margin: that of the first block of the run. Hypotheses whose approximate totals are closer to the best of their list
            were scored exactly. None if nothing was approximated.
    """

    values: dict[str, list[float]]
    oov: dict[str, OOVCount]
    notes: dict[str, str]
    margin: Margin | None = None


class BlockScorer:
    """LMs with their text steps, and the features requested besides the LMs' scores (see ``lm_features``)."""

    def __init__(
        self,
        scorers: Sequence[Scorer],
        texts: Sequence[TextPipeline],
        features: Sequence[str] = (),
        source_texts: Sequence[TextPipeline] | None = None,
        margins: Mapping[str, float] | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Store LMs and their text steps.

        Args:
            scorers: the LMs.
            texts: one pipeline per LM for the hypotheses.
            features: names of the features.
            source_texts: one pipeline per LM for the source sentences; None: as for the hypotheses.
            margins: by LM, the margin of ``scored_if_close``.
            weights: of the LMs and the features, to find the hypotheses that are scored exactly.
        """
        if len(texts) != len(scorers):
            raise ValueError(f"{len(scorers)} LMs need as many text pipelines, not {len(texts)}")
        self.scorers = tuple(scorers)
        self.texts = tuple(texts)
        self.features = tuple(features)
        self.source_texts = self.texts if source_texts is None else tuple(source_texts)
        self.margins = dict(margins or {})
        self.weights = dict(weights or {})

    @classmethod
    def load(cls, config: RunConfig, compute: DeviceConfig, features: Sequence[str] = ()) -> BlockScorer:
        """Load the LMs and text steps of a run.

        Raises:
            InputError: as in ``RunConfig.load``, or a text step lacks a file or a package.
        """
        scorers = config.load(compute)
        margins = {lm.name: lm.only_close for lm in config.scored if lm.only_close is not None}
        source_texts = [text.load() for text in config.source_texts.values()]
        return cls(scorers, [text.load() for text in config.texts.values()], features, source_texts, margins, config.weights)

    def score(self, block: Block, margin: Margin | None = None) -> BlockScores:
        """Score some hypotheses. A score is the natural log of the probability of the words and the sentence end.

        ``margin``: of the run's first block (see ``BlockScores``); None to measure it on this block. Errors grow with length:
        some of the lists that are longer than those measured are measured, too, for this block alone.
        """
        scores = self.block(self._columns(block, self.scorers))
        exact = [scorer.exact() for scorer in self.scorers]
        if not block.rest or all(one is other for one, other in zip(exact, self.scorers, strict=True)):
            return scores
        totals = self._totals(block.rest, scores)
        words = np.array([len(text.split()) for text in block.texts])
        lengths = np.array([of_list.max() for of_list in block.by_list(words)])
        if margin is None:
            sample = np.arange(0, len(lengths), ceil_div(len(lengths), SAMPLE_LISTS))
            margin = Margin(self._largest_error(block, totals, exact, sample), int(lengths[sample].max()))
        scores, error = replace(scores, margin=margin), margin.error
        if (longer := np.flatnonzero(lengths > LONGER * margin.words)).size:
            error = max(error, self._largest_error(block, totals, exact, longer[:: ceil_div(len(longer), LONGER_LISTS)]))
        near, best = self._contenders(block, totals, error)
        rows = np.flatnonzero(near).tolist()
        if not rows:
            return scores
        again = self.block(self._columns(block.of_rows(rows), exact))
        for name, column in scores.values.items():
            found = np.array(column)
            found[rows] = again.values[name]
            errors = np.subtract(found, column, out=np.zeros(len(block)), where=found != column)
            # the others move with the best of their list, so that none of them overtakes it
            column[:] = np.where(near, found, found + errors[best]).tolist()
        told = f"{len(rows)} of the first {len(block)} hypotheses are scored exactly: the approximation could decide between them"
        return replace(scores, notes=scores.notes | {"close lists": told})

    def _contenders(self, block: Block, totals: np.ndarray, error: float) -> tuple[np.ndarray, np.ndarray]:
        """Find the hypotheses that may be the best of their list, where there are several.

        Returns:
            Whether each hypothesis is one of them, and the row of the best total of its list, or its own if nothing is to be decided.
        """
        near, best = np.zeros(len(block), dtype=bool), np.arange(len(block))
        for rows in block.by_list(np.arange(len(block))):
            of_list = totals[rows]
            close = of_list >= of_list.max() - error
            if np.count_nonzero(close) > 1:
                near[rows] = close if not self.margins else True  # ``scored_if_close`` needs whole lists
                best[rows] = rows[of_list.argmax()]
        return near, best

    def _largest_error(self, block: Block, totals: np.ndarray, exact: Sequence[Scorer], lists: np.ndarray) -> float:
        """Return by how much approximate scores change the difference of two totals of one list, at most, in these lists."""
        rows = block.rows_of(lists.tolist())
        sample = block.of_rows(rows)
        errors = self._totals(sample.rest, self.block(self._columns(sample, exact))) - totals[rows]
        return max(float(np.ptp(of_list)) for of_list in sample.by_list(errors))

    def _totals(self, rest: Sequence[float], scores: BlockScores) -> np.ndarray:
        totals = np.array(rest)
        for name, column in scores.values.items():
            totals += self.weights.get(name, 0.0) * np.array(column)
        return totals

    def _columns(self, block: Block, scorers: Sequence[Scorer]) -> list[tuple[Sequence[Sentence], Sequence[SentenceScore]]]:
        """Return for each LM what it sees of the hypotheses and what it says of them."""
        sources = split_texts(self.source_texts, block.source_of_each()) if any(scorer.uses_source for scorer in self.scorers) else None
        columns: list[tuple[Sequence[Sentence], Sequence[SentenceScore]]] = []
        for place, (scorer, sentences) in enumerate(zip(scorers, split_texts(self.texts, block.texts), strict=True)):
            of_sources = sources[place] if sources and scorer.uses_source else None
            margin = self.margins.get(scorer.name, math.inf)
            columns.append((sentences, scored_if_close(scorer, sentences, of_sources, block, margin)))
        return columns

    def block(self, columns: Sequence[tuple[Sequence[Sentence], Sequence[SentenceScore]]]) -> BlockScores:
        """Return the scores of some hypotheses, given for each LM what it saw of them and what it says of them."""
        oov: dict[str, OOVCount] = {}
        scores = {}
        for scorer, (sentences, of_lm) in zip(self.scorers, columns, strict=True):
            scores[scorer.name] = of_lm
            oov[scorer.name] = OOVCount(scorer.name)
            oov[scorer.name].add(sentences, (score.oov for score in of_lm))
        values = {name: [score.total for score in of_lm] for name, of_lm in scores.items()}
        values |= {name: lm_feature(name, scores) for name in self.features}
        told = [(scorer.name, line) for scorer in self.scorers for line in note_lines(scorer.notes())]
        return BlockScores(values, oov, {f"{name} WARNING" if line.startswith("WARNING") else name: line for name, line in told})

    def advise(self, count: OOVCount) -> str | None:
        """Return the text steps that would make the unknown words of an LM known."""
        lms = {scorer.name: (scorer, text) for scorer, text in zip(self.scorers, self.texts, strict=True)}
        scorer, text = lms[count.lm_name]
        return None if scorer.uses_source else advise(count, scorer, text)

    def signatures(self) -> dict[str, Mapping[str, Any]]:
        """Return, by LM, what is needed to get the same scores again."""
        found: dict[str, Mapping[str, Any]] = {}
        for scorer, text, source_text in zip(self.scorers, self.texts, self.source_texts, strict=True):
            source = {"source text": source_text.signature()} if scorer.uses_source else {}
            close = {"only close": self.margins[scorer.name]} if scorer.name in self.margins else {}
            found[scorer.name] = dict(scorer.signature()) | {"text": text.signature()} | source | close
        return found


def scored_if_close(
    scorer: Scorer, sentences: Sequence[Sequence[str]], sources: Sequence[Sequence[str]] | None, block: Block, margin: float
) -> list[SentenceScore]:
    """Score only hypotheses whose decoder score is at most ``margin`` below the best of their list.

    The others get the lowest score of their list, so that they gain nothing by it: the LM's weight is not negative
    (``RunConfig.never_negative``). The whole value stands at their sentence end, and none of their words counts as unknown.

    Args:
        scorer: the LM.
        sentences: the words of each hypothesis of the block.
        sources: the words of each hypothesis' source sentence; None for an LM that uses none.
        block: the lists.
        margin: natural log; infinite to score all.
    """
    rows = [row for row in range(len(block)) if margin == math.inf or block.distances[row] <= margin]
    texts = [sentences[row] for row in rows]
    scores = scorer.score(texts) if sources is None else scorer.score_translations(texts, [sources[row] for row in rows])
    if len(rows) == len(block):
        return scores
    of_row = dict(zip(rows, scores, strict=True))
    found, begin = [], 0
    for size in block.sizes:
        of_list = range(begin, begin + size)
        least = min(of_row[row].total for row in of_list if row in of_row)
        for row in of_list:
            count = len(sentences[row])
            found.append(of_row[row] if row in of_row else SentenceScore((*[0.0] * count, least), (False,) * count))
        begin += size
    return found
