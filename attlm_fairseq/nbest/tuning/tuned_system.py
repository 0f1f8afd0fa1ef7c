"""From measured lists to the system to save: weights, decision rule, and whether they beat the input order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.decision.decision import Decider, Decision, posterior_weights
from attlm_fairseq.nbest.features.combination import check_totals, weighted_totals
from attlm_fairseq.nbest.metrics.metric import Metric, corpus_score
from attlm_fairseq.nbest.statistics.bootstrap import PairedComparison, paired_test, summed
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists
from attlm_fairseq.nbest.tuning.oracle import oracle
from attlm_fairseq.nbest.tuning.search_options import DEFAULT_SEARCH, SearchOptions
from attlm_fairseq.nbest.tuning.settings import Setting, SettingChooser
from attlm_fairseq.nbest.tuning.tuning import TuningResult, selection


@dataclass(frozen=True)
class TunedSystem:
    """The result of tuning.

    Attributes:
        systems: rows of the table, (label, statistics (N, S)): the input order first, the oracle last.
        in_sample: labels of rows whose weights and scale were found on the lists of the row.
        folds: number of folds by label of a cross-validated row.
        decision: the rule with the best held-out answers (see ``SettingChooser.best_of``). It names the scales of all rules tried.
        result: the weights at the strength of the setting.
        weights: the weights that the rule needs.
        held_out: the lists of each fold with the weights tuned without them, in the units of ``weights``; without
            cross-validation, all lists with ``weights``.
        label: the row that tells what to expect on other lists.
        gain: compares the answers of this row with the input order; None without cross-validation.
    """

    result: TuningResult
    setting: Setting
    weights: dict[str, float]
    held_out: list[tuple[list[int], dict[str, float]]] = field(repr=False)
    decision: Decision
    label: str
    gain: PairedComparison | None
    systems: list[tuple[str, np.ndarray]] = field(repr=False)
    in_sample: tuple[str, ...]
    folds: dict[str, int]
    utterances: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class _Tried:
    """A rule with its best setting and its rows, (label, statistics (N, S)): on the lists themselves, then cross-validated."""

    setting: Setting
    decision: Decision
    rows: list[tuple[str, np.ndarray]]


def tune_system(
    measured: MeasuredLists,
    metric: Metric,
    *,
    names: Sequence[str],
    lm_names: Sequence[str] = (),
    rules: Sequence[str] = (),
    folds: int = 5,
    strength: float | None = None,
    options: SearchOptions = DEFAULT_SEARCH,
) -> TunedSystem:
    """Tune the weights of the features ``names``, then strength and scale of the maximum and of every rule, with cross-validation.

    In each fold, weights, strengths and scales are found without its lists, and in one more row the rule, too, if there are
    several. Lists of one utterance stay in one fold. One row per LM of ``lm_names`` shows what it would choose alone. ``folds``
    is reduced to the number of utterances; fewer than 3 mean no cross-validation. ``strength`` fixes the strength (see
    ``shrinkage``). Losses and votes compare texts after the metric's text steps, in lower case if the metric ignores case. The
    seed of ``options`` also serves the bootstrap.
    """
    chooser = SettingChooser(measured, metric, names, folds=folds, strength=strength, options=options)
    utterances, folds = chooser.utterances, len(chooser.tuner.folds()) if chooser.validated else 0
    tried = [_tried(chooser, rule, folds) for rule in ("max", *dict.fromkeys(rules))]
    best = _best_of(tried, metric)
    cross_validated = [of_rule.rows[-1] for of_rule in tried] if folds else []
    if len(cross_validated) > 1:  # the best of their figures would be too good
        cross_validated.append((f"best of {len(tried)} rules, {folds}-fold", chooser.held_out([of_rule.setting.rule for of_rule in tried])))
    systems = [("input 1-best", measured.first), *(row for of_rule in tried for row in of_rule.rows), *cross_validated[len(tried) :]]
    systems += [
        (f"{name} alone", selection(measured.features, measured.statistics, {name: 1.0}, names=measured.names)) for name in lm_names
    ]
    systems.append(("oracle", oracle(measured.statistics, metric, [answers for _, answers in systems])))
    label, held_out = cross_validated[-1] if cross_validated else best.rows[-1]
    gain = None
    if folds:
        gain = paired_test(summed(held_out, utterances), summed(measured.first, utterances), metric, seed=options.seed, folds=folds)
    result, rule = chooser.result(best.setting), best.setting.rule
    tokenize = next((of_rule.decision.tokenize for of_rule in tried if of_rule.setting.rule == "mbr-bleu"), "none")
    spaces = next((of_rule.decision.spaces for of_rule in tried if of_rule.setting.rule == "mbr-cer"), True)
    scales = {of_rule.setting.rule: _scale_at(chooser, of_rule, best.setting.strength) for of_rule in tried}
    scales = {name: scale for name, scale in scales.items() if name not in ("max", rule)}
    return TunedSystem(
        result,
        best.setting,
        result.weights if rule == "max" else posterior_weights(result.weights),
        chooser.held_out_weights(best.setting),
        replace(best.decision, scales=scales, tokenize=tokenize, spaces=spaces),
        label,
        gain,
        systems,
        tuple(of_rule.rows[0][0] for of_rule in tried),
        dict.fromkeys((row for row, _ in cross_validated), folds),
        utterances,
    )


def _best_of(tried: Sequence[_Tried], metric: Metric) -> _Tried:
    """Return the rule whose last row is the best, of those with a trusted setting if there are any; in a tie the first."""
    sign = 1.0 if metric.higher_is_better else -1.0
    trusted = [of_rule for of_rule in tried if of_rule.setting.trusted] or tried
    return max(trusted, key=lambda of_rule: sign * corpus_score(metric, of_rule.rows[-1][1]))


def _tried(chooser: SettingChooser, rule: str, folds: int) -> _Tried:
    setting, name = chooser.best(rule), "tuned" if rule == "max" else rule
    decision, answers = chooser.final(setting)
    rows = [(name, answers)]
    if folds:
        rows.append((f"{name}, {folds}-fold", chooser.held_out([rule])))
    return _Tried(setting, decision, rows)


def _scale_at(chooser: SettingChooser, of_rule: _Tried, strength: float) -> float:
    """Return the best scale of a rule for the weights of this strength, which are those to be written."""
    if of_rule.setting.rule == "max" or of_rule.setting.strength == strength:
        return of_rule.decision.scale
    decision, _ = chooser.final(chooser.best(of_rule.setting.rule, strength=strength))
    return decision.scale


def answers_of(measured: MeasuredLists, metric: Metric, weights: Mapping[str, float], decision: Decision) -> list[tuple[str, np.ndarray]]:
    """Return what the lists answer under these weights and this decision: text and statistics (S,).

    Raises InputError for a weight that is not 0 of a name that is not a feature; sparse lists may lack it, and then it
    has no effect.
    """
    sparse = all(nbest.sparse for nbest in measured.lists)
    for name, weight in weights.items():
        if weight and name not in measured.names and not sparse:
            for nbest in measured.lists:
                have = sum(name in hypothesis.scores | hypothesis.lm_scores for hypothesis in nbest.hypotheses)
                if have < len(nbest.hypotheses) and any(name in other.hypotheses[0].scores for other in measured.lists):
                    raise nbest.error(
                        f"list {nbest.id!r}: a hypothesis lacks the score {name!r}, which has a weight. Rescore with --keep-incomplete (in "
                        "Python, keep_incomplete=True), and measure the rescored lists"
                    )
            raise InputError(f"weight for {name!r}, which is not a feature; features are {', '.join(measured.names)}")
    decider = Decider(decision, measured.texts, measured.references, measured.statistics, metric)
    of_rule = dict(weights) if decision.rule == "max" else posterior_weights(weights)
    totals = weighted_totals(measured.features, measured.names, of_rule)
    for nbest, of_list in zip(measured.lists, totals, strict=True):
        check_totals(nbest, of_list)
    return decider.answers(range(len(measured.texts)), totals, decision.scale)
