"""What each score adds: the cross-validated answers of weights tuned again without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists
from attlm_fairseq.nbest.tuning.search_options import DEFAULT_SEARCH, SearchOptions
from attlm_fairseq.nbest.tuning.settings import SettingChooser


def answers_without(
    measured: MeasuredLists,
    metric: Metric,
    names_without: Mapping[str, Sequence[str]],
    *,
    rules: Sequence[str] = (),
    folds: int = 5,
    strength: float | None = None,
    options: SearchOptions = DEFAULT_SEARCH,
) -> list[tuple[str, np.ndarray]]:
    """Return for each part its name and the statistics (N, S) of what the lists answer if it is left out.

    ``names_without`` maps the part to the features that are tuned without it; if there are none, the lists answer as they are.
    Weights, strength, scale and the rule, of the maximum and ``rules``, are found on the other folds. The folds are those of
    ``tune_system`` with the same arguments, so that its cross-validated answers can be compared with these, list by list.
    """
    found = []
    for part, names in names_without.items():
        if not names:
            found.append((part, measured.first))
            continue
        kept = replace(options, intervals={name: bounds for name, bounds in options.intervals.items() if name in names})
        chooser = SettingChooser(measured, metric, names, folds=folds, strength=strength, options=kept)
        found.append((part, chooser.held_out(["max", *dict.fromkeys(rules)])))
    return found
