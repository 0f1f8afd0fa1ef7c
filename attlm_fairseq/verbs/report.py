"""Write the HTML report of ``tune`` and ``evaluate``: one file that shows what changed."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attlm_fairseq.files.writing import whole_file
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.report.report import Report, ReportBuilder
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.statistics.bootstrap import Interval
from attlm_fairseq.nbest.statistics.evaluation import Row
from attlm_fairseq.nbest.tuning.tuned_system import answers_of
from attlm_fairseq.verbs.arguments import FilePath
from attlm_fairseq.verbs.run import Measurement
from attlm_fairseq.version import __version__

MIN_TESTED = 6  # of fewer samples, no difference has a p-value of 0.05 or less: the least is 2 / 2^samples


def write_report(
    path: FilePath,
    run: RunConfig,
    found: Measurement,
    metric: Metric,
    page: Report,
    command: str | None = None,
    answers: Sequence[tuple[str, np.ndarray]] | None = None,
) -> None:
    """Write the report: the ``page`` so far, weights and decision of ``run``, what changed on the lists of ``found``.

    ``answers`` are the text and the statistics (S,) of the answer to each list; None: what ``run`` decides. The file
    appears complete or not at all. The LMs score the words of the utterances shown.

    Raises:
        InputError: the file cannot be written, the LMs have to be loaded again and one cannot be loaded, or a weight
            names no feature.
    """
    lms = found.loaded or BlockScorer.load(run, run.devices[0])
    builder = ReportBuilder(metric, [lm.name for lm in run.scored])
    if answers is None:
        answers = answers_of(found.lists, metric, run.weights, run.decision)
    for nbest, statistics, (text, of_answer) in zip(found.lists.lists, found.lists.statistics, answers, strict=True):
        builder.add(nbest, statistics, text, of_answer)
    facts: dict[str, Any] = {"command": command} if command else {}
    facts |= {"metric": metric.signature(found.lists.references), "attlm": __version__}
    for scorer in lms.scorers:
        facts[f"LM {scorer.name}"] = ", ".join(f"{key}: {value}" for key, value in scorer.signature().items())
    decision = str(run.decision)
    of_lms: dict[str, Any] = {"scorers": lms.scorers, "texts": lms.texts, "oov": found.oov, "in_context": run.context is not None}
    page = replace(page, weights=run.weights, decision=decision, facts=facts, **of_lms)
    with whole_file(os.fspath(path)) as out:
        # file names and commands may hold bytes that are not UTF-8: escape them instead of failing
        out.write(builder.html(page).encode("utf-8", "backslashreplace").decode())
    note(f"wrote {path}")


def note_samples(utterances: Iterable[int], grouped: bool, also: str = "", *, compared: bool = True) -> list[str]:
    """Log how many lists are not samples of their own, and if there are too few; return these lines for the report.

    Args:
        utterances: sample number of each list, see ``MeasuredLists.utterances``.
        grouped: whether these are numbers of conversations or groups, not of utterances.
        also: text appended to the line.
        compared: whether systems are compared, and have p-values.
    """
    utterances = list(utterances)
    samples = len(set(utterances))
    repeats = len(utterances) - samples
    lines = _of_repeats(utterances, repeats, grouped, also) if repeats else []
    if samples == 1:
        lines.append("one list, or lists that count as one, have no interval: its ends are the figure itself")
    elif samples < MIN_TESTED and compared:
        lines.append(too_few(samples))
    for line in lines:
        note(f"note: {line}")
    return [f"{line}." for line in lines]


def too_few(samples: int) -> str:
    """Return the line about so few samples that no difference between systems can be told."""
    return f"{samples} samples are too few for a p-value of 0.05 or less, and their intervals are too narrow"


def _of_repeats(utterances: Sequence[int], repeats: int, grouped: bool, also: str) -> list[str]:
    same = f"{repeats} of {len(utterances)} lists repeat the references or the hypotheses of another"
    if grouped:
        same = f"{len(utterances)} lists are of {len(utterances) - repeats} conversations or groups"
    return [f"{same}: such lists count as one for intervals and p-values{also}"]


def finite(value: float) -> float | None:
    """Return a number rounded to 4 digits for records; None if it is infinite, which JSON does not have."""
    return round(value, 4) if math.isfinite(value) else None


def rounded(interval: Interval) -> list[float | None]:
    """Return score, low and high end of the interval for records, as ``finite`` does."""
    return [finite(value) for value in (interval.score, interval.low, interval.high)]


def row_record(row: Row) -> dict[str, Any]:
    """Return a row of the table as a JSON-serialisable dictionary."""
    record: dict[str, Any] = {"label": row.label, **dict(zip(("score", "low", "high"), rounded(row.interval), strict=True))}
    if row.comparison is not None:
        difference, p_value = row.comparison.difference, None if row.in_sample else row.comparison.p_value
        record["difference"] = round(difference.score, 4)
        if p_value is not None:  # in-sample, an interval would say as little
            record |= {"difference_low": finite(difference.low), "difference_high": finite(difference.high)}
        record["p"] = None if p_value is None else round(p_value, 6)
        if row.p_holm is not None:
            record["p_holm"] = round(row.p_holm, 6)
    return record | ({"in_sample": True} if row.in_sample else {}) | ({"folds": row.folds} if row.folds else {})
