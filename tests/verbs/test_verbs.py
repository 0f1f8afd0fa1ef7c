"""The library's verbs over Python objects: they give what the commands give."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomlkit
from cli_runs import TEXT, refused, run

import attlm_fairseq as attlm
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.scoring.scorer import Scorer, SentenceScore

DOCS = Path(__file__).parents[2] / "docs" / "python.md"
SHORT = attlm.TuneOptions(folds=0, restarts=0)


class FewestLetters(Scorer):
    """An LM that is an object: every word costs its letters."""

    name = "letters"

    def score(self, sentences):
        return [SentenceScore((*(-float(len(word)) for word in words), 0.0), (False,) * len(words)) for words in sentences]

    def signature(self):
        return {"kind": "letters"}


def test_importing_the_package_imports_nothing_heavy():
    program = (
        "import sys, attlm_fairseq as attlm; assert 'tune' in dir(attlm) and not {'torch', 'numpy', 'click'} & {*sys.modules};"
        "attlm.rescore, attlm.tune, attlm.evaluate, attlm.score_text, attlm.load_lm, attlm.read_nbest;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    with pytest.raises(AttributeError, match="no attribute 'tuna'"):
        _ = attlm.tuna


def test_the_parts_of_results_have_public_types(folder):
    lms = {"n": "lm.arpa", "m": "lm.pt"}
    evaluation = attlm.evaluate("dev.json", None, {"other": "dev.json"})
    tuned = attlm.tune("dev.json", lms={"n": "lm.arpa"}, options=attlm.TuneOptions(folds=0, restarts=0, confidence=True))
    [nbest, *_] = attlm.rescore("dev.json", config=tuned.config)
    parts = [*evaluation.rows, evaluation.rows[0].interval, evaluation.rows[1].comparison, *evaluation.errors().values()]
    parts += [nbest.sausage, nbest.sausage.answer[0], next(attlm.score_text("text", lms).lines), *attlm.compare_lms("text", lms).rows]
    parts += [*attlm.fit_context("text", {"m": "lm.pt"}, find=["temperature"]).rows]
    parts += [attlm.estimate_ngram("text", "small.arpa", 2, attlm.NgramOptions(discount_fallback=True))]
    assert [part for part in parts if type(part) is not getattr(attlm, type(part).__name__, None)] == []


@pytest.mark.parametrize("name", attlm.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(attlm, name).__doc__


def test_the_examples_of_the_docs_run(folder, capsys):
    first, own, service = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(first.strip().splitlines()) <= 15
    exec(compile(first, str(DOCS), "exec"), {})
    assert capsys.readouterr().out.startswith("a cat ran {")
    exec(compile(own, str(DOCS), "exec"), {})
    assert capsys.readouterr().out == "a cat\n"
    run("tune", "dev.json", "--kenlm", "lm.arpa", "--folds", 0, "--restarts", 0)
    exec(compile(service, str(DOCS), "exec"), {})
    assert capsys.readouterr().out == "the cat sat\n"


def test_rescoring_is_what_the_command_does(folder):
    lms, weights = {"lm": "lm.pt", "kenlm": "lm.arpa"}, {"lm": 0.25, "kenlm": 1.0, "am_score": 2.0}
    run(
        "rescore", "dev.json", "--lm", "lm.pt", "--kenlm", "lm.arpa", *(f"--weight={name}={weights[name]}" for name in weights), "-o", "out"
    )
    for lists in ("dev.json", attlm.read_nbest("dev.json")):
        found = attlm.rescore(lists, lms, weights)
        attlm.write_nbest(found.lists, "again", "hyporadise")
        assert Path("again").read_bytes() == Path("out").read_bytes()
        assert (found.list_count, found.hypothesis_count, found.changed) == (3, 7, 2)
    found = attlm.rescore("dev.json", lms, weights, output=attlm.RescoreOutput("streamed"))
    assert (found.lists, Path("streamed").read_bytes()) == ([], Path("out").read_bytes())
    assert found.record["lm"]["kenlm"]["sha256"]
    with pytest.raises(attlm.InputError, match="have no format of their own"):
        attlm.rescore([["a"]], lms, weights, output=attlm.RescoreOutput("x"))


def test_tuning_and_evaluation_are_what_the_commands_do(folder):
    run("tune", "dev.json", "--kenlm", "lm.arpa", "--folds", 0, "--restarts", 0)
    tuned = attlm.tune("dev.json", lms={"kenlm": "lm.arpa"}, options=SHORT)
    assert tuned.weights == read_config(folder / "attlm.toml").weights
    tuned.save("again.toml", command=tomlkit.parse((folder / "attlm.toml").read_text())["tuning"]["command"])
    assert (folder / "again.toml").read_bytes() == (folder / "attlm.toml").read_bytes()
    found = attlm.evaluate("dev.json", config=tuned.config)
    table = json.loads(run("eval", "dev.json", "--config", "attlm.toml", "--json").stdout)
    assert found.as_dict() == table
    assert [row["label"] for row in table["systems"]] == ["dev.json", "rescored, max", "kenlm alone", "oracle"]
    found.write_report("page.html")
    assert "</html>" in Path("page.html").read_text()


def test_lists_and_references_of_a_program(folder):
    lists = [[("the cat sad", -1.0), ("the cat sat", {"score": -2.0})], ["a mad", "a mat"]]
    with pytest.raises(attlm.InputError, match=r"1 references, but there are 2 lists"):
        attlm.evaluate(lists, ["the cat sat"])
    for references in (["the cat sat", "a mat"], [["the cat sat", "x"], ["a mat"]], {"1": "a mat", "0": ("the cat sat",)}):
        assert attlm.evaluate(lists, references, {"better": [["the cat sat"], ["a mad"]]}).rows[1].interval.score == pytest.approx(20.0)
    (folder / "refs").write_text("the cat sat\na mat\n")
    assert attlm.evaluate(lists, [Path("refs")]).rows[0].interval.score == pytest.approx(40.0)
    for wrong in (["a"], [[3]], [[("a", "b")]]):
        with pytest.raises(attlm.InputError, match=r"list '?0"):
            attlm.rescore(wrong, weights={"rank": -1.0})


def test_an_lm_may_be_an_object(folder):
    lists = [["the cat sad on", "a cat"]]
    found = attlm.rescore(lists, {"short": FewestLetters()}, {"short": 1.0})
    assert found.lists[0].hypotheses[0].text == "a cat"
    assert found.lists[0].hypotheses[0].lm_scores == {"short": -4.0}
    two = attlm.run_config(lms={"short": FewestLetters()}, weights={"short": 1.0}, devices="cpu:2")
    with pytest.raises(attlm.InputError, match="short: an LM that is an object lives in this process"):
        attlm.rescore(lists, config=two)
    kenlm = attlm.load_lm("lm.arpa", "k")
    line = next(iter(attlm.score_text(["the cat"], {"again": kenlm}).lines))
    assert line.scores[0].total == pytest.approx(kenlm.score([["the", "cat"]])[0].total)


def test_an_lm_that_is_an_object_has_the_name_that_it_is_given(folder):
    lists, references = [["a", "bb"], ["a", "bb"]], ["bb", "a"]
    for lm in (FewestLetters(), attlm.LMSpec("short", loaded=FewestLetters())):
        tuned = attlm.tune(lists, references, {"short": lm}, options=SHORT)
        assert "short" in tuned.weights
    with pytest.raises(attlm.InputError, match="loaded is 'lm', expected a Scorer"):
        attlm.LMSpec("short", loaded="lm")
    for option in ({"prompt": "Yes:"}, {"ensemble_weights": (1.0,)}, {"dictionary": "dict.txt"}, {"translation": "forward"}):
        with pytest.raises(attlm.InputError, match=f"{next(iter(option))} is not for an LM that is loaded already: give it to load_lm"):
            attlm.LMSpec("short", loaded=FewestLetters(), **option)


def test_perplexities_and_mixtures(folder):
    printed = json.loads(run("ppl", "text", "--kenlm", "lm.arpa", "--json").stdout)
    assert [found.as_dict() for found in attlm.perplexity(TEXT, {"kenlm": "lm.arpa"})] == printed
    mixture = attlm.estimate_mixture(TEXT, {"kenlm": "lm.arpa", "lm": "lm.pt"})
    assert sum(mixture.weights.values()) == pytest.approx(1.0, abs=1e-5)
    assert attlm.perplexity("text", config=mixture.config)[0].ppl == pytest.approx(mixture.ppl["mix"])


def test_decoders_score_has_weight_1_unless_said_otherwise(folder):
    lists = [[("the cat", {"am": -1.0}), ("a cat", {"am": -100.0})]]
    found = attlm.rescore(lists, {"short": FewestLetters()}, {"short": 1.0})
    assert found.weights == {"short": 1.0, "am": 1.0}
    for said in ({"am": 0.0}, {"rank": 0.0}):
        weights = {"short": 1.0, **said}
        assert attlm.rescore(lists, {"short": FewestLetters()}, weights).weights == weights
    several = [[("a", {"x": 1.0, "y": 2.0})]]
    assert attlm.rescore(several, {"short": FewestLetters()}, {"short": 1.0}).weights == {"short": 1.0}


def test_what_a_newcomer_meets(folder):
    assert "no LM given: only the lists' own scores are tuned" in run("tune", "dev.json").stderr
    assert "wrote attlm.toml: there is no LM in it" in run("tune", "dev.json").stderr
    (folder / "one.txt").write_text("the cat sat\nthe dog\n")
    (folder / "two.txt").write_text("the cat\nthe dog\n")
    told = run("tune", "one.txt", "--format", "text", "--refs", "two.txt", "--kenlm", "lm.arpa", "-o", "none.toml").stderr
    assert "no list has two different hypotheses" in told
    assert "dev.json: holds n-best lists (hyporadise)" in refused("ppl", "dev.json", "--kenlm", "lm.arpa")
    assert "dev.json: holds n-best lists (hyporadise)" in refused("ngram", "dev.json", "-o", "new.arpa")
    assert "--file text shows its text" in refused("attention", "text", "--lm", "lm.pt")
    assert "text" in run("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "--to", "1BEST").stderr
    assert "there is no command 'recore': did you mean rescore" in refused("recore", "dev.json")
    assert "differs from float32" in run("score", "text", "--lm", "lm.pt", "--precision", "bf16").stderr
    assert "(weights are given for lm; the LMs are kenlm)" in refused("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "lm=0.3")
    (folder / "bom").write_text("\ufeffthe cat\n\ufeffthe\n", encoding="utf-8")
    lines = run("score", "bom", "--kenlm", "lm.arpa", "--words", "--no-header").stdout.splitlines()
    assert [line.split("\t")[1] for line in lines] == ["the", "cat", "</s>", "\ufeffthe", "</s>"]


def test_lists_that_the_folders_weights_were_tuned_on_get_no_p(folder):
    run("tune", "dev.json", "--kenlm", "lm.arpa", "--strength", "1")
    run("rescore", "dev.json", "-o", "out.json")
    result = run("eval", "dev.json", "out.json")
    assert "if the other systems were rescored with attlm.toml, they look too good, so there is no p: its weights were" in result.stderr
    assert re.search(r"^out.json .* in-sample$", result.stdout, re.MULTILINE)
    assert "oracle of dev.json" in result.stdout
    (folder / "attlm.toml").unlink()
    assert re.search(r"^out.json .* p = ", run("eval", "dev.json", "out.json").stdout, re.MULTILINE)


def test_an_interrupted_command_ends_with_130(folder, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("attlm_fairseq.nbest.run.deciding.decide", interrupted)
    result = run("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "-o", "out", code=130)
    assert result.stderr.splitlines()[-1] == "attlm: interrupted"
    (folder / "out.unfinished").write_bytes(b"")
    monkeypatch.setattr("attlm_fairseq.verbs.rescore.write_nbest", interrupted)
    result = run("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "-o", "out", code=130)
    assert "the same command continues: the scores so far are in" in result.stderr.splitlines()[-1]


def test_a_command_that_is_terminated_ends_like_an_interrupted_one(folder, monkeypatch):
    def terminated(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("attlm_fairseq.nbest.run.deciding.decide", terminated)
    result = run("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "-o", "out", code=143)
    assert result.stderr.splitlines()[-1] == "attlm: terminated"
    assert not [path for path in folder.iterdir() if path.name.startswith(".out")]
    assert signal.getsignal(signal.SIGTERM) is before


def test_lms_are_not_read_from_pipes(folder):
    os.mkfifo("pipe")
    Path("text").write_text("the cat\n")
    for option in ("--lm", "--kenlm"):
        assert "pipe: is a pipe, and an LM is read more than once: write it to a file" in refused("ppl", "text", option, "pipe")
    Path("attlm.toml").write_text('[lm.n]\ncheckpoint = "lm.pt"\ndict = "x\\u0000y"\n')
    assert "dictionary is" in refused("ppl", "text", "--config", "attlm.toml")


def test_rescored_lists_of_a_program_keep_their_order_wherever_nothing_decides(folder):
    lists = [[("a b c", -1.0), ("y b c", -2.0)], [("a x", -1.0), ("a b", -1.5), ("b", -3.0)]]
    turned = attlm.rescore(lists, weights={"score": -1.0}).lists
    attlm.write_nbest(turned, "turned.jsonl")
    for nothing in ({"score": 0.0, "rank": 0.0}, {"score": 0.0, "rank": -1.0}):
        config = attlm.run_config(weights=nothing)
        of_program, of_file = (attlm.rescore(given, config=config) for given in (turned, attlm.read_nbest("turned.jsonl")))
        answers = [[hypothesis.text for hypothesis in nbest.hypotheses] for nbest in of_program.lists]
        assert answers == [["y b c", "a b c"], ["b", "a b", "a x"]]
        assert answers == [[hypothesis.text for hypothesis in nbest.hypotheses] for nbest in of_file.lists]
        assert of_program.changed == of_file.changed == 0
    more = '{"id": "u", "hyps": [{"text": "a", "scores": {"am": -1}, "more": 1}, {"text": "b", "scores": {"am": 0}}]}\n'
    Path("more.jsonl").write_text(more)
    read = attlm.read_nbest("more.jsonl")
    attlm.write_nbest(attlm.rescore(read, weights={"am": 1.0}).lists, "again.jsonl")
    assert '"more": 1' in Path("again.jsonl").read_text()  # what was read with a hypothesis goes with it


TUNED = """\
weights = {am = 1.0}
[decision]
rule = "mbr-wer"
scale = 2.0
text.steps = ["lowercase"]
scales.consensus = 3.0
[metric]
name = "wer"
text.steps = ["lowercase"]
"""


@pytest.mark.parametrize(("rule", "option", "scale"), [("mbr-wer", ["--mbr", "wer"], 2.0), ("consensus", ["--consensus"], 3.0)])
def test_a_rule_by_its_name_keeps_what_was_tuned_for_it(folder, rule, option, scale):
    """Two spellings of one text outvote the first hypothesis only where case does not count."""
    Path("tuned.toml").write_text(TUNED)
    lists = [attlm.NbestList("u", [attlm.Hypothesis(text, {"am": am}) for text, am in (("b", -1.0), ("A", -1.1), ("a", -1.1))])]
    attlm.write_nbest(lists, "three.jsonl")
    found = attlm.rescore(lists, config=attlm.run_config("tuned.toml", decision=rule))
    assert (found.decision.rule, found.decision.scale, found.decision.text.steps[0].name) == (rule, scale, "lowercase")
    run("rescore", "three.jsonl", "--config", "tuned.toml", *option, "-o", "told.txt", "--to", "1best")
    assert [nbest.hypotheses[0].text for nbest in found.lists] == Path("told.txt").read_text().splitlines() == ["A"]
    assert attlm.run_config("tuned.toml", decision=attlm.Decision(rule)).decision.scale == 1.0  # a whole Decision replaces it
    assert attlm.run_config(attlm.run_config("tuned.toml", decision="max"), decision=rule).decision.scale == scale
    with pytest.raises(attlm.InputError, match="rule 'mbr-war': expected one of max, "):
        attlm.run_config("tuned.toml", decision="mbr-war")


def test_incomplete_lists_do_not_change_the_rule(folder):
    Path("tuned.toml").write_text(TUNED)
    lacking = [[("a", {"s": 1.0}), ("b", {"s": 2.0})], [("a", {"s": 1.0}), "b"]]
    with pytest.raises(attlm.InputError, match=r"a hypothesis lacks the score 's', which has a weight. Rescore with --keep-incomplete"):
        attlm.evaluate(lacking, ["a", "a"], config=attlm.run_config(weights={"s": 1.0}, keep_incomplete=True))
    config = attlm.run_config("tuned.toml", keep_incomplete=True)
    assert (config.decision.rule, config.decision.keep_incomplete) == ("mbr-wer", True)
    again = attlm.tune([[("a", {"s": -1.0}), ("b", {"s": -2.0})]] * 2, ["a", "b"], config=config, options=attlm.TuneOptions(folds=0))
    assert again.config.decision.keep_incomplete
    first = {"u": {}, "v": {"am": 0.0}}
    lists = [attlm.NbestList(name, [attlm.Hypothesis("b", b), attlm.Hypothesis("a", {"am": 1.0})]) for name, b in first.items()]
    kept = attlm.rescore(lists, config=config)
    assert [nbest.hypotheses[0].text for nbest in kept.lists] == ["b", "a"]
    with pytest.raises(attlm.InputError, match="value of keep_incomplete"):
        attlm.run_config("tuned.toml", keep_incomplete="yes")
