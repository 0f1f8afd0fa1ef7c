"""What is usual for a feature, and that one logarithm of 0 does not change what tuning finds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cli_runs import LISTS, run
from tuning_lists import WER, wer_lists

from attlm_fairseq.nbest.decision.decision import scale_in_units
from attlm_fairseq.nbest.features.within_lists import are_outliers, outliers, standard_deviation
from attlm_fairseq.nbest.tuning.search_options import SearchOptions
from attlm_fairseq.nbest.tuning.tuning import tune


def test_the_spread_of_usual_lists_is_the_standard_deviation_within_lists():
    generator = np.random.default_rng(1)
    columns = [generator.normal(size=size) * scale for size, scale in ((5, 1.0), (9, 30.0), (2, 0.1), (7, 900.0), (4, 0.0))]
    within = np.concatenate([values - values.mean() for values in columns])
    assert standard_deviation(columns) == pytest.approx(math.sqrt(np.square(within).mean()))
    assert outliers(columns) == []
    assert standard_deviation([np.ones(3)]) == 0
    assert outliers([np.ones(3)]) == []


def test_equal_values_have_no_deviation_though_their_mean_is_rounded():
    """A score that tells hypotheses apart in one list of five, and is a constant in the others."""
    generator = np.random.default_rng(3)
    differing = [generator.normal(size=10) for _ in range(10)]
    constant = [np.full(10, value) for value in generator.normal(size=40) * 30]
    assert any(values.mean() != values[0] for values in constant)
    columns = [*differing, *constant]
    within = np.concatenate([values - values.mean() for values in differing] + [np.zeros(400)])
    assert standard_deviation(columns) == pytest.approx(math.sqrt(np.square(within).mean()))
    assert outliers(columns) == []
    statistics = [np.stack([values - values.min(), np.ones(10)], axis=1) for values in columns]
    zeros = [np.zeros(10) if values.min() == values.max() else values for values in columns]
    found, expected = (tune([values[:, None] for values in given], statistics, WER, names=["a"]) for given in (columns, zeros))
    assert found.weights == pytest.approx(expected.weights)


def test_an_outlying_list_does_not_count():
    columns = [np.array([0.0, 1.0, 2.0]) * scale for scale in range(1, 11)]
    usual = standard_deviation(columns)
    outlier = np.array([-5.0, -1e10, -6.0, -7.0])
    assert standard_deviation([*columns, outlier]) == usual
    [(place, row, times)] = outliers([*columns, outlier])
    assert (place, row) == (10, 1)
    assert times == pytest.approx((1e10 - 5) / usual)
    assert are_outliers(np.array([1.0, 1e5, 1e7])).tolist() == [False, False, False]  # 1e7 is not beyond comparison with 1e5
    assert are_outliers(np.array([1.0, 1.0, 1e7])).tolist() == [False, False, True]


@pytest.mark.parametrize("objective", ["metric", "risk"])
def test_one_logarithm_of_zero_does_not_change_what_is_found(objective):
    matrices, statistics = wer_lists(1, 60, 3, sizes=(3, 9))
    usual = tune(matrices, statistics, WER, names=list("abc"), options=SearchOptions(objective))
    worst = max(range(60), key=lambda i: len(matrices[i]))
    row = int(statistics[worst][:, 0].argmax())
    matrices = [matrix.copy() for matrix in matrices]
    matrices[worst][row, 0] = -1e10
    found = tune(matrices, statistics, WER, names=list("abc"), options=SearchOptions(objective))
    assert found.score == pytest.approx(usual.score, abs=0.3)
    assert found.influence == pytest.approx(usual.influence, abs=0.1)
    assert found.weights["a"] == pytest.approx(usual.weights["a"], rel=0.3)


@pytest.mark.parametrize("objective", ["metric", "risk"])
def test_how_low_a_mark_for_the_logarithm_of_zero_is_does_not_matter(objective):
    """In two fifths of the lists the worst hypothesis has it."""
    matrices, statistics = wer_lists(3, 60, 3, sizes=(4, 9))
    found = []
    for mark in (-1e7, -1e10, -3.4e38):
        marked = [matrix.copy() for matrix in matrices]
        for place, (matrix, of_list) in enumerate(zip(marked, statistics, strict=True)):
            if place % 5 < 2:
                matrix[of_list[:, 0].argmax(), 0] = mark
        found.append(tune(marked, statistics, WER, names=list("abc"), options=SearchOptions(objective)))
    assert all(one.weights == found[0].weights for one in found)
    assert found[0].score < tune([matrix[:, 1:] for matrix in matrices], statistics, WER, names=list("bc")).score


def test_one_logarithm_of_zero_does_not_change_the_unit_of_scales():
    matrices, _ = wer_lists(2, 30, 1, sizes=(4, 4))
    totals = [matrix[:, 0] for matrix in matrices]
    usual = scale_in_units(2.0, standard_deviation(totals))
    totals[7] = np.array([-1.0, -1e10, -2.0, -3.0])
    assert scale_in_units(2.0, standard_deviation(totals)) == pytest.approx(usual, rel=0.1)
    assert scale_in_units(2.0, 0.0) == scale_in_units(0.0, 3.0) == 1.0


def test_the_user_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lists = [LISTS.splitlines()[0].replace("u1", f"u{number}") for number in range(12)]
    lists[4] = lists[4].replace('"am": -2', '"am": -1e10')
    (tmp_path / "lists").write_text("\n".join(lists) + "\n")
    result = run("tune", "lists", "--folds", "0", "--restarts", "0")
    assert "WARNING: list 'u4': am is -1e+10, and its range 2e+10 times the spread of the other lists: " in result.stderr
    assert result.stderr.count("WARNING: list") == 1
