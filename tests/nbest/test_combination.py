from __future__ import annotations

import copy
import random

import numpy as np
import pytest

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.features.combination import combine, feature_names, features, log_linear
from attlm_fairseq.nbest.formats import open_nbest
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.statistics.evaluation import measure_lists


def make_list(*hypotheses: tuple[str, dict[str, float], dict[str, float]]) -> NbestList:
    return NbestList(
        "utt7",
        [Hypothesis(text, dict(scores), rank, dict(lm)) for rank, (text, scores, lm) in enumerate(hypotheses, start=1)],
    )


@pytest.fixture
def nbest():
    return make_list(
        ("a b  c", {"am": -1.5, "extra": 2.0}, {"lm": -10.0}),
        ("", {"am": -1.0}, {"lm": -3.0}),
        (" a b ", {"am": -4.0}, {"lm": -1.0}),
    )


def test_features_are_scores_lm_scores_words_and_rank(nbest):
    assert feature_names(nbest) == ["am", "lm", "words", "rank"]  # "extra" is not a score of every hypothesis
    matrix = features(nbest, ["rank", "am", "words", "lm"])
    assert matrix.dtype == np.float64
    assert matrix.tolist() == [[0, -1.5, 3, -10], [1, -1, 0, -3], [2, -4, 2, -1]]


def test_missing_score_names_list_hypothesis_and_known_scores(nbest):
    with pytest.raises(
        InputError,
        match=r"^list 'utt7', hypothesis 2 has no score 'extra'; its scores: am, lm; `attlm rescore --keep",
    ):
        features(nbest, ["am", "extra"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_score_that_is_not_finite(nbest, value):
    nbest.hypotheses[2].lm_scores["lm"] = value
    with pytest.raises(InputError, match=r"list 'utt7', hypothesis 3: score 'lm' is -?(nan|inf)"):
        features(nbest, ["lm"])


def test_precedence_of_equal_names():
    """An own score that is called like a computed one must not change what that one's weight means."""
    nbest = make_list(("a b", {"lm": -1.0, "words": 7.0, "rank": 5.0}, {"lm": -2.0}))
    assert features(nbest, ["lm", "words", "rank"]).tolist() == [[-2.0, 2.0, 0.0]]


@pytest.mark.parametrize("value", [1e200, -1e41])
def test_score_that_no_score_can_be(nbest, value):
    nbest.path, nbest.line = "FILE", 7
    nbest.hypotheses[1].scores["am"] = value
    with pytest.raises(
        InputError, match=r"^FILE:7: list 'utt7', hypothesis 2: score 'am' is .*, expected a number from -1e\+40 to 1e\+40$"
    ):
        features(nbest, ["am"])


def test_totals_that_are_no_numbers(nbest):
    nbest.hypotheses[1].scores["am"] = -float(np.finfo(np.float32).max)  # some programs' logarithm of 0
    assert combine(nbest, {"am": 1.0}).hypotheses[-1].rank == 2
    for weights in ({"am": 1e300}, {"am": 1e308, "rank": 1e308}):
        with pytest.raises(InputError, match=r"list 'utt7': the weighted sum of the scores is beyond 1e\+80: give smaller weights"):
            combine(nbest, weights)


def test_combine_sorts_by_total_and_leaves_the_input_alone(nbest):
    before = copy.deepcopy(nbest)
    combined = combine(nbest, {"lm": 0.5, "am": 1.0})
    assert nbest == before
    assert [hypothesis.rank for hypothesis in combined.hypotheses] == [2, 3, 1]
    assert [hypothesis.total for hypothesis in combined.hypotheses] == [-2.5, -4.5, -6.5]
    assert [hypothesis.text for hypothesis in combined.hypotheses] == ["", " a b ", "a b  c"]
    assert combined.id == "utt7"


def test_ties_keep_the_rank_as_read():
    nbest = make_list(*[(f"h{i}", {"am": float(i % 2)}, {}) for i in range(6)])
    nbest.hypotheses.reverse()  # a list that has been reordered before
    assert [hypothesis.rank for hypothesis in combine(nbest, {"am": 2.0}).hypotheses] == [2, 4, 6, 1, 3, 5]
    assert [hypothesis.rank for hypothesis in combine(nbest, {}).hypotheses] == [1, 2, 3, 4, 5, 6]
    assert [hypothesis.rank for hypothesis in combine(nbest, {"am": 0.0}).hypotheses] == [1, 2, 3, 4, 5, 6]


def test_totals_do_not_depend_on_the_order_of_weights_or_on_the_other_hypotheses():
    generator = random.Random(5)
    names = [f"f{i}" for i in range(12)]
    weights = {name: generator.uniform(-3, 3) for name in names}
    hypotheses = [({name: generator.gauss(0, 100) for name in names}) for _ in range(50)]
    nbest = make_list(*[(f"h{i}", scores, {}) for i, scores in enumerate(hypotheses)])
    totals = {hypothesis.text: hypothesis.total for hypothesis in combine(nbest, weights).hypotheses}
    for _ in range(5):
        generator.shuffle(names)
        assert {h.text: h.total for h in combine(nbest, {name: weights[name] for name in names}).hypotheses} == totals
    for i, scores in enumerate(hypotheses):
        assert combine(make_list((f"h{i}", scores, {})), weights).hypotheses[0].total == totals[f"h{i}"]


def test_unknown_weight_lists_the_features(nbest):
    with pytest.raises(
        InputError,
        match=r"^weight for 'LM', which is not a feature of list 'utt7'; its features are am, extra, lm, words, rank; "
        r"a score of the lists needs the name that it had when the weights were tuned; else give the LM or the --corrections of then$",
    ):
        combine(nbest, {"am": 1.0, "LM": 0.3})


def test_weight_for_a_score_that_some_hypotheses_lack(nbest):
    with pytest.raises(InputError, match="hypothesis 2 has no score 'extra'"):
        combine(nbest, {"extra": 1.0})


def test_a_weight_of_zero_needs_no_feature(nbest):
    """As ``attlm tune`` writes them for lists whose features another list lacks: "extra" is not a score of every hypothesis here."""
    expected = combine(nbest, {"am": 1.0})
    assert combine(nbest, {"am": 1.0, "gone": 0.0, "extra": 0.0}) == expected
    assert [hypothesis.rank for hypothesis in combine(nbest, {"gone": 0.0}).hypotheses] == [1, 2, 3]


@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_weights_must_be_finite(nbest, weight):
    with pytest.raises(InputError, match=r"weight of 'am' is (nan|inf), expected a finite number"):
        combine(nbest, {"am": weight})


def test_log_linear_is_the_weighted_sum():
    generator = np.random.default_rng(3)
    matrix, weights = generator.normal(size=(40, 6)), np.array([0.3, 0.0, -2.1, 3.7, 1.0, 0.0])
    np.testing.assert_allclose(log_linear(matrix.T, weights), matrix @ weights, rtol=1e-12)


def test_in_a_sparse_list_a_missing_score_is_zero(nbest):
    nbest.sparse = True
    assert feature_names(nbest) == ["am", "extra", "lm", "words", "rank"]
    assert features(nbest, ["extra", "lm", "elsewhere"]).tolist() == [[2, -10, 0], [0, -3, 0], [0, -1, 0]]
    assert [hypothesis.rank for hypothesis in combine(nbest, {"extra": -1.0, "elsewhere": 3.0}).hypotheses] == [2, 3, 1]


def test_lists_of_a_file_are_measured_with_all_their_sparse_scores():
    lists = [make_list(("a", {"x": 1.0}, {}), ("b", {}, {})), make_list(("a", {"y": 2.0}, {}), ("b", {}, {}))]
    for nbest in lists:
        nbest.references = ("a",)
    assert measure_lists(lists, make_metric("wer")).left_out == ["x", "y"]
    for nbest in lists:
        nbest.sparse = True
    measured = measure_lists(lists, make_metric("wer"))
    assert (measured.names, measured.left_out) == (["x", "words", "rank", "y"], [])
    lists[1].sparse = False  # of which a score that is missing is unknown, not 0
    mixed = measure_lists(lists, make_metric("wer"))
    assert (mixed.names, mixed.left_out) == (["words", "rank"], ["x", "y"])
    assert [matrix[:, [0, 3]].tolist() for matrix in measured.features] == [[[1, 0], [0, 0]], [[0, 2], [0, 0]]]


def test_moses_lists_are_sparse_unless_their_scores_have_no_names(tmp_path):
    path = tmp_path / "nbest"
    path.write_text("0 ||| a b ||| LM0= -1 pp_x= 1 ||| -1\n0 ||| a ||| LM0= -2 ||| -2\n1 ||| c ||| LM0= -2 ||| -2\n")
    lists = list(open_nbest(str(path))[1])
    assert [nbest.sparse for nbest in lists] == [True, True]
    assert features(lists[0], ["pp_x"]).tolist() == [[1], [0]]
    assert combine(lists[1], {"pp_x": 1.0, "LM0": 1.0}).hypotheses[0].total == -2
    path.write_text("0 ||| a b ||| -1 -2 ||| -1\n0 ||| a ||| -1 -3 ||| -2\n")
    assert [nbest.sparse for nbest in open_nbest(str(path))[1]] == [False]
