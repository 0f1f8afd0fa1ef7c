"""The contract of metrics: each list contributes S numbers, and the score of a corpus is a function of their sums.

This makes exact tuning and bootstrap resampling cheap: each hypothesis is compared with its references only once.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.text.pipeline import TextPipeline


class ScoreOfSums(Protocol):
    """A corpus score that is a function of summed statistics: all that intervals and p-values need.

    Attributes:
        ratio: a score that is so many times the sum of the first statistic divided by that of the second says so: then the
            interval of a difference is exact. None for other scores.
    """

    ratio: float | None

    @property
    def name(self) -> str:
        """Return the name of the score."""

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the lowest and the highest possible score."""

    def score(self, totals: np.ndarray) -> np.ndarray:
        """Return the corpus score, in percent or a program's own unit, from statistics summed over the corpus: (..., S) -> (...)."""


class Metric(ScoreOfSums, Protocol):
    """A corpus metric of texts with additive statistics."""

    name: str
    higher_is_better: bool
    text: TextPipeline  # text steps for hypotheses and references before they are compared

    @property
    def ignores_case(self) -> bool:
        """Return whether texts that differ only in case are equal."""

    def compare_all(self, lists: Iterable[NbestList]) -> None:
        """Prepare for the statistics of all hypotheses of these lists. A metric that runs a program compares them in one run."""

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
        """Return the statistics of each hypothesis of one list against its references (at least one): (n, S) float64."""

    def signature(self, references: Iterable[Sequence[str]]) -> str:
        """Return the metric's settings in sacreBLEU's form. Only the number of ``references`` of each list matters."""

    def prepared(self, text: str) -> str:
        """Return a hypothesis or reference as it is compared, after the text steps."""

    def units(self, text: str) -> Sequence[str]:
        """Return the units (words or characters) by which reports compare a prepared text: the metric's, if it counts single edits."""


class TextMetric(Metric, ABC):
    """A metric of texts: the steps ``text`` are applied to hypotheses and references before they are compared."""

    def __init__(self, text: TextPipeline) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.signature([])}>"

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 100.0 if self.higher_is_better else math.inf  # an error rate can exceed 100 %: there may be more errors than words

    @property
    def ignores_case(self) -> bool:
        ours, theirs = self.statistics(["A", "a"], ["a"])
        return bool((ours == theirs).all())

    def compare_all(self, lists: Iterable[NbestList]) -> None:
        del lists  # ``statistics`` compares on the spot

    def prepared(self, text: str) -> str:
        return self.text.prepared(text)

    def _prepared_signature(self) -> str:
        return f"|text:{','.join(self.text.signature())}" if self.text.steps else ""


class ErrorRate(TextMetric):
    """An error rate, 100 * errors / reference length. Statistics: errors, reference length.

    If the whole corpus has no reference tokens, the score is 0 without errors and 100 with any, as in sacreBLEU's TER.
    """

    higher_is_better = False
    ratio: float | None = 100.0

    def score(self, totals: np.ndarray) -> np.ndarray:
        totals = np.asarray(totals, dtype=np.float64)
        errors, length = totals[..., 0], totals[..., 1]
        return 100.0 * np.where(length > 0, errors / np.where(length > 0, length, 1.0), errors > 0)


def corpus_score(metric: Metric, statistics: np.ndarray) -> float:
    """Return ``metric.score`` of a corpus from the statistics (n_lists, S) of its chosen hypotheses."""
    return float(metric.score(np.asarray(statistics, dtype=np.float64).sum(axis=0)))


def require_references(references: Sequence[str]) -> None:
    if isinstance(references, str) or not references:
        raise ValueError("references must be a sequence of at least one string")


def each_text_once(compare: Any, hypotheses: Sequence[str]) -> np.ndarray:
    """Return the statistics of all hypotheses. Lists repeat texts, and comparing is slow, so each text is compared once."""
    rows = {text: compare(text) for text in dict.fromkeys(hypotheses)}
    return np.array([rows[text] for text in hypotheses], dtype=np.float64)


def reference_count(references: Iterable[Sequence[str]]) -> int | None:
    """Return the number of references of each list; None if it varies."""
    counts = {len(of_list) for of_list in references}
    return counts.pop() if len(counts) == 1 else None
