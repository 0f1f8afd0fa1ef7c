from __future__ import annotations

import gzip
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from tuning_lists import BLEU, WER, bleu_lists, wer_lists

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.features.combination import combine, feature_names, features
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.metrics.metric import corpus_score
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.tuning import corpus as corpus_module
from attlm_fairseq.nbest.tuning.corpus import Corpus
from attlm_fairseq.nbest.tuning.folds import FoldTuner, assign_folds
from attlm_fairseq.nbest.tuning.line_search import LineSearch
from attlm_fairseq.nbest.tuning.oracle import oracle
from attlm_fairseq.nbest.tuning.search_options import SearchOptions
from attlm_fairseq.nbest.tuning.tuning import selection, tune

DATA = Path(__file__).parents[3] / "shared" / "data" / "nbest"


def choose(matrices, statistics, weights) -> np.ndarray:
    """Plainly: the first of the best totals of each list."""
    rows = []
    for matrix, of_list in zip(matrices, statistics, strict=True):
        totals = [math.fsum(weight * value for weight, value in zip(weights, row, strict=True)) for row in matrix]
        rows.append(of_list[totals.index(max(totals))])
    return np.array(rows)


def crossings(matrices, point, direction) -> list[float]:
    """Every t where two hypotheses of a list have the same total, whether on the envelope or not."""
    found = set()
    for matrix in matrices:
        for x, y in itertools.combinations(matrix, 2):
            rise = direction @ (x - y)
            if rise != 0:
                found.add(-(point @ (x - y)) / rise)
    return sorted(found)


def search_over(matrices, statistics, metric) -> LineSearch:
    corpus = Corpus(matrices, statistics, range(matrices[0].shape[1]))
    return LineSearch(corpus, metric, np.array([[-math.inf], [math.inf]]).repeat(matrices[0].shape[1], axis=1))


@pytest.mark.parametrize("block", [1 << 15, 7])
@pytest.mark.parametrize("case", ["wer", "ties", "bleu"])
@pytest.mark.parametrize("seed", range(6))
def test_scores_along_a_line_against_all_crossings(seed, case, block, monkeypatch):
    monkeypatch.setattr(corpus_module, "BLOCK_HYPOTHESES", block)
    metric = BLEU if case == "bleu" else WER
    matrices, statistics = bleu_lists(seed, 8, 3) if case == "bleu" else wer_lists(seed, 8, 3, integers=case == "ties")
    search = search_over(matrices, statistics, metric)
    generator = np.random.default_rng(seed)
    if case == "ties":  # many lines meet in one point, many are parallel
        point, direction = np.array([1.0, 1.0, 0.0]) * search.scale, np.array([0.0, 1.0, -1.0]) * search.scale
    else:
        point, direction = generator.normal(size=3), generator.normal(size=3)
    thresholds, scores = search._scores_along(search._totals(point), direction)
    assert (np.diff(thresholds) >= 0).all()
    assert len(scores) == len(thresholds) + 1
    edges = np.array(crossings(matrices, search.raw(point), search.raw(direction)))
    assert len(edges) > 10
    edges = edges[np.concatenate([[True], np.diff(edges) > 1e-9])]
    middles = np.concatenate([[edges[0] - 1], (edges[1:] + edges[:-1]) / 2, [edges[-1] + 1]])
    changes = 0
    for t in middles:
        weights = search.raw(point) + t * search.raw(direction)
        if case == "ties":  # where totals tie exactly, rounding of the plain sum must not decide
            weights = np.array([1, 1 + round(t, 12), -round(t, 12)])
        expected = metric.score(choose(matrices, statistics, weights).sum(axis=0))
        found = search.sign * scores[np.searchsorted(thresholds, t)]
        changes += found != scores[0] * search.sign
        assert found == pytest.approx(expected, abs=1e-9)
    assert changes > 3


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("metric", ["wer", "bleu"])
def test_two_features_find_the_best_of_all_weights(seed, metric):
    """With two features weights are an angle: all intervals of the circle can be tried."""
    metric = make_metric(metric)
    matrices, statistics = wer_lists(seed, 12, 2) if metric.name == "WER" else bleu_lists(seed, 12, 2)
    angles = set()
    for matrix in matrices:
        for x, y in itertools.combinations(matrix, 2):
            difference = x - y
            if difference.any():
                angle = math.atan2(difference[0], -difference[1]) % math.pi  # weights at a right angle to the difference
                angles |= {angle, angle + math.pi}
    angles = sorted(angles)
    middles = [(a + b) / 2 for a, b in zip(angles, [*angles[1:], angles[0] + 2 * math.pi], strict=True) if b - a > 1e-7]
    scores = [corpus_score(metric, choose(matrices, statistics, (math.cos(a), math.sin(a)))) for a in middles]
    scores.append(corpus_score(metric, choose(matrices, statistics, (0, 0))))  # as read
    result = tune(matrices, statistics, metric, names=["x", "y"], options=SearchOptions(seed=seed))
    assert result.score == pytest.approx(max(scores) if metric.higher_is_better else min(scores), abs=1e-9)


def test_many_features_against_random_search():
    matrices, statistics = wer_lists(1, 60, 5)
    result = tune(matrices, statistics, WER, names=list("abcde"), options=SearchOptions(restarts=3))
    generator = np.random.default_rng(1)
    corpus = Corpus(matrices, statistics, range(5))
    tried = [corpus_score(WER, corpus.chosen(generator.normal(size=5))) for _ in range(20_000)]
    assert result.score <= min(tried)
    assert result.score < result.first_best_score
    assert max(result.influence, key=result.influence.get) == "a"


def make_nbest(seed: int, lists: int, integers: bool) -> list[NbestList]:
    generator = np.random.default_rng(seed)
    words = np.array(["a", "b", "c", "d", "e"])
    found = []
    for i in range(lists):
        reference = list(generator.choice(words, size=6))
        hypotheses = []
        for rank in range(1, int(generator.integers(1, 7)) + 1):
            text = [word if generator.random() < 0.7 else generator.choice(words) for word in reference if generator.random() < 0.9]
            scores = generator.integers(-4, 5, size=2) if integers else generator.normal(size=2) * [100, 0.01] + [1e5, 0]
            quality = -sum(a != b for a, b in zip(text, reference, strict=False))
            hypotheses.append(
                Hypothesis(" ".join(text), {"am": float(scores[0])}, rank, {"LM.big": float(quality + scores[1]), "always": 3.7})
            )
        found.append(NbestList(str(i), hypotheses, (" ".join(reference),)))
    return found


@pytest.mark.parametrize("integers", [True, False])
@pytest.mark.parametrize("metric", ["wer", "bleu", "chrf", "cer", "ter"])
@pytest.mark.parametrize("seed", range(3))
def test_reported_score_is_that_of_combine_with_the_weights_as_written(seed, metric, integers):
    metric = make_metric(metric)
    lists = make_nbest(seed, 25, integers)
    names = feature_names(lists[0])
    assert names == ["am", "LM.big", "always", "words", "rank"]
    matrices = [features(nbest, names) for nbest in lists]
    statistics = [metric.statistics([h.text for h in nbest.hypotheses], nbest.references) for nbest in lists]
    result = tune(matrices, statistics, metric, names=names, options=SearchOptions(restarts=2, seed=seed))
    written = json.loads(json.dumps(result.weights))
    for weights in (written, dict(reversed(written.items())), {name: weight for name, weight in written.items() if weight}):
        best = [combine(nbest, weights) for nbest in lists]
        chosen = np.array([metric.statistics([n.hypotheses[0].text], n.references)[0] for n in best])
        assert corpus_score(metric, chosen) == result.score
        assert np.array_equal(chosen, selection(matrices, statistics, weights, names=names))
    assert result.first_best_score == corpus_score(metric, np.array([of_list[0] for of_list in statistics]))
    assert (result.score - result.first_best_score) * (1 if metric.higher_is_better else -1) > 0
    assert result.weights["always"] == 0
    assert list(result.weights) == names
    assert sum(result.influence.values()) == pytest.approx(1)
    assert abs(result.weights[max(result.influence, key=result.influence.get)]) == 1


def test_deterministic_and_independent_of_the_order_of_features():
    matrices, statistics = wer_lists(2, 40, 4)
    first = tune(matrices, statistics, WER, names=list("abcd"))
    assert tune(matrices, statistics, WER, names=list("abcd")) == first
    order = [2, 0, 3, 1]
    other = tune([m[:, order] for m in matrices], statistics, WER, names=["abcd"[i] for i in order])
    assert other.weights == first.weights
    assert other.score == first.score
    assert list(other.weights) == ["c", "a", "d", "b"]


def test_scale_and_offset_of_features_do_not_matter():
    matrices, statistics = wer_lists(3, 40, 3)
    generator = np.random.default_rng(3)
    moved = [m * [1e-4, 1.0, 1e5] + generator.normal(size=3) * [1e-2, 0.0, 1e7] for m in matrices]
    first = tune(matrices, statistics, WER, names=list("abc"), options=SearchOptions(restarts=2))
    second = tune(moved, statistics, WER, names=list("abc"), options=SearchOptions(restarts=2))
    assert second.score == first.score
    assert list(second.influence.values()) == pytest.approx(list(first.influence.values()), abs=0.05)


def test_lists_as_read_stay_where_nothing_is_gained():
    matrices, statistics = wer_lists(4, 20, 3)
    best_first = [of_list[np.argsort(of_list[:, 0], kind="stable")] for of_list in statistics]
    result = tune(matrices, best_first, WER, names=list("abc"))
    assert result.weights == {"a": 0, "b": 0, "c": 0}
    assert result.score == result.first_best_score
    assert result.influence == {"a": 0, "b": 0, "c": 0}


def test_nothing_to_decide():
    single = [np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])]
    result = tune(single, [np.array([[1.0, 4.0]]), np.array([[0.0, 4.0]])], WER, names=["a", "b"])
    assert (result.weights, result.score) == ({"a": 0, "b": 0}, 12.5)
    constant = [np.array([[5.0], [5.0]]), np.array([[7.0], [7.0]])]  # constant in each list, though not over them
    result = tune(constant, [np.array([[3.0, 4.0], [0.0, 4.0]])] * 2, WER, names=["a"])
    assert (result.weights, result.score) == ({"a": 0}, 75)


def test_useless_feature_gets_no_weight():
    matrices, statistics = wer_lists(5, 4, 1, sizes=(2, 3))
    generator = np.random.default_rng(5)
    matrices = [np.concatenate([-of_list[:, :1], generator.normal(size=(len(of_list), 2))], axis=1) for of_list in statistics]
    result = tune(matrices, statistics, WER, names=["truth", "x", "y"])
    assert result.weights == {"truth": 1, "x": 0, "y": 0}
    assert result.score == corpus_score(WER, oracle(statistics, WER))


def test_weights_that_earn_nothing_are_dropped():
    _, statistics = wer_lists(5, 6, 1, sizes=(2, 3))
    generator = np.random.default_rng(5)
    matrices = [np.concatenate([-of_list[:, :1], 0.01 * generator.normal(size=(len(of_list), 2))], axis=1) for of_list in statistics]
    result = tune(matrices, statistics, WER, names=["truth", "x", "y"])
    assert result.weights == {"truth": 1, "x": 0, "y": 0}


def test_rounding_must_not_cost_anything():
    """One list wants b above 1.0001 a, another below 1.0002 a: three digits cannot say that."""
    matrices = [np.array([[1.0001, 0.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [1.0002, 0.0]])]
    statistics = [np.array([[1.0, 4.0], [0.0, 4.0]])] * 2
    result = tune(matrices, statistics, WER, names=["a", "b"])
    assert result.score == 0
    assert 1.0001 < result.weights["b"] / result.weights["a"] < 1.0002
    assert all(float(f"{weight:.6g}") == weight for weight in result.weights.values())


def threshold_list(*corners: float) -> np.ndarray:
    """Hypotheses (features a, b) of which the weights (1, t) choose the next at each corner t."""
    matrix = [[0.0, 0.0]]
    for corner in corners:
        a, b = matrix[-1]
        matrix.append([a - corner, b + 1.0])
    return np.array(matrix)


@pytest.mark.parametrize("at", [0.0, 0.3, -2.0])
def test_the_middle_of_the_widest_best_interval_is_taken(at):
    """Fewest errors for t in (0.1, 0.11), (0.5, 0.6) and (0.6, 1.5): two are one, since errors do not change, wherever one stands."""
    matrices = [threshold_list(0.1, 0.11), threshold_list(0.5, 0.6), threshold_list(1.5)]
    statistics = [np.array([[1.0, 9], [0, 9], [1, 9]]), np.array([[1.0, 9], [0, 9], [0, 9]]), np.array([[0.0, 9], [2, 9]])]
    search = search_over(matrices, statistics, WER)
    point = search.scale * [1, at] / np.linalg.norm(search.scale * [1, at])
    ratio = search.scale[1] / search.scale[0]

    def errors(t):
        return search.value(search.scale * [1, t])

    assert errors(0.3) == errors(0.05) < errors(0.105) == errors(0.55) == errors(1.4) > errors(1.6)
    moved, value = search._search(point, search.value(point), search._totals(point), np.array([0.0, 1.0]))
    assert value == errors(0.55)
    middle = (math.atan(0.5 * ratio) + math.atan(1.5 * ratio)) / 2
    assert moved[1] / moved[0] == pytest.approx(math.tan(middle))
    assert np.linalg.norm(moved) == pytest.approx(1)


def test_a_weight_can_change_its_sign_along_its_own_direction():
    search = search_over([np.array([[0.0], [1.0]])], [np.array([[0.0, 9.0], [1.0, 9.0]])], WER)
    point = np.array([1.0])
    moved, value = search._search(point, search.value(point), search._totals(point), np.array([1.0]))
    assert (moved.tolist(), value) == ([-1.0], 0)


INF = math.inf


def test_intervals_of_a_sign():
    matrices, statistics = wer_lists(6, 60, 3)
    matrices = [m * [-1.0, 1.0, 1.0] for m in matrices]
    free = tune(matrices, statistics, WER, names=list("abc"), options=SearchOptions(restarts=4))
    assert free.weights["a"] < 0
    bounds = {"a": (0.0, INF), "b": (-INF, 0.0)}
    bound = tune(matrices, statistics, WER, names=list("abc"), options=SearchOptions(restarts=4, intervals=bounds))
    assert bound.weights["a"] >= 0
    assert bound.weights["b"] <= 0
    assert free.score < bound.score <= bound.first_best_score
    same = tune(matrices, statistics, WER, names=list("abc"), options=SearchOptions(restarts=4, intervals={"a": (-INF, 0)}))
    assert same.score == free.score


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("interval", [(0.5, 0.8), (-2.0, -0.3), (-0.2, 0.3), (1.0, INF)])
def test_interval_beside_a_fixed_weight_finds_the_best_of_all_weights(seed, interval):
    """With one weight fixed there is one line: all intervals between crossings can be tried."""
    matrices, statistics = wer_lists(seed, 25, 2)
    edges = [t for t in crossings(matrices, np.array([1.0, 0.0]), np.array([0.0, 1.0])) if interval[0] < t < interval[1]]
    edges = [interval[0], *edges, interval[1] if interval[1] < INF else max(edges, default=interval[0]) + 1]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(edges) if b - a > 1e-7]
    best = min(corpus_score(WER, choose(matrices, statistics, (1, t))) for t in middles)
    result = tune(matrices, statistics, WER, names=["x", "y"], options=SearchOptions(intervals={"x": (1, 1), "y": interval}, restarts=2))
    assert result.weights["x"] == 1
    assert interval[0] <= result.weights["y"] <= interval[1]
    assert result.score == pytest.approx(best, abs=1e-9)


def test_intervals_bind():
    matrices, statistics = wer_lists(3, 60, 4)
    names = list("abcd")
    free = tune(matrices, statistics, WER, names=names, options=SearchOptions(restarts=3))
    inside = {name: (weight - 0.2, weight + 0.2) for name, weight in free.weights.items()}
    assert tune(matrices, statistics, WER, names=names, options=SearchOptions(restarts=3, intervals=inside)).score == pytest.approx(
        free.score, abs=0.3
    )
    away = {"a": (-3.0, -2.5), "b": (0.1, 0.2), "c": (1, 1)}
    result = tune(matrices, statistics, WER, names=names, options=SearchOptions(restarts=3, intervals=away))
    assert all(low <= result.weights[name] <= high for name, (low, high) in away.items())
    assert result.score > free.score
    # all fixed: nothing to search
    fixed = tune(matrices, statistics, WER, names=names, options=SearchOptions(intervals=dict.fromkeys(names, (2.0, 2.0))))
    assert fixed.weights == dict.fromkeys(names, 2.0)
    assert fixed.score == corpus_score(WER, choose(matrices, statistics, [2.0] * 4))
    assert fixed.searches == 0


def test_a_feature_that_never_varies_keeps_to_its_interval():
    matrices, statistics = wer_lists(3, 10, 2)
    matrices = [np.concatenate([m, np.ones((len(m), 1))], axis=1) for m in matrices]
    result = tune(matrices, statistics, WER, names=["a", "b", "c"], options=SearchOptions(restarts=2, intervals={"c": (0.25, 2)}))
    assert result.weights["c"] == 0.25


def test_lines_between_the_best_end_points_help():
    """Over many problems without restarts to spare, never worse and somewhere better."""
    with_them, without = [], []
    for seed in range(12):
        matrices, statistics = wer_lists(seed, 40, 6)
        for scores, leaders in ((with_them, 5), (without, 1)):
            found = tune(
                matrices, statistics, WER, names=list("abcdef"), options=SearchOptions(restarts=3, random_directions=0, leaders=leaders)
            )
            scores.append(found.score)
    assert all(a <= b + 1e-9 for a, b in zip(with_them, without, strict=True))
    assert sum(with_them) < sum(without)


@pytest.mark.parametrize("seed", range(3))
def test_the_best_end_point_is_kept(seed, monkeypatch):
    ends, climb = [], LineSearch.climb
    monkeypatch.setattr(LineSearch, "climb", lambda *arguments: ends.append(climb(*arguments)) or ends[-1])
    matrices, statistics = wer_lists(seed, 30, 6)
    found = tune(matrices, statistics, WER, names=list("abcdef"), options=SearchOptions(restarts=6, random_directions=0))
    assert len({value for _, value in ends}) > 1
    assert -found.score >= max(value for _, value in ends) - 1e-9


def test_written_weights_are_short():
    matrices, statistics = wer_lists(8, 6, 3)
    weights = tune(matrices, statistics, WER, names=list("abc")).weights
    assert any(weights.values())
    assert all(float(f"{weight:.3g}") == weight for weight in weights.values())


def held_out(matrices, statistics, names, fold_of, restarts=1) -> np.ndarray:
    """Each list's answer with weights tuned without its fold."""

    def tuned_on(lists):
        return tune(
            [matrices[i] for i in lists], [statistics[i] for i in lists], WER, names=names, options=SearchOptions(restarts=restarts)
        )

    tuner, answers = FoldTuner(fold_of, tuned_on), [None] * len(matrices)
    for fold in tuner.folds():
        weights = tuner.without(frozenset({fold})).weights
        for i in tuner.lists([fold]):
            answers[i] = selection([matrices[i]], [statistics[i]], weights, names=names)[0]
    return np.array(answers)


def test_folds_are_left_out_one_and_two_at_a_time():
    calls = []
    tuner = FoldTuner(np.array([0, 1, 2, 0, 1, 2, 3]), lambda lists: calls.append(lists) or len(calls))
    assert tuner.folds() == [0, 1, 2, 3]
    assert tuner.folds(frozenset({1, 3})) == [0, 2]
    assert tuner.lists([1, 3]) == [1, 4, 6]
    assert [tuner.without(frozenset(left_out)) for left_out in ([], [1], [1, 3], [3, 1], [1])] == [1, 2, 3, 3, 2]
    assert calls == [[0, 1, 2, 3, 4, 5, 6], [0, 2, 3, 5, 6], [0, 2, 3, 5]]
    alone = FoldTuner(np.zeros(3, dtype=int), list)
    assert alone.without(frozenset({0})) == [0, 1, 2]  # no other fold is left: there is no cross-validation


def test_groups_stay_in_one_fold():
    assert assign_folds(range(31), 5).tolist() == [i % 5 for i in range(31)]
    assert assign_folds([0, 1, 2, 0, 4, 2, 2, 7], 3).tolist() == [1, 2, 0, 1, 2, 0, 0, 1]
    generator = np.random.default_rng(14)
    for folds in (2, 5):
        groups = generator.integers(0, 40, size=200)
        found = assign_folds(groups, folds)
        assert all(len(set(found[groups == group])) == 1 for group in groups)
        sizes = np.bincount(found, minlength=folds)
        assert sizes.max() - sizes.min() <= np.bincount(groups).max()


def test_cross_validation_is_not_fooled_by_noise():
    generator = np.random.default_rng(10)
    matrices = [generator.normal(size=(10, 12)) for _ in range(30)]
    statistics = [np.stack([generator.integers(0, 8, size=10), np.full(10, 8)], axis=1).astype(float) for _ in range(30)]
    tuned = tune(matrices, statistics, WER, names=list("abcdefghijkl"), options=SearchOptions(restarts=1))
    honest = corpus_score(WER, held_out(matrices, statistics, list("abcdefghijkl"), assign_folds(range(30), 5)))
    average = corpus_score(WER, np.array([of_list.mean(axis=0) for of_list in statistics]))
    assert tuned.score < average - 15
    assert abs(honest - average) < 8


@pytest.mark.parametrize("seed", range(20))
def test_oracle_of_error_rates_is_exact(seed):
    """With several references lengths differ, and the fewest errors of each list need not make the lowest rate."""
    generator = np.random.default_rng(seed)
    statistics = [generator.integers([0, 0], [6, 9], size=(3, 2)).astype(float) for _ in range(6)]
    every = [corpus_score(WER, np.array(choice)) for choice in itertools.product(*statistics)]
    assert corpus_score(WER, oracle(statistics, WER)) == pytest.approx(min(every), abs=1e-12)


def test_oracle_of_error_rates_is_not_just_the_fewest_errors():
    statistics = [np.array([[1.0, 1.0], [2.0, 40.0]]), np.array([[4.0, 10.0]])]
    assert oracle(statistics, WER).tolist() == [[2, 40], [4, 10]]


@pytest.mark.parametrize("seed", range(20))
def test_oracle_of_error_rates_with_empty_references_is_exact(seed):
    """A corpus without reference words has 100 % whatever its errors, below which no iteration may begin."""
    generator = np.random.default_rng(seed)
    statistics = [generator.integers([0, 0], [7, 3], size=(3, 2)).astype(float) * [1, 2] for _ in range(int(generator.integers(1, 4)))]
    every = [corpus_score(WER, np.array(choice)) for choice in itertools.product(*statistics)]
    assert corpus_score(WER, oracle(statistics, WER)) == pytest.approx(min(every), abs=1e-12)


def test_oracle_begins_above_every_rate():
    statistics = [np.array([[6.0, 0.0]]), np.array([[2.0, 0.0], [9.0, 3.0], [1.0, 4.0]])]
    assert oracle(statistics, WER).tolist() == [[6, 0], [2, 0]]  # 100 %, less than 175 %
    statistics = [np.array([[6.0, 0.0]]), np.array([[2.0, 0.0], [9.0, 3.0], [1.0, 8.0]])]
    assert oracle(statistics, WER).tolist() == [[6, 0], [1, 8]]


@pytest.mark.parametrize("seed", range(5))
def test_oracle_of_bleu_is_a_close_lower_bound(seed):
    _, statistics = bleu_lists(seed, 6, 1)
    every = max(corpus_score(BLEU, np.array(choice)) for choice in itertools.product(*statistics))
    found = corpus_score(BLEU, oracle(statistics, BLEU))
    assert corpus_score(BLEU, np.array([of_list[0] for of_list in statistics])) < found <= every + 1e-9
    assert found > 0.9 * every


def test_no_other_hypothesis_of_a_single_list_betters_the_oracle_of_bleu():
    """The climb goes on while anything changes: for these lists it needs a second round."""
    _, statistics = bleu_lists(7, 60, 1)
    chosen = oracle(statistics, BLEU)
    totals = chosen.sum(axis=0)
    for row, of_list in zip(chosen, statistics, strict=True):
        assert BLEU.score(totals - row + of_list).max() <= BLEU.score(totals) + 1e-9


@pytest.mark.parametrize("metric", [BLEU, make_metric("chrf")], ids=["bleu", "chrf"])
def test_oracle_is_no_worse_than_the_answers_known(metric):
    """The best choice of all, given as an answer, is kept where the climb by itself does not find it."""
    missed = 0
    for seed in range(20):
        generator = np.random.default_rng(seed)
        texts = [[" ".join(generator.choice(list("abcd"), size=int(generator.integers(0, 10)))) for _ in range(6)] for _ in range(3)]
        statistics = [metric.statistics(of_list[:5], [of_list[5]]) for of_list in texts]
        best = np.array(max(itertools.product(*statistics), key=lambda choice: corpus_score(metric, np.array(choice))))
        missed += corpus_score(metric, oracle(statistics, metric)) < corpus_score(metric, best) - 1e-9
        assert corpus_score(metric, oracle(statistics, metric, [best])) >= corpus_score(metric, best) - 1e-9
    assert missed


def test_selection_names_unknown_weights():
    matrices, statistics = wer_lists(11, 3, 2)
    assert np.array_equal(selection(matrices, statistics, {}, names=["a", "b"]), [of_list[0] for of_list in statistics])
    assert np.array_equal(selection(matrices, statistics, {"b": -2.0}, names=["a", "b"]), choose(matrices, statistics, (0, -2)))
    with pytest.raises(InputError, match="weight for 'c', which is not a feature; features are a, b"):
        selection(matrices, statistics, {"c": 1.0}, names=["a", "b"])


def test_bad_arguments():
    matrices, statistics = wer_lists(12, 3, 2)
    with pytest.raises(ValueError, match="not distinct"):
        tune(matrices, statistics, WER, names=["a", "a"])
    for ends in ((1, 0), (INF, INF), (math.nan, 1)):
        with pytest.raises(ValueError, match="interval of 'a'"):
            tune(matrices, statistics, WER, names=["a", "b"], options=SearchOptions(intervals={"a": ends}))
    with pytest.raises(ValueError, match="as many rows"):
        tune(matrices, statistics[::-1], WER, names=["a", "b"])
    with pytest.raises(ValueError, match="must be finite"):
        tune([m * np.nan for m in matrices], statistics, WER, names=["a", "b"])


@pytest.mark.slow
def test_atis_scores_that_came_with_the_lists():
    """Without any LM: what acoustic score, length and rank give, and what they give on lists not tuned on."""
    path = DATA / "atis-train.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        items = json.load(lines)
    statistics = [WER.statistics(item["input"], [item["output"]]) for item in items]
    matrices = [
        np.array([[am, len(text.split()), rank] for rank, (text, am) in enumerate(zip(item["input"], item["am_score"], strict=True))])
        for item in items
    ]
    result = tune(matrices, statistics, WER, names=["am", "words", "rank"], options=SearchOptions(restarts=3))
    answers = held_out(matrices, statistics, ["am", "words", "rank"], assign_folds(range(len(items)), 5), restarts=3)
    assert round(result.first_best_score, 2) == 7.66
    assert result.score < corpus_score(WER, answers) < 7.5
    assert result.weights["am"] > 0 > result.weights["rank"]
