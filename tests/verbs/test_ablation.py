"""``tune(ablation=True)``: tuning again without each score, against tuning lists that never had it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from cli_runs import folder, refused, run  # noqa: F401
from decision_lists import some_lists

import attlm_fairseq as attlm
from attlm_fairseq.nbest.corrections.expansion import SCORES
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.statistics.bootstrap import paired_test
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.scoring.ngrams.ngram_estimation import NgramOptions, estimate_ngram
from attlm_fairseq.verbs.ablation import MANY_SCORES, parts

WER = make_metric("wer")


def lists_with(scores: dict[str, float], count: int = 40, seed: int = 5):
    """Lists whose score NAME is the number of wrong words, times its value, with noise of 1."""
    generator = np.random.default_rng(seed)
    found = []
    for nbest in some_lists(seed, count):
        errors = [WER.statistics([hypothesis.text], nbest.references)[0][0] for hypothesis in nbest.hypotheses]
        hypotheses = [
            replace(
                hypothesis,
                scores={name: float(np.round(generator.normal() - value * error, 3)) for name, value in scores.items()},
            )
            for hypothesis, error in zip(nbest.hypotheses, errors, strict=True)
        ]
        found.append(replace(nbest, hypotheses=hypotheses))
    return found


def without(lists, name):
    """The lists as if they had never had this score."""
    return [
        replace(
            nbest,
            hypotheses=[
                replace(hypothesis, scores={other: value for other, value in hypothesis.scores.items() if other != name})
                for hypothesis in nbest.hypotheses
            ],
        )
        for nbest in lists
    ]


@pytest.mark.parametrize("rules", [(), ("mbr-wer",)], ids=["max", "MBR"])
def test_each_row_is_the_one_of_lists_without_the_score(rules):
    lists = lists_with({"am": 1.0, "lm": 0.3, "noise": 0.0})
    options = attlm.TuneOptions(folds=4, rules=rules, restarts=1)
    tuned = attlm.tune(lists, options=replace(options, ablation=True))
    first, *others = tuned.ablation
    expected = next(row for row in tuned.rows if row.label == tuned.system.label)
    assert (first.label, first.interval, first.comparison) == (expected.label, expected.interval, None)
    assert [row.label for row in others] == ["without am", "without lm", "without noise"]
    for row, name in zip(others, ("am", "lm", "noise"), strict=True):
        alone = attlm.tune(without(lists, name), options=options)
        of_others = next(of for of in alone.rows if of.label == alone.system.label)
        assert row.interval == of_others.interval
        compared = paired_test(dict(alone.system.systems)[alone.system.label], dict(tuned.system.systems)[first.label], WER, folds=4)
        assert row.comparison == compared
    if not rules:  # MBR also knows from the other hypotheses which words are wrong
        assert others[0].comparison.difference.low > 0, "more errors without the score that tells them"


def test_the_result_is_otherwise_that_of_tune():
    lists = lists_with({"am": 1.0, "noise": 0.0})
    plain, with_it = (attlm.tune(lists, options=attlm.TuneOptions(restarts=1, ablation=ablation)) for ablation in (False, True))
    assert plain.ablation == []
    assert "ablation" not in plain.as_dict()
    assert (plain.weights, plain.rows, plain.record) == (with_it.weights, with_it.rows, with_it.record)
    assert str(plain) == str(with_it).replace(str(with_it).split("\n\n")[1], "").replace("\n\n\n\n", "\n")


def test_without_the_only_feature_the_lists_stay_as_they_are():
    lists = lists_with({"am": 1.0})
    tuned = attlm.tune(lists, options=attlm.TuneOptions(without=("words", "rank"), strength=1.0, restarts=1, ablation=True))
    assert [row.label for row in tuned.ablation] == ["tuned, 5-fold", "without am"]
    assert tuned.ablation[1].interval == tuned.rows[0].interval


def test_lists_are_drawn_like_those_of_the_other_rows():
    """With the seed that is given, and those of one recording together."""
    lists = [replace(nbest, id=f"{place // 4}-{place}") for place, nbest in enumerate(lists_with({"am": 1.0}))]
    options = attlm.TuneOptions(folds_by=r"id:^(\d+)-", seed=7, restarts=1, ablation=True)
    tuned = attlm.tune(lists, options=options)
    assert tuned.ablation[0].interval == next(row.interval for row in tuned.rows if row.label == tuned.system.label)


def test_a_fixed_weight_is_left_out_too():
    lists = lists_with({"am": 1.0, "lm": 1.0})
    tuned = attlm.tune(lists, options=attlm.TuneOptions(intervals={"am": (1.0, 1.0)}, restarts=1, ablation=True))
    assert [row.label for row in tuned.ablation[1:]] == ["without am", "without lm"]


def test_a_weight_stays_fixed_where_another_score_is_left_out():
    lists, options = lists_with({"am": 1.0, "lm": 0.3}), attlm.TuneOptions(intervals={"am": (0.0, 0.0)}, folds=4, restarts=1)
    *_, row = attlm.tune(lists, options=replace(options, ablation=True)).ablation
    alone = attlm.tune(without(lists, "lm"), options=options)
    assert row.label == "without lm"
    assert row.interval == next(of.interval for of in alone.rows if of.label == alone.system.label)


def test_parts(caplog):
    caplog.set_level("INFO")
    names = ["am", "a", "b", "a_oov", "b_oov", "b_tokens", "a_minus_c", "words", "rank", *SCORES, "corrector"]
    lms = ["a", "b", "c", "corrector"]
    assert parts([], lms, sparse=False) == {}
    assert parts(["n", "n_oov", "n_tokens", "rank"], [], sparse=False) == {"n": ["n", "n_oov", "n_tokens"]}, "of jackknife"
    assert parts(names, lms, sparse=False) == {
        "a": ["a", "a_oov"],
        "b": ["b", "b_oov", "b_tokens"],
        "a_minus_c": ["a", "a_oov", "a_minus_c"],
        "am": ["am"],
    }
    assert caplog.text == ""
    assert parts(["a", "rank"], lms, sparse=True) == {"a": ["a"]}
    assert caplog.text == "", "there is no score of the lists to keep"
    assert "am" not in parts(names, lms, sparse=True)
    assert "note: --ablation keeps the scores of the lists (1)" in caplog.text
    many = [f"s{number}" for number in range(MANY_SCORES + 1)]
    assert list(parts([*many, "a"], lms, sparse=False)) == ["a"]
    assert list(parts([*many[1:], "a"], lms, sparse=False)) == ["a", *many[1:]]


def test_too_few_lists_have_none_and_it_is_said(caplog):
    tuned = attlm.tune(lists_with({"am": 1.0}, 2), options=attlm.TuneOptions(restarts=1, ablation=True))
    assert tuned.ablation == []
    assert "WARNING: no --ablation: it needs cross-validation, of 3 different lists at least" in caplog.text


def test_nothing_to_leave_out_is_said(caplog):
    lists = [replace(nbest, hypotheses=[replace(one, scores={}) for one in nbest.hypotheses]) for nbest in lists_with({}, 10)]
    assert attlm.tune(lists, options=attlm.TuneOptions(restarts=1, ablation=True)).ablation == []
    assert "WARNING: no --ablation: there is no score to leave out" in caplog.text


def test_with_a_context_it_is_said_what_stays(caplog):
    caplog.set_level("INFO")
    config = RunConfig(context=ContextSpec("all"))
    attlm.tune(lists_with({"am": 1.0}, 10), config=config, options=attlm.TuneOptions(restarts=1, ablation=True))
    assert "--ablation keeps the context that the weights of all scores chose" in caplog.text


def test_the_command(folder):  # noqa: F811
    shown = run("tune", "dev.json", "--kenlm", "lm.arpa", "--ablation", "--folds", 3, "--report", "page.html", "-o", "a.toml").stdout
    assert [line.split("  ")[0] for line in shown.split("\n\n")[1].splitlines()[1:4]] == [
        "tuned, 3-fold",
        "without kenlm",
        "without am_score",
    ]
    page = (folder / "page.html").read_text()
    assert page.count("What each score adds") == 2, "a heading, and a link to it"
    assert page.count("without kenlm") == 1
    found = json.loads(run("tune", "dev.json", "--kenlm", "lm.arpa", "--ablation", "--json", "-o", "b.toml").stdout)
    assert [row["label"] for row in found["ablation"]] == ["tuned, 3-fold", "without kenlm", "without am_score"]
    estimate_ngram(folder / "text", folder / "other.arpa", 3, NgramOptions(discount_fallback=True))
    options = ["--folds", 3, "--strength", 1, "--json"]
    both = json.loads(
        run("tune", "dev.json", "--kenlm", "a=lm.arpa", "--lm", "b=other.arpa", "--ablation", *options, "-o", "c.toml").stdout
    )
    b_alone = json.loads(run("tune", "dev.json", "--lm", "b=other.arpa", *options, "-o", "d.toml").stdout)
    (expected,) = (row for row in b_alone["systems"] if row["label"] == "tuned, 3-fold")
    (found,) = (row for row in both["ablation"] if row["label"] == "without a")
    assert (found["score"], found["low"], found["high"]) == (expected["score"], expected["low"], expected["high"])
    assert "--ablation compares cross-validated answers: leave out --folds 0" in refused("tune", "dev.json", "--ablation", "--folds", 0)
