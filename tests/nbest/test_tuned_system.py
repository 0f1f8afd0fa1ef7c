"""What tuning reports and writes: every row against its definition, cross-validation of the rules included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from decision_lists import some_lists

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.decision.decision import Decision, decide, posterior_weights
from attlm_fairseq.nbest.metrics import corpus_score, make_metric
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.statistics.bootstrap import paired_test
from attlm_fairseq.nbest.statistics.evaluation import compare, measure_lists
from attlm_fairseq.nbest.tuning.tuned_system import answers_of, tune_system
from attlm_fairseq.nbest.tuning.tuning import SearchOptions, tune

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


def test_every_row_by_its_definition(lists):
    measured = measure_lists(lists, WER)
    found = tune_system(measured, WER, names=measured.names, lm_names=["am"], rules=RULES, folds=4, options=SearchOptions(restarts=1))
    systems = dict(found.systems)
    labels = [label for name in ("tuned", *RULES) for label in (name, f"{name}, 4-fold")]
    assert list(systems) == ["first as read", *labels, "am alone", "oracle"]
    assert (systems["tuned"] == plain_answers(lists, found.result.weights, Decision())).all()
    assert (systems["am alone"] == plain_answers(lists, {"am": 1.0}, Decision())).all()
    scores = {label: corpus_score(WER, statistics) for label, statistics in systems.items()}
    assert scores["tuned"] == found.result.score
    assert scores["tuned"] <= min(scores["tuned, 4-fold"], scores["first as read"])
    assert scores["oracle"] <= scores["tuned"]
    # what is written gives what the row says, if all lists choose by it
    assert found.label == min((f"{name}, 4-fold" for name in ("tuned", *RULES)), key=scores.__getitem__)
    assert found.gain == paired_test(systems[found.label], measured.first, WER, seed=1, folds=4)
    written = plain_answers(lists, found.weights, found.decision)
    assert (written == systems[found.label.removesuffix(", 4-fold")]).all()


@pytest.mark.parametrize("rule", RULES)
def test_a_fold_is_answered_without_having_been_seen(lists, rule):
    """Fold 1 of 4 by hand: weights and scale from the others."""
    measured = measure_lists(lists, WER)
    found = dict(tune_system(measured, WER, names=measured.names, rules=[rule], folds=4, options=SearchOptions(restarts=1)).systems)[
        f"{rule}, 4-fold"
    ]
    rest = [i for i in range(len(lists)) if i % 4 != 1]
    alone = measure_lists([lists[i] for i in rest], WER)
    result = tune_system(alone, WER, names=alone.names, rules=[rule], folds=0, options=SearchOptions(restarts=1))
    weights = posterior_weights(tune(alone.features, alone.statistics, WER, names=alone.names, options=SearchOptions(restarts=1)).weights)
    assert (
        result.result.weights == tune(alone.features, alone.statistics, WER, names=alone.names, options=SearchOptions(restarts=1)).weights
    )
    scales = {decision.scale for decision in (result.decision,) if decision.rule == rule}
    held_out = [lists[i] for i in range(1, len(lists), 4)]
    if not scales:  # the maximum was as good there; its scale is not told, so that any may have been it
        choices = [plain_answers(held_out, weights, Decision(rule, scale)) for scale in SCALES]
        assert any((choice == found[1::4]).all() for choice in choices)
    else:
        assert (plain_answers(held_out, weights, Decision(rule, scales.pop())) == found[1::4]).all()


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


def test_repeated_lists_are_no_evidence():
    """What holds of an utterance holds of its copies: with them in the other folds noise would be a gain, and twice as certain."""
    measured = measure_lists(noise(0, 51, 2), WER)
    found = tune_system(measured, WER, names=["s", "t", "u", "rank"], options=SearchOptions(restarts=0))
    assert found.utterances.tolist() == [*range(51)] * 2
    assert found.beats_lists(WER, 0.05) is False
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
    assert {label: row.folds for label, row in rows.items() if row.folds} == {f"{name}, 4-fold": 4 for name in ("tuned", *RULES)}
    for label, row in rows.items():
        if label in ("first as read", "oracle"):
            assert row.comparison is None
        else:
            assert (row.comparison.p_value is None) is row.in_sample
            expected = paired_test(dict(found.systems)[label], measured.first, WER, folds=row.folds)
            assert row.comparison.difference == expected.difference
            assert row.in_sample or row.comparison == expected


def test_gain_needs_a_direction_and_a_p_value(lists):
    measured = measure_lists(lists, WER)
    found = tune_system(measured, WER, names=measured.names, folds=4, options=SearchOptions(restarts=1))
    better = found.gain.difference.score < 0
    assert found.beats_lists(WER, 1.0) is better
    assert found.beats_lists(WER, 0.0) is False
    assert found.beats_lists(make_metric("bleu"), 1.0) is (found.gain.difference.score > 0)
    assert tune_system(measured, WER, names=measured.names, folds=0, options=SearchOptions(restarts=1)).beats_lists(WER, 1.0) is None


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
