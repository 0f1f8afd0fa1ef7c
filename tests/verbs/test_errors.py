"""`attlm eval`: the errors of systems, and what changed between two files."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_runs import refused, run

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.metrics.edit_rates import CER, WER
from attlm_fairseq.verbs.sources import SourceFile

FIRST = [["the cat sad on mat", "the cat sat on the mat"], ["a dog", "dog"]]
OTHER = [["the cat sat on the mat"], ["a a dog ran"]]
REFERENCES = ["the cat sat on the mat", "dog ran"]


@pytest.mark.parametrize("metric", [WER(), CER()])
def test_edits_sum_to_the_errors_of_the_metric(metric):
    draw = random.Random(1)
    for _ in range(200):
        hypothesis, *references = (" ".join(draw.choices("abc", k=draw.randint(0, 9))) for _ in range(draw.randint(2, 4)))
        found = metric.edits(hypothesis, references)
        assert [found.errors, found.length] == metric.statistics([hypothesis], references)[0].tolist()
        assert found.length - found.deletions + found.insertions == len(metric.units(hypothesis))


def test_errors_are_counted_for_each_system(folder):
    for name, lists in (("first", FIRST), ("other", OTHER)):
        Path(name).write_text("".join(json.dumps({"id": f"u{place}", "hyps": hyps}) + "\n" for place, hyps in enumerate(lists)))
    Path("refs").write_text("u0 the cat sat on the mat\nu1 dog ran\n")
    found = attlm.evaluate(FIRST, REFERENCES, {"other": OTHER})
    assert {label: counts.as_dict() for label, counts in found.errors().items()} == {
        "input 1-best": {"substitutions": 1, "deletions": 2, "insertions": 1, "length": 8, "lists_with_errors": 2},
        "other": {"substitutions": 0, "deletions": 0, "insertions": 2, "length": 8, "lists_with_errors": 1},
    }
    printed = run("eval", "first", "other", "--refs", "refs", "--errors", "errors.tsv", "--report", "page.html").stdout
    assert "first 1 2 1 8 2 of 2 (100.0%)" in " ".join(printed.split())
    assert b"\r" not in Path("errors.tsv").read_bytes()
    rows = list(csv.DictReader(Path("errors.tsv").read_text().splitlines(), dialect="excel-tab"))
    assert [(row["id"], row["system"], row["deletions"], row["answer"]) for row in rows] == [
        ("u0", "first", "1", "the cat sad on mat"),
        ("u0", "other", "0", "the cat sat on the mat"),
        ("u1", "first", "1", "a dog"),
        ("u1", "other", "0", "a a dog ran"),
    ]
    page = Path("page.html").read_text()
    assert "The changes are those from first to other." in page
    as_json = json.loads(run("eval", "first", "other", "--refs", "refs", "--json").stdout)
    assert [system.get("errors", {}).get("insertions") for system in as_json["systems"]] == [1, 2, None]
    assert "--errors: BLEU counts no single errors" in refused("eval", "first", "--refs", "refs", "--metric", "bleu", "--errors", "e.tsv")


def test_text_steps_of_the_metric_rescore_nothing(folder):
    assert "rescored" not in run("eval", "dev.json", "--metric-text", "lowercase", "--report", "page.html").stdout


def test_weights_are_written_only_if_the_row_of_the_table_gains(folder):
    """A gain on one list in eight: choosing the strength on the others holds out none."""
    pairs = [("show me fights", "show me flights"), ("the cat sad", "the cat sat")]
    lists = [[(wrong, -1.0), (right, -1.2)] for wrong, right in pairs]
    lists += [[(f"a mat {word}", -1.0), (f"a mad {word}", -1.2)] for word in ["the", "cat", "sat", "on", "dog", "ran"]]
    references = [right for _, right in pairs] + [nbest[0][0] for nbest in lists[2:]]
    found = attlm.tune(lists, references, {"n": "lm.arpa"})
    cross_validated = next(row for row in found.rows if row.folds)
    assert found.gain is (cross_validated.comparison.difference.score < 0)
    assert any(found.weights.values()) is found.gain
    assert ("for want of a gain" in str(found)) is not found.gain


@pytest.mark.parametrize(("seed", "trusted"), [(1, True), (16, False)])
def test_a_gain_must_be_trusted_and_stand_in_the_table(seed, trusted):
    """Either can be without the other: then the weights written are 0."""
    generator, lists = np.random.default_rng(seed), []
    for number in range(16):
        words = [f"{letter}{number}" for letter in "abcdef"]
        texts = [" ".join(np.where(generator.random(6) < 0.2, "x", words)) for _ in range(3)]
        scored = [(text, {"s": float(generator.normal() - 0.25 * text.split().count("x"))}) for text in texts]
        hypotheses = [attlm.Hypothesis(text, scores, rank) for rank, (text, scores) in enumerate(scored, 1)]
        lists.append(attlm.NbestList(str(number), hypotheses, references=(" ".join(words),)))
    found = attlm.tune(lists, options=attlm.TuneOptions(restarts=0, folds=4))
    assert (found.system.setting.trusted, found.system.gain.difference.score < 0) == (trusted, not trusted)
    assert found.gain is False
    assert not any(found.weights.values())


def test_systems_of_programs_are_matched_by_id():
    def lists(*pairs, refs=False):
        return [attlm.NbestList(which, [attlm.Hypothesis(text)], (text,) if refs else ()) for which, text in pairs]

    first = lists(("u1", "a b"), ("u2", "c d"), refs=True)
    swapped = lists(("u2", "c d"), ("u1", "a b"))
    assert attlm.evaluate(first, others={"other": swapped}).rows[1].interval.score == 0
    with pytest.raises(attlm.InputError, match=r"other: lacks 1 list \('u2'\) of input 1-best"):
        attlm.evaluate(first, others={"other": lists(("u1", "a b"), ("u3", "c d"))})
    numbered = lists(("0", "c d"), ("1", "a b"), refs=True)
    with pytest.raises(attlm.InputError, match="other: the reference of list '0' is not that of input 1-best"):
        attlm.evaluate(first, others={"other": numbered})
    assert attlm.evaluate(first, ["a b", "c d"], {"other": numbered}).rows[1].interval.score == 100  # references given: those count


def test_repeated_ids_are_compared_in_the_same_order_or_not_at_all():
    first = [attlm.NbestList(name, [attlm.Hypothesis(text)]) for name, text in (("u1", "a b"), ("u1", "c d"), ("u2", "e f"))]
    texts = ["a b", "c d", "e f"]
    assert [row.interval.score for row in attlm.evaluate(first, texts, {"b": first}).rows][:2] == [0.0, 0.0]
    with pytest.raises(attlm.InputError, match="b: the id 'u1' is that of several lists: give each list an id"):
        attlm.evaluate(first, texts, {"b": first[::-1]})
    distinct = [replace(nbest, id=name) for nbest, name in zip(first, ("u1", "u3", "u2"), strict=True)]
    for compared, repeating, other in ((distinct, "b", first[::-1]), (first, "input 1-best", distinct)):
        with pytest.raises(attlm.InputError, match=f"{repeating}: the id 'u1' is that of several lists"):
            attlm.evaluate(compared, texts, {"b": other})


@pytest.mark.parametrize("by", ["numbers", "ID", 3])
def test_lines_are_matched_in_known_ways_alone(by):
    for made in (attlm.ReferenceFiles, SourceFile):
        with pytest.raises(attlm.InputError, match=f"by {by!r}: expected one of order, number, id, or None"):
            made("r.txt", by)


def test_numbers_are_numbers():
    with pytest.raises(attlm.InputError, match=r"the value of folds is '5' \(str\): expected a whole number"):
        attlm.TuneOptions(folds="5")
    with pytest.raises(attlm.InputError, match=r"the value of seed is 'x' \(str\): expected a whole number"):
        attlm.evaluate([["a b", "a"]], ["a b"], seed="x")
    with pytest.raises(attlm.InputError, match=r"the value of seed is -1: expected a whole number, 0 or more"):
        attlm.evaluate([["a b", "a"]], ["a b"], seed=-1)
    with pytest.raises(attlm.InputError, match=r"the value of lines is -1: expected a whole number, 1 or more"):
        attlm.fit_context(["a b"], {"lm": "lm.pt"}, lines=-1)


def test_systems_need_names_of_their_own(folder):
    for name in ("input 1-best", "oracle of input 1-best"):
        with pytest.raises(attlm.InputError, match=f"two systems are called '{name}'"):
            attlm.evaluate(FIRST, REFERENCES, {name: OTHER})
    assert "two systems are called 'dev.json'" in refused("eval", "dev.json", "dev.json")
    assert "--errors and --json both go to standard output" in refused("eval", "dev.json", "--errors", "-", "--json")


def test_reference_files_are_one_path_or_several(folder):
    Path("refs").write_text("u1 dog ran\nu0 the cat sat on the mat\n")
    lists = [attlm.NbestList(f"u{place}", [attlm.Hypothesis(hyps[0], rank=1)]) for place, hyps in enumerate(FIRST)]
    several = attlm.evaluate(lists, attlm.ReferenceFiles(("refs",), by="id"))
    for paths in ("refs", Path("refs"), [Path("refs")]):
        files = attlm.ReferenceFiles(paths, by="id")
        assert files == attlm.ReferenceFiles(("refs",), by="id")
        assert attlm.evaluate(lists, files).rows == several.rows
    assert attlm.ReferenceFiles("refs", source=Path("src")).files == ("refs", "src")
    with pytest.raises(InputError, match=r"the value of paths is 1 \(int\): expected a path or several"):
        attlm.ReferenceFiles(1)
    with pytest.raises(InputError, match=r"the reference file is 1 \(int\): expected a path"):
        attlm.ReferenceFiles(["refs", 1])


def test_a_rescored_hyporadise_file_keeps_the_weight_of_its_own_score(folder):
    lm = ["--kenlm", "lm=lm.arpa", "--weight", "lm=0.5"]
    run("rescore", "dev.json", *lm, "-o", "again.json")
    assert "note: am_score, the decoder's own score, has weight 1" in run("rescore", "again.json", *lm).stderr
