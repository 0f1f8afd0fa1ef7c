"""Comparison of LMs by perplexity: figures from their definition, intervals against the delta method, samples of lines."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from cli_runs import refused, run

import attlm_fairseq as attlm
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.statistics.text_samples import neighbours_correlation
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore

LINES = 2000


class Given(Scorer):
    """An LM that gives the sentence ``w I`` the I-th of the log-probabilities, on its last word."""

    name = "given"

    def __init__(self, log_probs, scores_end=True):
        self.log_probs, self._scores_end = log_probs, scores_end

    @property
    def scores_end(self):
        return self._scores_end

    def score(self, sentences):
        found = [float(self.log_probs[int(words[-1])]) for words in sentences]
        return [SentenceScore((0.0, value, 0.0), (False, False)) for value in found]

    def signature(self):
        return {"kind": "given"}


def compared(one, other, lines=LINES):
    text = [f"w {place}" for place in range(lines)]
    return attlm.compare_lms(text, {"one": Given(one), "other": Given(other)})


def test_the_figures_are_those_of_ppl_and_the_interval_that_of_the_delta_method():
    rng = np.random.default_rng(1)
    one = -3 * rng.gamma(4, 1, LINES)
    other = one + rng.normal(0.1, 1, LINES)
    found = compared(one, other)
    first, second = found.rows
    assert (first.change, first.p_value, found.sentences, found.words) == (None, None, LINES, 2 * LINES)
    assert first.ppl.score == pytest.approx(math.exp(-one.sum() / (3 * LINES)))
    assert second.ppl.score == pytest.approx(math.exp(-other.sum() / (3 * LINES)))
    assert second.change.score == pytest.approx(100 * (second.ppl.score / first.ppl.score - 1))
    of_samples = (other - one).reshape(-1, found.lines_together).sum(1) / (3 * found.lines_together)
    half = 1.96 * of_samples.std() / math.sqrt(len(of_samples))
    low, high = (100 * math.expm1(-of_samples.mean() + end) for end in (-half, half))
    assert found.lines_together == 20
    assert (second.change.low, second.change.high) == pytest.approx((low, high), abs=0.15 * (high - low))
    assert second.p_value < 0.05
    assert second.change.high < 0


def test_equal_lms_do_not_differ():
    values = -np.arange(1.0, LINES + 1) / LINES
    row = compared(values, values).rows[1]
    assert (row.change.score, row.change.low, row.change.high, row.p_value) == (0, 0, 0, 1)


def test_neighbouring_lines_are_one_sample():
    """What all lines of a block share widens the interval by the root of their number, which single lines would not show."""
    rng = np.random.default_rng(2)
    of_blocks = np.repeat(rng.normal(0, 1, LINES // 20), 20)
    even = np.full(LINES, -9.0)
    together, apart = (compared(even, even + values).rows[1].change for values in (of_blocks, rng.permutation(of_blocks)))
    assert 3.5 < (together.high - together.low) / (apart.high - apart.low) < 5.5


@pytest.mark.parametrize(("lines", "together"), [(3, 1), (39, 1), (40, 2), (399, 19), (400, 20), (2000, 20)])
def test_short_texts_have_at_least_twenty_samples(lines, together):
    assert compared(np.full(lines, -1.0), np.full(lines, -2.0), lines).lines_together == together


def correlated(rng, lines):
    """Log-probabilities per line whose neighbours are alike over about 100 lines."""
    values = np.zeros(lines)
    for place in range(1, lines):
        values[place] = 0.98 * values[place - 1] + rng.normal(0, 0.2)
    return values


def test_lines_are_put_together_while_neighbouring_samples_are_correlated():
    rng = np.random.default_rng(4)
    even, values = np.full(LINES * 4, -9.0), correlated(rng, LINES * 4)
    for lines, together, samples, told in ((LINES * 4, (80, 160, 200), None, None), (1000, (20,), 50, True), (1600, (40,), 40, None)):
        with collected() as notes:
            found = compared(even, even + values, lines)
        assert found.lines_together in together
        assert samples in (None, found.samples)
        assert told in (None, any(note.startswith("WARNING: neighbouring samples of 20 lines are correlated (r = 0.") for note in notes))
    with collected() as notes:
        assert compared(even, even + rng.normal(0, 1, LINES * 4), LINES * 4).lines_together == 20
    assert notes == ["text for one, other: split at white space"]


def test_the_correlation_by_a_loop():
    rng = np.random.default_rng(5)
    lines, together = 400, 20
    statistics = np.stack([-5 + correlated(rng, lines), rng.integers(3, 9, lines)], axis=1)
    mean = statistics[:, 0].sum() / statistics[:, 1].sum()
    above = [sum(log_prob - mean * events for log_prob, events in statistics[i : i + together]) for i in range(0, lines, together)]
    expected = sum(one * other for one, other in itertools.pairwise(above)) / sum(one * one for one in above)
    assert expected > 2 / math.sqrt(20)
    flat = np.stack([np.full(lines, -5.0), np.ones(lines)], axis=1)
    assert neighbours_correlation([flat, statistics], together) == pytest.approx(expected)
    assert neighbours_correlation([flat, flat], together) == 0


def test_intervals_of_correlated_text_cover_the_truth():
    """60 texts with the mean 0: the interval of blocks of 20 lines alone covers it in about 60 %."""
    rng, covered = np.random.default_rng(6), 0
    for _ in range(60):
        even = np.full(LINES * 2, -9.0)
        change = compared(even, even + correlated(rng, LINES * 2), LINES * 2).rows[1].change
        covered += change.low <= 0 <= change.high
    assert covered >= 48


def test_documents_are_samples_where_they_are_marked(folder):
    text = "\n\n".join(["the cat sat\na dog ran\nthe dog sat", "a cat ran", "a dog sat\nthe cat ran"] * 8) + "\n"
    (folder / "documents").write_text(text)
    lms = ("--lm", "lm.pt", "--kenlm", "lm.arpa")
    record = json.loads(run("ppl", "documents", *lms, "--compare", "--context", "blank", "--json").stdout)
    assert (record["samples"], record["lines_together"], record["sentences"]) == (24, None, 48)
    assert "each document is one sample, 24 in all" in run("ppl", "documents", *lms, "--compare", "--context", "blank").stdout
    (folder / "twenty").write_text("\n\n" + "\n\n".join(["the cat sat\na dog ran"] * 20) + "\n")  # the first line is blank
    record = json.loads(run("ppl", "twenty", *lms, "--compare", "--context", "blank", "--json").stdout)
    assert (record["samples"], record["lines_together"]) == (20, None)
    (folder / "few").write_text("\n\n".join(["the cat sat\na dog ran\nthe dog sat"] * 19) + "\n")
    result = run("ppl", "few", *lms, "--compare", "--context", "blank", "--json")
    record = json.loads(result.stdout)
    assert (record["samples"], record["lines_together"]) == (29, 2)
    assert "19 documents are too few to be the samples, of which 20 are needed: lines are" in result.stderr


def test_few_samples_bound_no_change(folder):
    (folder / "few").write_text("the cat sat\na dog ran\na cat ran\n")
    lms = ("--lm", "lm.pt", "--kenlm", "lm.arpa", "--lm", "again=lm.pt")
    result = run("ppl", "few", *lms, "--compare", "--json")
    row = json.loads(result.stdout)["lms"][1]
    assert row["change_in_percent"][1:] == [None, None]
    assert row["p"] >= 0.25
    assert row["p_holm"] == min(1, 2 * row["p"])
    assert "3 samples are too few for a p-value of 0.05 or less" in result.stderr
    assert "inf" not in run("ppl", "few", *lms, "--compare").stdout


def test_the_lms_own_perplexities_count_for_the_correlation():
    """Two LMs find the same lines hard, so that their difference is not correlated, and each perplexity is."""
    rng = np.random.default_rng(7)
    shared = -9 + correlated(rng, LINES)
    assert compared(shared, shared + rng.normal(0, 1, LINES)).lines_together > 20


def test_samples_without_events_do_not_count():
    text = [f"w {place}" for place in range(30)] + [""] * 30
    lms = {name: Given(-np.arange(1.0, 31) / of, scores_end=False) for name, of in (("one", 9), ("other", 8))}
    for lm in lms.values():
        given = lm.score
        lm.score = lambda sentences, given=given: [given([words])[0] if words else SentenceScore((0.0,), ()) for words in sentences]
    assert attlm.compare_lms(text, lms).samples == 10  # of 3 lines each


def test_lms_that_score_other_events_are_refused():
    lms = {"ends": Given([-1.0]), "none": Given([-1.0], scores_end=False)}
    with pytest.raises(attlm.InputError, match="none scores no sentence ends and the others do"):
        attlm.compare_lms(["w 0"], lms)


def test_an_lm_without_a_finite_perplexity_is_refused():
    lms = {"one": Given([-1.0] * 40), "hopeless": Given([-1e5] * 40)}
    with pytest.raises(attlm.InputError, match="hopeless has no finite perplexity: there is nothing to compare"):
        attlm.compare_lms([f"w {place}" for place in range(40)], lms)


def test_the_command_prints_the_comparison(folder):
    lms = ("--lm", "lm.pt", "--kenlm", "lm.arpa")
    lines = run("ppl", "text", *lms, "--compare").stdout.splitlines()
    found = attlm.compare_lms("text", {"lm": "lm.pt", "kenlm": attlm.LMSpec.of_files("kenlm", ["lm.arpa"])})
    assert lines == str(found).splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["PPL", "lm", "kenlm"]
    record = json.loads(run("ppl", "text", *lms, "--compare", "--json").stdout)
    assert record == found.as_dict()
    plain = json.loads(run("ppl", "text", *lms, "--json").stdout)
    for row, of_lm in zip(record["lms"], plain, strict=True):
        assert row["ppl_as_read"][0] == pytest.approx(of_lm["ppl_as_read"], rel=1e-5)
    assert record["lms"][1]["change_in_percent"][0] == pytest.approx(100 * (plain[1]["ppl"] / plain[0]["ppl"] - 1), abs=1e-3)
    assert "no effect without --compare" in refused("ppl", "text", *lms, "--seed", 2)
    assert "has no sentence" in refused("ppl", "-", *lms, "--compare", "--context", "blank", stdin="\n")
