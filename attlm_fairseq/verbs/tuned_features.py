"""Which features of the lists are tuned, and within which bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.features.lm_features import default_features, differing_lms, is_lm_feature
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists
from attlm_fairseq.nbest.tuning.search_options import SearchOptions
from attlm_fairseq.verbs.ablation import parts
from attlm_fairseq.verbs.run import Measurement
from attlm_fairseq.verbs.tune_options import TuneOptions

MANY_FEATURES = 100


def requested_lm_features(run: RunConfig, extra: Sequence[str]) -> list[str]:
    """Return the LM features besides the scores: the default ones and those requested.

    Raises InputError if one that is requested is not an LM feature.
    """
    lms = run.feature_texts
    for name in extra:
        if not is_lm_feature(name, lms):
            raise InputError(f"--feature {name}: expected LM_oov, LM_tokens or LM_minus_LM; the LMs are {', '.join(lms) or 'none'}")
    return list(dict.fromkeys([*default_features(lms), *extra]))


def features_to_tune(measured: MeasuredLists, run: RunConfig, lm_features: Sequence[str], options: TuneOptions) -> list[str]:
    """Return the features to tune; log which cannot be tuned and which are unusual.

    Raises InputError if none is left, or if an element of ``without`` matches nothing.
    """
    if measured.left_out:
        missing = ", ".join(_lacking(name, measured) for name in measured.left_out)
        note(f"WARNING: left out, because some hypotheses lack them: {missing}; add the scores, or take such lists out of the file")
    names = _tunable(measured, run, lm_features, options)
    if not names:
        raise InputError(f"no feature is left to tune: --without leaves out all that there are ({', '.join(measured.names)})")
    if len(names) > MANY_FEATURES:
        note(
            f"note: {len(names)} features take long to tune, one line search after the other, and fit these lists rather than others; "
            "--without 'NAME*' leaves sparse ones out"
        )
    _warn_of_outliers(measured, names)
    return names


def _tunable(
    measured: MeasuredLists, run: RunConfig, lm_features: Sequence[str], options: TuneOptions, left_out: Sequence[str] = ()
) -> list[str]:
    """Return the features to tune without those ``left_out``: of LM features that nobody asked for, only what says something new.

    Raises InputError if an element of ``without`` matches nothing.
    """
    asked_for = {*options.features, *options.intervals, *left_out}
    unneeded = {*matching(options.without, measured), *(lm for name in options.features for lm in differing_lms(name, run.texts) or ())}
    unneeded |= set(measured.redundant([name for name in lm_features if name not in asked_for]))
    return [name for name in measured.names if name not in unneeded and name not in left_out]


def features_of_ablation(found: Measurement, run: RunConfig, options: TuneOptions) -> dict[str, list[str]]:
    """Return for each part that ``ablation`` leaves out the features that are tuned without it."""
    lm_features = requested_lm_features(run, options.features)
    everything = _tunable(found.lists, run, (), options)
    sparse = all(nbest.sparse for nbest in found.lists.lists)
    left_out = parts(everything, list(found.signatures), sparse=sparse)
    return {part: _tunable(found.lists, run, lm_features, options, features) for part, features in left_out.items()}


def matching(without: Sequence[str], measured: MeasuredLists) -> list[str]:
    """Return the features that the names and patterns ``without`` match. Raises InputError if one matches nothing."""
    found = []
    for pattern in without:
        names = [name for name in [*measured.names, *measured.left_out] if fnmatchcase(name, pattern) or name == pattern]
        if not names:
            raise InputError(f"--without {pattern}: the features are {', '.join(measured.names)}")
        found += names
    return found


def _lacking(name: str, measured: MeasuredLists) -> str:
    """Return a score with the number of hypotheses that lack it, and where the first is."""
    several = [nbest for nbest in measured.lists if len(nbest.hypotheses) > 1]
    lists = [nbest for nbest in several for one in nbest.hypotheses if name not in one.scores | one.lm_scores]
    count = sum(len(nbest.hypotheses) for nbest in several)
    return f"{name} ({len(lists)} of {count}, first in list {lists[0].id!r})" if lists else name


def _warn_of_outliers(measured: MeasuredLists, names: Sequence[str]) -> None:
    """Warn of features with outlying values in a few lists, such as a placeholder for the logarithm of 0."""
    for name in names:
        if found := measured.outliers(name):
            nbest, value, times = found[0]
            more = f", and so in {len(found) - 1} other lists" if len(found) > 1 else ""
            note(
                f"WARNING: list {nbest.id!r}: {name} is {value:g}, and its range {times:.2g} times the spread of the other lists{more}: "
                "a mark, such as for the logarithm of 0? What is usual for this feature is measured without such lists"
            )


def intervals_of(options: TuneOptions, run: RunConfig) -> dict[str, tuple[float, float]]:
    """Return the bounds of weights: those given, and 0 for LMs whose weight must not be negative. Raises InputError if they disagree."""
    for name in run.never_negative:
        if options.intervals.get(name, (0.0, 0.0))[0] < 0:
            raise InputError(
                f"--interval or --fix {name} allows a weight below 0, expected 0 or more: with --only-close, hypotheses that {name} does "
                "not score would win by their score"
            )
    return dict.fromkeys(run.never_negative, (0.0, math.inf)) | dict(options.intervals)


def search_options(options: TuneOptions, names: Sequence[str], intervals: Mapping[str, tuple[float, float]]) -> SearchOptions:
    """Return the search options for these features. Raises InputError if an option names an unknown feature."""
    for name in options.intervals:
        if name not in names:
            raise InputError(f"--interval or --fix {name}: the features are {', '.join(names)}")
    return SearchOptions(options.objective, options.restarts, options.seed, intervals=dict(intervals))
