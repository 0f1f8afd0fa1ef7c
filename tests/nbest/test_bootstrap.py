from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm, t

from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.statistics import bootstrap
from attlm_fairseq.nbest.statistics.bootstrap import confidence_interval, paired_test

WER = make_metric("wer")


def errors(values) -> np.ndarray:
    """Lists of ten reference words with so many errors."""
    return np.array([[value, 10] for value in values], dtype=np.float64)


def test_interval_of_a_mean_agrees_with_the_normal_approximation():
    generator = np.random.default_rng(1)
    statistics = errors(generator.binomial(10, 0.2, size=2000))
    interval = confidence_interval(statistics, WER, resamples=4000)
    rates = 10 * statistics[:, 0]
    half = 1.96 * rates.std() / math.sqrt(len(rates))
    assert interval.score == pytest.approx(rates.mean())
    assert interval.low == pytest.approx(rates.mean() - half, abs=0.06 * half)
    assert interval.high == pytest.approx(rates.mean() + half, abs=0.06 * half)
    narrower = confidence_interval(statistics, WER, resamples=4000, level=0.5)
    assert interval.low < narrower.low < narrower.score < narrower.high < interval.high
    assert narrower.level == 0.5


def test_resamples_draw_lists_and_not_statistics():
    """With two lists there are three corpora, 1/4, 1/2, 1/4; the ratio of sums is not the mean of ratios."""
    drawn = []

    class Recorded(type(WER)):
        def score(self, totals: np.ndarray) -> np.ndarray:
            drawn.append(super().score(totals))
            return drawn[-1]

    confidence_interval(np.array([[0, 10], [20, 30]], dtype=np.float64), Recorded(), resamples=4000, seed=7)
    values, counts = np.unique(max(drawn, key=len).round(9), return_counts=True)
    assert values.tolist() == pytest.approx([0, 50, 200 / 3])
    assert counts / counts.sum() == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_memory_is_bounded_and_changes_nothing(monkeypatch):
    a, b = (errors(np.random.default_rng(seed).integers(0, 5, size=300)) for seed in (1, 2))
    whole = confidence_interval(a, WER, resamples=10), paired_test(a, b, WER, tosses=99)
    rows = []
    score = type(WER).score
    monkeypatch.setattr(type(WER), "score", lambda self, totals: rows.append(len(np.atleast_2d(totals))) or score(self, totals))
    monkeypatch.setattr(bootstrap, "RANDOM_NUMBERS_HELD", 1000)
    assert (confidence_interval(a, WER, resamples=10), paired_test(a, b, WER, tosses=99)) == whole
    assert max(rows) == 3


def test_same_seed_same_interval():
    statistics = errors(np.random.default_rng(2).integers(0, 5, size=50))
    first = confidence_interval(statistics, WER, seed=3, resamples=99)
    assert confidence_interval(statistics, WER, seed=3, resamples=99) == first
    assert any(confidence_interval(statistics, WER, seed=seed, resamples=99) != first for seed in (4, 5, 6))


def test_one_list_has_no_spread():
    interval = confidence_interval(errors([3]), WER)
    assert (interval.score, interval.low, interval.high) == (30, 30, 30)


@pytest.mark.parametrize(("lists", "least"), [(5, 0.91), (10, 0.9), (20, 0.91)])
def test_intervals_of_few_lists_cover_the_truth(lists, least):
    """Of lists with 15 % errors: about 95 % of 300, with a standard error of 1.3; the plain BCa intervals of 5 and 10 lists cover 87 %."""
    generator, covered = np.random.default_rng(11), 0
    for seed in range(300):
        lengths = generator.integers(3, 25, size=lists)
        statistics = np.stack([generator.binomial(lengths, 0.15), lengths], axis=1)
        interval = confidence_interval(statistics, WER, resamples=400, seed=seed)
        covered += interval.low <= 15 <= interval.high
    assert least <= covered / 300 <= 0.99


def test_intervals_are_bca_by_its_formulas():
    """Efron 1987 in a loop: the bias from the share below the score, the acceleration from the jackknife."""
    statistics = errors(np.random.default_rng(12).integers(0, 5, size=40))
    generator = np.random.default_rng(1)
    drawn = generator.integers(0, 40, size=(1000, 40))
    scores = np.array([WER.score(statistics[rows].sum(axis=0)) for rows in drawn])
    observed = WER.score(statistics.sum(axis=0))
    without = np.array([WER.score(np.delete(statistics, i, axis=0).sum(axis=0)) for i in range(40)])
    lean = without.mean() - without
    acceleration = (lean**3).sum() / (6 * (lean**2).sum() ** 1.5)
    bias = norm.ppf(((scores < observed).sum() + (scores <= observed).sum()) / 2000)
    reach = math.sqrt(40 / 39) * t.ppf(0.975, 39)  # Hesterberg 2015
    ends = [norm.cdf(bias + (bias + z) / (1 - acceleration * (bias + z))) for z in (-reach, reach)]
    interval = confidence_interval(statistics, WER)
    assert [interval.low, interval.high] == pytest.approx(np.quantile(scores, ends).tolist())


def test_intervals_are_wider_the_fewer_lists_there_are():
    tails = [bootstrap.student_tail(lists, 0.95) for lists in (2, 5, 10, 50, 10**6)]
    assert tails == sorted(tails)
    assert tails[0] == bootstrap.MIN_TAIL
    assert tails[1] == pytest.approx(norm.sf(math.sqrt(5 / 4) * 2.776), rel=1e-2)  # t of 4 degrees of freedom, from a table
    assert tails[-1] == pytest.approx(0.025, rel=1e-4)


def test_intervals_of_many_lists_are_percentiles(monkeypatch):
    statistics = errors(np.random.default_rng(12).integers(0, 5, size=400))
    bca = confidence_interval(statistics, WER)
    monkeypatch.setattr(bootstrap, "MAX_BCA_LISTS", 399)
    percentiles = confidence_interval(statistics, WER)
    assert percentiles != bca
    assert [percentiles.low, percentiles.high] == pytest.approx([bca.low, bca.high], rel=0.02)


def test_intervals_keep_to_what_there_is():
    assert confidence_interval(errors([0, 0, 5]), WER).low == 0
    bleu = make_metric("bleu")
    statistics = bleu.statistics(["a b c d e f g h", "a b c d e f g h", "a b c d x"], ["a b c d e f g h"])
    assert confidence_interval(statistics, bleu).high == 100
    nothing = bleu.statistics(["x", "x", "x"], ["a b c d e f g h"])
    statistics, nothing = (np.concatenate([of] * 3) for of in (statistics, nothing))
    assert 0 < paired_test(statistics, nothing, bleu).difference.low < paired_test(statistics, nothing, bleu).difference.high <= 100
    assert -100 <= paired_test(nothing, statistics, bleu).difference.low < 0


def test_a_system_does_not_differ_from_itself():
    statistics = errors(np.random.default_rng(5).integers(0, 5, size=80))
    comparison = paired_test(statistics, statistics.copy(), WER)
    assert comparison.p_value == 1
    assert (comparison.difference.score, comparison.difference.low, comparison.difference.high) == (0, 0, 0)


def test_lists_are_paired():
    """Lists differ far more among themselves than the systems do, which only pairing can see."""
    generator = np.random.default_rng(6)
    worse = generator.integers(1, 10, size=200)
    better = worse - (generator.random(200) < 0.3)
    comparison = paired_test(errors(better), errors(worse), WER, tosses=999)
    assert comparison.p_value == 1 / 1000
    assert comparison.difference.low < comparison.difference.score < comparison.difference.high < 0
    alone = confidence_interval(errors(worse), WER)
    assert alone.high - alone.low > 3 * (comparison.difference.high - comparison.difference.low)
    swapped = paired_test(errors(worse), errors(better), WER, tosses=999)
    assert swapped.p_value == comparison.p_value
    assert swapped.difference.low == pytest.approx(-comparison.difference.high)


def test_p_values_of_equal_systems_are_uniform():
    generator = np.random.default_rng(7)
    values = [
        paired_test(*(errors(generator.normal(3, 1, size=100)) for _ in range(2)), WER, tosses=200, seed=i).p_value for i in range(300)
    ]
    assert np.mean(values) == pytest.approx(0.5, abs=0.06)
    assert np.mean(np.array(values) <= 0.1) == pytest.approx(0.1, abs=0.06)


def test_few_lists_need_a_permutation_test():
    """With n lists no system can be told from another at less than 2 / 2^n, however clear the gain on each of them."""
    for lists in (1, 2, 3, 4, 6):
        comparison = paired_test(errors([1] * lists), errors([5] * lists), WER)
        assert comparison.p_value == 2 / 2**lists
    assert paired_test(errors([1] * 29), errors([5] * 29), WER, tosses=99).p_value == 0.01


@pytest.mark.parametrize("name", ["wer", "bleu"])
def test_permutations_by_a_loop_over_all_of_them(name):
    """Corpus metrics: which system a list's statistics go to is exchanged, and the corpora are scored again."""
    metric, generator = make_metric(name), np.random.default_rng(8)
    vocabulary = list("abcdefgh")
    a, b = [], []
    for _ in range(7):
        reference = generator.choice(vocabulary, 8)
        texts = [" ".join(np.where(generator.random(8) < rate, "x", reference)) for rate in (0.2, 0.4)]
        for system, row in zip((a, b), metric.statistics(texts, [" ".join(reference)]), strict=True):
            system.append(row)
    a, b = np.array(a), np.array(b)

    def difference(changed) -> float:
        one = np.array([b[i] if change else a[i] for i, change in enumerate(changed)])
        other = np.array([a[i] if change else b[i] for i, change in enumerate(changed)])
        return float(metric.score(one.sum(axis=0)) - metric.score(other.sum(axis=0)))

    observed = abs(difference([False] * 7))
    values = [abs(difference(changed)) for changed in itertools.product([False, True], repeat=7)]
    expected = sum(value >= observed - 1e-9 for value in values) / 2**7
    assert 2 / 2**7 < expected < 1
    assert paired_test(a, b, metric).p_value == expected


def rejected(a: np.ndarray, b: np.ndarray, difference: float) -> bool:
    """Test a difference of error rates by a loop over all tosses of what is left of each list without it."""
    left = a[:, 0] - b[:, 0] - difference / 100 * a[:, 1]
    observed = abs(left.sum())
    values = [
        abs(sum(sign * value for sign, value in zip(signs, left, strict=True))) for signs in itertools.product([1, -1], repeat=len(a))
    ]
    return sum(value >= observed - 1e-9 for value in values) / len(values) <= 0.05


def test_the_interval_of_a_difference_has_what_the_test_does_not_reject():
    generator = np.random.default_rng(13)
    lengths = generator.integers(3, 25, size=9)
    a, b = (np.stack([generator.binomial(lengths, rate), lengths], axis=1).astype(float) for rate in (0.2, 0.4))
    found = paired_test(a, b, WER).difference
    assert found.low < found.score < found.high
    for end, inwards in ((found.low, 1), (found.high, -1)):
        assert not rejected(a, b, end + 1e-6 * inwards)
        assert rejected(a, b, end - 1e-6 * inwards)


@pytest.mark.parametrize("folds", [0, 5])
@pytest.mark.parametrize("lists", [8, 12, 30])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_interval_leaves_0_out_exactly_if_p_is_small(alpha, lists, folds):
    """Of sparse differences, as between two systems that agree on most lists, a bootstrap interval leaves 0 out far too often."""
    generator, small = np.random.default_rng(14), 0
    for seed in range(150):
        worse = generator.integers(-1, 5, size=lists) * (generator.random(lists) < 0.5)
        lengths = generator.integers(1, 60, size=lists)
        a, b = (np.stack([values, lengths], axis=1).astype(float) for values in (worse + 4, np.full(lists, 4)))
        comparison = paired_test(a, b, WER, tosses=999, seed=seed, folds=folds, level=1 - alpha)
        assert (comparison.p_value <= alpha) == (not comparison.difference.low <= 0 <= comparison.difference.high)
        assert comparison.difference.level == 1 - alpha
        small += comparison.p_value <= alpha
    assert 0 < small < 150


@pytest.mark.parametrize(("lists", "skewed"), [(30, False), (30, True), (180, True)])
def test_intervals_of_sparse_differences_cover_the_truth(lists, skewed):
    """15 % of the lists differ, by 1 either way or by -1 four times in five and 4 else; the standard error of 300 trials is 1.3 %."""
    generator, covered = np.random.default_rng(15), 0
    for seed in range(300):
        lengths = generator.integers(5, 21, size=lists)
        change = np.where(generator.random(lists) < (0.8 if skewed else 0.5), -1, 4 if skewed else 1) * (generator.random(lists) < 0.15)
        a, b = (np.stack([4.0 + of, lengths], axis=1) for of in (change, 0 * change))
        found = paired_test(a, b, WER, tosses=999, seed=seed).difference
        covered += found.low <= 0 <= found.high
    assert covered / 300 >= 0.9


def test_differences_of_other_metrics_are_taken_as_linear():
    """BLEU: within a tenth of the width of a BCa interval, whose level allows for few lists, too."""
    bleu, generator = make_metric("bleu"), np.random.default_rng(16)
    a, b = [], []
    for _ in range(60):
        reference = generator.choice(list("abcdefgh"), 12)
        texts = [" ".join(np.where(generator.random(12) < rate, "x", reference)) for rate in (0.1, 0.2)]
        for system, row in zip((a, b), bleu.statistics(texts, [" ".join(reference)]), strict=True):
            system.append(row)
    a, b = np.array(a), np.array(b)

    class Difference:
        ratio = None
        bounds = (-100.0, 100.0)

        def score(self, totals: np.ndarray) -> np.ndarray:
            return bleu.score(totals[..., :10]) - bleu.score(totals[..., 10:])

    expected = confidence_interval(np.concatenate([a, b], axis=1), Difference(), resamples=4000)
    found = paired_test(a, b, bleu).difference
    assert found.score == pytest.approx(expected.score)
    width = expected.high - expected.low
    assert [found.low, found.high] == pytest.approx([expected.low, expected.high], abs=width / 10)


def test_references_of_different_lengths_count():
    """With several references two systems may have other lengths: the rates differ although the errors are the same."""
    generator = np.random.default_rng(17)
    lengths = generator.integers(8, 12, size=40)
    a, b = (np.stack([np.full(40, 3.0), of], axis=1) for of in (lengths, lengths + 1))
    found = paired_test(a, b, WER)
    assert found.p_value < 0.001
    assert 0 < found.difference.low < found.difference.score < found.difference.high


@pytest.mark.parametrize("lists", range(1, 7))
@pytest.mark.parametrize("name", ["wer", "bleu"])
def test_fewer_than_six_lists_bound_no_difference(name, lists):
    metric = make_metric(name)
    rows = metric.statistics(["a b c d e", "a b c d x"], ["a b c d e"])
    one, other = (np.array([row] * lists) for row in rows)
    found = paired_test(one, other, metric)
    assert found.p_value == 2 / 2**lists
    assert math.isfinite(found.difference.low) == math.isfinite(found.difference.high) == (lists == 6)


def test_all_tosses_where_there_are_as_many():
    assert paired_test(errors([1] * 4), errors([5] * 4), WER, tosses=16).p_value == 2 / 16
    assert paired_test(errors([1] * 4), errors([5] * 4), WER, tosses=15).p_value != 2 / 16


def test_lists_without_words_in_their_references():
    silent = np.array([[3.0, 0.0]] * 8)
    found = paired_test(np.array([[0.0, 0.0]] * 8), silent, WER)  # 0 % without errors, 100 % with any
    assert (found.difference.score, found.p_value) == (-100, 2 / 2**8)
    some = paired_test(np.concatenate([errors([1] * 20), silent - [1, 0]]), np.concatenate([errors([5] * 20), silent]), WER)
    assert some.p_value < 0.001
    assert some.difference.high < 0


def test_ends_are_not_minus_0():
    worse = np.zeros(3000)
    worse[:5] = 1
    found = paired_test(errors(4 - worse), errors(np.full(3000, 4)), WER).difference
    assert math.copysign(1, found.high) == 1


@pytest.mark.parametrize("lists", [4, 8, 14])
def test_p_values_of_few_lists_are_not_too_small(lists):
    generator = np.random.default_rng(9)
    values = [
        paired_test(*(errors(generator.binomial(10, 0.3, size=lists)) for _ in range(2)), WER, tosses=200, seed=i).p_value
        for i in range(300)
    ]
    assert np.mean(np.array(values) <= 0.05) < 0.075  # 0.05 and two standard errors


@pytest.mark.parametrize(("folds", "low", "high"), [(2, 1.1, 1.2), (5, 1.2, 1.3), (20, 1.35, 1.47)])
def test_cross_validated_differences_are_spread_wider(folds, low, high):
    generator = np.random.default_rng(10)
    a, b = (errors(generator.binomial(10, rate, size=100)) for rate in (0.26, 0.3))
    plain, wider = paired_test(a, b, WER), paired_test(a, b, WER, folds=folds)
    factor = bootstrap.cross_validation_factor(folds)
    assert low <= factor <= high
    assert wider.difference.score == plain.difference.score
    assert wider.difference.high - wider.difference.low == pytest.approx(factor * (plain.difference.high - plain.difference.low))
    assert wider.p_value > plain.p_value
    with pytest.raises(ValueError, match="1 folds are not a cross-validation"):
        paired_test(errors([1] * 6), errors([5] * 6), WER, folds=1)


def test_p_values_of_folds_by_a_loop():
    """0 is so many times nearer to the difference as the factor says: that is the difference which all tosses are tested against."""
    generator = np.random.default_rng(18)
    lengths = generator.integers(3, 25, size=9)
    a, b = (np.stack([generator.binomial(lengths, rate), lengths], axis=1).astype(float) for rate in (0.2, 0.3))
    errors_of, observed = a[:, 0] - b[:, 0], (a[:, 0] - b[:, 0]).sum() / lengths.sum()
    nearer = observed * (1 - 1 / bootstrap.cross_validation_factor(5))
    left = errors_of - nearer * lengths
    values = [abs(sum(sign * value for sign, value in zip(signs, left, strict=True))) for signs in itertools.product([1, -1], repeat=9)]
    expected = sum(value >= abs(left.sum()) - 1e-9 for value in values) / 2**9
    found = paired_test(a, b, WER, folds=5)
    assert found.p_value == expected
    assert expected > paired_test(a, b, WER).p_value


def test_bad_arguments():
    with pytest.raises(ValueError, match="same lists"):
        paired_test(errors([1, 2]), errors([1]), WER)
    with pytest.raises(ValueError, match="at least one list"):
        confidence_interval(np.zeros((0, 2)), WER)
    with pytest.raises(ValueError, match="level"):
        confidence_interval(errors([1]), WER, level=95)
