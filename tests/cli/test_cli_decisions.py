"""What tune, rescore and eval decide, and on what grounds: rules, constraints, and the refusal to make lists worse."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import tomlkit
from cli_runs import refused, run
from lm_files import write_checkpoint

import attlm_fairseq as attlm
from attlm_fairseq.nbest.corrections.spec import CandidateSpec
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.text import parse_steps
from attlm_fairseq.verbs import verdict
from attlm_fairseq.verbs.verdict import as_options

SENTENCES = ["the cat sat on the mat", "a dog sat on a mat", "the dog ran", "a cat ran", "the cat sat on a dog"]


@pytest.fixture
def lists(folder):
    """Lists on which the n-gram helps (helps.json), with the best already first (good.json), with one that is not (once.json)."""
    generator = np.random.default_rng(5)
    helps, good = [], []
    for number, parts in enumerate(list(itertools.product(SENTENCES, repeat=3))[::3][:40]):
        reference = " ".join(parts)
        words = reference.split()
        wrong = [" ".join([*words[:place], "blah", *words[place + 1 :]]) for place in generator.choice(len(words), 2, replace=False)]
        texts = [wrong[0], reference, wrong[1]] if number % 2 else [reference, *wrong]
        scores = sorted((round(float(score), 3) for score in generator.normal(-0.5, 0.1, size=3)), reverse=True)
        helps.append({"input": texts, "output": reference, "am_score": scores})
        good.append({"input": [reference, *wrong] if number % 8 else wrong, "output": reference})
    (folder / "helps.json").write_text(json.dumps(helps))
    (folder / "good.json").write_text(json.dumps(good))
    (folder / "once.json").write_text(json.dumps([*good[2:8], helps[1], *good[10:16]]))
    return folder


def rows_of(output: str) -> dict[str, list[str]]:
    """Label -> score, lower, upper, difference, p or what stands for it."""
    found = {}
    for line in output.splitlines():
        compared = r"([+-][\d.]+)(?: \([+-][\d.]+ \.\. [+-][\d.]+\))?, (?:p [=<] )?([\d.]+|in-sample)"
        if match := re.match(rf"(.+?) +([\d.]+)  ([\d.]+) \.\. ([\d.]+)(?: +{compared})?$", line):
            found[match[1]] = list(match.groups()[1:])
    return found


def test_a_real_gain_is_written_and_told(lists):
    result = run("tune", "helps.json", "--kenlm", "lm.arpa", "--mbr", "wer", "--consensus")
    rows = rows_of(result.stdout)
    assert list(rows) == [
        "input 1-best",
        *(label for name in ("tuned", "mbr-wer", "consensus") for label in (name, f"{name}, 5-fold")),
        "best of 3 rules, 5-fold",
        "kenlm alone",
        "oracle",
    ]
    assert rows["input 1-best"][3:] == rows["oracle"][3:] == [None, None]
    for name in ("tuned", "mbr-wer", "consensus"):  # on the lists that they were tuned on, anything is significant
        assert rows[name][4] == "in-sample"
        assert 0 < float(rows[f"{name}, 5-fold"][4]) <= 1
    assert float(rows["tuned, 5-fold"][3]) < 0
    assert float(rows["tuned, 5-fold"][4]) <= 0.05
    assert "the p of cross-validated rows accounts for folds" in result.stdout
    assert "WARNING: cross" not in result.stderr
    assert "decision: max" in result.stderr  # no rule is better than the maximum here
    config = read_config(lists / "attlm.toml")
    assert any(config.weights.values())
    record = tomlkit.parse((lists / "attlm.toml").read_text())["tuning"]
    assert record["gain"] is True
    assert record["p"] <= 0.05
    assert "tuned_weights" not in record


def test_a_gain_that_may_be_chance_is_warned_of(monkeypatch, lists):
    warning = r"WARNING: the gain may be chance \(tuned, 5-fold: -[0-9.]+ WER, p = 0\.\d\d\): measure the weights on other lists"
    assert re.search(warning, run("tune", "helps.json", "--kenlm", "lm.arpa").stderr) is None
    monkeypatch.setattr(verdict, "UNSURE", 0.0)
    assert re.search(warning, run("tune", "helps.json", "--kenlm", "lm.arpa").stderr)
    assert "may be chance" not in run("tune", "good.json", "--kenlm", "lm.arpa").stderr  # there is none
    assert "may be chance" not in run("tune", "helps.json", "--kenlm", "lm.arpa", "--folds", 0).stderr


def test_lists_that_repeat_another_are_told(lists):
    helps = json.loads((lists / "helps.json").read_text())
    (lists / "twice.json").write_text(json.dumps(helps + helps[:10]))
    message = "note: 10 of 50 lists repeat the references or the hypotheses of another: such lists count as one"
    assert message in run("tune", "twice.json", "--kenlm", "lm.arpa", "--report", "twice.html").stderr
    assert message.removeprefix("note: ") in (lists / "twice.html").read_text()
    assert "repeat" not in run("tune", "helps.json", "--kenlm", "lm.arpa").stderr


def test_without_a_gain_the_lists_stay_as_read(lists):
    result = run("tune", "good.json", "--kenlm", "lm.arpa")
    assert "WARNING: cross-validation shows no gain over the input order to rely on (tuned, 5-fold: " in result.stderr
    config = read_config(lists / "attlm.toml")
    assert set(config.weights.values()) == {0.0}
    run("rescore", "good.json", "-o", "out.json")
    before, after = (json.loads((lists / name).read_text()) for name in ("good.json", "out.json"))
    assert [item["input"] for item in before] == [item["input"] for item in after]
    record = tomlkit.parse((lists / "attlm.toml").read_text())["tuning"]
    assert record["gain"] is False
    assert record["strength"] == 0


def test_weights_that_are_not_trusted_can_be_used_without_another_run(lists):
    """A gain in one list is no ground for trust. The warning names the options, and attlm.toml the weights."""
    result = run("tune", "once.json", "--kenlm", "lm.arpa", "--json")
    options = re.search(
        r"To use the best ones found all the same, add to `attlm rescore`: ((?:--weight \S+ ?)+)$", result.stderr, re.MULTILINE
    )[1].split()
    record = tomlkit.parse((lists / "attlm.toml").read_text())["tuning"]
    assert options == [part for name, weight in record["tuned_weights"].items() if weight for part in ("--weight", f"{name}={weight:g}")]
    found = json.loads(result.stdout)
    assert found["strength"] == 0
    assert found["tuned_weights"] == record["tuned_weights"]
    assert "total = " in run("rescore", "once.json", *options, "-o", "out.json").stderr


def test_the_line_to_paste_is_for_a_shell():
    weights, decision = {"am;b": 0.1, "none": 0.0}, Decision("mbr-wer", scale=1 / 3)
    line = as_options(weights, decision, CandidateSpec(table=Path("a table.tsv")))
    assert shlex.split(line) == ["--corrections", "a table.tsv", "--mbr", "wer", "--scale", repr(1 / 3), "--weight", "am;b=0.1"]


def test_refusal_writes_nothing(lists):
    options = ["good.json", "--kenlm", "lm.arpa"]
    result = run("tune", *options, "--no-gain", "fail", code=2)
    assert "nothing is written" in result.stderr
    assert not (lists / "attlm.toml").exists()
    assert "To use the best ones found" not in result.stderr
    for option in (("--strength", "1"), ("--folds", "0")):
        assert f"leave out {' '.join(option)}" in refused("tune", *options, "--no-gain", "fail", *option)
    run("tune", "once.json", "--kenlm", "lm.arpa", "--strength", "1")
    assert any(read_config(lists / "attlm.toml").weights.values())


def test_without_cross_validation_it_says_so(lists):
    result = run("tune", "helps.json", "--kenlm", "lm.arpa", "--folds", 0)
    assert "note: without cross-validation" in result.stderr
    assert not any("-fold" in label for label in rows_of(result.stdout))
    assert "cross-validated" not in result.stdout
    assert any(read_config(lists / "attlm.toml").weights.values())


def test_intervals_and_fixed_weights(lists):
    run("tune", "helps.json", "--kenlm", "lm.arpa", "--fix", "am_score=1", "--interval", "kenlm=0.25:0.5", "--interval", "words=:0")
    weights = read_config(lists / "attlm.toml").weights
    assert weights["am_score"] == 1
    assert 0.25 <= weights["kenlm"] <= 0.5
    assert weights["words"] <= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--interval", "kenlm=1"], "--interval 'kenlm=1': expected NAME=LOW:HIGH"),
        (["--interval", "kenlm=2:1"], "the lower one first"),
        (["--interval", "kenlm=nan:1"], "the lower one first"),
        (["--interval", "x=0:1"], "the features are am_score, kenlm"),
        (["--fix", "kenlm"], "expected NAME=NUMBER"),
        (["--fix", "kenlm=inf"], "expected a finite number"),
        (["--fix", "kenlm=1", "--interval", "kenlm=0:1"], "has been given"),
    ],
)
def test_bad_constraints_are_one_line(lists, options, message):
    result = run("tune", "helps.json", "--kenlm", "lm.arpa", *options, code=2)
    assert message in result.stderr.splitlines()[-1]
    assert not (lists / "attlm.toml").exists()


def test_mbr_orders_by_risk_and_says_so(lists):
    options = ["--kenlm", "lm.arpa", "--weight", "kenlm=0.3", "--weight", "rank=-0.2"]
    result = run("rescore", "helps.json", *options, "--mbr", "wer", "--scale", 0.5, "-o", "out.json")
    assert "total = 0.3 kenlm + -0.2 rank; decision: mbr-wer at 0.5" in result.stderr
    out = json.loads((lists / "out.json").read_text())
    for item in out:
        assert item["total_score"] == sorted(item["total_score"], reverse=True)
        # the risk of the second wrong hypothesis: 1 from the reference, 2 from the other
        assert -2 < item["total_score"][-1] < item["total_score"][0] <= 0
    assert sum(item["input"][0] == item["output"] for item in out) == 40  # the reference lies between the others


def test_consensus_writes_texts(lists):
    (lists / "votes.txt").write_text("a x c d\na b y d\nz b c d\n\nthe mat\n")
    result = run("rescore", "votes.txt", "--weight", "rank=-1", "--consensus", "--scale", 0.1)
    assert result.stdout == "a b c d\nthe mat\n"
    assert "2 lists, 4 hypotheses; 1 changed (another 1-best text), 1 unchanged; 1 answers are in no list" in result.stderr
    kaldi = run("rescore", "votes.txt", "--weight", "rank=-1", "--consensus", "--scale", 0.1, "--to", "1best-kaldi").stdout
    assert kaldi == "0 a b c d\n1 the mat\n"
    to_jsonl = ["--consensus", "--scale", 0.1, "--to", "jsonl"]
    votes = attlm.rescore("votes.txt", config=attlm.run_config(weights={"rank": -1.0}, decision=Decision("consensus", 0.1))).lists
    texts = [json.loads(line) for line in run("rescore", "votes.txt", "--weight", "rank=-1", *to_jsonl).stdout.splitlines()]
    assert texts == [{"id": nbest.id, "hyps": [{"text": nbest.hypotheses[0].text, "scores": {}}]} for nbest in votes]
    told = run("rescore", "helps.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1", *to_jsonl[:-1], "moses", "-o", "texts.moses").stderr
    assert "moses has no references" in told
    for needy in ("nemo", "srilm", "mlm"):
        message = f"--to {needy} needs the decoder's own score, which a consensus does not have: write jsonl, or 1best"
        assert message in refused("rescore", "helps.json", "--weight", "rank=-1", "--consensus", "--to", needy)
    assert "new/: a folder, but jsonl is a file" in refused(
        "rescore", "votes.txt", "--weight", "rank=-1", "--consensus", "--to", "jsonl", "-o", "new/"
    )


def test_the_decision_of_the_configuration_counts(lists):
    (lists / "attlm.toml").write_text('[weights]\nrank = -1\n[decision]\nrule = "consensus"\nscale = 0.1\n')
    (lists / "votes.txt").write_text("a x c d\na b y d\nz b c d\n\nthe mat\n")
    assert read_config(lists / "attlm.toml").decision == Decision("consensus", 0.1)
    assert run("rescore", "votes.txt").stdout == "a b c d\nthe mat\n"
    assert run("rescore", "votes.txt", "--max", "--to", "1best").stdout == "a x c d\nthe mat\n"
    assert run("rescore", "votes.txt", "--scale", 50).stdout == "a x c d\nthe mat\n"
    (lists / "attlm.toml").write_text('[decision]\nrule = "vote"\n')
    assert "[decision] rule = 'vote', expected one of max, mbr-wer" in refused("rescore", "votes.txt")
    (lists / "attlm.toml").write_text("[decision]\nscale = true\n")
    assert "[decision] scale = True, expected a finite number" in refused("rescore", "votes.txt")


def test_a_second_tuning_says_what_it_drops(lists):
    Path("attlm.toml").write_text('[weights]\nam_score = 1\n[decision]\nrule = "mbr-wer"\n[confidence]\nscale = 1.0\ncoverage = 0.9\n')
    tuning = ["tune", "helps.json", "--folds", 0, "--restarts", 0, "-o", "other.toml"]
    lines = (
        "note: the rule mbr-wer is not tuned again: --mbr wer does that",
        "note: word confidences are not fitted again: --confidence does",
    )
    told = run(*tuning).stderr
    assert all(line in told for line in lines)
    told = run(*tuning, "--mbr", "wer", "--confidence").stderr
    assert not any(line in told for line in lines)


def test_rules_exclude_each_other(lists):
    options = ["rescore", "helps.json", "--weight", "rank=-1"]
    assert "exclude each other" in refused(*options, "--mbr", "wer", "--consensus")
    assert "the maximum has none" in refused(*options, "--max", "--scale", 1)


def test_a_scale_of_confidences_alone(lists):
    """The answer is that of the maximum at any scale."""
    (lists / "scaled.jsonl").write_text('{"id": "u", "hyps": [{"text": "a", "scores": {"am": -1}}, {"text": "b", "scores": {"am": -3}}]}\n')
    options = ["rescore", "scaled.jsonl", "--weight", "am=1", "--to", "ctm", "--scale"]
    for scale in (0, 0.5, 2):
        *_, word, confidence = run(*options, scale).stdout.split()
        assert (word, float(confidence)) == ("a", pytest.approx(1 / (1 + math.exp(-2 * scale)), abs=1e-5))
    expected = run(*options, 2).stdout
    (lists / "attlm.toml").write_text("[confidence]\nscale = 1.0\ncoverage = 0.9\n[weights]\nam = 1.0\n")
    assert "confidences have the scale in [confidence] of the configuration" in refused(*options, 2, "--config", "attlm.toml")
    other = (*options[:2], "--weight", "am=0.5", *options[4:], 4, "--config", "attlm.toml")
    assert run(*other).stdout == expected  # [confidence] was fitted for other weights


def test_eval_rescores_where_asked(lists):
    run("tune", "helps.json", "--kenlm", "lm.arpa")
    plain = run("eval", "helps.json")  # an attlm.toml of this folder does not count by itself
    assert list(rows_of(plain.stdout)) == ["helps.json", "oracle"]
    rows = rows_of(run("eval", "helps.json", "--config", "attlm.toml").stdout)
    assert list(rows) == ["helps.json", "rescored, max", "kenlm alone", "oracle"]
    run("rescore", "helps.json", "-o", "out.json")
    rows = rows_of(run("eval", "helps.json", "out.json", "--config", "attlm.toml", "--consensus", "--scale", 40).stdout)
    assert list(rows) == ["helps.json", "rescored, consensus at 40", "kenlm alone", "out.json", "oracle of helps.json"]
    assert rows["rescored, consensus at 40"] == rows["out.json"]
    assert float(rows["out.json"][3]) < 0
    own = rows_of(run("eval", "helps.json", "--weight", "am_score=1", "--mbr", "cer").stdout)
    assert list(own) == ["helps.json", "rescored, mbr-cer at 1", "oracle"]
    assert "no weight for kenlm" in run("eval", "helps.json", "--kenlm", "lm.arpa", code=2).stderr


def test_scales_of_rules_that_did_not_win_are_kept(lists):
    result = run("tune", "helps.json", "--kenlm", "lm.arpa", "--mbr", "wer", "--consensus")
    decision = read_config(lists / "attlm.toml").decision
    assert (decision.rule, list(decision.scales)) == ("max", ["mbr-wer", "consensus"])
    table = result.stdout[result.stdout.index("scales of the posteriors") :]
    for rule, options in (("mbr-wer", ("--mbr", "wer")), ("consensus", ("--consensus",))):
        scale = decision.scale_of(rule)
        assert re.search(rf"^  {rule} +{scale:.6g}$", table, re.MULTILINE)
        found = run("rescore", "helps.json", *options, "-o", "out")
        assert f"decision: {rule} at {scale:g}" in found.stderr
        assert "was not tuned" not in found.stderr
        assert f"rescored, {rule} at {scale:g}" in rows_of(run("eval", "helps.json", "--config", "attlm.toml", *options).stdout)
    for command in (("rescore", "helps.json", "-o", "out"), ("eval", "helps.json", "--config", "attlm.toml")):
        told = "note: scale 1 was not tuned for these weights: `attlm tune --mbr cer` finds one, --scale sets it"
        assert told in run(*command, "--mbr", "cer").stderr
        assert "was not tuned for these weights: `attlm tune --consensus`" in run(*command, "--consensus", "--weight", "kenlm=9").stderr
        assert "was not tuned" not in run(*command, "--mbr", "cer", "--scale", 1).stderr
        assert "was not tuned" not in run(*command).stderr


def test_an_lm_without_weight_is_one_line_under_every_rule(lists):
    for options in (["--mbr", "wer"], ["--consensus"]):
        [line] = run("rescore", "helps.json", "--kenlm", "lm.arpa", *options, "-o", "out", code=2).stderr.splitlines()
        assert line.startswith("attlm: error: no weight for kenlm; ")


def test_lists_that_tuning_leaves_as_read_stay_so_under_every_rule(lists):
    run("tune", "good.json", "--kenlm", "lm.arpa", "--mbr", "wer")
    assert read_config(lists / "attlm.toml").decision == Decision()
    for options in (["--mbr", "wer"], ["--mbr", "cer"], ["--consensus"]):
        result = run("rescore", "good.json", *options, "--to", "1best", "-o", "out")
        assert "note: all weights are 0: posteriors go by rank" in result.stderr
        assert (lists / "out").read_text().splitlines() == [item["input"][0] for item in json.loads((lists / "good.json").read_text())]
        rows = rows_of(run("eval", "good.json", "--config", "attlm.toml", *options).stdout)
        assert rows["good.json"][0] == next(row[0] for label, row in rows.items() if label.startswith("rescored"))


CASES = """\
{"ref": "hello world", "hyps": [{"text": "a b", "scores": {"s": -1.0}}, {"text": "Hello World", "scores": {"s": -1.2}},\
 {"text": "hello world", "scores": {"s": -1.2}}]}
"""


def test_rules_ignore_case_where_the_metric_does(lists):
    (lists / "cases").write_text(CASES)
    own = ("--weight", "s=1")
    for rule in (["--mbr", "wer"], ["--mbr", "bleu"], ["--consensus"]):
        for metric, score in (([], "100.00"), (["--metric-text", "lowercase"], "0.00")):
            rows = rows_of(run("eval", "cases", *own, *rule, *metric).stdout)
            assert next(row[0] for label, row in rows.items() if label.startswith("rescored")) == score
            if metric:
                assert run("rescore", "cases", *own, *rule, *metric, "--to", "1best").stdout == "Hello World\n"  # as read
    assert "--metric-text is for --mbr or --consensus" in refused("rescore", "cases", *own, "--metric-text", "lowercase")
    run("tune", "cases", "--metric-text", "lowercase", "--mbr", "wer", "--folds", 0)
    assert read_config(lists / "attlm.toml").decision.text == parse_steps(["lowercase"])
    assert "over lowercase" in run("rescore", "cases", "--mbr", "cer", "-o", "out").stderr
    for name in ("wer", "external"):
        Path("own.toml").write_text(f'[weights]\ns = 1\n[metric]\nname = "{name}"\ntext = {{ steps = ["lowercase"] }}\n')
        assert run("rescore", "cases", "--config", "own.toml", "--mbr", "wer", "--to", "1best").stdout == "Hello World\n"
        assert attlm.rescore("cases", config=attlm.run_config("own.toml", decision="mbr-wer")).lists[0].hypotheses[0].text == "Hello World"


TWICE = """\
{"ref": "a b", "hyps": [{"text": "a b", "scores": {"s": -1.0}}, {"text": "a b", "scores": {"s": -0.5}}]}
{"ref": "a b", "hyps": [{"text": "a c", "scores": {"s": -1.0}}, {"text": "a b", "scores": {"s": -0.5}}]}
"""


@pytest.mark.parametrize("rule", [["--max"], ["--mbr", "wer"], ["--consensus"]])
def test_the_same_text_from_another_hypothesis_is_no_change(lists, rule):
    (lists / "twice").write_text(TWICE)
    result = run("rescore", "twice", "--weight", "s=1", *rule, "-o", "out")
    assert "2 lists, 4 hypotheses; 1 changed (another 1-best text), 1 unchanged" in result.stderr
    run("eval", "twice", "--weight", "s=1", *rule, "--report", "page.html")
    page = (lists / "page.html").read_text()
    assert "<b>1</b>unchanged" in page
    assert '<b class="gain">1</b>changed, better' in page


def test_weights_get_no_p_on_the_lists_that_they_were_tuned_on(lists):
    """In any order, under any metric, in table and pages; other lists and other weights have one."""
    run("tune", "helps.json", "--kenlm", "lm.arpa")
    items = json.loads((lists / "helps.json").read_text())
    (lists / "same.json").write_text(json.dumps(items[::-1]))
    others = [{**item, "output": f"{item['output']} {place}"} for place, item in enumerate(items)]
    (lists / "other.json").write_text(json.dumps(others))
    told = "the weights were tuned on these lists: they look too good, so there is no p"
    for name, same in (("same.json", True), ("other.json", False)):
        result = run("eval", name, "--config", "attlm.toml", "--metric", "cer", "--report", "eval.html")
        p_value = rows_of(result.stdout)["rescored, max"][4]
        assert (p_value == "in-sample") is same
        text = (lists / "eval.html").read_text()
        assert (f"note: {told}" in result.stderr) is (told.capitalize() in text) is ("in-sample" in text) is same
    run("rescore", "same.json", "-o", "out.json")
    for further in ([], ["--report", "page.html"], ["--mbr", "wer"]):  # the folder's attlm.toml is looked at, whatever else is asked for
        told_by_guess = run("eval", "same.json", "out.json", *further)
        assert "if the other systems were rescored with attlm.toml, they look too good" in told_by_guess.stderr
        assert re.search("^out.json .*in-sample$", told_by_guess.stdout, re.MULTILINE)
    (lists / "first.txt").write_text("".join(f"{item['input'][0]}\n" for item in items[::-1]))
    both = run("eval", "same.json", "out.json", "first.txt", "--config", "attlm.toml")
    assert "expect tune's cross-validated row. first.txt: p is too small if the same weights chose these answers, too" in both.stderr
    own = [option for name in read_config(lists / "attlm.toml").weights for option in ("--weight", f"{name}=3")]
    assert told not in run("eval", "same.json", "--config", "attlm.toml", *own).stderr
    text = (lists / "attlm.toml").read_text()
    (lists / "attlm.toml").write_text(re.sub("^reference_sketch = .*\n", "", text, flags=re.MULTILINE))  # as written before there was one
    assert told not in run("eval", "same.json", "--config", "attlm.toml").stderr


def test_the_report_is_there_though_nobody_reads_the_table(lists, monkeypatch):
    """As in `attlm eval .. --report page.html | head -1`."""

    def gone(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("attlm_fairseq.verbs.evaluate.as_table", gone)
    run("eval", "helps.json", "--report", "page.html", code=141)
    assert "</html>" in (lists / "page.html").read_text()


STEP = "join-subwords:bpe"
PIECES = """\
0 ||| ni@@ ght ||| LM0= -1 ||| -1
0 ||| ni@@ ghty ||| LM0= -1 ||| -1
0 ||| ri@@ ghts ||| LM0= -1 ||| -1
0 ||| li@@ ghts ||| LM0= -1 ||| -1
1 ||| a@@ b c@@ d e ||| LM0= -1 ||| -1
1 ||| x@@ y c@@ d f ||| LM0= -2 ||| -2
"""


def test_rules_decide_over_words_where_the_metric_does(lists):
    (lists / "pieces").write_text(PIECES)
    warning = (
        "WARNING: the hypotheses of 2 of 2 lists carry subword marks (@@): consensus decides over pieces; "
        f"--metric-text {STEP} joins them for it"
    )
    votes = ("rescore", "pieces", "--weight", "LM0=1", "--consensus")
    result = run(*votes)
    assert (result.stdout.splitlines()[0], warning in result.stderr) == ("ni@@ ghts", True)
    result = run(*votes, "--metric-text", STEP)
    assert (result.stdout, "WARNING" in result.stderr) == ("night\nab cd e\n", False)
    assert f"decision: consensus at 1 over {STEP}" in result.stderr
    assert "2 lists, 6 hypotheses; 0 changed (another 1-best text), 2 unchanged; 0 answers are in no list" in result.stderr
    mbr = ("rescore", "pieces", "--weight", "LM0=1", "--mbr", "wer", "-o", "out")
    risks = []
    for options in ([], ["--metric-text", STEP]):
        assert ("WARNING" in run(*mbr, *options).stderr) == (not options)
        last = (lists / "out").read_text().splitlines()[-1]
        assert last.split(" ||| ")[1] == "x@@ y c@@ d f"
        risks.append(-float(last.split()[-1]))
    assert risks == pytest.approx([3 / (1 + math.exp(-1)), 2 / (1 + math.exp(-1))], rel=1e-4)  # errors in pieces, in words
    assert "--metric-text is for --mbr or --consensus" in refused("rescore", "pieces", "--weight", "LM0=1", "--metric-text", STEP)


def test_tuning_writes_the_text_that_rules_decide_over(lists):
    cut = re.compile(r"(?<=\w)(?=\w{2}\b)")
    helps = json.loads((lists / "helps.json").read_text())
    for item in helps:
        item["input"] = [cut.sub("@@ ", text) for text in item["input"]]
    (lists / "pieces.json").write_text(json.dumps(helps))
    lms = ("--kenlm", "lm.arpa", "--text", STEP)
    options = (*lms, "--mbr", "wer", "--consensus", "--without", "words")  # the number of words is that of pieces
    words = run("tune", "helps.json", *options)
    pieces = run("tune", "pieces.json", *options, "--metric-text", STEP)
    assert rows_of(words.stdout) == rows_of(pieces.stdout)
    tuned = read_config(lists / "attlm.toml")
    assert tuned.decision.text == parse_steps([STEP])  # whatever rule is the best: another may be asked for

    run("rescore", "helps.json", "--consensus", "-o", "words.txt")
    result = run("rescore", "pieces.json", "--consensus", "-o", "pieces.txt")
    assert "subword marks" not in result.stderr
    assert (lists / "pieces.txt").read_text() == (lists / "words.txt").read_text()
    options = ("--config", "attlm.toml", "--consensus", "--metric-text", STEP, "--report", "page.html")
    rows = rows_of(run("eval", "pieces.json", "pieces.txt", *options).stdout)
    assert rows[f"rescored, consensus at {tuned.decision.scale_of('consensus'):g} over {STEP}"] == rows["pieces.txt"]
    assert "answers in no list" not in (lists / "page.html").read_text()
    run("tune", "good.json", "--kenlm", "lm.arpa", "--metric-text", STEP)
    assert read_config(lists / "attlm.toml").decision == Decision(text=parse_steps([STEP]))


def test_posteriors_without_weights_go_by_the_decoders_score(lists):
    hypotheses = [{"text": "c", "am": -9}, {"text": "a b", "am": -1}, {"text": "a b d", "am": -1}]
    Path("one.jsonl").write_text(json.dumps({"id": "u", "ref": "a b", "hyps": hypotheses}) + "\n")
    result = run("rescore", "one.jsonl", "--mbr", "wer", "--to", "1best")
    assert "note: am, the decoder's own score, has weight 1: give it another one, rank=-1 goes by rank" in result.stderr
    assert result.stdout == "a b\n"
    assert run("rescore", "one.jsonl", "--mbr", "wer", "--weight", "rank=-9", "--to", "1best").stdout == "c\n"
    assert rows_of(run("eval", "one.jsonl", "--mbr", "wer").stdout)["rescored, mbr-wer at 1"][0] == "0.00"
    Path("two.jsonl").write_text('{"id": "u", "ref": "a", "hyps": [{"text": "a", "x": -9, "y": -1}, {"text": "b", "x": -1, "y": -3}]}\n')
    result = run("rescore", "two.jsonl", "--mbr", "wer", "--to", "1best")
    assert "unclear which of x, y is the decoder's own score: posteriors go by rank" in result.stderr
    assert result.stdout == "a\n"


def test_a_tuned_program_that_is_not_run_is_told(lists):
    Path("attlm.toml").write_text('[weights]\nam_score = 1\n[decision]\nscales = { "mbr-external:python comet.py" = 0.5 }\n')
    said = "`--mbr external:python comet.py` was tuned, too"
    assert said in run("rescore", "helps.json", "--to", "1best").stderr
    assert said not in run("rescore", "helps.json", "--to", "1best", "--max").stderr


def test_evaluation_and_a_second_tuning_measure_what_was_tuned(lists):
    def measured(*options: str) -> str:
        return json.loads(run("eval", "good.json", "--json", *options).stdout)["metric"]

    tuned, wer = ("--config", "attlm.toml"), "tok:whitespace|rapidfuzz"
    for given, signature in (
        (["--metric", "chrf++"], "nw:2"),
        (["--metric", "bleu", "--bleu-tokenize", "char", "--metric-text", "lowercase"], "tok:char|smooth:exp|version:"),
        (["--metric", "ter", "--ter-case-sensitive"], "case:mixed|tok:tercom"),
    ):
        run("tune", "good.json", "--kenlm", "lm.arpa", *given)
        assert signature in measured(*tuned)
        assert wer in measured(*tuned, "--metric", "wer")
        assert signature in measured()
        assert wer in measured("--metric", "wer")
    assert "case:mixed|tok:tercom" in measured("--kenlm", "lm.arpa", "--weight", "kenlm=1")
    assert "case:mixed|tok:tercom" in measured("--context", "all")
    config = Path("attlm.toml").read_text()
    Path("attlm.toml").write_text(config + '[context]\nconversations = "id:^(.)"\n')
    drawn = "attlm.toml in this folder has the context id:^(.): --draw-by 'id:^(.)' draws whole conversations"
    for options, told in (([], True), (["--metric", "wer"], False), (["--draw-by", "id:^(.)"], False), (["--context", "all"], False)):
        assert (drawn in run("eval", "helps.json", *options).stderr) == told
    Path("attlm.toml").write_text("[")
    assert wer in measured("--metric", "wer")
    assert "is not TOML" in refused("eval", "good.json")
    Path("attlm.toml").write_text(config)
    assert "tok:none|smooth" in measured(*tuned, "--metric", "bleu", "--bleu-tokenize", "none")
    assert "case:mixed" in measured(*tuned)
    run("tune", "good.json")  # with the LMs and the metric of attlm.toml
    assert "case:mixed|tok:tercom" in measured(*tuned)
    assert measured(*tuned, "--metric-text", "lowercase").endswith("text:lowercase")
    assert refused("eval", "good.json", *tuned, "--bleu-tokenize", "zh", "--ter-case-sensitive")
    run("tune", "good.json", "--metric", f"external:{sys.executable} -c 'import sys; [print(len(line)) for line in sys.stdin]'", *tuned)
    assert "[metric] the weights were tuned for a metric of your own" in refused("eval", "good.json", *tuned)
    assert wer in measured(*tuned, "--metric", "wer")
    told = run("eval", "good.json")
    assert "attlm.toml in this folder is for a metric of your own, which only --metric can name: this is WER" in told.stderr
    assert "WER" in told.stdout


def test_the_loss_of_unspaced_text_is_tokenised_as_the_metric_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = ["今天 天气", "我喜欢北京的苹果", "我喜欢北京的平果", "我很喜欢北京的苹果"]
    lists = [{"id": f"u{n}", "ref": texts[1], "hyps": [{"text": text, "scores": {"am": 0.0}} for text in texts]} for n in range(6)]
    Path("zh.jsonl").write_text("".join(json.dumps(nbest) + "\n" for nbest in lists))
    run("tune", "zh.jsonl", "--metric", "bleu", "--bleu-tokenize", "zh", "--mbr", "bleu", "--strength", "1")
    assert 'tokenize = "zh"' in Path("attlm.toml").read_text()
    run("rescore", "zh.jsonl", "--mbr", "bleu", "--scale", 0, "--to", "1best", "-o", "tuned.txt")
    if read_config(Path("attlm.toml")).decision.rule == "mbr-bleu":  # measured is what rescore writes, whatever the metric is
        for metric in ("bleu", "ter"):
            assert "tokenized zh" in run("eval", "zh.jsonl", "--config", "attlm.toml", "--metric", metric).stdout
    plain = ["rescore", "zh.jsonl", "--weight", "am=1", "--config", "none.toml", "--mbr", "bleu", "--scale", 0, "--to", "1best"]
    Path("none.toml").write_text("")
    run(*plain, "-o", "spaces.txt")
    said = run(*plain, "--bleu-tokenize", "zh", "-o", "given.txt").stderr
    assert "tokenized zh" in said
    first = [Path(name).read_text().splitlines()[0] for name in ("tuned.txt", "spaces.txt", "given.txt")]
    assert first == [texts[1], texts[0], texts[1]]
    wrong = ["rescore", "zh.jsonl", "--weight", "am=1", "--config", "wrong.toml"]
    Path("wrong.toml").write_text('[decision]\nrule = "mbr-bleu"\ntokenize = "no"\n')
    assert "wrong.toml: [decision] tokenize: unknown BLEU tokenizer 'no'" in refused(*wrong)


def test_the_loss_of_cer_has_spaces_if_the_metric_has(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = ["明天 天气 很 好啊", "今天 天气 很 好", "今天天气很好"]
    lists = [
        {"id": f"u{n}", "ref": texts[2], "hyps": [{"text": t, "scores": {"am": -i / 10}} for i, t in enumerate(texts)]} for n in range(6)
    ]
    Path("zh.jsonl").write_text("".join(json.dumps(nbest) + "\n" for nbest in lists))
    run(
        "tune", "zh.jsonl", "--metric", "cer", "--cer-without-spaces", "--mbr", "cer", "--strength", "1", "--fix", "am=1", "--fix", "rank=0"
    )
    assert "spaces = false" in Path("attlm.toml").read_text()
    run("rescore", "zh.jsonl", "--weight", "am=1", "--mbr", "cer", "--scale", 1, "-o", "out.jsonl")
    ranked = [hypothesis["text"] for hypothesis in json.loads(Path("out.jsonl").read_text().splitlines()[0])["hyps"]]
    assert ranked[2] == texts[0]  # with spaces, it is nearer to the others than the correct text is
    Path("attlm.toml").write_text('[decision]\nrule = "mbr-cer"\nspaces = 1\n')
    assert "[decision] spaces" in refused("rescore", "zh.jsonl", "--weight", "am=1")


def test_silence_without_scores_changes_nothing(lists):
    """A recogniser that hears nothing gives one empty text without scores: other lists keep theirs, wherever it stands."""
    helps = [
        {"id": f"u{n}", "ref": item["output"], "hyps": [{"text": t, "am": s} for t, s in zip(item["input"], item["am_score"], strict=True)]}
        for n, item in enumerate(json.loads(Path("helps.json").read_text()))
    ]
    silence = {"id": "silence", "ref": "", "hyps": [{"text": ""}]}
    found = {}
    for name, items in {"without": helps, "first": [silence, *helps], "last": [*helps, silence]}.items():
        Path(name).write_text("".join(json.dumps(item) + "\n" for item in items))
        assert "left out" not in run("tune", name, "--kenlm", "lm.arpa", "-o", f"{name}.toml").stderr
        weights = read_config(Path(f"{name}.toml")).weights
        result = run("rescore", name, "--kenlm", "lm.arpa", "--weight", "kenlm=0.5", "--to", "1best-kaldi")
        assert "note: am, the decoder's own score, has weight 1" in result.stderr
        rows = rows_of(run("eval", name, "--kenlm", "lm.arpa", "--weight", "kenlm=0.5").stdout)
        answers = [line for line in result.stdout.splitlines() if not line.startswith("silence")]
        found[name] = (weights.keys(), answers, next(row for label, row in rows.items() if label.startswith("rescored"))[0])
    assert "am" in found["without"][0]
    assert found["without"] == found["first"] == found["last"]


def test_a_conversation_that_begins_with_silence_goes_by_the_decoders_score_too(tmp_path, monkeypatch):
    """The context of a list is the text chosen before it: by the LM alone that would be another one."""
    monkeypatch.chdir(tmp_path)
    write_checkpoint(Path("lm.pt"), ["a", "b", "c"])
    Path("text").write_text("a\nb\nc\n")
    of_lm = [float(line.split("\t")[2]) for line in run("score", "text", "--lm", "lm.pt", "--no-header").stdout.splitlines()]
    worst = min(range(3), key=lambda place: of_lm[place])  # the decoder's choice, as its score has more weight
    hyps = [{"text": text, "am": -1.0 if place == worst else -9.0} for place, text in enumerate("abc")]
    turns = [{"id": f"u{number}", "hyps": hyps} for number in range(4)]
    silence = {"id": "u", "hyps": [{"text": ""}]}
    scores = []
    for name, items in {"first": [silence, *turns], "second": [silence | {"hyps": [{"text": "", "am": 0.0}]}, *turns]}.items():
        Path(name).write_text("".join(json.dumps(item) + "\n" for item in items))
        run("rescore", name, "--lm", "lm.pt", "--weight", "lm=0.01", "--context", "all", "--to", "jsonl", "-o", f"{name}.out")
        written = [json.loads(line)["hyps"] for line in Path(f"{name}.out").read_text().splitlines()]
        scores.append([[hyp["scores"]["lm"] if "scores" in hyp else hyp["lm"] for hyp in hyps] for hyps in written[1:]])
    assert scores[0] == scores[1]
