"""Measure lists with references for tuning and evaluation, and compare systems on them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.features.combination import feature_names, features
from attlm_fairseq.nbest.features.within_lists import outliers
from attlm_fairseq.nbest.fingerprints import same_utterance
from attlm_fairseq.nbest.metrics.metric import Metric, ScoreOfSums
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.statistics.bootstrap import Interval, PairedComparison, confidence_interval, paired_test, summed

LEAST_P = 0.001  # the least that is printed as a number
SIGNIFICANCE_LEVEL = 0.05


@dataclass
class MeasuredLists:
    """N scored lists with references, as arrays for tuning and evaluation.

    Attributes:
        names: the F features.
        left_out: scores that some hypothesis lacks, so that they cannot be features.
        features: per list (n_i, F).
        statistics: per list (n_i, S), the statistics of the metric.
        groups: group number of each list (N,), if the lists belong to several conversations, documents or other groups.
    """

    names: list[str]
    left_out: list[str]
    features: list[np.ndarray] = field(default_factory=list)
    statistics: list[np.ndarray] = field(default_factory=list)
    references: list[tuple[str, ...]] = field(default_factory=list)
    texts: list[list[str]] = field(default_factory=list)
    lists: list[NbestList] = field(default_factory=list)
    groups: np.ndarray | None = None

    def redundant(self, names: Sequence[str]) -> list[str]:
        """Return the features that are constant within every list, or equal to an earlier feature."""
        columns = {name: np.concatenate([matrix[:, self.names.index(name)] for matrix in self.features]) for name in names}
        starts = np.cumsum([0, *map(len, self.features)])[:-1]
        constant = [
            name for name, values in columns.items() if not (values != np.repeat(values[starts], list(map(len, self.features)))).any()
        ]
        equal = [name for place, name in enumerate(names) if any(np.array_equal(columns[name], columns[other]) for other in names[:place])]
        return list(dict.fromkeys([*constant, *equal]))

    def outliers(self, name: str) -> list[tuple[NbestList, float, float]]:
        """Return the lists with outlying values of this feature: list, most extreme value, range in units of the usual deviation."""
        values = [matrix[:, self.names.index(name)] for matrix in self.features]
        return [(self.lists[i], float(values[i][row]), times) for i, row, times in outliers(values)]

    def utterances(self, metric: Metric) -> np.ndarray:
        """Return the sample number (N,) of each list: lists with the same number are not independent.

        A sample is a group of ``groups`` or, without groups, an utterance (see ``same_utterance``).
        """
        return same_utterance(self.references, self.texts, metric.prepared) if self.groups is None else self.groups

    @property
    def first(self) -> np.ndarray:
        """Statistics (N, S) of the hypotheses that stand first."""
        return np.array([of_list[0] for of_list in self.statistics])


def measure_lists(lists: Iterable[NbestList], metric: Metric, groups: np.ndarray | None = None) -> MeasuredLists:
    """Measure lists that carry references. Raises InputError for one without, for scores that are not finite, and for no lists."""
    # hypotheses as ranked: a list's first is the same here, in ties, and where weights of 0 leave it as read
    lists = [replace(nbest, hypotheses=sorted(nbest.hypotheses, key=lambda hypothesis: hypothesis.rank)) for nbest in lists]
    if not lists:
        raise InputError("there are no lists")
    names_of_lists = [feature_names(nbest) for nbest in lists]
    together = set.union if all(nbest.sparse for nbest in lists) else set.intersection
    several = [set(names) for nbest, names in zip(lists, names_of_lists, strict=True) if len(nbest.hypotheses) > 1]
    everywhere = together(*(several or map(set, names_of_lists)))  # one hypothesis alone needs no scores
    anywhere = dict.fromkeys(
        name for nbest in lists for hypothesis in nbest.hypotheses for name in (*hypothesis.scores, *hypothesis.lm_scores)
    )
    measured = MeasuredLists(
        [name for name in dict.fromkeys(chain.from_iterable(names_of_lists)) if name in everywhere],
        [name for name in anywhere if name not in everywhere],
        lists=lists,
        groups=groups,
    )
    for nbest in lists:
        if not nbest.references:
            raise nbest.error(f"list {nbest.id!r} has no reference; give references with --refs")
    metric.compare_all(lists)
    for nbest in lists:
        measured.features.append(features(nbest, measured.names))
        measured.texts.append([hypothesis.text for hypothesis in nbest.hypotheses])
        measured.statistics.append(metric.statistics(measured.texts[-1], nbest.references))
        measured.references.append(nbest.references)
    return measured


@dataclass(frozen=True, slots=True)
class Row:
    """One system of a comparison.

    Attributes:
        label: the system.
        interval: its score with a 95 % interval.
        comparison: its difference from the first system; None for the first system and oracles.
        in_sample: whether the system was tuned on these lists, so that there is no p-value.
        folds: number of cross-validation folds of held-out answers, which the comparison allows for; else 0.
        p_holm: the p-value by Holm's correction for all that the table compares; None without a p-value.
    """

    label: str
    interval: Interval
    comparison: PairedComparison | None = None
    in_sample: bool = False
    folds: int = 0
    p_holm: float | None = None

    @property
    def is_bounded(self) -> bool:
        """Return whether the interval of the difference has ends."""
        return self.comparison is not None and math.isfinite(self.comparison.difference.low + self.comparison.difference.high)

    @property
    def p_text(self) -> str:
        """Return the p-value for a reader; "" if there is none."""
        return "" if self.comparison is None or self.comparison.p_value is None else p_as_text(self.comparison.p_value)


def signed(value: float, decimals: int = 2) -> str:
    """Return a difference with its sign; one that is rounded to 0 has a plus."""
    return f"{round(value, decimals) + 0.0:+.{decimals}f}"


def p_as_text(p_value: float) -> str:
    """Return a p-value as a number of three digits, or ``< 0.001``."""
    return f"{p_value:.3f}" if p_value >= LEAST_P else f"< {LEAST_P}"


def compare(
    systems: Sequence[tuple[str, np.ndarray]],
    metric: ScoreOfSums,
    *,
    seed: int = 1,
    unpaired: Sequence[str] = ("oracle",),
    in_sample: Sequence[str] = (),
    folds: Mapping[str, int] | None = None,
    groups: Sequence[int] | None = None,
) -> list[Row]:
    """Compare each system, (label, statistics (N, S) of its answers), with the first one, except those called ``unpaired``.

    Those called ``in_sample`` were tuned on these lists: they get no p-value. ``folds`` maps the label of
    cross-validated answers to the number of folds. ``groups`` (N,) are of lists that are drawn together, such as those
    of one utterance.
    """
    folds = folds or {}
    if groups is not None:
        systems = [(label, summed(statistics, groups)) for label, statistics in systems]
    baseline = systems[0][1]
    rows = []
    for place, (label, statistics) in enumerate(systems):
        comparison = None
        if place and label not in unpaired:
            comparison = paired_test(statistics, baseline, metric, seed=seed, folds=folds.get(label, 0))
            if label in in_sample:
                comparison = replace(comparison, p_value=None)
        interval = confidence_interval(statistics, metric, seed=seed)
        rows.append(Row(label, interval, comparison, label in in_sample, folds.get(label, 0)))
    corrected = holm([row.comparison.p_value if row.comparison else None for row in rows])
    return [replace(row, p_holm=p_value) for row, p_value in zip(rows, corrected, strict=True)]


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values by Holm's correction (1979): the least counts as often as there are p-values, the next once less, and so on."""
    tested = [(p_value, place) for place, p_value in enumerate(p_values) if p_value is not None]
    found, least = list(p_values), 0.0
    for left, (p_value, place) in zip(range(len(tested), 0, -1), sorted(tested), strict=True):
        least = max(least, min(1.0, left * p_value))
        found[place] = least
    return found


def of_holm(p_values: Mapping[str, float | None]) -> str:
    """Return a line on the systems whose p-value is above SIGNIFICANCE_LEVEL by Holm's correction alone; "" if there is none."""
    corrected = zip(p_values.items(), holm(list(p_values.values())), strict=True)
    doubtful = [
        f"{label} {math.ceil(1000 * by_holm) / 1000:.3f}"
        for (label, p_value), by_holm in corrected
        if p_value is not None and by_holm is not None and p_value <= SIGNIFICANCE_LEVEL < by_holm
    ]
    tested = sum(p_value is not None for p_value in p_values.values())
    return f"{tested} differences are tested at once: by Holm's correction, p is {', '.join(doubtful)}" if doubtful else ""
