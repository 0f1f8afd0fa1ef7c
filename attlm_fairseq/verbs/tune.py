"""Tune the weights of n-best rescoring on lists with references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attlm_fairseq.errors import InputError, require_type
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.corrector import CORRECTOR
from attlm_fairseq.nbest.corrections.expansion import SCORES
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.decision.decision import Decision, compared_text, option_of
from attlm_fairseq.nbest.features.length import note_of_means
from attlm_fairseq.nbest.fingerprints import fingerprint
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.metrics.spec import spec_of
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import TUNED_ON
from attlm_fairseq.nbest.run.deciding import nothing_to_choose
from attlm_fairseq.nbest.run.rescoring import Context
from attlm_fairseq.nbest.run.walk import Choice
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists, Row, compare
from attlm_fairseq.nbest.tuning.folds import NOTHING, tuner_of_folds
from attlm_fairseq.nbest.tuning.tuned_system import TunedSystem, tune_system
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.verbs.ablation import ablation
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
from attlm_fairseq.verbs.tuned import Tuned
from attlm_fairseq.verbs.tuned_features import (
    features_of_ablation,
    features_to_tune,
    intervals_of,
    matching,
    requested_lm_features,
    search_options,
)
from attlm_fairseq.verbs.verdict import verdict
from attlm_fairseq.version import __version__


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
    intervals = intervals_of(options, run)
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
        without = features_of_ablation(found, run, options)
        rows = ablation(found.lists, metric, system, without, options, search_options(options, names, intervals))
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
    lm_features = requested_lm_features(run, options.features)
    context = None if run.context is None else Context(run.context)  # first pass: the context of a list is the 1-best texts as read
    found = measure(read, metric, run, lm_features, on_progress, context, groups, options.rules, places)
    for line in note_of_means(read):
        note(line)
    names = features_to_tune(found.lists, run, lm_features, options)
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
        options=search_options(options, names, intervals),
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
    fixed = "rank" in options.intervals or "rank" in matching(options.without, found.lists)
    if fixed and decision.rule != "max" and not any(system.result.weights.values()):
        note(
            f"note: all weights are 0, so {option_of(decision.rule)} decides by the order of the hypotheses (rank = -1), which --without, "
            "--fix or --interval takes away"
        )
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
    return replace(tuned, notes=[verdict(tuned, options, run.candidates), *repeats])


def _shortened(measured: MeasuredLists, sizes: Sequence[int]) -> MeasuredLists:
    """Return lists of these numbers of hypotheses: without candidates, which stand behind the others."""
    lists = [replace(nbest, hypotheses=nbest.hypotheses[:size]) for nbest, size in zip(measured.lists, sizes, strict=True)]
    return replace(measured, lists=lists)


def _zeros(found: Measurement, run: RunConfig, options: TuneOptions, weights: Mapping[str, float]) -> dict[str, float]:
    """Return the weight 0 for the LMs, the rank and the scores of candidates if ``without`` leaves them out: rescoring needs a weight of
    each LM and of candidates, and gives the decoder's own score one if neither it nor the rank has any."""
    of_candidates = (*SCORES, CORRECTOR) if run.candidates.anything else ()
    needed = {"rank", *of_candidates, *(lm.name for lm in run.scored)} - weights.keys()
    return dict.fromkeys((name for name in matching(options.without, found.lists) if name in needed), 0.0)


def _second_pass(measured: MeasuredLists, metric: Metric, names: Sequence[str], options: TuneOptions, first: Context) -> Context:
    """Return the context of the second pass: the answers that weights tuned without the conversation choose for it.

    These weights are tuned on the other folds of the cross-validation that follows; without folds, on all lists.
    """
    samples = measured.utterances(metric)
    conversations = first.spec.conversations([nbest.id for nbest in measured.lists])
    tuner = tuner_of_folds(measured, metric, names, options.folds, samples, search_options(options, names, options.intervals))
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
