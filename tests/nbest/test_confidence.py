"""Word confidences: posteriors in the slots of the confusion network, their fit, their measures, and the files that hold them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from cli_runs import folder, refused, run  # noqa: F401 - a fixture
from decision_lists import some_lists

from attlm_fairseq import InputError, TuneOptions, evaluate, rescore, tune
from attlm_fairseq.nbest.decision.confidence import AlignedAnswer, Confidence, words_of_pieces
from attlm_fairseq.nbest.decision.decision import RULES, Decision, decide
from attlm_fairseq.nbest.decision.posterior import posteriors
from attlm_fairseq.nbest.features.within_lists import standard_deviation
from attlm_fairseq.nbest.formats import open_nbest
from attlm_fairseq.nbest.formats.ctm import write_ctm
from attlm_fairseq.nbest.formats.sausage import write_sausages
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList, Sausage, WordShare
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import TUNED_ON, read_config, write_config
from attlm_fairseq.nbest.statistics.calibration import (
    JudgedWords,
    calibration_error,
    fit_confidence,
    normalised_cross_entropy,
    reliability,
    right_words,
)
from attlm_fairseq.nbest.tuning.search_options import SearchOptions
from attlm_fairseq.nbest.tuning.tuning import tune as tune_weights
from attlm_fairseq.text import parse_steps

WEIGHTS = {"am": 1.3, "rank": -0.2}


@pytest.mark.parametrize("rule", RULES)
def test_the_answers_words_have_the_share_of_the_hypotheses_with_the_same_word_there(rule):
    decision = Decision(rule, scale=0.7)
    for nbest in some_lists(1):
        decided = decide(nbest, WEIGHTS, decision)
        answer = AlignedAnswer.of(nbest, decided, WEIGHTS, decision)
        shares = posteriors(answer.totals, 0.4)
        sausage = answer.sausage(Confidence(0.4, 0.9), decision)
        assert [word for word, _ in sausage.answer] == decided.hypotheses[0].text.split() == answer.words
        expected = []
        for slot, row in zip(answer.network.slots, answer.rows, strict=True):
            same = [share for word, share in zip(slot, shares, strict=True) if word == slot[row]]
            expected += [0.9 * math.fsum(same)] if slot[row] else []
        assert [share for _, share in sausage.answer] == pytest.approx(expected, abs=1e-12)
        assert len(sausage.slots) == len(answer.network.slots)
        for slot in sausage.slots:
            assert math.fsum(share for _, share in slot) == pytest.approx(1.0, abs=1e-12)
            assert [share for _, share in slot] == sorted((share for _, share in slot), reverse=True)


def test_words_are_compared_without_case_and_written_with_it():
    texts = ["The cat", "the Cat sat", "THE dog"]
    nbest = NbestList("u", [Hypothesis(text, {"am": -float(rank)}, rank) for rank, text in enumerate(texts, 1)])
    decision = Decision(text=parse_steps(["lowercase"]).load())
    found = rescore([nbest], weights={"am": 1.0}, config=RunConfig(decision=decision, weights={"am": 1.0}, confidence=Confidence()))
    [sausage] = [of_list.sausage for of_list in found.lists]
    assert [word for word, _ in sausage.answer] == ["The", "cat"]
    assert sausage.slots[0] == (WordShare("The", pytest.approx(1.0)),)
    assert [word for word, _ in sausage.slots[1]] == ["cat", "dog"]
    assert [word for word, _ in sausage.slots[2]] == ["", "sat"]


def test_right_words_are_those_of_the_alignment_with_the_closest_reference():
    assert right_words(["a", "b", "c", "d"], [["x", "y"], ["a", "c", "d", "e"]]).tolist() == [True, False, True, True]
    assert right_words([], [["a"]]).tolist() == []
    assert right_words(["a", "b"], [[]]).tolist() == [False, False]


def test_normalised_cross_entropy_is_nists_formula():
    confidences, right = np.array([0.9, 0.8, 0.3, 0.6]), np.array([True, True, False, True])
    highest = -3 * math.log2(0.75) - math.log2(0.25)
    told = math.log2(0.9) + math.log2(0.8) + math.log2(0.7) + math.log2(0.6)
    assert normalised_cross_entropy(confidences, right) == pytest.approx((highest + told) / highest, abs=1e-12)
    assert normalised_cross_entropy(np.full(4, 0.75), right) == pytest.approx(0.0, abs=1e-12)
    assert normalised_cross_entropy(right.astype(float), right) == pytest.approx(1.0, abs=1e-5)
    assert normalised_cross_entropy(confidences, np.ones(4, dtype=bool)) is None


def test_calibration_error_is_the_mean_distance_over_words():
    confidences, right = np.array([0.95, 0.91, 0.12, 1.0]), np.array([True, False, False, True])
    bins = reliability(confidences, right)
    assert [(of.count, round(of.confidence, 6), round(of.right, 6)) for of in bins] == [(1, 0.12, 0.0), (3, 0.953333, 0.666667)]
    assert calibration_error(bins) == pytest.approx((0.12 + 3 * (2.86 / 3 - 2 / 3)) / 4, abs=1e-12)


def test_the_fit_finds_scale_and_coverage_that_made_the_words():
    """Words of three hypotheses each, right as often as coverage 0.9 and scale 0.5 say."""
    generator = np.random.default_rng(5)
    words = JudgedWords()
    for _ in range(6000):
        totals = generator.normal(0, 3, 3)
        agreement = np.array([[True, False, False], [True, True, True]])
        share = 0.9 * (agreement @ posteriors(totals, 0.5))
        words.agreement.append(agreement)
        words.totals.append(totals)
        words.right.append(generator.random(2) < share)
    found = fit_confidence(words)
    assert found.scale == pytest.approx(0.5, rel=0.06)
    assert found.coverage == pytest.approx(0.9, abs=0.01)
    right = words.all_right
    best = normalised_cross_entropy(found.coverage * words.posteriors(found.scale), right)
    for scale, coverage in [(0.4, 0.9), (0.6, 0.9), (0.5, 0.87), (0.5, 0.93), (1.0, 1.0)]:
        assert best > normalised_cross_entropy(coverage * words.posteriors(scale), right)


def test_no_word_is_certain_when_all_of_few_are_right():
    words = JudgedWords([np.ones((4, 2), dtype=bool)], [np.array([1.0, 0.0])], [np.ones(4, dtype=bool)])
    assert fit_confidence(words).coverage == pytest.approx(5 / 6, abs=1e-5)


def parsed_ctm(text: str) -> list[list[str]]:
    return [line.split(" ") for line in text.splitlines() if not line.startswith(";;")]


def test_ctm_by_the_command_line(folder):  # noqa: F811
    run("tune", "dev.json", "--kenlm", "lm.arpa", "--folds", "0", "--confidence", "--without", "rank")
    config = read_config(folder / "attlm.toml")
    assert config.confidence is not None
    assert 0 < config.confidence.coverage < 1
    assert "fitted on the other folds" in run("eval", "dev.json", "--config", "attlm.toml", "--confidence").stdout
    zeros = replace(config, weights=dict.fromkeys(config.weights, 0.0))  # as they are for want of a gain
    assert zeros.with_weights({}).tuned_on
    write_config(folder / "zeros.toml", zeros, {TUNED_ON: config.tuned_on})
    assert "fitted on the other folds" in run("eval", "dev.json", "--config", "zeros.toml", "--confidence").stdout
    run("rescore", "dev.json", "--to", "ctm", "-o", "dev.ctm")
    run("rescore", "dev.json", "--to", "1best-kaldi", "-o", "dev.txt")
    rows = parsed_ctm((folder / "dev.ctm").read_text())
    texts: dict[str, list[str]] = {}
    for name, channel, begin, duration, word, confidence in rows:
        assert channel == "1"
        assert float(begin) == len(texts.setdefault(name, []))
        assert float(duration) == 1
        assert 0 < float(confidence) <= config.confidence.coverage
        texts[name].append(word)
    assert [f"{name} {' '.join(words)}" for name, words in texts.items()] == (folder / "dev.txt").read_text().splitlines()
    assert (folder / "dev.ctm").read_text().startswith(";; no times in the lists")

    run("rescore", "dev.json", "--to", "jsonl", "-o", "dev.jsonl")
    for line in map(json.loads, (folder / "dev.jsonl").read_text().splitlines()):
        of_ctm = [[word, float(confidence)] for name, _, _, _, word, confidence in rows if name == line["id"]]
        assert line["word_confidences"] == of_ctm
    again = run("rescore", "dev.jsonl", "--to", "jsonl").stdout
    assert [json.loads(line)["word_confidences"] for line in again.splitlines()]

    rows_of_json = [{"utt": line["id"], "nbest": line["hyps"], "speaker": "s"} for line in map(json.loads, again.splitlines())]
    (folder / "own.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows_of_json))
    own = [json.loads(line) for line in run("rescore", "own.json").stdout.splitlines()]
    assert [line["word_confidences"] for line in own] == [json.loads(line)["word_confidences"] for line in again.splitlines()]
    assert all(line["speaker"] == "s" for line in own)
    told = run("rescore", "own.json", "--to", "csv").stderr
    assert "note: csv has no place for word confidences; jsonl, json have" in told
    assert "note: in csv only ids, references, texts and scores are written; left out: speaker" in told

    result = run("rescore", "dev.json", "--to", "ctm", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "--weight", "am_score=1")
    assert "posteriors at scale 1" in result.stderr


def test_without_a_fitted_scale_confidences_have_that_of_the_decision(folder):  # noqa: F811
    Path("lists").write_text("0 ||| a b ||| am= -1 ||| -1\n0 ||| a c ||| am= -2 ||| -2\n0 ||| d b ||| am= -3 ||| -3\n")
    for scale in (0.0, 0.5):
        result = run("rescore", "lists", "--weight", "am=1", "--consensus", "--scale", scale, "--to", "ctm")
        shares = np.exp(-scale * np.arange(3)) / np.exp(-scale * np.arange(3)).sum()
        found = {line.split()[4]: float(line.split()[5]) for line in result.stdout.splitlines() if not line.startswith(";;")}
        assert found == pytest.approx({"a": shares[:2].sum(), "b": shares[::2].sum()}, abs=1e-6)
        assert f"posteriors at scale {scale:g}: " in result.stderr


def test_times_come_from_the_lists(tmp_path):
    line = {
        "id": "u1",
        "hyps": [
            {"text": "fly dc today", "scores": {"am": -2}, "times": [[0.1, 0.4], [0.5, 1], [1.2, 1.5]]},
            {"text": "fly d c today", "scores": {"am": -1}},
        ],
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    result = run("rescore", tmp_path / "a.jsonl", "--weight", "am=1", "--to", "ctm")
    rows = parsed_ctm(result.stdout)
    assert [(begin, duration, word) for _, _, begin, duration, word, _ in rows] == [
        ("0.10", "0.30", "fly"),
        ("0.40", "0.10", "d"),  # no hypothesis with times has a word there: the gap
        ("0.50", "0.50", "c"),
        ("1.20", "0.30", "today"),
    ]
    for times, message in [([[0, 1]], "each of the 3 words"), ([[0, 1], [2, 1], [3, 4]], "begin <= end"), ("x", "each of the 3 words")]:
        line["hyps"][0]["times"] = times
        (tmp_path / "b.jsonl").write_text(json.dumps(line) + "\n")
        assert message in refused("rescore", tmp_path / "b.jsonl", "--weight", "am=1")


def test_confidences_of_a_ctm_file_are_measured_as_they_are(tmp_path):
    rows = [("u1", "Yes", 0.9), ("u1", "twenty-one.", 0.6), ("u2", "No", 0.3), ("u3", "a", 0.8)]
    lines = [f"{name} 1 {place}.0 1.0 {word} {share}" for place, (name, word, share) in enumerate(rows)]
    (tmp_path / "a.ctm").write_text("\n".join(lines) + "\n")
    (tmp_path / "ref").write_text("u1 yes twenty two\nu2 no\nu3 b\nu4 silence missed\n")
    options = ["eval", tmp_path / "a.ctm", "--refs", tmp_path / "ref", "--metric-text", "remove-punctuation,lowercase", "--confidence"]
    found = json.loads(run(*options, "--json").stdout)
    shares, right = np.array([0.9, 0.6, 0.6, 0.3, 0.8]), np.array([True, True, False, True, False])
    assert found["confidence"]["nce"] == pytest.approx(normalised_cross_entropy(shares, right), abs=1e-6)
    assert "as the file gives them" in run(*options).stdout
    assert found["systems"][0]["score"] == pytest.approx(100 * 4 / 7, abs=0.01)  # two substitutions, two deletions of u4
    (tmp_path / "a.ctm").write_text("".join(f"{line}\n" for line in lines).replace("0.9", "90"))
    assert "note: the confidences that the file gives are not measured: 90 is not from 0 to 1" in run(*options).stderr


def test_confidences_that_some_words_lack_are_not_measured(tmp_path):
    (tmp_path / "a.ctm").write_text("u 1 0.0 1.0 a 0.5\nv 1 0.0 1.0 b NA\n")
    (tmp_path / "ref").write_text("u a\nv c\n")
    result = run("eval", tmp_path / "a.ctm", "--refs", tmp_path / "ref", "--confidence")
    assert "note: the confidences that the file gives are not measured: 1 of 2 lists have words without one" in result.stderr
    assert "as the file gives them" not in result.stdout


def test_confidences_of_a_ctm_file_are_judged_after_the_steps_of_the_decision(tmp_path):
    (tmp_path / "a.ctm").write_text("u 1 0.0 1.0 a-b 0.5\nu 1 1.0 1.0 c 0.25\n")
    (tmp_path / "attlm.toml").write_text('[decision]\nrule = "max"\n[decision.text]\nsteps = ["remove-punctuation"]\n')
    (tmp_path / "ref").write_text("u a b d\n")
    options = ["--refs", tmp_path / "ref", "--config", tmp_path / "attlm.toml", "--confidence", "--json"]
    found = json.loads(run("eval", tmp_path / "a.ctm", *options).stdout)["confidence"]
    assert (found["words"], found["right"]) == (3, pytest.approx(2 / 3, abs=1e-6))
    assert found["ece"] == pytest.approx((2 * 0.5 + 0.25) / 3, abs=1e-6)


def test_ctm_with_new_words_keeps_the_channel(tmp_path):
    (tmp_path / "a.ctm").write_text("u A 1.0 0.5 fair 0.5\nu A 1.5 0.5 to 0.5\n")
    (tmp_path / "phrases").write_text("fare\t2\tfair\n")
    options = ["--phrases", tmp_path / "phrases", "--weight", "phrases=1"]
    rows = parsed_ctm(run("rescore", tmp_path / "a.ctm", *options).stdout)
    assert [row[:5] for row in rows] == [["u", "A", "1.00", "0.50", "fare"], ["u", "A", "1.50", "0.50", "to"]]


def test_the_words_of_an_answer_are_those_of_its_text(tmp_path):
    """Text steps divide a word, leave one out, or make other words of all: each word of the text keeps its time."""
    line = {
        "id": "u1",
        "hyps": [{"text": "Yes - twenty-seventh.", "times": [[0.1, 0.4], [0.5, 0.6], [0.6, 1.0]]}, {"text": "yes twenty one"}],
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    (tmp_path / "attlm.toml").write_text(
        "[weights]\nrank = -1.0\n[confidence]\nscale = 1.0\ncoverage = 0.9\n"
        '[decision]\nrule = "max"\n[decision.text]\nsteps = ["remove-punctuation", "lowercase"]\n'
    )
    written = json.loads(run("rescore", tmp_path / "a.jsonl", "--config", tmp_path / "attlm.toml").stdout)
    of_first = pytest.approx(0.9 / (1 + math.exp(-1)), abs=1e-6)
    assert written["word_confidences"] == [["Yes", 0.9], ["-", 0.9], ["twenty-seventh.", of_first]]
    rows = parsed_ctm(run("rescore", tmp_path / "a.jsonl", "--config", tmp_path / "attlm.toml", "--to", "ctm").stdout)
    assert [row[2:5] for row in rows] == [["0.10", "0.30", "Yes"], ["0.50", "0.10", "-"], ["0.60", "0.40", "twenty-seventh."]]
    consensus = ["--consensus", "--scale", "1", "--to", "ctm", "--weight", "rank=-1", "--metric-text", "remove-punctuation,lowercase"]
    rows = parsed_ctm(run("rescore", tmp_path / "a.jsonl", *consensus).stdout)
    assert [row[2:5] for row in rows] == [["0.10", "0.30", "Yes"], ["0.60", "0.20", "twenty"], ["0.80", "0.20", "seventh"]]


def test_words_of_an_answer_that_shares_none_with_timed_hypotheses():
    nbest = NbestList("u", [Hypothesis("b c", {"am": 0.0}, 1), Hypothesis("a", {"am": -1.0}, 2, times=((0.5, 1.5),))])
    for text, times in (("b c", ((0.5, 1.0), (1.0, 1.5))), ("b", ((0.5, 1.5),)), ("", ())):
        nbest.hypotheses[0] = replace(nbest.hypotheses[0], text=text)
        decided = decide(nbest, {"am": 1.0}, Decision())
        assert AlignedAnswer.of(nbest, decided, {"am": 1.0}, Decision()).sausage(Confidence(), Decision()).times == times


@pytest.mark.parametrize("text", ["a bc def", "- a", "a-b c", "--", ""])
def test_words_of_pieces(text):
    """Exactly, if each word is treated by itself; by the share of letters for steps over the whole text."""
    by_word = parse_steps(["remove-punctuation", "lowercase"]).load()
    prepared = [by_word.prepared(word).split() for word in text.split()]
    assert words_of_pieces(text, by_word) == [place for place, of_word in enumerate(prepared) for _ in of_word]
    joined = parse_steps(["join-subwords:bpe"]).load()
    assert words_of_pieces("a@@ b cd e@@ f", joined) == [0, 2, 3]


@pytest.mark.parametrize("rule", ["max", "consensus"])
def test_times_are_in_order_whatever_the_answer(rule):
    """Words of one recording, heard, joined, divided or left out by each hypothesis; some have no times."""
    generator = np.random.default_rng(7)
    decision = Decision(rule, scale=0.5)
    for number in range(200):
        hypotheses = []
        for rank in range(1, 5):
            words, times, begin = [], [], 0.0
            for word in "abcdefg":
                length = float(generator.choice([0.1, 0.3]))
                kind = generator.integers(6)
                heard = [[], [word * 2, word]][kind] if kind < 2 else [word]
                bounds = np.linspace(begin, begin + length, len(heard) + 1).tolist() if heard else []
                words += heard
                times += pairwise(bounds)
                begin += length + float(generator.choice([0.0, 0.2]))
            timed = number == 0 or (rank > 1 and generator.random() < 0.6)
            hypotheses.append(Hypothesis(" ".join(words), {"am": -float(generator.random())}, rank, times=tuple(times) if timed else ()))
        nbest = NbestList("u", hypotheses)
        decided = decide(nbest, WEIGHTS, decision)
        sausage = AlignedAnswer.of(nbest, decided, WEIGHTS, decision).sausage(Confidence(), decision)
        assert [word for word, _ in sausage.answer] == decided.hypotheses[0].text.split()
        if not any(hypothesis.times for hypothesis in hypotheses):
            assert sausage.times == ()
            continue
        if decided.hypotheses[0].times:
            assert np.allclose(sausage.times, decided.hypotheses[0].times)
        assert len(sausage.times) == len(sausage.answer)
        assert all(end > begin for begin, end in sausage.times)
        assert all(after[0] >= before[1] - 1e-9 for before, after in pairwise(sausage.times))


def parsed_mesh(text: str) -> tuple[str, list[dict[str, float]]]:
    """A word mesh as the manual of SRILM's wlat-format describes it."""
    fields = [line.split() for line in text.splitlines()]
    assert [line[0] for line in fields[:3]] == ["name", "numaligns", "posterior"]
    assert int(fields[1][1]) == len(fields) - 3
    for number, line in enumerate(fields[3:]):
        assert line[:2] == ["align", str(number)]
    return fields[0][1], [dict(zip(line[2::2], map(float, line[3::2]), strict=True)) for line in fields[3:]]


def test_sausages_are_srilms_word_meshes(folder):  # noqa: F811
    run("rescore", "dev.json", "--weight", "am_score=1", "--to", "sausage", "-o", "meshes")
    assert sorted(path.name for path in (folder / "meshes").iterdir()) == ["0", "1", "2"]
    name, slots = parsed_mesh((folder / "meshes/1").read_text())
    share = 1 / (1 + math.exp(-0.1))
    assert name == "1"
    assert slots == [{"a": 1.0}, {"dog": pytest.approx(share, abs=1e-6), "dock": pytest.approx(1 - share, abs=1e-6)}, {"ran": 1.0}]
    (folder / "short.jsonl").write_text('{"id": "u", "hyps": [{"text": "a b"}, {"text": "a"}]}\n')
    run("rescore", "short.jsonl", "--weight", "rank=-1", "--to", "sausage", "-o", "short")
    _, slots = parsed_mesh((folder / "short/u").read_text())
    assert list(slots[1]) == ["b", "*DELETE*"]
    assert "already exists" in refused("rescore", "dev.json", "--weight", "am_score=1", "--to", "sausage", "-o", "meshes")
    assert "not to standard output" in refused("rescore", "dev.json", "--weight", "am_score=1", "--to", "sausage")


@pytest.mark.parametrize("name", ["", "a b", "../up", ".x", "a/b", "x" * 201])
def test_ids_that_the_files_cannot_hold(name, tmp_path):
    sausage = Sausage(((WordShare("a", 1.0),),), (WordShare("a", 0.9),))
    lists = [NbestList(name, [Hypothesis("a")], sausage=sausage)]
    with pytest.raises(InputError, match="the id"):
        write_sausages(lists, str(tmp_path / "meshes"))
    if name in ("", "a b"):
        with pytest.raises(InputError, match="the id"):
            write_ctm(lists, str(tmp_path / "a.ctm"))
    assert not list(tmp_path.iterdir())


def test_a_word_that_means_no_word(tmp_path):
    sausage = Sausage(((WordShare("*DELETE*", 1.0),),), (WordShare("*DELETE*", 0.9),))
    with pytest.raises(InputError, match="means no word"):
        write_sausages([NbestList("u", [Hypothesis("*DELETE*")], sausage=sausage)], str(tmp_path / "meshes"))


def test_consensus_answers_have_confidences_too(folder):  # noqa: F811
    result = run("rescore", "dev.json", "--weight", "am_score=1", "--consensus", "--scale", "1", "--to", "ctm")
    texts = run("rescore", "dev.json", "--weight", "am_score=1", "--consensus", "--scale", "1", "--to", "1best").stdout.split()
    assert [row[4] for row in parsed_ctm(result.stdout)] == texts


def test_eval_judges_lists_that_the_fit_has_not_seen(folder):  # noqa: F811
    items = [
        {
            "id": str(number),
            "input": [f"a dog {number}", f"a dock {number}"],
            "output": f"a dog {number}" if number % 4 else f"a dock {number}",
            "am_score": [0, -1],
        }
        for number in range(40)
    ]
    (folder / "many.json").write_text(json.dumps(items))
    result = run("eval", "many.json", "--weight", "am_score=1", "--confidence", "--report", "many.html")
    assert "fitted on the other folds, 5 in all" in result.stdout
    assert "Normalised cross entropy" in (folder / "many.html").read_text()
    found = json.loads(run("eval", "many.json", "--weight", "am_score=1", "--confidence", "--json").stdout)["confidence"]
    assert found["words"] == 120
    assert sum(of["words"] for of in found["bins"]) == 120
    assert found["right"] == pytest.approx(110 / 120, abs=1e-6)

    write_config(folder / "fitted.toml", RunConfig(weights={"am_score": 1.0}, confidence=Confidence(0.8, 0.95)), {})
    found = json.loads(run("eval", "many.json", "--config", "fitted.toml", "--confidence", "--json").stdout)["confidence"]
    assert (found["scale"], found["coverage"]) == (0.8, 0.95)
    assert "--metric wer" in refused("eval", "many.json", "--metric", "cer", "--confidence")


def test_a_fit_is_of_its_weights_alone(tmp_path):
    config = RunConfig(weights={"am": 1.0}, confidence=Confidence(0.3, 0.9))
    write_config(tmp_path / "attlm.toml", config, {})
    assert read_config(tmp_path / "attlm.toml").confidence == Confidence(0.3, 0.9)
    assert config.with_weights({"am": 1.0}).confidence == Confidence(0.3, 0.9)
    assert config.with_weights({"am": 2.0}).confidence is None
    for text, message in [
        ("scale = -1", "not negative"),
        ("coverage = 2", "from 0 to 1"),
        ("scale = 'x'", "a finite number"),
        ("bins = 3", "bins"),
    ]:
        (tmp_path / "bad.toml").write_text(f"[confidence]\n{text}\n")
        with pytest.raises(InputError, match=message):
            read_config(tmp_path / "bad.toml")


def test_fields_of_hyporadise_that_repeat_the_hypotheses_are_named(folder):  # noqa: F811
    item = {"input": ["a mad", "a mat", "a mud"], "output": "a mat", "input1": "A mad.", "input2": "a mat. a mud.", "instruction": "choose"}
    (folder / "one.json").write_text(json.dumps([item | {"am_score": [-2, -1, -3]}]))
    result = run("rescore", "one.json", "--weight", "am_score=1")
    assert "input1, input2 of the lists repeat the hypotheses" in result.stderr
    [written] = json.loads(result.stdout)
    assert written["input"] == ["a mat", "a mad", "a mud"]
    assert (written["input1"], written["input2"]) == ("A mad.", "a mat. a mud.")
    assert "repeat" not in run("rescore", "one.json", "--weight", "rank=-1").stderr
    assert open_nbest(str(folder / "one.json"))[0].name == "hyporadise"


def test_the_fit_answers_lists_with_weights_that_have_not_seen_them():
    """Five scores of noise: weights tuned on few lists choose well on these alone, which made confidences too high. Folds by loops."""
    generator = np.random.default_rng(3)
    lists = []
    for number in range(90):
        reference = " ".join(generator.choice(["a", "b", "c", "d"], 6))
        hypotheses = []
        for rank in range(1, 7):
            words = [word if generator.random() < 0.6 else "x" for word in reference.split()]
            hypotheses.append(Hypothesis(" ".join(words), {f"s{i}": float(generator.normal()) for i in range(5)}, rank))
        lists.append(NbestList(str(number), hypotheses, references=[reference]))
    lists, others = lists[:30], lists[30:]
    options = TuneOptions(confidence=True, strength=1.0, folds=3, restarts=1, without=["rank", "words"])
    found = tune(lists, options=options)
    measured = found.measurement.lists
    names = list(found.weights.keys() - {"rank", "words"})
    columns = [measured.names.index(name) for name in names]

    def totals(weights):
        return [of_list[:, columns] @ [weights[name] for name in names] for of_list in measured.features]

    words, fold_of = [], np.arange(30) % 3
    for fold in range(3):
        rest, own = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        features, statistics = [measured.features[i][:, columns] for i in rest], [measured.statistics[i] for i in rest]
        weights = tune_weights(features, statistics, make_metric("wer"), names=names, options=SearchOptions(restarts=1)).weights
        stretch = standard_deviation(totals(found.weights)) / standard_deviation(totals(weights))
        weights = {"rank": 0.0, "words": 0.0, **{name: stretch * weight for name, weight in weights.items()}}
        words.append(JudgedWords.of([measured.lists[i] for i in own], weights, Decision()))
    expected = fit_confidence(JudgedWords.joined(words))
    assert found.config.confidence.scale == pytest.approx(expected.scale, rel=1e-3)
    assert found.config.confidence.coverage == pytest.approx(expected.coverage, abs=1e-5)
    seen = tune(lists, options=replace(options, folds=0))
    assert seen.weights == found.weights
    nce = [evaluate(others, config=config, confidence=True).calibration.nce for config in (found.config, seen.config)]
    assert nce[0] > nce[1] + 0.05


def test_a_list_that_keeps_its_order_has_the_confidences_of_its_first_text(tmp_path):
    """No vote makes its answer, although other lists get theirs by vote."""
    incomplete = {"id": "u1", "hyps": [{"text": "x p q"}, {"text": "a p q"}, {"text": "a p r", "scores": {"am": -1}}, {"text": "a s q"}]}
    whole = {"id": "u2", "hyps": [{"text": text, "scores": {"am": -1.0}} for text in ("x p q", "a p q", "a p r", "a s q")]}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (incomplete, whole)))
    options = ["--weight", "am=1", "--consensus", "--scale", 0.1, "--keep-incomplete"]
    rows = parsed_ctm(run("rescore", tmp_path / "a.jsonl", *options, "--to", "ctm").stdout)
    assert [row[4] for row in rows] == ["x", "p", "q", "a", "p", "q"]
    assert run("rescore", tmp_path / "a.jsonl", *options, "--to", "1best").stdout == "x p q\na p q\n"


def test_a_vote_for_the_text_of_a_hypothesis_is_written_as_that_in_ctm_too(tmp_path):
    texts = {"the Cat sat": -3.0, "the cat": -1.0, "The cat": -1.2}
    line = {"id": "u1", "hyps": [{"text": text, "scores": {"am": score}} for text, score in texts.items()]}
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    options = ["--weight", "am=1", "--consensus", "--scale", 1, "--metric-text", "lowercase"]
    assert run("rescore", tmp_path / "a.jsonl", *options, "--to", "1best").stdout == "the cat\n"
    assert [row[4] for row in parsed_ctm(run("rescore", tmp_path / "a.jsonl", *options, "--to", "ctm").stdout)] == ["the", "cat"]
