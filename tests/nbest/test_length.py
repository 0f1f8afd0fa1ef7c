"""Means and sums of log-probabilities, told apart by how they go with length."""

from __future__ import annotations

import numpy as np
import pytest

from attlm_fairseq.nbest.features.length import MIN_LISTS, correlation_with_length, note_of_means
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList


def lists(count, low=3, high=30):
    generator = np.random.default_rng(2)
    found = []
    for place, words in enumerate(generator.integers(low, high, count)):
        logs = -generator.exponential(1.5, words)
        scores = {"sum": float(logs.sum()), "mean": float(logs.mean()), "bonus": float(words)}
        found.append(NbestList(str(place), [Hypothesis(" ".join(["w"] * words), scores, 1)]))
    return found


def test_a_mean_is_noticed_and_a_sum_is_not():
    given = lists(200)
    sums = np.array([[nbest.hypotheses[0].scores["sum"], len(nbest.hypotheses[0].text.split())] for nbest in given])
    assert correlation_with_length(given, "sum") == pytest.approx(np.corrcoef(-sums.T)[0, 1] * -1, abs=1e-12)
    assert correlation_with_length(given, "sum") > 0.7
    assert note_of_means(given) == []  # its sum is there
    for nbest in given:
        del nbest.hypotheses[0].scores["sum"]
    (line,) = note_of_means(given)
    assert line.startswith("note: mean does not grow with the length of a hypothesis (correlation ")
    ranks = [NbestList(one.id, [Hypothesis(one.hypotheses[0].text, {"b_rank": -place % 3 - 2.0}, 1)]) for place, one in enumerate(given)]
    assert note_of_means(ranks) == []  # whole numbers are no log-probabilities


def test_a_mean_that_falls_with_the_length_is_noticed():
    given = lists(200)
    for nbest in given:
        words = len(nbest.hypotheses[0].text.split())
        nbest.hypotheses[0].scores = {"mean": -1.0 / words - 0.01 * (words % 3)}
    assert correlation_with_length(given, "mean") < -0.5
    assert len(note_of_means(given)) == 1


def test_lists_that_lack_the_score_do_not_count():
    given = lists(200)
    for nbest in given:
        del nbest.hypotheses[0].scores["sum"]
    silent = NbestList("silent", [Hypothesis("w w w", {"bonus": 3.0}, 1)])
    assert note_of_means([silent, *given, silent]) == note_of_means(given) != []


def test_nothing_is_said_where_it_cannot_be_told():
    assert note_of_means(lists(MIN_LISTS - 1)) == []
    assert note_of_means(lists(200, 10, 11)) == []  # all of one length
