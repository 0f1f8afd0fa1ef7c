"""Choose by cross-validation the scale of the decision rule, and how far to trust the weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from attlm_fairseq.nbest.decision.decision import (
    STEPS,
    Decider,
    Decision,
    compared_text,
    loss_spaces,
    loss_tokenizer,
    posterior_weights,
    scale_in_units,
)
from attlm_fairseq.nbest.features.combination import weighted_totals
from attlm_fairseq.nbest.features.within_lists import standard_deviation
from attlm_fairseq.nbest.metrics.metric import Metric, corpus_score
from attlm_fairseq.nbest.statistics.bootstrap import summed
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists
from attlm_fairseq.nbest.tuning.folds import NOTHING, tuner_of_folds
from attlm_fairseq.nbest.tuning.search_options import SearchOptions
from attlm_fairseq.nbest.tuning.shrinkage import STRENGTHS, gain_of, is_as_good, pulled, trusted_gain
from attlm_fairseq.nbest.tuning.tuning import TuningResult, influence


@dataclass(frozen=True, slots=True)
class Setting:
    """A rule, a strength of the weights (see ``shrinkage``), and the posterior scale as a step of ``decision.STEPS``.

    ``trusted``: the held-out answers confirm a gain, or no confirmation was required.
    """

    rule: str
    strength: float
    step: float
    trusted: bool


class SettingChooser:
    """The answers of lists under any setting, with weights tuned on all lists or without some folds, and the best setting.

    Args:
        folds: number of cross-validation folds, at most one per utterance; fewer than MIN_FOLDS mean none.
        strength: the only strength to use; None chooses it by cross-validation, or uses 1 without it.
    """

    def __init__(
        self,
        measured: MeasuredLists,
        metric: Metric,
        names: Sequence[str],
        *,
        folds: int,
        strength: float | None = None,
        options: SearchOptions,
    ) -> None:
        self.measured, self.metric, self.names, self.first = measured, metric, names, measured.first
        self.utterances = measured.utterances(metric)
        columns = {name: measured.names.index(name) for name in names}
        self.spreads = {name: standard_deviation([of_list[:, place] for of_list in measured.features]) for name, place in columns.items()}
        self.tuner = tuner_of_folds(measured, metric, names, folds, self.utterances, options)
        self.validated = len(self.tuner.folds()) > 1
        self.strengths: Sequence[float] = (1.0,) if strength is None else (strength,)
        self.compared = self.validated and strength is None
        if self.compared and self.spreads.get("rank") and "rank" not in options.intervals:
            self.strengths = STRENGTHS
        self._deciders: dict[str, Decider] = {}
        self._settings: dict[tuple[str, frozenset[int], float | None], Setting] = {}

    def best(self, rule: str, left_out: frozenset[int] = NOTHING, strength: float | None = None) -> Setting:
        """Return the best setting of this rule on the lists that are not left out, each answered as held out. ``strength``: at this one.

        For each strength, the scale with the greatest trusted gain counts, the largest one in a tie. Of the strengths with a
        trusted gain, the greatest that is as good as the best is chosen (``is_as_good``), because a smaller one loses
        accuracy where LMs help. Without cross-validation it is the best setting on the lists themselves.
        """
        key = (rule, left_out, strength)
        if key not in self._settings:
            self._settings[key] = self._found(rule, left_out, strength)
        return self._settings[key]

    def _found(self, rule: str, left_out: frozenset[int], strength: float | None) -> Setting:
        """Search for ``best``, which keeps what was found."""
        if rule == "max" and not self.compared:
            return Setting(rule, self.strengths[0], 0.0, trusted=True)
        strengths = self.strengths if rule == "max" or not self.compared else (0.0, *self.strengths)
        folds = self.tuner.folds(left_out)
        lists = self.tuner.lists(folds)
        first = summed(self.first[lists], self.utterances[lists])
        tried: list[tuple[float, Setting, np.ndarray]] = []
        for of_strength in strengths if strength is None else (strength,):
            best = (-math.inf, Setting(rule, of_strength, 0.0, trusted=False), first)
            for step, answers in self._held_out_answers(rule, of_strength, (0.0,) if rule == "max" else STEPS, left_out).items():
                of_lists = summed(answers[lists], self.utterances[lists])
                gain = trusted_gain(of_lists, first, self.metric, len(folds)) if self.validated else gain_of(of_lists, first, self.metric)
                if gain >= best[0]:
                    best = (gain, Setting(rule, of_strength, step, trusted=gain > 0 or not self.compared), of_lists)
            tried.append(best)
        most, setting, best_answers = max(tried, key=lambda of_strength: (of_strength[0], of_strength[1].strength))
        if most <= 0 or not self.compared:
            return setting
        as_good = [other for gain, other, answers in tried if gain > 0 and is_as_good(answers, best_answers, self.metric, len(folds))]
        return max(as_good, key=lambda other: other.strength)

    def held_out(self, rules: Sequence[str]) -> np.ndarray:
        """Return what the lists answer (N, S) with weights, rule and setting found without each list's fold."""
        answers = self.first.copy()
        for fold in self.tuner.folds():
            setting, lists = self.best_of(rules, frozenset({fold})), self.tuner.lists([fold])
            if setting.trusted:
                answers[lists] = self._answers(setting.rule, setting.strength, [setting.step], frozenset({fold}), lists)[setting.step]
        return answers

    def best_of(self, rules: Sequence[str], left_out: frozenset[int] = NOTHING) -> Setting:
        """Return the best setting of the rule with the best held-out answers of the lists that are not left out, trusted if any is.

        Without cross-validation these are the answers on the lists themselves.
        """
        settings = [self.best(rule, left_out) for rule in rules]
        settings = [setting for setting in settings if setting.trusted] or settings
        if len(settings) == 1:
            return settings[0]
        lists, sign = self.tuner.lists(self.tuner.folds(left_out)), 1.0 if self.metric.higher_is_better else -1.0

        def score(setting: Setting) -> float:
            answers = self._held_out_answers(setting.rule, setting.strength, (setting.step,), left_out)[setting.step]
            return sign * corpus_score(self.metric, answers[lists])

        return max(settings, key=score)

    def held_out_weights(self, setting: Setting) -> list[tuple[list[int], dict[str, float]]]:
        """Return for each fold its lists, and the weights at this setting that were tuned without them.

        The weights of each fold are multiplied by a factor. With it, the standard deviation of the totals within lists is
        that of the weights tuned on all lists, so that one scale of the posteriors serves all folds. Without
        cross-validation there is one fold: all lists, with the weights tuned on them.
        """
        unit = standard_deviation(self._totals(setting.rule, setting.strength, NOTHING))
        found = []
        for fold in self.tuner.folds():
            without = setting.rule, setting.strength, frozenset({fold})
            of_fold = standard_deviation(self._totals(*without))
            stretch = unit / of_fold if unit and of_fold else 1.0
            found.append((self.tuner.lists([fold]), {name: stretch * weight for name, weight in self._weights(*without).items()}))
        return found

    def final(self, setting: Setting) -> tuple[Decision, np.ndarray]:
        """Return the decision of a setting with weights tuned on all lists, and what they answer (N, S)."""
        totals = self._totals(setting.rule, setting.strength, NOTHING)
        scale = scale_in_units(setting.step, standard_deviation(totals))
        decision = replace(self._decider(setting.rule).decision, scale=scale)
        everything = range(len(self.first))
        return decision, self._decider(setting.rule).statistics_of(everything, totals, scale)

    def result(self, setting: Setting) -> TuningResult:
        found = self.tuner.without(NOTHING)
        weights = pulled(found.weights, setting.strength, self.spreads)
        _, answers = self.final(replace(setting, rule="max", step=0.0))
        shares = influence(weights, self.spreads, self.names)
        return replace(found, weights=weights, score=corpus_score(self.metric, answers), influence=shares)

    def _held_out_answers(self, rule: str, strength: float, steps: Sequence[float], left_out: frozenset[int]) -> dict[float, np.ndarray]:
        """Return for each step the statistics (N, S) of the answers of each fold, with weights tuned without that fold and ``left_out``."""
        pooled = {step: self.first.copy() for step in steps}
        for fold in self.tuner.folds(left_out):
            lists = self.tuner.lists([fold])
            for step, answers in self._answers(rule, strength, steps, left_out | {fold}, lists).items():
                pooled[step][lists] = answers
        return pooled

    def _answers(
        self, rule: str, strength: float, steps: Sequence[float], left_out: frozenset[int], lists: Sequence[int]
    ) -> dict[float, np.ndarray]:
        totals = self._totals(rule, strength, left_out)
        unit = standard_deviation(totals)
        return {step: self._decider(rule).statistics_of(lists, totals, scale_in_units(step, unit)) for step in steps}

    def _totals(self, rule: str, strength: float, left_out: frozenset[int]) -> list[np.ndarray]:
        """Return the totals (n_i,) of all lists with weights tuned without some folds."""
        return weighted_totals(self.measured.features, self.measured.names, self._weights(rule, strength, left_out))

    def _weights(self, rule: str, strength: float, left_out: frozenset[int]) -> dict[str, float]:
        """Return the weights that a rule needs, tuned without some folds."""
        weights = pulled(self.tuner.without(left_out).weights, strength, self.spreads)
        return weights if rule == "max" else posterior_weights(weights)

    def _decider(self, rule: str) -> Decider:
        if rule not in self._deciders:
            tokenize = loss_tokenizer(self.metric) if rule == "mbr-bleu" else "none"
            spaces = loss_spaces(self.metric) if rule == "mbr-cer" else True
            decision = Decision(rule, text=compared_text(self.metric).load(), tokenize=tokenize, spaces=spaces)
            measured = self.measured
            self._deciders[rule] = Decider(decision, measured.texts, measured.references, measured.statistics, self.metric)
        return self._deciders[rule]
