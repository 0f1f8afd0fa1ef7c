"""From measured lists to the system that is worth writing down: weights, decision rule, and whether they beat the lists as read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.decision.decision import Decider, Decision, compared_text, loss_tokenizer, posterior_weights
from attlm_fairseq.nbest.features.combination import check_totals, weighted_totals
from attlm_fairseq.nbest.metrics import Metric, corpus_score
from attlm_fairseq.nbest.statistics.bootstrap import PairedComparison, paired_test, summed
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists
from attlm_fairseq.nbest.tuning.tuning import (
    DEFAULT_SEARCH,
    CrossValidation,
    SearchOptions,
    TuningResult,
    cross_validate,
    oracle,
    selection,
    tune,
)


@dataclass(frozen=True)
class TunedSystem:
    """What tuning found. ``systems`` are the rows of its table, (label, statistics (N, S)), the lists as read first, the oracle last.

    ``in_sample`` are the labels of those whose weights and scale were found on the very lists that the row measures; ``folds`` maps
    the labels of cross-validated answers to the number of folds. ``utterances`` are :meth:`MeasuredLists.utterances`.

    ``decision`` is the rule with the best cross-validated score (without cross-validation, the best score on the lists themselves) and
    ``weights`` what it needs; it names the scales of all rules tried. ``gain`` compares its cross-validated answers with the lists as
    read; None without cross-validation.
    """

    result: TuningResult
    weights: dict[str, float]
    decision: Decision
    label: str
    gain: PairedComparison | None
    systems: list[tuple[str, np.ndarray]] = field(repr=False)
    in_sample: tuple[str, ...]
    folds: dict[str, int]
    utterances: np.ndarray = field(repr=False)

    def beats_lists(self, metric: Metric, max_p: float) -> bool | None:
        """Whether the cross-validated gain is one, and its p-value at most ``max_p``; None where that was not asked."""
        if self.gain is None or self.gain.p_value is None:
            return None
        difference = self.gain.difference.score
        return (difference > 0 if metric.higher_is_better else difference < 0) and self.gain.p_value <= max_p


def tune_system(
    measured: MeasuredLists,
    metric: Metric,
    *,
    names: Sequence[str],
    lm_names: Sequence[str] = (),
    rules: Sequence[str] = (),
    folds: int = 5,
    tuner: Callable[..., TuningResult] = tune,
    options: SearchOptions = DEFAULT_SEARCH,
) -> TunedSystem:
    """Tune the weights of the features ``names``, then the scale of every rule besides the maximum; cross-validate all of it.

    In each fold weights and scales are found without its lists; lists of one utterance are in one fold. A row for each LM of
    ``lm_names`` shows what it would choose alone. ``folds`` is cut to the number of utterances; fewer than 2 mean no
    cross-validation. Losses and votes are over the metric's text, in lower case where the metric ignores case.
    ``options`` go to ``tuner``; their seed is the bootstrap's as well.
    """
    columns = [measured.names.index(name) for name in names]
    features = [of_list[:, columns] for of_list in measured.features]
    result = tuner(features, measured.statistics, metric, names=names, options=options)
    everything = range(len(features))
    utterances = measured.utterances(metric)
    folds = min(folds, len(set(utterances)))
    validated = None
    if folds > 1:
        validated = cross_validate(
            features, measured.statistics, metric, names=names, folds=folds, groups=utterances, tuner=tuner, options=options
        )

    systems = [("first as read", measured.first)]
    in_sample, folds_of = [], {}
    found: list[tuple[str, Decision, np.ndarray, np.ndarray | None]] = []
    text = compared_text(metric).load()
    tokenize = loss_tokenizer(metric) if "mbr-bleu" in rules else "none"
    for rule in ("max", *dict.fromkeys(rules)):
        decision = Decision(rule, text=text, tokenize=tokenize)
        if rule == "max":
            scale, name = 1.0, "tuned"
            answers = selection(features, measured.statistics, result.weights, names=names)
            held_out = validated.statistics if validated else None
        else:
            decider = Decider(decision, measured.texts, measured.references, measured.statistics, metric)
            totals = weighted_totals(measured.features, measured.names, posterior_weights(result.weights))
            scale, name = decider.best_scale(everything, totals), rule
            answers = decider.statistics_of(everything, totals, scale)
            held_out = _held_out(decider, measured.features, measured.names, validated) if validated else None
        systems.append((name, answers))
        in_sample.append(name)
        if held_out is not None:
            systems.append((f"{name}, {folds}-fold", held_out))
            folds_of[systems[-1][0]] = folds
        found.append((systems[-1][0], replace(decision, scale=scale), answers, held_out))
    sign = 1.0 if metric.higher_is_better else -1.0
    label, decision, _, held_out = max(found, key=lambda system: sign * corpus_score(metric, system[2] if system[3] is None else system[3]))

    for name in lm_names:
        systems.append((f"{name} alone", selection(measured.features, measured.statistics, {name: 1.0}, names=measured.names)))
    systems.append(("oracle", oracle(measured.statistics, metric, [answers for _, answers in systems])))
    gain = None
    if held_out is not None:
        gain = paired_test(summed(held_out, utterances), summed(measured.first, utterances), metric, seed=options.seed, folds=folds)
    return TunedSystem(
        result,
        dict(result.weights) if decision.rule == "max" else posterior_weights(result.weights),
        replace(decision, scales={other.rule: other.scale for _, other, *_ in found if other.rule not in ("max", decision.rule)}),
        label,
        gain,
        systems,
        tuple(in_sample),
        folds_of,
        utterances,
    )


def answers_of(measured: MeasuredLists, metric: Metric, weights: Mapping[str, float], decision: Decision) -> list[tuple[str, np.ndarray]]:
    """What the lists answer under these weights and this decision: text and statistics (S,).

    Raises InputError for a weight that is not 0 of a name that is not a feature; sparse lists may lack it, and then it has no effect.
    """
    sparse = all(nbest.sparse for nbest in measured.lists)
    for name, weight in weights.items():
        if weight and name not in measured.names and not sparse:
            raise InputError(f"weight for {name!r}, which is not a feature; features are {', '.join(measured.names)}")
    decider = Decider(decision, measured.texts, measured.references, measured.statistics, metric)
    of_rule = dict(weights) if decision.rule == "max" else posterior_weights(weights)
    totals = weighted_totals(measured.features, measured.names, of_rule)
    for nbest, of_list in zip(measured.lists, totals, strict=True):
        check_totals(nbest, of_list)
    return decider.answers(range(len(measured.texts)), totals, decision.scale)


def _held_out(decider: Decider, features: Sequence[np.ndarray], names: Sequence[str], validated: CrossValidation) -> np.ndarray:
    """The statistics (N, S) of the answers with weights and scale that were found without each list's fold."""
    statistics = np.empty_like(validated.statistics)
    for fold, result in enumerate(validated.results):
        totals = weighted_totals(features, names, posterior_weights(result.weights))
        scale = decider.best_scale(np.flatnonzero(validated.folds != fold).tolist(), totals)
        held_out = np.flatnonzero(validated.folds == fold).tolist()
        statistics[held_out] = decider.statistics_of(held_out, totals, scale)
    return statistics
