"""Tune the weights of n-best rescoring on lists with references."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from attlm_fairseq import __version__
from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.corrector import CORRECTOR
from attlm_fairseq.nbest.corrections.expansion import SCORES
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.decision.decision import Decision, compared_text, option_of
from attlm_fairseq.nbest.features.length import note_of_means
from attlm_fairseq.nbest.features.lm_features import default_features, differing_lms, is_lm_feature
from attlm_fairseq.nbest.fingerprints import fingerprint
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.metrics.spec import spec_of
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import TUNED_ON
from attlm_fairseq.nbest.run.deciding import nothing_to_choose
from attlm_fairseq.nbest.run.rescoring import Context
from attlm_fairseq.nbest.run.walk import Choice
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists, Row, compare, signed
from attlm_fairseq.nbest.tuning.folds import MIN_FOLDS, NOTHING, tuner_of_folds
from attlm_fairseq.nbest.tuning.search_options import SearchOptions
from attlm_fairseq.nbest.tuning.tuned_system import TunedSystem, tune_system
from attlm_fairseq.scoring.conversations import ContextSpec
from attlm_fairseq.verbs.ablation import ablation, parts
from attlm_fairseq.verbs.arguments import FilePath, OnProgress
from attlm_fairseq.verbs.calibration import fit, require_words
from attlm_fairseq.verbs.candidates import expanded_for_tuning
from attlm_fairseq.verbs.configuration import LM, metric_of, run_config
from attlm_fairseq.verbs.exposure import warn_of_seen_references
from attlm_fairseq.verbs.lists import Lists, groups_of, lists_of, title_of
from attlm_fairseq.verbs.references import References, among, with_references
from attlm_fairseq.verbs.report import note_samples, rounded
from attlm_fairseq.verbs.run import Measurement, measure
from attlm_fairseq.verbs.tune_options import TuneOptions
from attlm_fairseq.verbs.tuned import NoGainError, Tuned

MANY_FEATURES = 100


def tune(
    lists: Lists,
    refs: References | None = None,
    lms: Mapping[str, LM] | None = None,
    *,
    config: RunConfig | FilePath | None = None,
    metric: str | Metric | None = None,
    options: TuneOptions | None = None,
    on_progress: OnProgress = None,
) -> Tuned:
    """Tune the weights that make the 1-best hypotheses best under the metric.

    The weights are those of LMs, scores of the lists, unknown words, number of words and rank. The hypotheses are scored
    once (with a context twice), then an exact line search on the corpus metric (Och 2003) finds the weights; with the
    objective ``risk``, L-BFGS on the expected loss. Cross-validation estimates the score on other lists and how far to
    trust the weights. If it shows no gain, all weights are 0, which keeps the input order, unless ``options.strength`` is
    given.

    Args:
        lists: n-best lists: NbestLists, lists of strings, or a file.
        refs: references: files, texts in the order of the lists, or texts by id. None: the lists have their own.
        lms: LMs by name, as files or objects. Without LMs only the lists' own scores are tuned.
        config: LMs and text steps: a RunConfig or the path of an ``attlm.toml``. Its weights are not used.
        metric: ``wer``, ``cer``, ``bleu``, ``chrf``, ``chrf++``, ``ter``, ``external:COMMAND``, or a Metric. None: that
            of ``config``, else WER.
        options: options of the search.
        on_progress: called with the number of hypotheses scored since the last call.

    Returns:
        The weights and the configuration to use, the rows of the systems compared, and the record.

    Raises:
        InputError: the input is unreadable or wrong, references do not fit, or an option names no feature.
        NoGainError: cross-validation shows no gain and ``options.no_gain`` is ``"fail"``.
    """
    options = TuneOptions() if options is None else options
    require_type("value of options", options, TuneOptions, "TuneOptions(..)")
    run = run_config(config, lms=lms)
    run = replace(run, candidates=run.candidates.noted())
    metric = metric_of(metric, run)
    intervals = _intervals(options, run)
    if not run.lms and not run.candidates.anything:
        note("WARNING: no LM given: only the lists' own scores are tuned; --lm or --kenlm adds one")
    if run.decision.rule not in ("max", *options.rules):
        note(f"note: the rule {run.decision.rule} is not tuned again: {option_of(run.decision.rule)} does that")
    if run.confidence is not None and not options.confidence:
        note("note: word confidences are not fitted again: --confidence does that")
    as_read = list(lists_of(lists))
    read = with_references(as_read, refs)
    groups = _groups(read, run, options.folds_by)
    sizes = [len(nbest.hypotheses) for nbest in read]
    whole, places = among(as_read, read, refs) if run.context is not None else (read, None)
    read = expanded_for_tuning(read, run, metric, options.folds, groups)
    whole = _with_expanded(whole, places, read, run.candidates)
    if not any(nbest.has_choice for nbest in read):
        note(nothing_to_choose(run))
    measured = replace(run, candidates=CandidateSpec(), weights={}, decision=Decision(keep_incomplete=run.decision.keep_incomplete))
    found, names = _measured(whole, places, metric, measured, options, on_progress, groups)
    system = _system(found, metric, names, options, intervals)
    rows = []
    if options.ablation:
        if run.context is not None:
            note("note: with --context, --ablation keeps the context that the weights of all scores chose")
        without = _names_without(found, run, options)
        rows = ablation(found.lists, metric, system, without, options, _search(options, names, intervals))
    return _judged(found, sizes, metric, run, system, options, title_of("Tuning", lists), rows)


def _groups(lists: Sequence[NbestList], run: RunConfig, folds_by: str | ContextSpec | None) -> np.ndarray | None:
    """Return the group number (N,) of each list, which folds keep whole; None if there are no groups.

    Raises InputError if ``folds_by`` is given with a context, or if either does not fit the lists.
    """
    if folds_by is not None and run.context is not None:
        raise InputError("--folds-by: with --context, folds keep conversations whole; leave --folds-by out")
    return groups_of(lists, folds_by) if run.context is None else run.groups(lists)


def _with_expanded(
    whole: list[NbestList], places: Sequence[int] | None, read: list[NbestList], candidates: CandidateSpec
) -> list[NbestList]:
    """Return all lists with candidates: ``read`` at these places, and the others, which have no reference, as rescoring expands them."""
    if places is None:
        return read
    found = dict(zip(places, read, strict=True))
    others = [place for place in range(len(whole)) if place not in found]
    if others and candidates.anything:
        expanded = candidates.load().expand_all([whole[place] for place in others], candidates.candidates)
        found |= dict(zip(others, expanded, strict=True))
    return [found.get(place, nbest) for place, nbest in enumerate(whole)]


def _measured(
    read: list[NbestList],
    places: Sequence[int] | None,
    metric: Metric,
    run: RunConfig,
    options: TuneOptions,
    on_progress: OnProgress,
    groups: np.ndarray | None,
) -> tuple[Measurement, list[str]]:
    """Return the scored lists and the features to tune, and log unusual features. With a context, lists are scored twice.

    ``places``: those of the lists that have references, if the others are only context.
    """
    if options.confidence:
        require_words(metric)
    lm_features = _lm_features(run, options.features)
    context = None if run.context is None else Context(run.context)  # first pass: the context of a list is the 1-best texts as read
    found = measure(read, metric, run, lm_features, on_progress, context, groups, options.rules, places)
    for line in note_of_means(read):
        note(line)
    names = _names(found.lists, run, lm_features, options)
    if context is not None:
        context = _second_pass(found.lists, metric, names, options, context)
        found = measure(read, metric, run, lm_features, on_progress, context, groups, places=places)
    warn_of_seen_references(found, run)
    return found, names


def _system(
    found: Measurement, metric: Metric, names: Sequence[str], options: TuneOptions, intervals: Mapping[str, tuple[float, float]]
) -> TunedSystem:
    """Tune the weights of the features ``names`` with these options.

    Raises InputError if an option names an unknown feature.
    """
    return tune_system(
        found.lists,
        metric,
        names=names,
        lm_names=list(found.signatures),
        rules=options.rules,
        folds=options.folds,
        strength=options.strength,
        options=_search(options, names, intervals),
    )


def _judged(
    found: Measurement,
    sizes: Sequence[int],
    metric: Metric,
    run: RunConfig,
    system: TunedSystem,
    options: TuneOptions,
    title: str,
    without: Sequence[Row],
) -> Tuned:
    """Return the tuned system, or the input order if cross-validation does not speak for a gain.

    ``sizes``: numbers of hypotheses without candidates.
    """
    repeats = note_samples(system.utterances, found.lists.groups is not None, ", and stay in one fold")
    groups = system.utterances.tolist()
    rows = compare(system.systems, metric, seed=options.seed, in_sample=system.in_sample, folds=system.folds, groups=groups)
    gain = None
    if system.gain is not None and options.strength is None:
        held_out = system.gain.difference.score if metric.higher_is_better else -system.gain.difference.score
        gain = system.setting.trusted and held_out > 0  # the second is the table's row, of settings chosen without their lists
    weights, decision, candidates = system.weights, system.decision, run.candidates
    if gain is False:
        weights, decision = (
            dict.fromkeys(system.weights, 0.0),
            Decision(text=compared_text(metric), tokenize=decision.tokenize, spaces=decision.spaces),
        )
    if not any(weights.values()):
        candidates = CandidateSpec()
    zeros = _zeros(found, run, options, weights)
    # the input order was not tuned, and needs no folds
    answered = [(list(range(len(found.lists.lists))), weights)] if gain is False else system.held_out
    weights = zeros | weights
    record = _record(found, metric, rows, system, gain, options.seed)
    if digests := dict(run.candidates.digests()):
        record["candidates"] = digests
    confidence = None
    if options.confidence:
        answering = found.lists if candidates.anything else _shortened(found.lists, sizes)
        confidence = fit(answering, metric, [(of, zeros | tuned) for of, tuned in answered], decision)
    config = replace(
        run,
        weights=weights,
        decision=replace(decision, keep_incomplete=run.decision.keep_incomplete),
        candidates=candidates,
        confidence=confidence,
        tuned_on=record[TUNED_ON],
        tuned_with=found.signatures,
        candidates_tuned_with=digests,
        metric=spec_of(metric),
    )
    tuned = Tuned(config, metric, rows, system, tuple(options.rules), gain, record, found, title, repeats, list(without))
    return replace(tuned, notes=[_verdict(tuned, options, run.candidates), *repeats])


def _shortened(measured: MeasuredLists, sizes: Sequence[int]) -> MeasuredLists:
    """Return lists of these numbers of hypotheses: without candidates, which stand behind the others."""
    lists = [replace(nbest, hypotheses=nbest.hypotheses[:size]) for nbest, size in zip(measured.lists, sizes, strict=True)]
    return replace(measured, lists=lists)


def _zeros(found: Measurement, run: RunConfig, options: TuneOptions, weights: Mapping[str, float]) -> dict[str, float]:
    """Return the weight 0 for the LMs, the rank and the scores of candidates if ``without`` leaves them out: rescoring needs a weight of
    each LM and of candidates, and gives the decoder's own score one if neither it nor the rank has any."""
    of_candidates = (*SCORES, CORRECTOR) if run.candidates.anything else ()
    needed = {"rank", *of_candidates, *(lm.name for lm in run.scored)} - weights.keys()
    return dict.fromkeys((name for name in _matching(options.without, found.lists) if name in needed), 0.0)


def _second_pass(measured: MeasuredLists, metric: Metric, names: Sequence[str], options: TuneOptions, first: Context) -> Context:
    """Return the context of the second pass: the answers that weights tuned without the conversation choose for it.

    These weights are tuned on the other folds of the cross-validation that follows; without folds, on all lists.
    """
    samples = measured.utterances(metric)
    conversations = first.spec.conversations([nbest.id for nbest in measured.lists])
    tuner = tuner_of_folds(measured, metric, names, options.folds, samples, _search(options, names, options.intervals))
    if len(tuner.folds()) == 1 or len(conversations) == 1:
        if len(tuner.folds()) > 1:
            note(
                "note: all lists are one conversation: the texts of its context were chosen with weights that were tuned on all of "
                "them, so cross-validated rows are a little too good"
            )
        return replace(first, choice=_choice(tuner.without(NOTHING).weights), scored_before=True)
    choices = {name: _choice(tuner.without(frozenset({int(tuner.fold_of[places[0]])})).weights) for name, places in conversations.items()}
    return replace(first, choices=choices, scored_before=True)


def _choice(weights: Mapping[str, float]) -> Choice:
    """Return how a list chooses the text that becomes context. A list that lacks a score chooses its first hypothesis."""
    return Choice(weights, Decision(keep_incomplete=True))


def _record(
    found: Measurement,
    metric: Metric,
    rows: Sequence[Row],
    system: TunedSystem,
    gain: bool | None,
    seed: int,
) -> dict[str, Any]:
    """Return the ``[tuning]`` table of an ``attlm.toml``, without the command."""
    return {
        "lists": len(found.lists.lists),
        "hypotheses": sum(map(len, found.lists.features)),
        "metric": metric.signature(found.lists.references),
        **{row.label.replace(" ", "_").replace(",", ""): rounded(row.interval) for row in rows},
        **({} if system.gain is None or system.gain.p_value is None else {"p": round(system.gain.p_value, 6)}),
        **({} if gain is None else {"gain": gain}),
        "strength": 0.0 if gain is False else system.setting.strength,
        **({"tuned_weights": system.result.weights} if gain is False else {}),
        "seed": seed,
        TUNED_ON: fingerprint(found.lists.references),
        "attlm": __version__,
        "lm": found.signatures,
    }


def _verdict(tuned: Tuned, options: TuneOptions, candidates: CandidateSpec) -> str:
    """Log what the weights are worth on other lists, and return that line for the report. Raises NoGainError if so configured."""
    system = tuned.system
    if system.gain is None:
        kind = "WARNING" if options.folds else "note"
        note(
            f"{kind}: without cross-validation ({MIN_FOLDS} different lists and --folds {MIN_FOLDS} at least) nothing tells what the "
            "weights are worth elsewhere"
        )
    if tuned.gain is not False:
        if tuned.gain and tuned.strength < 1:
            note(f"note: strength {tuned.strength:g}: cross-validation bears the weights out in part, so the rank has more weight")
        if tuned.rules:
            note(f"decision: {tuned.config.decision}")
        return (
            "The changes below are on the lists that the weights were tuned on, and flatter them: elsewhere expect the cross-validated row."
        )
    gain = system.gain
    assert gain is not None, "a gain that is not there was cross-validated"
    difference = f"{system.label}: {signed(gain.difference.score)} {tuned.metric.name}"
    found = f"cross-validation shows no gain over the input order to rely on ({difference})"
    if options.no_gain == "fail":
        raise NoGainError(f"{found}; nothing is written", tuned)
    warning = f"{found}: the weights written are 0 and leave the lists as they are"
    if any(system.result.weights.values()):
        ways = _as_options(system.result.weights, system.decision, candidates)
        warning += f". To use the best ones found all the same, add to `attlm rescore`: {ways}"
    note(f"WARNING: {warning}")
    return warning


def _as_options(weights: Mapping[str, float], decision: Decision, candidates: CandidateSpec) -> str:
    """Return the options of ``attlm rescore`` that apply these weights and this decision with the same candidates, for a shell."""
    sources = {
        "--corrections": candidates.table,
        "--phrases": candidates.phrases,
        "--corrector": candidates.corrector,
        "--corrector-languages": candidates.corrector_languages,
        "--corrector-prefix": candidates.corrector_prefix,
    }
    parts = [part for option, value in sources.items() if value for part in (option, str(value))]
    if candidates.anything and candidates.candidates != CandidateSpec.candidates:
        parts += ["--candidates", str(candidates.candidates)]
    if decision.rule != "max":
        parts += ["--consensus"] if decision.rule == "consensus" else ["--mbr", decision.rule.removeprefix("mbr-")]
        parts += ["--scale", _digits(decision.scale)]
    return shlex.join([*parts, *(part for name, weight in weights.items() if weight for part in ("--weight", f"{name}={_digits(weight)}"))])


def _digits(number: float) -> str:
    """Return the shortest text that is read as this number."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


def _lm_features(run: RunConfig, extra: Sequence[str]) -> list[str]:
    """Return the LM features besides the scores: the default ones and those requested.

    Raises InputError if one that is requested is not an LM feature.
    """
    lms = run.feature_texts
    for name in extra:
        if not is_lm_feature(name, lms):
            raise InputError(f"--feature {name}: expected LM_oov, LM_tokens or LM_minus_LM; the LMs are {', '.join(lms) or 'none'}")
    return list(dict.fromkeys([*default_features(lms), *extra]))


def _names(measured: MeasuredLists, run: RunConfig, lm_features: Sequence[str], options: TuneOptions) -> list[str]:
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
    unneeded = {*_matching(options.without, measured), *(lm for name in options.features for lm in differing_lms(name, run.texts) or ())}
    unneeded |= set(measured.redundant([name for name in lm_features if name not in asked_for]))
    return [name for name in measured.names if name not in unneeded and name not in left_out]


def _names_without(found: Measurement, run: RunConfig, options: TuneOptions) -> dict[str, list[str]]:
    """Return for each part that ``ablation`` leaves out the features that are tuned without it."""
    lm_features = _lm_features(run, options.features)
    everything = _tunable(found.lists, run, (), options)
    sparse = all(nbest.sparse for nbest in found.lists.lists)
    left_out = parts(everything, list(found.signatures), sparse=sparse)
    return {part: _tunable(found.lists, run, lm_features, options, features) for part, features in left_out.items()}


def _lacking(name: str, measured: MeasuredLists) -> str:
    """Return a score with the number of hypotheses that lack it, and where the first is."""
    several = [nbest for nbest in measured.lists if len(nbest.hypotheses) > 1]
    lists = [nbest for nbest in several for one in nbest.hypotheses if name not in one.scores | one.lm_scores]
    count = sum(len(nbest.hypotheses) for nbest in several)
    return f"{name} ({len(lists)} of {count}, first in list {lists[0].id!r})" if lists else name


def _matching(without: Sequence[str], measured: MeasuredLists) -> list[str]:
    """Return the features that the names and patterns ``without`` match. Raises InputError if one matches nothing."""
    found = []
    for pattern in without:
        names = [name for name in [*measured.names, *measured.left_out] if fnmatchcase(name, pattern) or name == pattern]
        if not names:
            raise InputError(f"--without {pattern}: the features are {', '.join(measured.names)}")
        found += names
    return found


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


def _intervals(options: TuneOptions, run: RunConfig) -> dict[str, tuple[float, float]]:
    """Return the bounds of weights: those given, and 0 for LMs whose weight must not be negative. Raises InputError if they disagree."""
    for name in run.never_negative:
        if options.intervals.get(name, (0.0, 0.0))[0] < 0:
            raise InputError(
                f"--interval or --fix {name} allows a weight below 0, expected 0 or more: with --only-close, hypotheses that {name} does "
                "not score would win by their score"
            )
    return dict.fromkeys(run.never_negative, (0.0, math.inf)) | dict(options.intervals)


def _search(options: TuneOptions, names: Sequence[str], intervals: Mapping[str, tuple[float, float]]) -> SearchOptions:
    """Return the search options for these features. Raises InputError if an option names an unknown feature."""
    for name in options.intervals:
        if name not in names:
            raise InputError(f"--interval or --fix {name}: the features are {', '.join(names)}")
    return SearchOptions(options.objective, options.restarts, options.seed, intervals=dict(intervals))
