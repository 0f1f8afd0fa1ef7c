"""Minimum expected loss against what can be computed by hand, and against the line search on lists not seen."""

from __future__ import annotations

import numpy as np
import pytest
from cli_runs import refused, run
from scipy.optimize import minimize_scalar
from tuning_lists import BLEU, WER, bleu_lists, wer_lists

from attlm_fairseq.nbest.decision.posterior import posteriors
from attlm_fairseq.nbest.metrics.external import ExternalMetric
from attlm_fairseq.nbest.metrics.metric import corpus_score
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.nbest.tuning.risk import RIDGE
from attlm_fairseq.nbest.tuning.search_options import SearchOptions
from attlm_fairseq.nbest.tuning.tuning import selection, tune

RISK = SearchOptions("risk")


def expected_wer(matrices, statistics, weight) -> float:
    """Plainly, with one feature: list by list, and the ridge in units of the standard deviation within lists."""
    errors = sum(float(posteriors(m[:, 0] * weight, 1.0) @ s[:, 0]) for m, s in zip(matrices, statistics, strict=True))
    spread = np.concatenate([m[:, 0] - m[:, 0].mean() for m in matrices]).std()
    return 100 * errors / sum(s[0, 1] for s in statistics) + RIDGE * (weight * spread) ** 2


@pytest.mark.parametrize("seed", range(3))
def test_one_weight_is_the_minimum_of_the_expected_loss(seed):
    matrices, statistics = wer_lists(seed, 40, 1)
    found = tune(matrices, statistics, WER, names=["x"], options=SearchOptions("risk", restarts=2))
    best = minimize_scalar(lambda weight: expected_wer(matrices, statistics, weight), bounds=(-20, 20), method="bounded")
    assert found.weights["x"] == pytest.approx(best.x, rel=1e-2)
    assert expected_wer(matrices, statistics, found.weights["x"]) == pytest.approx(best.fun, abs=1e-4)


@pytest.mark.parametrize("metric", ["wer", "bleu"])
def test_what_is_reported_is_what_the_weights_give(metric):
    metric, (matrices, statistics) = (WER, wer_lists(4, 50, 4)) if metric == "wer" else (BLEU, bleu_lists(4, 30, 3))
    names = list("abcd")[: matrices[0].shape[1]]
    found = tune(matrices, statistics, metric, names=names, options=RISK)
    assert found == tune(matrices, statistics, metric, names=names, options=RISK)
    assert found.score == corpus_score(metric, selection(matrices, statistics, found.weights, names=names))
    assert found.score >= found.first_best_score if metric.higher_is_better else found.score <= found.first_best_score
    assert sum(found.influence.values()) == pytest.approx(1.0 if any(found.weights.values()) else 0.0)


def test_the_unit_of_an_external_metric_does_not_matter():
    """A program may answer from 0 to 1, or a hundred times that."""
    matrices, statistics = wer_lists(6, 40, 3)
    metric, found = ExternalMetric("true"), []
    for unit in (0.01, 1.0):
        answers = [np.stack((-unit * s[:, 0], np.ones(len(s))), axis=1) for s in statistics]
        found.append(tune(matrices, answers, metric, names=list("abc"), options=RISK).weights)
    assert found[0] == pytest.approx(found[1], rel=0.02)


def test_features_that_never_vary_and_lists_that_are_best_as_read():
    matrices, statistics = wer_lists(5, 20, 2)
    constant = [np.concatenate([m, np.ones((len(m), 1))], axis=1) for m in matrices]
    assert tune(constant, statistics, WER, names=["a", "b", "c"], options=SearchOptions("risk", restarts=1)).weights["c"] == 0
    best_first = [s[np.argsort(s[:, 0], kind="stable")] for s in statistics]
    noise = [np.random.default_rng(i).normal(size=m.shape) for i, m in enumerate(matrices)]
    assert set(tune(noise, best_first, WER, names=["a", "b"], options=SearchOptions("risk", restarts=1)).weights.values()) == {0.0}


def test_references_without_words():
    """There is no rate then, but there are errors: the feature is minus their number."""
    errors = np.array([3.0, 0.0, 1.0])
    found = tune([-errors[:, None]] * 2, [np.stack([errors, np.zeros(3)], axis=1)] * 2, WER, names=["x"], options=RISK)
    assert found.weights["x"] > 0
    assert (found.first_best_score, found.score) == (100.0, 0.0)


def test_command(folder):
    run("tune", "dev.json", "--kenlm", "lm.arpa", "--objective", "risk", "--strength", "1", "--mbr", "wer")
    assert any(read_config(folder / "attlm.toml").weights.values())
    assert "--objective risk" in refused("tune", "dev.json", "--kenlm", "lm.arpa", "--objective", "risk", "--fix", "words=1")
