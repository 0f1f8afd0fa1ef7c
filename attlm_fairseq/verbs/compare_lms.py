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
from attlm_fairseq.nbest.statistics.evaluation import holm, of_holm, p_as_text, signed
from attlm_fairseq.nbest.statistics.text_samples import BLOCK_LINES, MIN_SAMPLES, document_numbers, lines_together
from attlm_fairseq.verbs.arguments import FilePath, OnProgress
from attlm_fairseq.verbs.configuration import LM, run_config
from attlm_fairseq.verbs.report import MIN_TESTED, rounded, too_few
from attlm_fairseq.verbs.text import CountedText, count_text


class _Perplexity:
    """exp(-ln p / events). Statistics: ln p, events."""

    name = "ppl"
    ratio: float | None = None
    bounds = (0.0, math.inf)

    def score(self, totals: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # of an LM that knows nothing: see _statistics
            return np.exp(-totals[..., 0] / totals[..., 1])


class _CrossEntropy:
    """100 times nats per event, of which a difference is about a change of perplexity in percent. Statistics: ln p, events."""

    name = "cross-entropy"
    ratio: float | None = -100.0
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
        samples: number of samples.
        lines_together: how many neighbouring lines are one sample; None if documents are the samples.
    """

    rows: list[LMRow]
    sentences: int
    words: int
    samples: int
    lines_together: int | None

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as a JSON-serialisable dictionary. Intervals are: value, low end, high end."""
        rows: list[dict[str, Any]] = []
        for row, p_holm in zip(self.rows, holm([row.p_value for row in self.rows]), strict=True):
            rows.append({"lm": row.lm, "ppl_as_read": rounded(row.ppl)})
            if row.change is not None and row.p_value is not None and p_holm is not None:
                rows[-1] |= {"change_in_percent": rounded(row.change), "p": round(row.p_value, 6), "p_holm": round(p_holm, 6)}
        of_text = {"sentences": self.sentences, "words": self.words, "samples": self.samples, "lines_together": self.lines_together}
        return {"lms": rows, **of_text}

    def __str__(self) -> str:
        from tabulate import tabulate

        head = ("", "PPL", "95 % interval", "change", "95 % interval", "p")
        aligned = ("left", "right", "left", "right", "left", "left")
        table = tabulate([_cells(row) for row in self.rows], head, "plain", disable_numparse=True, colalign=aligned)
        one = "each document is" if self.lines_together is None else "each line is"
        drawn = f"{self.lines_together} neighbouring lines are" if (self.lines_together or 1) > 1 else one
        corrected = of_holm({row.lm: row.p_value for row in self.rows})
        told = f"{self.sentences} sentences, {self.words} words; {drawn} one sample, {self.samples} in all"
        return "\n".join(filter(None, (table, corrected, told)))


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
    white-space words and sentence ends of the text as read, as for ``ppl_as_read``. The interval says how the figures vary with
    the text, not with the seed of the training. What is drawn, and tossed, together is about the same things:

    - the documents of a text, if the context is ``blank`` and there are 20 or more;
    - else 20 neighbouring lines (fewer in a text of less than 400 lines), or 40, 80, .. as long as the figures of
      neighbouring samples are correlated and 40 samples are left. A warning says if they still are.

    Args:
        text: see ``score_text``.
        lms: see ``score_text``.
        config: see ``score_text``.
        source: see ``score_text``.
        on_progress: see ``score_text``.
        seed: random seed for the bootstrap and the permutation test.

    Returns:
        For each LM the perplexity with its bootstrap interval, its change against the first LM in percent with the p-value of a
        paired permutation test, and the interval of the changes that this test does not reject.

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
    of_lines = _statistics(counted, path)
    samples, together = _samples(counted, of_lines, documents=run.context is not None and run.context.kind == "blank")
    summed_up = {name: summed(of_lm, samples) for name, of_lm in of_lines.items()}
    counted_samples = next(iter(summed_up.values()))[:, 1] > 0  # blank lines have no event if sentence ends are not scored
    statistics = {name: of_lm[counted_samples] for name, of_lm in summed_up.items()}
    rows: list[LMRow] = []
    for name, of_lm in statistics.items():
        ppl = confidence_interval(of_lm, _Perplexity(), seed=seed)
        if not rows:
            rows.append(LMRow(name, ppl))
            continue
        compared = paired_test(of_lm, next(iter(statistics.values())), _CrossEntropy(), seed=seed)
        rows.append(LMRow(name, ppl, _in_percent(compared), compared.p_value))
    return LMComparison(rows, len(counted.words_read), sum(counted.words_read), len(next(iter(statistics.values()))), together)


def _samples(counted: CountedText, statistics: Mapping[str, np.ndarray], *, documents: bool) -> tuple[np.ndarray, int | None]:
    """Return the sample number of each line, and how many neighbouring lines are one sample; None if documents are. Logs doubts."""
    if documents:
        numbers = document_numbers(counted.lines)
        if numbers[-1] + 1 >= MIN_SAMPLES:
            return numbers, None
        note(f"note: {numbers[-1] + 1} documents are too few to be the samples, of which {MIN_SAMPLES} are needed: lines are")
    first, *others = statistics.values()
    # what is printed: each perplexity, and how each LM differs from the first
    changes = [np.stack([of_lm[:, 0] - first[:, 0], first[:, 1]], axis=1) for of_lm in others]
    together, correlation = lines_together([first, *others, *changes])
    _note_doubts(together, correlation, math.ceil(len(first) / together))
    return np.arange(len(first)) // together, together


def _note_doubts(together: int, correlation: float, samples: int) -> None:
    """Log why intervals of samples of so many lines may be too narrow, if they may."""
    too_narrow = "the intervals are too narrow, and p is too small"
    if correlation:
        advice = f"blank lines between {MIN_SAMPLES} documents or more, with --context blank, make these the samples"
        note(f"WARNING: neighbouring samples of {together} lines are correlated (r = {correlation:.2f}): {too_narrow}; {advice}")
    elif samples < MIN_TESTED:
        note(f"note: {too_few(samples)}")
    elif together < BLOCK_LINES:
        found = f"samples of {together} lines" if together > 1 else "single lines as samples"
        better = f"{BLOCK_LINES * MIN_SAMPLES} lines or more are better"
        note(f"note: so short a text has {found}: if neighbouring ones are about the same things, {too_narrow}; {better}")


def _warn_of_removed_words(counted: CountedText) -> None:
    """Warn of LMs that see fewer words than the text has: what is removed, unlike joined, costs them nothing."""
    words = sum(counted.words_read)
    for name, counter in counted.counters.items():
        if counter.words < words:
            note(f"WARNING: {name} sees {counter.words} of {words} words: if its text steps remove words, it looks too good")


def _statistics(counted: CountedText, path: str | None) -> dict[str, np.ndarray]:
    """Return ln p and the events of the text as read for each LM and line, (lines, 2)."""
    if len(ends := {counter.scores_end for counter in counted.counters.values()}) > 1:
        named = [name for name, counter in counted.counters.items() if not counter.scores_end]
        raise InputError(
            f"{', '.join(named)} scores no sentence ends and the others do, so their perplexities cannot be compared: leave one kind out, "
            "or choose with --sentence-end"
        )
    events = np.asarray(counted.words_read, dtype=np.float64) + ends.pop()
    found = {name: np.stack([np.asarray(counter.log_probs), events], axis=1) for name, counter in counted.counters.items()}
    for name, of_lm in found.items():
        if not events.sum() or not np.isfinite(_Perplexity().score(of_lm.sum(axis=0))):
            raise InputError(f"{name} has no finite perplexity: there is nothing to compare", path=path)
    return found


def _in_percent(compared: PairedComparison) -> Interval:
    """Return a difference in 100 nats as the change of the perplexity in percent. Infinite ends stay infinite."""
    difference = compared.difference
    ends = (difference.score, difference.low, difference.high)
    with np.errstate(over="ignore"):
        score, low, high = (float(100.0 * np.expm1(value / 100.0)) if math.isfinite(value) else value for value in ends)
    return Interval(score, low, high, difference.level)


def _cells(row: LMRow) -> Sequence[str]:
    cells = [row.lm, f"{row.ppl.score:.2f}", f"{row.ppl.low:.2f} .. {row.ppl.high:.2f}"]
    if row.change is None or row.p_value is None:
        return [*cells, "", "", ""]
    interval = f"{signed(row.change.low)} .. {signed(row.change.high)} %" if math.isfinite(row.change.low + row.change.high) else ""
    return [*cells, f"{signed(row.change.score)} %", interval, p_as_text(row.p_value)]
