"""What ``evaluate`` says of differences: intervals, groups, several systems, lists that weights have seen."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from cli_runs import refused, run

import attlm_fairseq as attlm
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.statistics.bootstrap import Interval, PairedComparison, confidence_interval, paired_test, summed
from attlm_fairseq.nbest.statistics.calibration import Calibration, calibration_error, reliability
from attlm_fairseq.nbest.statistics.evaluation import Row, compare, holm, of_holm
from attlm_fairseq.nbest.statistics.table import as_table

WER = make_metric("wer")
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]


@pytest.fixture
def lists(tmp_path, monkeypatch):
    """40 utterances of eight documents: the first system has an error in most, the second in few, all of a document alike."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    first, second = [], []
    for place in range(40):
        document = place // 5
        reference = [*WORDS, str(place)]
        worse, better = (["wrong", *reference[1:]] if wrong else reference for wrong in (document % 4 > 0, document == 3))
        noise = ["noise"] * int(rng.random() < 0.1)
        for system, text in ((first, worse), (second, better)):
            hyps = [{"text": " ".join([*text, *noise]), "score": 0.0}, {"text": " ".join(reference), "score": -1.0}]
            system.append({"id": f"d{document}-u{place}", "ref": " ".join(reference), "hyps": hyps})
    for name, system in (("first.jsonl", first), ("second.jsonl", second)):
        Path(name).write_text("".join(json.dumps(item) + "\n" for item in system))
    return tmp_path


def systems() -> tuple[np.ndarray, np.ndarray]:
    return tuple(
        np.concatenate([WER.statistics([nbest.hypotheses[0].text], nbest.references) for nbest in attlm.read_nbest(name)])
        for name in ("first.jsonl", "second.jsonl")
    )


def test_the_interval_of_the_difference_is_printed_and_recorded(lists):
    first, second = systems()
    expected = paired_test(second, first, WER)
    record = json.loads(run("eval", "first.jsonl", "second.jsonl", "--json").stdout)["systems"][1]
    ends = expected.difference
    assert [record[name] for name in ("difference", "difference_low", "difference_high", "p")] == [
        *(round(value, 4) for value in (ends.score, ends.low, ends.high)),
        round(expected.p_value, 6),
    ]
    told = run("eval", "first.jsonl", "second.jsonl", "--report", "page.html").stdout
    assert f"{ends.score:+.2f} ({ends.low:+.2f} .. {ends.high:+.2f}), p < 0.001" in told
    page = Path("page.html").read_text()
    assert f"<td>{ends.low:+.2f} to {ends.high:+.2f}</td>" in page
    assert "&lt; 0.001" in page


def test_groups_are_samples(lists):
    first, second = systems()
    groups = np.arange(40) // 5
    expected = paired_test(summed(second, groups), summed(first, groups), WER)
    result = run("eval", "first.jsonl", "second.jsonl", "--draw-by", "id:^(d[0-9])", "--json")
    record = json.loads(result.stdout)["systems"]
    assert record[1]["p"] == round(expected.p_value, 6) > 0.01
    assert record[1]["difference_low"] == round(expected.difference.low, 4)
    of_groups, of_lists = (confidence_interval(values, WER) for values in (summed(first, groups), first))
    assert [record[0]["low"], record[0]["high"]] == [round(of_groups.low, 4), round(of_groups.high, 4)]
    assert of_groups.high - of_groups.low > 1.5 * (of_lists.high - of_lists.low)
    assert "40 lists are of 8 conversations or groups" in result.stderr
    Path("documents").write_text("".join(f"d{place // 5}-u{place} {place // 5}\n" for place in range(40)))
    same = attlm.evaluate("first.jsonl", others=["second.jsonl"], draw_by="file:documents")
    assert same.rows[1].comparison == expected
    assert "all lists are in one group" in refused("eval", "first.jsonl", "--draw-by", "id:^d")
    assert "does not match the list id" in refused("eval", "first.jsonl", "--draw-by", "id:^x")
    with pytest.raises(attlm.InputError, match="the value of draw_by"):
        attlm.evaluate("first.jsonl", draw_by=3)


def test_few_samples_have_no_bounds_and_a_note(lists):
    Path("documents").write_text("".join(f"d{place // 5}-u{place} {place // 10}\n" for place in range(40)))
    result = run("eval", "first.jsonl", "second.jsonl", "--draw-by", "file:documents", "--json")
    record = json.loads(result.stdout)["systems"][1]
    assert (record["difference_low"], record["difference_high"]) == (None, None)
    assert "4 samples are too few for a p-value of 0.05 or less" in result.stderr
    result = run("eval", "first.jsonl", "second.jsonl", "--draw-by", "file:documents")
    assert re.search(r"^second.jsonl .*  -\d+\.\d\d, p = 0\.\d{3}$", result.stdout, re.M)
    assert "too few" not in run("eval", "first.jsonl", "--draw-by", "file:documents").stderr  # nothing is compared


def test_several_differences_are_corrected_by_holm():
    rng = np.random.default_rng(2)
    base = np.stack([rng.integers(0, 4, 60), np.full(60, 10)], axis=1).astype(float)
    others = []
    for number, gain in enumerate((0.0, 0.25, 0.3, 0.9)):
        changed = base.copy()
        changed[:, 0] -= (rng.random(60) < gain) & (base[:, 0] > 0)
        changed[:, 0] += rng.random(60) < 0.15
        others.append((f"system {number}", changed))
    rows = compare([("first", base), *others], WER)
    values = sorted(row.comparison.p_value for row in rows[1:])
    expected, least = {}, 0.0
    for place, value in enumerate(values):
        least = max(least, min(1.0, (4 - place) * value))
        expected[value] = least
    assert [row.p_holm for row in rows[1:]] == [expected[row.comparison.p_value] for row in rows[1:]]
    assert rows[0].p_holm is None
    assert holm([None, 0.3, 0.01, None]) == [None, 0.3, 0.02, None]
    assert of_holm({"a": 0.0251, "b": 0.04, "c": None}) == "2 differences are tested at once: by Holm's correction, p is a 0.051, b 0.051"
    comparison = PairedComparison(rows[1].comparison.difference, 0.02)
    doubtful = [Row("a", rows[0].interval), *(Row(name, rows[0].interval, comparison) for name in "bcd")]
    assert "3 differences are tested at once: by Holm's correction, p is b 0.060, c 0.060, d 0.060" in as_table(doubtful, WER, "against")
    assert "Holm" not in as_table(rows[:2], WER, "against")


def test_a_difference_that_is_rounded_to_0_has_a_plus():
    small = PairedComparison(Interval(-0.004, -0.01, -0.0, 0.95), 0.5)
    table = as_table([Row("a", Interval(1.0, 0.0, 2.0, 0.95)), Row("b", Interval(0.996, 0.0, 2.0, 0.95), small)], WER, "against")
    assert table.endswith("+0.00 (-0.01 .. +0.00), p = 0.500")


def test_lists_that_weights_have_seen_in_part_give_a_warning(lists):
    items = Path("first.jsonl").read_text().splitlines(keepends=True)
    for name, some in (("tuned.jsonl", items[:15]), ("few.jsonl", items[37:])):
        Path(name).write_text("".join(some))
    run("tune", "tuned.jsonl", "--strength", "1", "-o", "attlm.toml")
    told = "WARNING: about 38% of these references are among those that the weights were tuned on"
    assert told in run("eval", "first.jsonl", "--config", "attlm.toml").stderr
    assert "among those" not in run("eval", "few.jsonl", "--config", "attlm.toml").stderr
    assert "the weights were tuned on these lists: they look too good" in run("eval", "tuned.jsonl", "--config", "attlm.toml").stderr


def test_the_calibration_error_of_exact_confidences_is_not_zero():
    rng = np.random.default_rng(3)
    confidences = rng.beta(9, 1, 300)
    found = Calibration.of(confidences, rng.random(300) < confidences, None)
    draws = [calibration_error(reliability(confidences, rng.random(300) < confidences)) for _ in range(400)]
    assert found.ece_if_exact == pytest.approx(np.mean(draws), rel=0.1)
    assert 0.015 < found.ece_if_exact < 0.05
    assert f"ECE {found.ece:.4f} ({found.ece_if_exact:.4f} if they were exact)" in str(found)
    assert Calibration.of(np.ones(9), np.ones(9, dtype=bool), None).ece_if_exact == 0
    assert math.isfinite(Calibration.of(np.empty(0), np.empty(0, dtype=bool), None).ece_if_exact)


def test_confidences_on_lists_that_the_weights_saw_say_so(lists):
    run("tune", "first.jsonl", "--strength", "1", "--confidence", "-o", "attlm.toml")
    seen = run("eval", "first.jsonl", "--config", "attlm.toml", "--confidence").stdout
    assert "5 in all; the weights or corrections saw these lists: expect other figures elsewhere)" in seen
    record = json.loads(run("eval", "first.jsonl", "--config", "attlm.toml", "--confidence", "--json").stdout)
    assert record["confidence"]["in_sample"] is True
