"""Compare the perplexities of LMs on one text: intervals, and how each LM differs from the first."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attlm_fairseq.errors import InputError, require_whole_number
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.statistics.bootstrap import Interval, PairedComparison, confidence_interval, paired_test, summed
from attlm_fairseq.verbs.arguments import FilePath, OnProgress
from attlm_fairseq.verbs.configuration import LM, run_config
from attlm_fairseq.verbs.report import rounded
from attlm_fairseq.verbs.text import CountedText, count_text

BLOCK_LINES = 20  # neighbouring lines are about the same things: they are drawn together
MIN_SAMPLES = 20  # of shorter texts fewer lines are drawn together


class _Perplexity:
    """exp(-ln p / events). Statistics: ln p, events."""

    name = "ppl"
    bounds = (0.0, math.inf)

    def score(self, totals: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # of an LM that knows nothing: see _statistics
            return np.exp(-totals[..., 0] / totals[..., 1])


class _CrossEntropy:
    """100 times nats per event, of which a difference is about a change of perplexity in percent. Statistics: ln p, events."""

    name = "cross-entropy"
    bounds = (-math.inf, math.inf)

    def score(self, totals: np.ndarray) -> np.ndarray:
        return -100.0 * totals[..., 0] / totals[..., 1]


@dataclass(frozen=True)
class LMRow:
    """One LM of a comparison.

    Attributes:
        lm: the LM's name.
        ppl: perplexity with its 95 % interval: every word of the text as read and every sentence end is an event.
        change: by how much the perplexity differs from that of the first LM, in percent of the first, with its 95 %
            interval; None for the first LM.
        p_value: of a two-sided paired permutation test that the LMs are equal; None for the first LM.
    """

    lm: str
    ppl: Interval
    change: Interval | None = None
    p_value: float | None = None


@dataclass(frozen=True)
class LMComparison:
    """The result of ``compare_lms``; ``print`` shows its table.

    Attributes:
        rows: one row per LM, in the order of the LMs.
        sentences: number of sentences.
        words: number of white-space words of the text.
        lines_together: how many neighbouring lines are drawn together.
    """

    rows: list[LMRow]
    sentences: int
    words: int
    lines_together: int

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as a JSON-serialisable dictionary. Intervals are: value, low end, high end."""
        rows = [
            {"lm": row.lm, "ppl_as_read": rounded(row.ppl)}
            | (
                {}
                if row.change is None
                else {"change_in_percent": rounded(row.change), "p": None if row.p_value is None else round(row.p_value, 6)}
            )
            for row in self.rows
        ]
        return {"lms": rows, "sentences": self.sentences, "words": self.words, "lines_together": self.lines_together}

    def __str__(self) -> str:
        from tabulate import tabulate

        head = ("", "PPL", "95 % interval", "change", "95 % interval", "p")
        aligned = ("left", "right", "left", "right", "left", "left")
        table = tabulate([_cells(row) for row in self.rows], head, "plain", disable_numparse=True, colalign=aligned)
        drawn = f"{self.lines_together} neighbouring lines are" if self.lines_together > 1 else "each line is"
        return f"{table}\n{self.sentences} sentences, {self.words} words; {drawn} one sample"


def compare_lms(
    text: FilePath | Iterable[str],
    lms: Mapping[str, LM] | None = None,
    *,
    config: RunConfig | FilePath | None = None,
    source: FilePath | Iterable[str] | None = None,
    seed: int = 1,
    on_progress: OnProgress = None,
) -> LMComparison:
    """Compare the perplexities of LMs on a text.

    The log-probabilities of each LM are summed over the words and sentence ends that it sees, and divided by the
    white-space words and sentence ends of the text as read, as for ``ppl_as_read``. 20 neighbouring lines are one sample
    of the bootstrap and of the permutation test (fewer in a text of less than 400 lines), because they are about the
    same things. The interval says how the figures vary with the text, not with the seed of the training.

    Args:
        text, lms, config, source, on_progress: as for ``score_text``.
        seed: random seed for the bootstrap and the permutation test.

    Returns:
        For each LM the perplexity, its change against the first LM in percent, and their intervals.

    Raises:
        InputError: as in ``perplexity``, an LM gives unknown words a fixed penalty, or only some of the LMs score sentence ends.
    """
    require_whole_number("seed", seed)
    run = run_config(config, lms=lms)
    if penalties := [lm.name for lm in run.lms if lm.unpacked().oov.kind == "penalty"]:
        raise InputError(f"{', '.join(penalties)} gives unknown words a fixed penalty: it has no perplexity; leave it out, or use spread")
    counted = count_text(text, run, source, on_progress)
    _warn_of_removed_words(counted)
    path = os.fspath(text) if isinstance(text, str | os.PathLike) else None
    together = max(1, min(BLOCK_LINES, len(counted.words_read) // MIN_SAMPLES))
    statistics = _statistics(counted, together, path)
    rows: list[LMRow] = []
    for name, of_lm in statistics.items():
        ppl = confidence_interval(of_lm, _Perplexity(), seed=seed)
        if not rows:
            rows.append(LMRow(name, ppl))
            continue
        compared = paired_test(of_lm, next(iter(statistics.values())), _CrossEntropy(), seed=seed)
        rows.append(LMRow(name, ppl, _in_percent(compared), compared.p_value))
    if together < BLOCK_LINES:
        too_narrow = "if neighbouring lines are about the same things, the intervals are too narrow and p is too small"
        samples = f"samples of {together} lines" if together > 1 else "single lines as samples"
        note(f"note: so short a text has {samples}: {too_narrow}; {BLOCK_LINES * MIN_SAMPLES} lines or more are better")
    return LMComparison(rows, len(counted.words_read), sum(counted.words_read), together)


def _warn_of_removed_words(counted: CountedText) -> None:
    """Warn of LMs that see fewer words than the text has: what is removed, unlike joined, costs them nothing."""
    words = sum(counted.words_read)
    for name, counter in counted.counters.items():
        if counter.words < words:
            note(f"WARNING: {name} sees {counter.words} of {words} words: if its text steps remove words, it looks too good")


def _statistics(counted: CountedText, together: int, path: str | None) -> dict[str, np.ndarray]:
    """Return ln p and the events of the text as read for each LM and sample, (samples, 2)."""
    if len(ends := {counter.scores_end for counter in counted.counters.values()}) > 1:
        named = [name for name, counter in counted.counters.items() if not counter.scores_end]
        raise InputError(
            f"{', '.join(named)} scores no sentence ends and the others do, so their perplexities cannot be compared: leave one kind out, "
            "or choose with --sentence-end"
        )
    samples = np.arange(len(counted.words_read)) // together
    events = np.asarray(counted.words_read, dtype=np.float64) + ends.pop()
    found = {name: summed(np.stack([np.asarray(counter.log_probs), events], axis=1), samples) for name, counter in counted.counters.items()}
    counted_lines = next(iter(found.values()))[:, 1] > 0  # blank lines have no event if sentence ends are not scored
    found = {name: of_lm[counted_lines] for name, of_lm in found.items()}
    for name, of_lm in found.items():
        if not len(of_lm) or not np.isfinite(_Perplexity().score(of_lm.sum(axis=0))):
            raise InputError(f"{name} has no finite perplexity: there is nothing to compare", path=path)
    return found


def _in_percent(compared: PairedComparison) -> Interval:
    """Return a difference in 100 nats as the change of the perplexity in percent: exp keeps the order of the resamples."""
    difference = compared.difference
    with np.errstate(over="ignore"):
        score, low, high = (float(100.0 * np.expm1(value / 100.0)) for value in (difference.score, difference.low, difference.high))
    return Interval(score, low, high, difference.level)


def _cells(row: LMRow) -> Sequence[str]:
    cells = [row.lm, f"{row.ppl.score:.2f}", f"{row.ppl.low:.2f} .. {row.ppl.high:.2f}"]
    if row.change is None or row.p_value is None:
        return [*cells, "", "", ""]
    return [*cells, f"{row.change.score:+.2f} %", f"{row.change.low:+.2f} .. {row.change.high:+.2f} %", f"{row.p_value:.3f}"]
