"""What tuning reports and writes: every row against its definition, cross-validation of the rules included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from decision_lists import some_lists

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.decision.decision import STEPS, Decision, decide, posterior_weights, scale_in_units
from attlm_fairseq.nbest.features.within_lists import standard_deviation
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.metrics.metric import corpus_score
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.statistics.bootstrap import confidence_interval, cross_validation_factor, paired_test
from attlm_fairseq.nbest.statistics.evaluation import compare, measure_lists
from attlm_fairseq.nbest.tuning.folds import assign_folds
from attlm_fairseq.nbest.tuning.search_options import SearchOptions
from attlm_fairseq.nbest.tuning.settings import SettingChooser
from attlm_fairseq.nbest.tuning.shrinkage import CAUTION, STRENGTHS, gain_of, is_as_good, pulled, trusted_gain
from attlm_fairseq.nbest.tuning.tuned_system import answers_of, tune_system
from attlm_fairseq.nbest.tuning.tuning import tune

WER = make_metric("wer")
RULES = ("mbr-wer", "consensus")
SCALES = np.geomspace(0.01, 1000, 60)


def plain_answers(lists, weights, decision) -> np.ndarray:
    """List by list, as rescoring does it."""
    texts = [decide(nbest, weights, decision).hypotheses[0].text for nbest in lists]
    return np.array([WER.statistics([text], nbest.references)[0] for text, nbest in zip(texts, lists, strict=True)])


@pytest.fixture(scope="module")
def lists():
    return some_lists(3, 40)


def spread_of(lists, name) -> float:
    """The standard deviation within lists, plainly."""
    columns = [[hypothesis.rank - 1.0 if name == "rank" else hypothesis.scores[name] for hypothesis in nbest.hypotheses] for nbest in lists]
    return float(np.concatenate([np.array(column) - np.mean(column) for column in columns]).std())


def best_setting(lists, rule, folds, weights_without):
    """By loops: all strengths and scales, each list answered with weights that have not seen its fold."""
    first = np.array([WER.statistics([nbest.hypotheses[0].text], nbest.references)[0] for nbest in lists])
    spreads = {"am": spread_of(lists.whole, "am"), "rank": spread_of(lists.whole, "rank")}
    tried = []
    for strength in STRENGTHS if rule == "max" else (0.0, *STRENGTHS):
        of_steps = []
        for step in (0.0,) if rule == "max" else STEPS:
            answers = first.copy()
            for fold in sorted(set(folds)):
                weights = pulled(weights_without(fold), strength, spreads)
                decision = decision_at(lists.whole, rule, step, weights)
                for i in np.flatnonzero(folds == fold):
                    answers[i] = plain_answers([lists[i]], weights, decision)[0]
            without, error = jackknife(answers, first, len(set(folds)))
            of_steps.append((round(without.min() - CAUTION * error, 9), step, answers))
        gain, step, answers = max(of_steps, key=lambda of_step: of_step[:2])
        tried.append((gain, (strength, step, gain > 0), answers))
    most, best, of_best = max(tried, key=lambda of_strength: of_strength[:2])
    if most <= 0:
        return best
    as_good = []
    for gain, setting, answers in tried:
        loss = corpus_score(WER, answers) - corpus_score(WER, of_best)
        if gain > 0 and loss <= jackknife(answers, of_best, len(set(folds)))[1] + 1e-12:
            as_good.append(setting)
    return max(as_good)


def jackknife(answers, others, folds):
    """By deletion: the gains without each list, and the standard error of the gain."""
    rates = [[WER.score(np.delete(system, i, 0).sum(0)) for i in range(len(answers))] for system in (others, answers)]
    without = np.array(rates[0]) - np.array(rates[1])
    return without, np.sqrt((len(answers) - 1) * without.var()) * cross_validation_factor(folds)


def decision_at(lists, rule, step, weights) -> Decision:
    of_rule = weights if rule == "max" else posterior_weights(weights)
    totals = [
        np.array([sum(of_rule.get(name, 0.0) * value for name, value in features_of(h).items()) for h in n.hypotheses]) for n in lists
    ]
    return Decision(rule, scale_in_units(step, standard_deviation(totals)))


def features_of(hypothesis) -> dict[str, float]:
    return {**hypothesis.scores, "rank": hypothesis.rank - 1.0}


class SomeOf(list):
    """Some of the lists; ``whole`` are all of them."""

    def __init__(self, lists, whole) -> None:
        super().__init__(lists)
        self.whole = whole


@pytest.mark.parametrize("rule", ["max", "mbr-wer"])
def test_settings_are_chosen_without_the_lists_that_they_answer(rule):
    """Three folds, all by loops: strength and scale for fold k from the other two, with weights tuned on one of these each."""
    lists, options = some_lists(9, 15), SearchOptions(restarts=0)
    measured = measure_lists(lists, WER)
    names = ["am", "rank"]
    found = tune_system(measured, WER, names=names, rules=[] if rule == "max" else [rule], folds=3, options=options)
    fold_of = np.arange(15) % 3
    columns = [measured.names.index(name) for name in names]

    def tuned_without(*left_out):
        kept = [i for i in range(15) if fold_of[i] not in left_out]
        matrices = [measured.features[i][:, columns] for i in kept]
        return tune(matrices, [measured.statistics[i] for i in kept], WER, names=names, options=options).weights

    label = "tuned" if rule == "max" else rule
    systems = dict(found.systems)
    for fold in range(3):
        rest, held_out = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        others = SomeOf([lists[i] for i in rest], lists)
        strength, step, trusted = best_setting(others, rule, fold_of[rest], lambda other, fold=fold: tuned_without(fold, other))
        expected = measured.first[held_out]
        if trusted:
            weights = pulled(tuned_without(fold), strength, {name: spread_of(lists, name) for name in names})
            expected = plain_answers([lists[i] for i in held_out], weights, decision_at(lists, rule, step, weights))
        assert (systems[f"{label}, 3-fold"][held_out] == expected).all()
    strength, step, trusted = best_setting(SomeOf(lists, lists), rule, fold_of, tuned_without)
    weights = pulled(tuned_without(), strength, {name: spread_of(lists, name) for name in names})
    assert (systems[label] == plain_answers(lists, weights, decision_at(lists, rule, step, weights))).all()
    if found.setting.rule == rule:
        assert (found.setting.strength, found.setting.step, found.setting.trusted) == (strength, step, trusted)


def test_every_row_by_its_definition(lists):
    measured = measure_lists(lists, WER)
    found = tune_system(measured, WER, names=measured.names, lm_names=["am"], rules=RULES, folds=4, options=SearchOptions(restarts=1))
    systems = dict(found.systems)
    labels = [label for name in ("tuned", *RULES) for label in (name, f"{name}, 4-fold")]
    best = f"best of {1 + len(RULES)} rules, 4-fold"
    assert list(systems) == ["input 1-best", *labels, best, "am alone", "oracle"]
    assert found.label == best
    of_fold = assign_folds(measured.utterances(WER), 4)
    for fold in range(4):  # the answers of one rule, or the input order
        rows = [systems[label][of_fold == fold] for label in (*labels[1::2], "input 1-best")]
        assert any((row == systems[best][of_fold == fold]).all() for row in rows)
    assert (systems["am alone"] == plain_answers(lists, {"am": 1.0}, Decision())).all()
    scores = {label: corpus_score(WER, statistics) for label, statistics in systems.items()}
    assert scores["oracle"] <= scores["tuned"]
    assert found.result.score == corpus_score(WER, plain_answers(lists, found.result.weights, Decision()))
    # what is written gives what the row says, if all lists choose by it
    assert found.gain == paired_test(systems[found.label], measured.first, WER, seed=1, folds=4)
    written = plain_answers(lists, found.weights, found.decision)
    assert (written == systems["tuned" if found.setting.rule == "max" else found.setting.rule]).all()


def test_the_rule_is_chosen_without_the_lists_that_it_answers():
    """Other references of a fold's lists change neither the rule that answers them nor its settings."""
    options, held_out = SearchOptions(restarts=0), np.arange(15) % 3 == 0
    chosen = []
    for changed in (False, True):
        lists = some_lists(9, 15)
        if changed:
            lists = [replace(nbest, references=(f"other words {i}",)) if held_out[i] else nbest for i, nbest in enumerate(lists)]
        chooser = SettingChooser(measure_lists(lists, WER), WER, ["am", "rank"], folds=3, options=options)
        chosen.append(chooser.best_of(("max", *RULES), frozenset({0})))
        assert (chooser.tuner.fold_of == np.arange(15) % 3).all()
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize("seed", range(4))
def test_scales_of_all_rules_are_for_the_weights_that_are_written(seed):
    """Also where another rule would have chosen another strength, whose totals are spread in another way."""
    made = measure_lists(some_lists(seed, 30), WER)
    system = tune_system(made, WER, names=["am", "rank"], rules=RULES, folds=3)
    of_rules = posterior_weights(system.result.weights)
    totals = [
        np.array([sum(of_rules.get(name, 0.0) * value for name, value in features_of(h).items()) for h in nbest.hypotheses])
        for nbest in made.lists
    ]
    allowed = [scale_in_units(step, standard_deviation(totals)) for step in STEPS]
    for rule in RULES:
        assert np.isclose(system.decision.scale_of(rule), allowed, rtol=1e-6).any(), (rule, system.setting)


def test_a_strength_can_be_given(lists):
    measured = measure_lists(lists, WER)
    plain = tune([m[:, :3] for m in measured.features], measured.statistics, WER, names=measured.names, options=SearchOptions(restarts=1))
    full = tune_system(measured, WER, names=measured.names, folds=4, strength=1.0, options=SearchOptions(restarts=1))
    assert full.weights == full.result.weights == plain.weights
    assert full.setting.trusted
    half = tune_system(measured, WER, names=measured.names, folds=4, strength=0.5, options=SearchOptions(restarts=1))
    assert {name for name in half.weights if half.weights[name] != full.weights[name]} == {"rank"}
    assert half.weights["rank"] < full.weights["rank"]
    nothing = tune_system(measured, WER, names=measured.names, folds=4, strength=0.0, options=SearchOptions(restarts=1))
    assert set(nothing.weights.values()) == {0.0}
    assert (dict(nothing.systems)["tuned, 4-fold"] == measured.first).all()
    unvalidated = tune_system(measured, WER, names=measured.names, folds=0, options=SearchOptions(restarts=1))
    assert unvalidated.weights == full.weights
    assert unvalidated.gain is None


def test_half_the_strength_is_the_mean_of_the_directions():
    weights, spreads = {"am": 3.0, "rank": -0.5}, {"am": 0.5, "rank": 2.0}
    standardised = {name: value * spreads[name] for name, value in pulled(weights, 0.5, spreads).items()}
    unit = np.array([1.5, -1.0]) / np.hypot(1.5, 1.0)
    middle = unit + np.array([0.0, -1.0])
    assert standardised["am"] / standardised["rank"] == pytest.approx(middle[0] / middle[1], rel=1e-5)
    assert pulled(weights, 1.0, spreads) == weights
    assert pulled(weights, 0.0, spreads) == pulled({"am": 0.0, "rank": 0.0}, 0.5, spreads) == {"am": 0.0, "rank": 0.0}


@pytest.mark.parametrize("fixed", [{"intervals": {"rank": (-1.0, 1.0)}}, {}])
def test_without_a_free_rank_there_is_nothing_between(lists, fixed):
    measured = measure_lists(lists, WER)
    names = measured.names if fixed else [name for name in measured.names if name != "rank"]
    assert tune_system(measured, WER, names=names, options=SearchOptions(restarts=0, **fixed)).setting.strength == 1.0


def test_one_list_is_not_enough_to_trust_a_gain():
    first = np.array([[2.0, 10.0]] * 30)
    for changed, trusted in ((0, False), (1, False), (8, True)):
        answers = first.copy()
        answers[:changed, 0] = 0.0
        assert (trusted_gain(answers, first, WER, 5) > 0) is trusted
        assert trusted_gain(first, answers, WER, 5) <= 0


def test_more_bleu_is_a_gain_and_less_is_not_as_good():
    bleu, reference = make_metric("bleu"), "a b c d e f g h"
    worse, better = (np.repeat(bleu.statistics([text], [reference]), 30, axis=0) for text in ("a b c d e x x x", reference))
    gain = corpus_score(bleu, better) - corpus_score(bleu, worse)
    assert gain_of(better, worse, bleu) == trusted_gain(better, worse, bleu, 5) == pytest.approx(gain)
    assert gain_of(worse, better, bleu) == trusted_gain(worse, better, bleu, 5) == pytest.approx(-gain)
    assert is_as_good(better, worse, bleu, 5)
    assert not is_as_good(worse, better, bleu, 5)


def test_an_lm_that_helps_is_trusted_and_noise_is_not():
    """The first hypotheses are the best, or as good as any; the LM counts errors, with noise, or is nothing but noise."""
    generator = np.random.default_rng(2)

    def errors(hypothesis) -> int:
        return hypothesis.text.split().count("x")

    for helps in (True, False):
        lists = []
        for nbest in noise(3, 80, 1):
            order = nbest.hypotheses if helps else sorted(nbest.hypotheses, key=errors)
            values = [float(generator.normal() - helps * errors(hypothesis)) for hypothesis in order]
            hypotheses = [replace(h, scores={"lm": value}, rank=rank) for rank, (h, value) in enumerate(zip(order, values, strict=True), 1)]
            lists.append(replace(nbest, hypotheses=hypotheses))
        found = tune_system(measure_lists(lists, WER), WER, names=["lm", "rank"], options=SearchOptions(restarts=1))
        assert found.setting.trusted is helps
        assert not helps or found.gain.difference.score < 0


def noise(seed: int, lists: int, times: int) -> list[NbestList]:
    """Lists whose scores say nothing about the errors, all of them so many times, under other ids."""
    generator, found = np.random.default_rng(seed), []
    for number in range(lists):
        words = [f"{letter}{number}" for letter in "abcdefgh"]
        texts = [" ".join(np.where(generator.random(8) < 0.15, "x", words)) for _ in range(5)]
        scores = [dict(zip(("s", "t", "u"), map(float, generator.normal(size=3)), strict=True)) for _ in texts]
        hypotheses = [Hypothesis(text, rank=rank, scores=values) for rank, (text, values) in enumerate(zip(texts, scores, strict=True))]
        found.append(NbestList(str(number), hypotheses, references=(" ".join(words),)))
    return [replace(nbest, id=f"{nbest.id}-{time}") for time in range(times) for nbest in found]


@pytest.mark.parametrize(("gains", "trusted"), [(1, False), (8, True)])
def test_a_setting_that_gains_in_a_single_list_is_not_trusted(gains, trusted):
    lists = []
    for number in range(30):
        texts = (f"a b{number}", f"x b{number}") if number >= gains else (f"x b{number}", f"a b{number}")
        hypotheses = [Hypothesis(text, {"s": float(text.startswith("a"))}, rank) for rank, text in enumerate(texts, 1)]
        lists.append(NbestList(str(number), hypotheses, references=(f"a b{number}",)))
    options = SearchOptions(restarts=0, intervals={"s": (1.0, 1.0)})
    chooser = SettingChooser(measure_lists(lists, WER), WER, ["s"], folds=5, options=options)
    assert chooser.best("max").trusted is trusted


def test_repeated_lists_are_no_evidence():
    """What holds of an utterance holds of its copies: with them in the other folds noise would be a gain, and twice as certain."""
    measured = measure_lists(noise(0, 51, 2), WER)
    found = tune_system(measured, WER, names=["s", "t", "u", "rank"], options=SearchOptions(restarts=0))
    assert found.utterances.tolist() == [*range(51)] * 2
    assert found.gain.p_value > 0.05
    once = tune_system(measure_lists(noise(0, 51, 1), WER), WER, names=["s", "t", "u", "rank"], options=SearchOptions(restarts=0))
    assert found.gain.p_value == pytest.approx(once.gain.p_value, abs=0.1)  # the same folds, up to the directions that are tried
    one = tune_system(
        measure_lists(noise(0, 1, 3), WER), WER, names=["s", "rank"], options=SearchOptions(restarts=0)
    )  # as with a single list
    assert one.gain is None
    assert one.folds == {}


def test_utterances_have_equal_references_or_hypotheses():
    lists = noise(1, 6, 1)
    first = lists[0]
    lists[2] = replace(lists[2], references=(first.references[0].upper() + " ",))
    lists[3] = replace(lists[3], hypotheses=[replace(h, rank=4 - h.rank) for h in first.hypotheses[::-1]])
    lists[5] = replace(lists[5], references=lists[3].references)
    assert measure_lists(lists, WER).utterances(WER).tolist() == [0, 1, 0, 0, 2, 0]


def test_systems_tuned_on_the_lists_get_no_p_value(lists):
    measured = measure_lists(lists, WER)
    found = tune_system(measured, WER, names=measured.names, lm_names=["am"], rules=RULES, folds=4, options=SearchOptions(restarts=1))
    rows = {row.label: row for row in compare(found.systems, WER, in_sample=found.in_sample, folds=found.folds)}
    assert {label for label, row in rows.items() if row.in_sample} == {"tuned", *RULES}
    cross_validated = [f"{name}, 4-fold" for name in ("tuned", *RULES, f"best of {1 + len(RULES)} rules")]
    assert {label: row.folds for label, row in rows.items() if row.folds} == dict.fromkeys(cross_validated, 4)
    for label, row in rows.items():
        if label in ("input 1-best", "oracle"):
            assert row.comparison is None
        else:
            assert (row.comparison.p_value is None) is row.in_sample
            expected = paired_test(dict(found.systems)[label], measured.first, WER, folds=row.folds)
            assert row.comparison.difference == expected.difference
            assert row.in_sample or row.comparison == expected


@pytest.mark.parametrize("rule", RULES)
def test_lists_that_weights_of_0_leave_as_read_are_answered_alike_everywhere(lists, rule):
    """By tuning, though it was not given the rank, by evaluation and by rescoring."""
    measured = measure_lists(lists, WER)
    nothing = tune_system(measured, WER, names=["words"], rules=[rule], folds=0, options=SearchOptions(intervals={"words": (0.0, 0.0)}))
    assert nothing.result.weights == {"words": 0.0}
    of_rule = plain_answers(lists, {"words": 0.0}, Decision(rule))
    assert (of_rule == measured.first).all()
    assert (np.array([row for _, row in answers_of(measured, WER, {"words": 0.0}, Decision(rule))]) == of_rule).all()
    assert any((dict(nothing.systems)[rule] == plain_answers(lists, {"rank": -1.0}, Decision(rule, scale))).all() for scale in SCALES)


def test_answers_use_the_decisions_tokenizer():
    """Without spaces a text is one word, so that BLEU between two texts says nothing: the answer would be the first."""
    texts = ["\u6211\u4f1a\u53bb\u4ed6\u4eec", "\u4ed6\u4f1a\u53bb\u4e0a\u73ed\u4e86", "\u4ed6\u4f1a\u53bb\u4e0a\u73ed\u5417"]
    nbest = NbestList("0", [Hypothesis(text, rank=i) for i, text in enumerate(texts, 1)], (texts[1],))
    measured = measure_lists([nbest], WER)
    for tokenize, answer in (("none", texts[0]), ("zh", texts[1])):
        decision = Decision("mbr-bleu", 0.0, tokenize=tokenize)
        assert decide(nbest, {"rank": -1.0}, decision).hypotheses[0].text == answer
        assert answers_of(measured, WER, {"rank": -1.0}, decision)[0][0] == answer


def test_answers_name_unknown_weights(lists):
    with pytest.raises(InputError, match="weight for 'x', which is not a feature"):
        answers_of(measure_lists(lists, WER), WER, {"x": 1.0}, Decision("mbr-wer"))


def test_comparison_is_with_the_first(lists):
    measured = measure_lists(lists, WER)
    last = np.array([statistics[-1] for statistics in measured.statistics])
    rows = compare([("first", measured.first), ("last", last), ("oracle", last)], WER, seed=3)
    assert [row.comparison is None for row in rows] == [True, False, True]
    assert rows[1].comparison == paired_test(last, measured.first, WER, seed=3)
    assert rows[1].interval.score == corpus_score(WER, last)
    assert rows[1].interval == confidence_interval(last, WER, seed=3)
