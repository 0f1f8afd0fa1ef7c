"""The commands as a user runs them: what they print, what they write, how they refuse."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from itertools import pairwise

import kenlm
import numpy as np
import pytest
import tomlkit
from cli_runs import LISTS, TEXT, WORDS, refused, run
from click.testing import CliRunner
from lm_files import write_checkpoint

from attlm_cli.main import COMMANDS, main
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.scoring.mixture import em_weights
from attlm_fairseq.text import parse_steps


def test_tune_with_several_devices_writes_the_same_weights(folder):
    for devices, output in (("cpu", "one.toml"), ("cpu:2", "two.toml")):
        run("tune", "dev.json", "--lm", "neural=lm.pt", "--folds", "0", "--strength", "1", "--devices", devices, "-o", output)
    one, two = (read_config(folder / name) for name in ("one.toml", "two.toml"))
    assert one.weights == two.weights


def test_tune_then_rescore_then_eval(folder):
    tuned = run("tune", "dev.json", "--lm", "neural=lm.pt", "--kenlm", "lm.arpa", "--strength", "1")
    assert re.search(r"^input 1-best +18\.18 ", tuned.stdout, re.MULTILINE)
    assert re.search(r"^oracle +0\.00 ", tuned.stdout, re.MULTILINE)
    weights = read_config(folder / "attlm.toml").weights
    assert set(weights) == {"am_score", "neural", "kenlm", "neural_oov", "words", "rank"}  # kenlm_oov is the same
    first = (folder / "attlm.toml").read_bytes()
    run("tune", "dev.json", "--lm", "neural=lm.pt", "--kenlm", "lm.arpa", "--strength", "1")
    assert (folder / "attlm.toml").read_bytes() == first

    run("rescore", "dev.json", "-o", "out.json")
    out = json.loads((folder / "out.json").read_text())
    for before, after in zip(json.loads((folder / "dev.json").read_text()), out, strict=True):
        assert sorted(after["input"]) == sorted(before["input"])
        assert len(after["neural_score"]) == len(after["kenlm_score"]) == len(after["input"])
        assert after["total_score"] == sorted(after["total_score"], reverse=True)
    table = run("eval", "dev.json", "out.json").stdout
    after = next(line for line in tuned.stdout.splitlines() if line.startswith("tuned ")).split()[1]
    assert next(line for line in table.splitlines() if line.startswith("out.json")).split()[1] == after
    assert "3 lists; " in table


def test_kenlm_scores_are_kenlms_own(folder):
    run("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "-o", "out.json")
    model = kenlm.Model("lm.arpa")
    for nbest in json.loads((folder / "out.json").read_text()):
        for text, value in zip(nbest["input"], nbest["kenlm_score"], strict=True):
            assert value == pytest.approx(model.score(text) * math.log(10), abs=1e-4)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("score", ["1e200", "-1e308"])
def test_scores_beyond_all_sense_are_one_line(folder, score):
    (folder / "lists").write_text(LISTS.replace("-2", score))
    message = f"lists:1: list 'u1', hypothesis 2: score 'am' is {float(score)}, expected a number from -1e+40 to 1e+40"
    for command in (["tune"], ["tune", "--objective", "risk"], ["eval", "--weight", "am=10"], ["rescore", "--weight", "am=10"]):
        assert message in refused(*command, "lists")
    (folder / "sane").write_text(LISTS.replace("rank", "r"))
    (folder / "w.toml").write_text("[weights]\nam = 1e300\n")
    for command in ("rescore", "eval"):
        assert "list 'u1': the weighted sum" in refused(command, "sane", "--config", "w.toml")
    assert sorted(path.name for path in folder.iterdir() if path.suffix == ".toml") == ["w.toml"]


def test_an_own_score_called_rank_is_not_taken_for_the_rank(folder):
    (folder / "lists").write_text(LISTS)
    result = run("rescore", "lists", "--weight", "rank=-1", "--to", "1best")
    assert result.stdout == "a b\na b\n"
    told = "note: the lists have a score 'rank' of their own, which is not a feature: 'rank' is computed; call theirs otherwise to use both"
    assert told in result.stderr
    assert told in run("tune", "lists", "--folds", "0").stderr


def test_weights_decide_and_are_told(folder):
    result = run("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "--to", "1best")
    assert result.stdout == "the cat sat on the mat\na dog ran\na mat\n"
    assert "total = 1 kenlm" in result.stderr
    assert "the LMs decide alone" in result.stderr
    assert "3 lists, 7 hypotheses; 2 changed (another 1-best text), 1 unchanged" in result.stderr
    result = run("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=0", "--weight", "am_score=1", "--to", "1best")
    assert result.stdout == "the cat sad on the mat\na dog ran\na mad\n"
    assert "decide alone" not in result.stderr
    plain = run("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "--to", "plain")
    assert "plain has no scores: am_score, kenlm are lost" in plain.stderr


def test_the_lists_own_scores_alone(folder):
    assert run("rescore", "dev.json", "--weight", "words=1", "--to", "1best").stdout.splitlines()[0] == "the cat sad on the mat"
    run("tune", "dev.json", "--without", "rank")
    assert set(read_config(folder / "attlm.toml").weights) == {"am_score", "words", "rank"}


def test_what_tuning_leaves_out_rescoring_leaves_out(folder):
    lms = ["--kenlm", "lm.arpa", "--lm", "neural=lm.pt"]
    run("tune", "dev.json", *lms, "--folds", "0", "--without", "am_score", "--without", "rank", "--without", "neural")
    weights = read_config(folder / "attlm.toml").weights
    assert (weights["neural"], weights["rank"], "am_score" in weights) == (0.0, 0.0, False)
    assert weights["kenlm"]
    assert "has weight 1" not in run("rescore", "dev.json", "--to", "1best").stderr
    for options in (["--without", "rank"], ["--fix", "rank=-1"]):
        assert "--strength 0.5 changes the weight of the rank, which" in refused("tune", "dev.json", *lms, "--strength", "0.5", *options)


def test_a_weight_of_zero_needs_no_score_in_the_lists(folder):
    """As `tune` writes weights: what `eval` can measure with them, `rescore` can write."""
    (folder / "w.toml").write_text("[lm.kenlm]\nkenlm = 'lm.arpa'\n[weights]\nkenlm = 1.0\ngone = 0.0\n")
    run("eval", "dev.json", "--config", "w.toml")
    result = run("rescore", "dev.json", "--config", "w.toml", "--to", "1best")
    assert result.stdout == "the cat sat on the mat\na dog ran\na mat\n"
    assert "gone" not in result.stderr
    assert (
        "weight for 'gone', which is not a feature" in run("rescore", "dev.json", "--config", "w.toml", "--weight", "gone=1", code=2).stderr
    )


def test_features_of_lms(folder):
    options = ["--lm", "lm.pt", "--kenlm", "lm.arpa"]
    run("rescore", "dev.json", *options, "--weight", "lm_oov=-1", "--weight", "lm_minus_kenlm=0", "--weight", "kenlm_tokens=0", "-o", "out")
    for nbest in json.loads((folder / "out").read_text()):
        assert nbest["lm_oov_score"] == [sum(word not in WORDS for word in text.split()) for text in nbest["input"]]
        assert nbest["lm_oov_score"] == sorted(nbest["lm_oov_score"])
        assert nbest["kenlm_tokens_score"] == [len(text.split()) for text in nbest["input"]]
        differences = [a - b for a, b in zip(nbest["lm_score"], nbest["kenlm_score"], strict=True)]
        assert nbest["lm_minus_kenlm_score"] == pytest.approx(differences, abs=1e-4)
    assert "no weight for kenlm" in refused("rescore", "dev.json", *options, "--weight", "lm=1", "--weight", "kenlm_oov=1")
    run("tune", "dev.json", *options, "--feature", "lm_minus_kenlm", "--feature", "lm_tokens")
    assert set(read_config(folder / "attlm.toml").weights) == {"am_score", "lm_oov", "lm_minus_kenlm", "lm_tokens", "words", "rank"}
    run("rescore", "dev.json", "-o", "out")
    assert "lm_minus_kenlm_score" in (folder / "out").read_text()
    known = json.loads((folder / "dev.json").read_text().replace("sad", "sat").replace("cats", "cat").replace("dock", "dog"))
    (folder / "known.json").write_text(json.dumps(known[:2]).replace(" at on", " on"))
    run("tune", "known.json", *options, "-o", "known.toml")
    assert not any("oov" in name for name in read_config(folder / "known.toml").weights)  # nothing is unknown: no such feature
    for name in ("lm", "oov", "lm_minus_lm", "x_oov"):
        assert f"--feature {name}: expected LM_oov, LM_tokens or LM_minus_LM; the LMs are lm, kenlm" in refused(
            "tune", "dev.json", *options, "--feature", name
        )


def test_sparse_features_of_moses_lists(folder):
    (folder / "dev.moses").write_text("0 ||| a dock ran ||| TM0= -1 ||| -1\n0 ||| a dog ran ||| TM0= -1 pp_dog= 1 ||| -2\n")
    (folder / "dev.ref").write_text("a dog ran\n")
    run("tune", "dev.moses", "--refs", "dev.ref", "--folds", "0", "--without", "rank", "--without", "decoder")
    assert "pp_dog" in read_config(folder / "attlm.toml").weights
    result = run("rescore", "dev.moses", "--to", "1best")
    assert result.stdout == "a dog ran\n"
    assert "WARNING" not in result.stderr
    result = run("rescore", "dev.moses", "--weight", "ppdog=3", "--to", "1best")
    assert "WARNING: no hypothesis has a score ppdog: the weight had no effect" in result.stderr


def test_many_sparse_features_can_be_left_out_by_a_pattern(folder):
    sparse = " ".join(f"pp_{number}= {number}" for number in range(101))
    (folder / "dev.moses").write_text(f"0 ||| a dock ran ||| TM0= -1 {sparse} ||| -1\n0 ||| a dog ran ||| TM0= -2 ||| -2\n")
    (folder / "dev.ref").write_text("a dog ran\n")
    options = ["--refs", "dev.ref", "--folds", "0", "--restarts", "0"]
    assert "note: 105 features take long to tune" in run("tune", "dev.moses", *options).stderr
    assert "features take long" not in run("tune", "dev.moses", *options, "--without", "pp_*", "--without", "rank").stderr
    assert set(read_config(folder / "attlm.toml").weights) == {"TM0", "decoder", "words", "rank"}
    assert "--without qq_*: the features are TM0, pp_0" in refused("tune", "dev.moses", *options, "--without", "qq_*")


def test_high_oov_rate_is_loud(folder):
    upper = (folder / "dev.json").read_text().replace("the", "THE")
    result = run("rescore", "-", "--kenlm", "lm.arpa", "--weight", "kenlm=1", stdin=upper)
    assert "WARNING: " in result.stderr
    assert "THE (6)" in result.stderr
    assert "With --text lowercase it would know " in result.stderr
    result = run("rescore", "-", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "--text", "lowercase", stdin=upper)
    assert "THE" not in result.stderr
    assert "THE cat sat" in result.stdout  # the text is the hypothesis as read


def test_score_lines_and_words(folder):
    lines = run("score", "-", "--kenlm", "lm.arpa", "--lm", "lm.pt", stdin="the cat sat\n\na zebra\n").stdout.splitlines()
    assert lines[0].split("\t") == ["line", "words", "lm", "lm_oov", "kenlm", "kenlm_oov"]
    assert [line.split("\t")[:2] for line in lines[1:]] == [["1", "3"], ["2", "0"], ["3", "2"]]
    model = kenlm.Model("lm.arpa")
    for line, text in zip(lines[1:], ["the cat sat", "", "a zebra"], strict=True):
        assert float(line.split("\t")[4]) == pytest.approx(model.score(text) * math.log(10), abs=1e-4)
    assert lines[3].split("\t")[3::2] == ["1", "1"]
    words = run("score", "-", "--lm", "lm.pt", "--words", "--no-header", stdin="the cat sat\n\na zebra\n").stdout.splitlines()
    assert [line.split("\t")[1] for line in words] == ["the", "cat", "sat", "</s>", "</s>", "a", "zebra", "</s>"]
    total = sum(float(line.split("\t")[2]) for line in words[:4])
    assert total == pytest.approx(float(lines[1].split("\t")[2]), abs=1e-5)


def test_ppl_counts_words_and_sentence_ends(folder):
    header, row = (line.split("\t") for line in run("ppl", "text", "--kenlm", "lm.arpa").stdout.splitlines())
    found = dict(zip(header, row, strict=True))
    model = kenlm.Model("lm.arpa")
    log10 = sum(model.score(line) for line in TEXT)
    events = sum(len(line.split()) + 1 for line in TEXT)
    assert float(found["ppl"]) == pytest.approx(10 ** (-log10 / events), abs=1e-4)
    first = sum(next(model.full_scores(line))[0] for line in TEXT)
    assert float(found["ppl_salton2017"]) == pytest.approx(10 ** (-(log10 - first) / events), abs=1e-4)
    assert (found["sentences"], found["oov"]) == ("24", "0")


def test_perplexity_says_that_blank_lines_count(folder):
    """An LM that was trained without them gives them little probability."""
    told = run("ppl", "-", "--kenlm", "lm.arpa", stdin="a b\n\na\n \n").stderr
    assert "note: 2 of 4 lines are blank and count, as sentences without words: take them out" in told
    assert "blank" not in run("ppl", "-", "--kenlm", "lm.arpa", stdin="a b\na\n").stderr
    assert "blank" not in run("ppl", "-", "--kenlm", "lm.arpa", "--context", "blank", stdin="a b\n\na\n").stderr


def test_text_steps_are_told_and_taken_in_order(folder):
    upper = "THE CAT, SAT\n"
    result = run("score", "-", "--kenlm", "lm.arpa", "--lm", "lm.pt", "--text", "remove-punctuation,lowercase", stdin=upper)
    assert "text for lm, kenlm: remove-punctuation -> lowercase -> split at white space\n" in result.stderr
    plain = run("score", "-", "--kenlm", "lm.arpa", "--lm", "lm.pt", stdin="the cat sat\n")
    assert result.stdout == plain.stdout
    assert "text for lm, kenlm: split at white space\n" in plain.stderr


def test_languages_without_rules_of_tokenisation_are_told(folder):
    note = "note: tokenize:jp: sacremoses has no rules of its own for 'jp' and takes general ones; did you mean tokenize:ja?"
    own = ["--kenlm", "lm.arpa", "--lm", "lm.pt"]
    for arguments in (["score", "text", *own], ["attention", "the cat", "--lm", "lm.pt"]):
        assert run(*arguments, "--text", "tokenize:jp").stderr.splitlines().count(note) == 1
        assert note not in run(*arguments, "--text", "tokenize:ja").stderr
    assert note in run("eval", "dev.json", "--metric-text", "tokenize:jp").stderr
    assert note in run("export", "lm.pt", "exported", "--ppl", "text", "--text", "tokenize:jp").stderr


def test_each_lm_may_have_its_own_steps(folder):
    options = ["--kenlm", "lm.arpa", "--lm", "lm.pt", "--text", "kenlm=lowercase"]
    result = run("score", "-", *options, stdin="THE cat\n")
    assert "text for lm: split at white space\ntext for kenlm: lowercase -> split" in result.stderr
    header, row = (line.split("\t") for line in result.stdout.splitlines())
    assert header == ["line", "words", "lm", "lm_oov", "lm_tokens", "kenlm", "kenlm_oov", "kenlm_tokens"]
    assert row[3::3] == ["1", "0"]
    assert (
        "--words needs LMs that see the same words; lm, kenlm do not" in run("score", "-", *options, "--words", stdin="a\n", code=2).stderr
    )
    assert "--text x=..: no LM has this name; there are lm, kenlm" in refused("score", "text", *options, "--text", "x=lowercase")


def test_rescoring_gives_each_lm_its_own_words(folder):
    (folder / "upper.json").write_text((folder / "dev.json").read_text().replace("the cat", "THE Cat"))
    weights = ["--weight", "lm=1", "--weight", "kenlm=0.5"]
    own = ["--text", "lm=lowercase", "--text", "uppercase", "--text", "kenlm=unicode:nfc,lowercase"]
    run("rescore", "upper.json", "--kenlm", "lm.arpa", "--lm", "lm.pt", *weights, *own, "-o", "out.json")
    run("rescore", "dev.json", "--kenlm", "lm.arpa", "--lm", "lm.pt", *weights, "-o", "plain.json")
    rescored = (folder / "out.json").read_text()
    assert rescored.replace("THE Cat", "the cat") == (folder / "plain.json").read_text()
    assert "THE Cat" in rescored


def test_the_steps_of_the_configuration_hold_unless_others_are_given(folder):
    (folder / "attlm.toml").write_text("[lm.ngram]\nkenlm = 'lm.arpa'\n[text]\nsteps = ['unicode:nfc', 'lowercase']\n")
    assert "unicode:nfc -> lowercase" in run("score", "text").stderr
    assert "text for ngram: split" in run("score", "text", "--text", "").stderr
    assert "text for ngram: tokenize:de -> split" in run("score", "text", "--text", "tokenize:de").stderr


def test_oov_policies(folder):
    def scores(*options: str) -> list[float]:
        row = run("score", "-", "--kenlm", "lm.arpa", "--lm", "lm.pt", "--no-header", *options, stdin="a zebra\n").stdout.split("\t")
        return [float(row[2]), float(row[4])]

    plain, spread = scores(), scores("--oov", "spread:100")
    assert spread == pytest.approx([value - math.log(100) for value in plain], abs=1e-5)
    assert scores("--oov", "lm=spread:100") == pytest.approx([spread[0], plain[1]], abs=1e-5)
    penalty = scores("--oov", "penalty:-1", "--oov", "kenlm=unk")
    assert penalty[1] == plain[1]
    assert scores("--oov", "kenlm=unk", "--oov", "penalty:-1") == penalty
    assert "lm gives unknown words a fixed penalty" in run("ppl", "text", "--lm", "lm.pt", "--oov", "penalty:-1").stderr
    assert "'often' is not an OOV policy" in refused("score", "text", "--kenlm", "lm.arpa", "--oov", "often")


def test_a_dictionary_is_for_the_checkpoints_of_an_ensemble(folder):
    (folder / "elsewhere").mkdir()
    (folder / "dict.txt").rename(folder / "elsewhere" / "dict.txt")
    both = run("ppl", "text", "--lm", "both=lm.pt:lm.arpa", "--dict", "elsewhere/dict.txt")
    assert both.stdout.count("both") == 1


def test_mixtures_and_ensemble_weights(folder):
    write_checkpoint(folder / "two" / "lm.pt", WORDS, seed=2)

    def words(*options: str) -> list[float]:
        lines = run("score", "-", "--words", "--no-header", *options, stdin="the cat\n").stdout.splitlines()
        return [math.exp(float(line.split("\t")[2])) for line in lines]

    one, two = words("--lm", "lm.pt"), words("--lm", "two/lm.pt")
    (folder / "one:two.pt").symlink_to("lm.pt")  # a file with this name is no ensemble
    assert words("--lm", "one:two.pt") == words("--lm", "x=one:two.pt") == one
    expected = pytest.approx([0.75 * a + 0.25 * b for a, b in zip(one, two, strict=True)], rel=1e-4)
    assert words("--lm", "lm.pt:two/lm.pt", "--ensemble-weights", "3:1") == expected
    assert words("--lm", "x=lm.pt:two/lm.pt", "--ensemble-weights", "x=3:1") == expected
    assert words("--lm", "x=lm.pt", "--lm", "y=two/lm.pt", "--mixture", "x:0.75,y:0.25") == expected
    for option, message in [
        ("3:1:1", "expected 2 numbers"),
        ("3:x", "--ensemble-weights '3:x': expected numbers, none negative"),
        ("y=3:1", "there is no ensemble 'y'"),
    ]:
        assert message in refused("score", "text", "--lm", "lm.pt:two/lm.pt", "--ensemble-weights", option)
    for option, message in [
        ("x:1,z:1", "mixes 'z', which is not an LM of this run; there are x, y"),
        ("x:1,y", "expected LM:NUMBER"),
        ("x:0,y:0", "expected LM:NUMBER"),
        ("x:1,x:1", "each LM once"),
        ("x:0.6", "two LMs or more"),
    ]:
        assert message in refused("score", "text", "--lm", "x=lm.pt", "--lm", "y=two/lm.pt", "--mixture", option)


def test_weights_of_a_mixture_that_do_not_sum_to_1_are_told(folder):
    lms = ["--lm", "x=lm.pt", "--kenlm", "y=lm.arpa"]
    told = run("ppl", "text", *lms, "--mixture", "m=x:0.6,y:0.2").stderr
    assert "note: the weights of the mixture m sum to 0.8: taken as x 0.75, y 0.25" in told
    assert "the weights of the mixture" not in run("ppl", "text", *lms, "--mixture", "x:0.6,y:0.4").stderr
    assert "the weights of the mixture" not in run("ppl", "text", *lms, "--mixture", "x:0.3333,y:0.6666").stderr
    assert "the weights of the mixture" not in run("mix", "text", *lms).stderr  # writes attlm.toml
    assert "the weights of the mixture" not in run("ppl", "text").stderr


def test_marks_of_sentences_in_a_text_are_told(folder):
    marked = "<s> the cat </s>\nthe cat </s>\n <s> a dog\n"
    for command in (("score", "-"), ("ppl", "-")):
        told = run(*command, "--kenlm", "lm.arpa", stdin=f"{marked}the cat\n").stderr
        assert "3 lines begin with <s> or end with </s>, which count as words" in told
        clean = "the <s> cat\na </s> dog\nthe cat<s>\n\n"  # within a line they are other people's words
        assert "begin with <s>" not in run(*command, "--kenlm", "lm.arpa", stdin=clean).stderr
    command = re.search(r"`(sed .*?)` removes these", told)[1]
    assert subprocess.run(shlex.split(command), input=marked, capture_output=True, text=True).stdout == "the cat\nthe cat\na dog\n"


def test_several_lms_without_a_name_are_told_apart(folder):
    write_checkpoint(folder / "two" / "lm.pt", WORDS, seed=2)
    both = run("ppl", "text", "--lm", "lm.pt", "--lm", "two/lm.pt")
    assert "note: lm is lm.pt, lm2 is two/lm.pt; NAME=FILE gives another name" in both.stderr
    for named in (["--lm", "lm.pt"], ["--lm", "lm.pt", "--kenlm", "lm.arpa"], ["--lm", "lm.pt", "--lm", "two=two/lm.pt"]):
        assert " is lm.pt" not in run("ppl", "text", *named).stderr


def test_ppl_compares_lms_over_words_and_subwords(folder):
    (folder / "codes").write_text("#version: 0.2\nt h\nth e</w>\n")
    pieces = parse_steps(["bpe:codes"], folder)
    write_checkpoint(folder / "pieces" / "lm.pt", sorted({piece for line in TEXT for piece in pieces.words(line)}))
    rows = run("ppl", "text", "--kenlm", "lm.arpa", "--lm", "pieces/lm.pt", "--text", "lm=bpe:codes").stdout.splitlines()
    neural, ngram = (dict(zip(rows[0].split("\t"), row.split("\t"), strict=True)) for row in rows[1:])
    assert int(neural["words"]) > int(ngram["words"])
    assert ngram["ppl_as_read"] == ngram["ppl"]
    pieces_and_ends, words_and_ends = (int(row["words"]) + int(row["sentences"]) for row in (neural, ngram))
    expected = float(neural["ppl"]) ** (pieces_and_ends / words_and_ends)
    assert float(neural["ppl_as_read"]) == pytest.approx(expected, rel=1e-3)
    words = run("ppl", "text", "--kenlm", "lm.arpa", "--lm", "pieces/lm.pt", "--text", "lm=bpe:codes", "--mixture", "kenlm:0,lm:1")
    assert float(words.stdout.splitlines()[1].split("\t")[1]) == pytest.approx(float(neural["ppl_as_read"]), rel=1e-4)


def test_mix_writes_the_best_weights(folder):
    (folder / "held-out").write_text("a cat sat on the dog\nthe mat ran\n\na dog\n")
    lms = ["--kenlm", "ngram=lm.arpa", "--lm", "neural=lm.pt"]
    result = run("mix", "held-out", *lms)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    alone = {row[0]: float(row[1]) for row in rows[1:3]}
    for row in run("ppl", "held-out", *lms).stdout.splitlines()[1:]:
        name, ppl = row.split("\t")[:2]
        assert alone[name] == pytest.approx(float(ppl), rel=1e-5)
    assert rows[3] == ["iteration", "ppl", "neural", "ngram"]
    path = [float(row[1]) for row in rows[4:]]
    assert path == sorted(path, reverse=True)
    assert path[-1] <= min(alone.values()) + 1e-3
    numbers = [int(row[0]) for row in rows[4:]]
    last = tomlkit.parse((folder / "attlm.toml").read_text())["mixing"]["iterations"]
    assert numbers == sorted({0, last} | {number for number in (1, 2, 4, 8, 16, 32, 64) if number <= last})
    assert "WARNING" not in result.stderr
    config = read_config(folder / "attlm.toml")
    assert [lm.name for lm in config.scored] == ["mix"]
    assert dict(config.lms[-1].mixture) == pytest.approx(dict(zip(rows[3][2:], map(float, rows[-1][2:]), strict=True)))
    mixed = run("ppl", "held-out").stdout.splitlines()  # the mixture in place of its LMs
    assert len(mixed) == 2
    assert float(mixed[1].split("\t")[1]) == pytest.approx(path[-1], rel=1e-4)
    for weight in (0.0, 0.25, 0.5, 0.75, 1.0):
        other = run("ppl", "held-out", *lms, "--mixture", f"ngram:{weight},neural:{1 - weight}").stdout.splitlines()[1]
        assert float(other.split("\t")[1]) >= path[-1] - 1e-3
    first = (folder / "attlm.toml").read_bytes()
    assert run("mix", "held-out", *lms).stdout == result.stdout
    assert (folder / "attlm.toml").read_bytes() == first
    run("tune", "dev.json")
    assert "mix" in read_config(folder / "attlm.toml").weights
    run("rescore", "dev.json", "-o", "out.json")
    assert "mix_score" in (folder / "out.json").read_text()


def test_mix_says_where_better_weights_may_exist(folder, monkeypatch):
    monkeypatch.setattr("attlm_fairseq.verbs.mixture.em_weights", partial(em_weights, iterations=2))
    result = run("mix", "text", "--kenlm", "ngram=lm.arpa", "--lm", "neural=lm.pt")
    assert re.search(r"WARNING: EM ended after 1 iterations and before .* may be lower by up to [\d.]+ %$", result.stderr, re.MULTILINE)


def test_what_a_run_drops_of_the_configuration_is_told_before(folder):
    (folder / "attlm.toml").write_text("[lm.big]\nkenlm = 'lm.arpa'\n[text]\nsteps = ['lowercase']\n[weights]\nbig = 1\n")
    told = "WARNING: attlm.toml holds what this run does not use, and will be without it: [lm.big], [text]"
    assert f"{told}, [weights]; --config attlm.toml uses" in run("mix", "text", "--kenlm", "lm.arpa", "--lm", "lm.pt").stderr
    assert "does not use" not in run("mix", "text", "--kenlm", "lm.arpa", "--lm", "lm.pt").stderr  # the same again
    (folder / "w.toml").write_text("[lm.big]\nkenlm = 'lm.arpa'\n[text]\nsteps = ['lowercase']\n[weights]\nbig = 1\n")
    tuning = ["tune", "dev.json", "-o", "w.toml", "--restarts", "0"]
    assert "does not use" not in run(*tuning, "--config", "w.toml").stderr
    assert f"{told.replace('attlm', 'w')}; --config" in run(*tuning, "--kenlm", "lm.arpa").stderr
    assert set(read_config(folder / "w.toml").weights) == {"am_score", "kenlm", "kenlm_oov", "words", "rank"}
    run(*tuning, "--kenlm", "lm.arpa", "--metric", "cer")
    assert "will be without it: [metric]; --config" in run(*tuning, "--kenlm", "lm.arpa").stderr
    assert "does not use" not in run(*tuning, "--kenlm", "lm.arpa", "--metric", "cer").stderr
    assert "does not use" not in run(*tuning, "--kenlm", "lm.arpa", "--metric", "ter").stderr
    (folder / "w.toml").write_text("[notes]\n")
    assert "w.toml: 'notes' is not a table" in refused(*tuning, "--kenlm", "lm.arpa")
    assert (folder / "w.toml").read_text() == "[notes]\n"


def test_mix_leaves_out_what_no_lm_knows(folder):
    """Equal LMs but for p(<unk>), 0.1 and 0.000001: nothing else tells them apart, and the weights do not either."""
    for name, unknown in (("one", -1), ("two", -6)):
        unigrams = f"{unknown}\t<unk>\n-99\t<s>\t0\n-0.5\t</s>\n-0.4\ta\t0\n-0.6\tb\t0\n"
        (folder / f"{name}.arpa").write_text(
            f"\\data\\\nngram 1=5\nngram 2=1\n\n\\1-grams:\n{unigrams}\n\\2-grams:\n-0.3\ta b\n\n\\end\\\n"
        )
    lms = ["--kenlm", "one=one.arpa", "--kenlm", "two=two.arpa"]
    result = run("mix", "-", *lms, stdin="a x b\ny a\n")
    assert dict(read_config(folder / "attlm.toml").lms[-1].mixture) == {"one": 0.5, "two": 0.5}
    told = re.search(r"note: 2 of 5 words are unknown to all LMs: they count neither .* of mix, ([\d.]+)\.", result.stderr)
    printed = float(told[1])
    assert float(run("ppl", "-", stdin="a x b\ny a\n").stdout.splitlines()[1].split("\t")[1]) == pytest.approx(printed, rel=1e-4)
    result = run("mix", "-", *lms, "--oov", "spread:10", stdin="a x b\ny a\n")  # comparable, says the user
    assert "unknown to all LMs" not in result.stderr
    assert dict(read_config(folder / "attlm.toml").lms[-1].mixture)["one"] > 0.9


def test_the_perplexity_of_iterations_never_rises(folder):
    """Two knows the text better, but gives words that neither knows far less: with these the perplexity would rise."""
    for name, unknown, a, b in (("one", -1, -0.4, -0.9), ("two", -6, -0.9, -0.4)):
        unigrams = f"{unknown}\t<unk>\n-99\t<s>\t0\n-0.5\t</s>\n{a}\ta\t0\n{b}\tb\t0\n"
        (folder / f"{name}.arpa").write_text(
            f"\\data\\\nngram 1=5\nngram 2=1\n\n\\1-grams:\n{unigrams}\n\\2-grams:\n-0.3\ta b\n\n\\end\\\n"
        )
    text = "b b b x y z x y z\nb a a\n"
    result = run("mix", "-", "--kenlm", "one=one.arpa", "--kenlm", "two=two.arpa", stdin=text)
    path = [float(line.split("\t")[1]) for line in result.stdout.splitlines()[4:]]
    assert path == sorted(path, reverse=True)
    assert path[0] > path[-1]
    record = tomlkit.parse((folder / "attlm.toml").read_text())["mixing"]["ppl"]
    assert list(record) == ["one", "two", "mix"]
    assert float(run("ppl", "-", stdin=text).stdout.splitlines()[1].split("\t")[1]) == pytest.approx(record["mix"], rel=1e-4)


def test_mix_refuses_what_cannot_be_mixed(folder):
    assert "a mixture needs two LMs or more, there are 1" in refused("mix", "text", "--kenlm", "lm.arpa")
    lms = ["--kenlm", "lm.arpa", "--lm", "lm.pt"]
    assert "'lm' is one of the LMs already" in refused("mix", "text", *lms, "--name", "lm")
    assert "mixes LMs that see different words (text for lm: split" in refused("mix", "text", *lms, "--text", "kenlm=lowercase")
    assert not (folder / "attlm.toml").exists()
    result = run("mix", "-", *lms, stdin="a zebra sat\n")
    assert "unknown to some" not in result.stderr  # all know the same words
    write_checkpoint(folder / "other" / "lm.pt", ["a", "zebra"])
    lms = ["--kenlm", "lm.arpa", "--lm", "other/lm.pt"]
    result = run("mix", "-", *lms, stdin="a zebra sat\n")
    assert "WARNING: 2 of 3 words are unknown to some of the LMs only" in result.stderr
    of_mixture = "WARNING: words are unknown to some LMs of mix only, such as 'zebra': there p(<unk>), which stands for many words, is"
    mixed = ["-", *lms, "--mixture", "mix=kenlm:0.5,lm:0.5"]
    for command in ("ppl", "score"):
        assert of_mixture in run(command, *mixed, stdin="a zebra sat\n").stderr
        assert "unknown to some" not in run(command, *mixed, "--oov", "spread:9", stdin="a zebra sat\n").stderr
        assert "unknown to some" not in run(command, *mixed, stdin="a b\n").stderr  # b is unknown to both
    assert of_mixture in run("ppl", *mixed, "--context", "all", stdin="a zebra\nsat\n").stderr


def test_perplexities_with_other_unknown_words_are_warned_of(folder):
    write_checkpoint(folder / "other" / "lm.pt", ["a", "zebra"])
    warning = "WARNING: unknown words do not count alike in these LMs: p(<unk>) is the score of "
    for compare in ([], ["--compare"]):
        lms = ["-", "--kenlm", "lm.arpa", "--lm", "other/lm.pt", *compare]
        text = "a zebra sat mat\n" * 8
        assert f"{warning}16 of lm, 8 of kenlm. If it stands for many words" in run("ppl", *lms, stdin=text).stderr
        assert f"{warning}16 of lm. If" in run("ppl", *lms, "--oov", "kenlm=spread:9", stdin=text).stderr
        assert warning not in run("ppl", *lms, "--oov", "spread:9", stdin=text).stderr
        assert warning not in run("ppl", *lms, stdin="a a\n" * 8).stderr


def test_ngram_writes_a_model(folder):
    run("ngram", "text", "-o", "new.arpa", "-n", "3", "--discount-fallback")
    assert kenlm.Model("new.arpa").order == 3


def test_an_lm_that_gives_probability_0_has_no_perplexity(folder):
    arpa = (folder / "lm.arpa").read_text()
    (folder / "lm.arpa").write_text(re.sub(r"^\S+(?=\t(ran|.* ran)\b)", "-inf", arpa, flags=re.MULTILINE))
    assert "text:3: score 'kenlm' is -inf, expected a finite number" in refused("ppl", "text", "--kenlm", "lm.arpa")
    assert "\t-inf\t" in run("score", "text", "--kenlm", "lm.arpa").stdout


def test_control_characters_of_the_data_do_not_reach_the_terminal(folder):
    lists = json.dumps([{"input": ["the cat", "a cat"], "output": "the cat", "a\x1b[31m\x07\x9b\u202e_score": [-1.0, -2.0]}])
    (folder / "n\x1b[31m.json").write_text(lists)
    message = refused("rescore", "n\x1b[31m.json", "--weight", "other=1")
    assert message.startswith(r"attlm: error: n\x1b[31m.json:")
    assert r"a\x1b[31m\x07\x9b\u202e" in message
    warning = run("ppl", "-", "--kenlm", "lm.arpa", stdin="x\x1b[2J\x7f\x9by\n").stderr
    assert r"Most often: x\x1b[2J\x7f\x9by (1)" in warning
    lists = [{**nbest, "a\x1b[31m\x07\x9b\u202e_score": nbest["am_score"]} for nbest in json.loads((folder / "dev.json").read_text())]
    (folder / "dev.json").write_text(json.dumps(lists))
    for command in (["tune", "--strength", 1, "--without", "am_score"], ["tune", "--no-gain", "fail"], ["eval", "--kenlm", "lm.arpa"]):
        result = CliRunner().invoke(main, [command[0], "dev.json", *map(str, command[1:])])
        assert not set(result.stdout + result.stderr) & set("\x1b\x07\x9b\u202e"), command
        assert r"a\x1b[31m\x07\x9b\u202e" in result.stdout + result.stderr or command[0] == "eval"


def test_sampled_control_characters_are_shown_on_a_terminal_and_kept_in_a_file(folder):
    write_checkpoint(folder / "escape.pt", ["x\x1b[2J"])
    command = ["sample", "--lm", "escape.pt", "-n", "1", "--prefix", "x\x1b[2J", "--max-words", "1"]
    kept = run(*command)
    assert kept.stdout == "x\x1b[2J\n"
    terminal, output = os.openpty()
    program = [sys.executable, "-c", "from attlm_cli.main import main; main()"]
    subprocess.run([*program, *command], stdout=output, check=True)
    os.close(output)
    assert os.read(terminal, 100) == b"x\\x1b[2J\r\n"
    os.close(terminal)


def test_bad_input_is_one_line(folder):
    kenlm_options = ["--kenlm", "lm.arpa", "--weight", "kenlm=1"]
    assert "no LM given" in refused("score", "text")
    assert "no weight for lm; find the weights with `attlm tune`" in refused("rescore", "dev.json", "--lm", "lm.pt")
    assert "nosuch.json: cannot be read" in refused("rescore", "nosuch.json", *kenlm_options)
    assert "--weight 'kenlm'" in refused("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm")
    assert "--weight 'kenlm=nan'" in refused("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=nan")
    assert "not a feature" in refused("rescore", "dev.json", *kenlm_options, "--weight", "other=1")
    assert "two LMs are called 'x'" in refused("score", "text", "--lm", "x=lm.pt", "--kenlm", "x=lm.arpa")
    assert "cannot be the name" in refused("score", "text", "--lm", "words=lm.pt")
    assert "the output would overwrite the input" in refused("rescore", "dev.json", "-o", "./dev.json", *kenlm_options)
    (folder / "latin1").write_bytes(b"caf\xc3\xa9\ncaf\xe9\n")
    assert "latin1:2: not UTF-8: found 0xe9 at byte 4" in refused("ppl", "latin1", "--kenlm", "lm.arpa")
    assert "empty" in refused("ppl", "-", "--kenlm", "lm.arpa", stdin="")
    (folder / "one.ref").write_text("the cat sat\n")
    assert "3 lists" in refused("tune", "dev.json", "--refs", "one.ref", "--kenlm", "lm.arpa")
    assert sorted(path.name for path in folder.iterdir()) == ["dev.json", "dict.txt", "latin1", "lm.arpa", "lm.pt", "one.ref", "text"]
    (folder / "dict.txt").unlink()
    for command in (["ppl", "text", "--lm", "lm.pt"], ["export", "lm.pt", "new"]):
        assert refused(*command).endswith("; copy it next to the checkpoint or name it with --dict")


@pytest.mark.parametrize(
    "command", [["score", "text"], ["ppl", "text"], ["sample"], ["export", "lm.pt", "new", "--ppl", "text"], ["attention", "the cat"]]
)
def test_a_device_that_is_not_there_is_one_line(folder, command):
    lm = [] if command[0] == "export" else ["--lm", "lm.pt"]
    for device, message in (
        ("cuda:99", r"--devices? 'cuda:99': there is no cuda:99 here"),
        ("cud", r"--devices? 'cud': expected cpu"),
        ("cpu:2", "this command runs as one process"),
    ):
        assert re.search(message, refused(*command, *lm, "--device", device))
    assert not (folder / "new").exists()


def test_no_partial_output_is_left(folder):
    broken = (folder / "dev.json").read_text()[:-40]
    (folder / "broken.json").write_text(broken)
    (folder / "out.json").write_text("precious")
    assert "broken.json:1: " in refused("rescore", "broken.json", "-o", "out.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1")
    assert (folder / "out.json").read_text() == "precious"
    assert not [path for path in folder.iterdir() if "tmp" in path.name or path.name.startswith(".")]


PROGRAM = f"{sys.executable} -c 'from attlm_cli.main import main; main()'"


@pytest.mark.parametrize(
    ("shell", "message"),
    [
        (
            "score text --kenlm lm.arpa > /dev/full",
            "standard output or a temporary file: cannot be read",
        ),
        (
            "rescore dev.json --kenlm lm.arpa --weight kenlm=1 > /dev/full",
            "standard output or a temporary file: cannot be read",
        ),
        ("--help > /dev/full", "No space left on device"),
        ("score text --kenlm lm.arpa >&-", "standard output is closed"),
        ("rescore - --kenlm lm.arpa --weight kenlm=1 <&-", "<stdin>: standard input is closed"),
        (f"rescore dev.json --kenlm lm.arpa --weight kenlm=1 -o {'n' * 250}", "File name too long"),
    ],
)
def test_streams_that_are_full_or_closed_are_one_line(folder, shell, message):
    result = subprocess.run(f"{PROGRAM} {shell}", shell=True, capture_output=True, text=True, check=False)
    lines = [line for line in result.stderr.splitlines() if not line.startswith(("total = ", "text for ", "WARNING", "note"))]
    assert (result.returncode, result.stdout) == (2, "")
    assert len(lines) == 1
    assert lines[0].startswith("attlm: error: ")
    assert message in lines[0]


@pytest.mark.parametrize("command", ["mix text --kenlm p=lm.arpa --kenlm q=lm.arpa", "fit text --kenlm lm.arpa --find unigram-cache"])
def test_what_was_found_is_saved_before_it_is_printed(folder, command):
    result = subprocess.run(f"{PROGRAM} {command} -o found.toml > /dev/full", shell=True, capture_output=True, text=True, check=False)
    assert result.returncode == 2, result.stderr
    assert read_config(folder / "found.toml").lms


def test_scores_of_a_text_with_a_bad_line_are_not_printed_in_part(folder):
    (folder / "long").write_bytes(b"the cat sat\n" * 9000 + b"a d\xffg\n")
    result = run("score", "long", "--kenlm", "lm.arpa", code=2)
    assert result.stdout == ""
    assert "long:9001: not UTF-8" in result.stderr


def test_names_of_files_may_have_an_equals_sign(folder):
    for name in ("epoch=3.arpa", "b=1.json"):
        (folder / name).symlink_to("lm.arpa" if name.endswith("arpa") else "dev.json")
    plain = run("score", "text", "--kenlm", "lm.arpa").stdout
    assert run("score", "text", "--kenlm", "epoch=3.arpa").stdout == plain
    assert run("score", "text", "--kenlm", "kenlm=epoch=3.arpa").stdout == plain
    run("combine", "x=dev.json", "y=b=1.json", "-o", "both.jsonl")
    assert "y_am" in (folder / "both.jsonl").read_text()


def test_names_that_are_not_utf8_are_one_line_or_escaped(folder):
    other = os.fsdecode(b"x\xff.json")
    (folder / other).symlink_to("dev.json")
    lm = os.fsdecode(b"k\xff.arpa")
    (folder / lm).symlink_to("lm.arpa")
    run("eval", other, "--errors", "errors.tsv")
    assert "\tx\\udcff.json\t" in (folder / "errors.tsv").read_text()
    learn = refused("corrections", "learn", "dev.json", "--kenlm", lm, "-o", "table.tsv")
    assert "the name of the LM, which the table holds, is not UTF-8 (character 2)" in learn
    rule = os.fsdecode(b"external:./s\xff.sh")
    assert "which attlm.toml holds, is not UTF-8" in refused("tune", "dev.json", "--mbr", rule, "-o", "out.toml")
    assert not (folder / "table.tsv").exists()
    assert not (folder / "out.toml").exists()


def test_without_standard_error_the_work_is_done(folder):
    shell = f"{PROGRAM} rescore dev.json --kenlm lm.arpa --weight kenlm=1 -o out.json"
    subprocess.run(shell, shell=True, check=True, capture_output=True)
    expected = (folder / "out.json").read_bytes()
    subprocess.run(f"{shell} 2>&-", shell=True, check=True)
    assert (folder / "out.json").read_bytes() == expected


def test_a_link_in_the_place_of_an_unfinished_output_is_not_followed(folder):
    """In a folder that others may write to, it could lead to any file of the user's."""
    (folder / "precious").write_text("precious")
    for name in (".out.json.part", "out.json.unfinished"):
        place = folder / name
        place.symlink_to("precious")
        assert name in refused("rescore", "dev.json", "-o", "out.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1")
        place.unlink()
    assert (folder / "precious").read_text() == "precious"
    assert not (folder / "out.json").exists()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("rescore dev.json {lms} -o lm.arpa", "the output would overwrite the LM kenlm"),
        (
            "rescore dev.json {lms} --lm lm.pt --weight lm=1 --dict dict.txt -o ./dict.txt",
            "the output would overwrite the dictionary of lm",
        ),
        ("rescore dev.json --config attlm.toml -o attlm.toml", "the output would overwrite the configuration"),
        ("tune dev.json --kenlm lm.arpa -o new --report new", "--report and the output would be the same file"),
        ("eval dev.json --report none/page.html", "--report cannot be written: there is no folder"),
        ("tune dev.json --refs refs -o refs", "the output would overwrite the references"),
        ("eval dev.json --report dev.json", "--report would overwrite the input"),
        ("eval dev.json --refs refs --report refs", "--report would overwrite the references"),
        ("eval dev.json --config attlm.toml --report attlm.toml", "--report would overwrite the configuration"),
        ("tune dev.json --kenlm lm.arpa -o lm.arpa", "the output would overwrite the LM kenlm"),
        ("tune dev.json --config attlm.toml --report attlm.toml -o new", "--report would overwrite the configuration"),
        ("mix text --kenlm lm.arpa --lm lm.pt -o text", "the output would overwrite the text"),
        ("ngram text -o text", "the output would overwrite the text"),
        ("score text --kenlm lm.arpa --text lowercase --text unescape", "--text is given twice for all LMs: join the steps by commas"),
        ("eval dev.json --metric-text lowercase --metric-text unescape", "--metric-text is given 2 times: join the steps by commas"),
        ("attention a --lm exported -o exported/page.html", "the output would be a file in the folder of the LM lm"),
        ("attention a --lm exported -o page.html -o ./page.html", "the output and the output would be the same file"),
        ("rescore dev.json {lms} --text truecase:refs -o refs", "the output would overwrite a text step"),
        ("tune dev.json --kenlm lm.arpa --metric-text truecase:case -o case", "the output would overwrite a step of --metric-text"),
        ("eval dev.json --metric-text truecase:case --errors case", "--errors would overwrite a step of --metric-text"),
        ("tune dev.json --kenlm lm.arpa --folds-by file:case --report case -o new", "--report would overwrite the groups"),
        ("jackknife dev.json --lm a=lm.arpa --lm a=refs -o refs", "the output would overwrite an LM"),
        ("jackknife dev.json --text truecase:case -o case", "the output would overwrite a step of --text"),
        ("jackknife dev.json --folds-by file:case -o case", "the output would overwrite the groups"),
        ("jackknife dev.json --texts out/../case -o case", "would be the same file"),
        ("corrections learn dev.json --text truecase:case -o case", "the output would overwrite a step of --text"),
    ],
)
def test_no_output_replaces_what_is_read(folder, command, message):
    (folder / "refs").write_text("the cat sat on the mat\na dog ran\na mat\n")
    (folder / "case").write_text("the (3/4) The (1)\n")
    (folder / "attlm.toml").write_text('[lm.kenlm]\nkenlm = "lm.arpa"\n[weights]\nkenlm = 1.0\n')
    (folder / "exported").mkdir()
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert message in refused(*command.format(lms="--kenlm lm.arpa --weight kenlm=1").split())
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before
    assert not list((folder / "exported").iterdir())


def test_a_reader_that_goes_ends_the_command_without_a_word(folder):
    (folder / "long").write_text("the cat sat on the mat\n" * 20_000)
    attlm = [sys.executable, "-m", "attlm_cli.main", "score", "long", "--kenlm", "lm.arpa"]
    process = subprocess.Popen(attlm, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    assert b"Exception ignored" not in said
    assert b"BrokenPipe" not in said
    assert process.wait() == 141


@pytest.mark.parametrize(
    "options", ["--text lowercase", "--oov penalty:-3", "--devices cpu:2", "--precision bfloat16", "--memory 2G", "--dict d"]
)
def test_eval_without_lms_refuses_what_would_change_lms(folder, options):
    assert f"{options.split()[0]}" in refused("eval", "dev.json", *options.split())
    (folder / "attlm.toml").write_text('[lm.kenlm]\nkenlm = "lm.arpa"\n[weights]\nkenlm = 1.0\n')
    assert "is about LMs, and there are none" in refused("eval", "dev.json", *options.split())  # that of the folder does not count
    assert "rescored" not in run("eval", "dev.json").stdout


def test_too_little_memory_is_one_line(folder, monkeypatch):
    def too_much(*_: object) -> None:
        np.empty(1 << 50)

    monkeypatch.setattr("attlm_fairseq.nbest.run.deciding.decide", too_much)
    result = run("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "-o", "out.json", code=2)
    assert result.stderr.splitlines()[-1].startswith("attlm: error: there is not enough memory (Unable to allocate")
    assert not (folder / "out.json").exists()


def test_the_command_recorded_can_be_given_again(folder, monkeypatch):
    command = ["tune", "my dev.json", "--kenlm", "lm.arpa", "--without", "ran*", "--folds", "0", "--report", "page.html"]
    (folder / "dev.json").rename(folder / "my dev.json")
    monkeypatch.setattr(sys, "argv", ["attlm", *command])
    run(*command)
    record = tomlkit.parse((folder / "attlm.toml").read_text())["tuning"]
    assert shlex.split(record["command"]) == ["attlm", *command]
    assert "attlm tune &#39;my dev.json&#39;" in (folder / "page.html").read_text()


def test_perplexities_are_those_of_the_words_scored(folder):
    (folder / "some.txt").write_text("the cat qat\n\nqat sat\n")
    lm = ["--kenlm", "lm.arpa"]
    header, row = (line.split("\t") for line in run("ppl", "some.txt", *lm).stdout.splitlines())
    events = [line.split("\t") for line in run("score", "some.txt", *lm, "--words", "--no-header").stdout.splitlines()]
    known = [float(score) for _, _, score, unknown in events if unknown == "0"]
    predicted = [float(event[2]) for before, event in pairwise(events) if before[0] == event[0]]
    expected = [sum(float(event[2]) for event in events) / len(events), sum(predicted) / len(events), sum(known) / len(known)]
    assert (len(events), len(known)) == (8, 6)
    assert header[1:4] == ["ppl", "ppl_salton2017", "ppl_without_oov"]
    assert [float(value) for value in row[1:4]] == pytest.approx([math.exp(-mean) for mean in expected], rel=1e-4)


def test_every_command_tells_what_a_lower_precision_did(folder):
    for command in (["score", "text"], ["ppl", "text"], ["mix", "text", "--kenlm", "lm.arpa", "-o", "mix.toml"]):
        assert "differs from float32 by" in run(*command, "--lm", "lm.pt", "--precision", "bfloat16").stderr
        assert "differs from float32 by" not in run(*command, "--lm", "lm.pt").stderr
    for option in (["--precision", "bfloat16"], ["--oov", "penalty:-5"], ["--memory", "2G"]):
        assert f"No such option '{option[0]}'" in run("attention", "a", "--lm", "lm.pt", *option, code=2).stderr


@pytest.mark.parametrize(("instructions", "slow"), [(True, False), (True, True), (False, False)])
def test_a_warning_says_where_bfloat16_is_slower(folder, monkeypatch, instructions, slow):
    monkeypatch.setattr("attlm_fairseq.modules.kernels.products.has_bfloat16_instructions", lambda: instructions)
    monkeypatch.setattr("attlm_fairseq.modules.kernels.products.slower_in_bfloat16", lambda: slow)
    without = "WARNING: lm: bfloat16: this CPU has no instructions for it. float32, the default, is faster"
    slower = "WARNING: lm: bfloat16: on this CPU products take longer than in float32, the default"
    stderr = run("ppl", "text", "--lm", "lm.pt", "--precision", "bfloat16").stderr
    assert (without in stderr, slower in stderr) == (not instructions, slow)
    assert "WARNING" not in run("ppl", "text", "--lm", "lm.pt").stderr
    assert "WARNING" not in run("ppl", "text", "--kenlm", "lm.arpa", "--precision", "bfloat16").stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    assert "Example" in run(command, "--help").stdout


def test_kenlm_alone_starts_without_torch(folder):
    """What keeps `attlm rescore` of one list with KenLM below a second."""
    program = (
        "import sys; from attlm_cli.main import main;"
        "main(['rescore', 'dev.json', '--kenlm', 'lm.arpa', '--weight', 'kenlm=1'], standalone_mode=False);"
        "assert 'torch' not in sys.modules and 'fairseq' not in sys.modules, 'imported'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_neural_lms_run_without_fairseq(folder):
    program = (
        "import sys; from attlm_cli.main import main; main(['ppl','text','--lm','lm.pt'], standalone_mode=False);"
        "assert 'fairseq' not in sys.modules, 'imported'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_output_is_utf8_whatever_the_locale(folder):
    write_checkpoint(folder / "greek.pt", ["Ω"])
    for command in (
        ["score", "-", "--kenlm", "lm.arpa", "--words"],
        ["sample", "--lm", "greek.pt", "--prefix", "Ω"],
        ["attention", "Ω Ω", "--lm", "greek.pt"],
    ):
        result = CliRunner(charset="latin-1").invoke(main, command, input="Ω\n".encode())
        assert result.exit_code == 0, (command, result.exception)
        assert "Ω".encode() in result.stdout_bytes
    program = [sys.executable, "-c", "from attlm_cli.main import main; main()", "score", "-", "--kenlm", "lm.arpa", "--words"]
    for encoding in ("latin-1", "ascii", "utf-8"):
        environment = os.environ | {"PYTHONIOENCODING": encoding}
        found = subprocess.run(program, input="Ω\n".encode(), capture_output=True, check=True, env=environment)
        assert "\tΩ\t".encode() in found.stdout


def test_weights_of_0_leave_everything_as_read(folder):
    moses = "0 ||| das ist gut ||| LM0= -12.3 ||| -5.61\n0 ||| das ist ||| LM0= -2.5 ||| -6.5\n"
    fairseq = "S-0\tx\nH-0\t-1.5\ta b\nD-0\t-1.5\ta b\nH-0\t-2.5\ta\nD-0\t-2.5\ta\n"
    for text, weight in ((moses, "LM0=0"), (fairseq, "words=0")):
        result = run("rescore", "-", "--weight", weight, stdin=text)
        assert result.stdout == text
        assert "the lists stay as they are" in result.stderr


def test_the_order_of_a_rescored_kaldi_file_is_kept(folder):
    """Keys stay as the decoder wrote them; what counts is where a line stands. Sorted as text, tables are in the order of the keys."""
    text = "u-2 b b\nu-1 a\nv-2 b b\nv-1 a\n"
    (folder / "lists").write_text(text)
    (folder / "refs").write_text("b b\nb b\n")
    assert re.search(r"^lists +0.00 ", run("eval", "lists", "--refs", "refs").stdout, re.M)
    assert run("rescore", "lists", "--weight", "words=0").stdout == text
    assert run("rescore", "lists", "--weight", "rank=-1").stdout == text
    run("tune", "lists", "--refs", "refs", "--folds", "0", "-o", "w.toml")
    assert run("rescore", "lists", "--config", "w.toml").stdout == text
    (folder / "sorted").write_text("".join(f"u-{number} {'b' if number == 2 else 'a'}\n" for number in (1, 10, 11, 2, 3, 4, 5)))
    assert run("rescore", "sorted", "--weight", "rank=-1").stdout.split()[::2] == [*("u-1", "u-2", "u-3", "u-4", "u-5", "u-10", "u-11")]


def test_a_score_that_an_lm_replaces_is_told(folder):
    (folder / "list.srilm").write_text("-10 -100 1 a\n-20 -1 1 the\n")
    replaced = "the lists have a score 'lm' of their own"
    assert replaced in run("rescore", "list.srilm", "--lm", "lm.pt", "--weight", "lm=1", "--to", "jsonl", "-o", "out.jsonl").stderr
    run("rescore", "dev.json", "--lm", "lm.pt", "--weight", "lm=1", "-o", "again.json")
    assert replaced not in run("rescore", "again.json", "--lm", "lm.pt", "--weight", "lm=1").stderr  # its own, read back
    assert replaced not in run("rescore", "list.srilm", "--lm", "n=lm.pt", "--weight", "n=1", "--to", "jsonl").stderr


def test_the_case_of_metrics(folder):
    """Each metric with its own default, as sacreBLEU has it, and both ways on demand."""
    (folder / "upper.json").write_text(json.dumps([{"input": ["A DOG RAN ON A MAT", "x"], "output": "a dog ran on a mat"}]))
    lowercase, sensitive = ["--metric-text", "lowercase"], ["--ter-case-sensitive"]
    for metric, cased, uncased in (("wer", 100, 0), ("cer", 72.22, 0), ("BLEU", 0, 100), ("chrf", 0, 100)):
        for options, expected in ([], cased), (lowercase, uncased):
            table = run("eval", "upper.json", "--metric", metric, *options).stdout
            assert float(re.search(r"^upper.json +([\d.]+)", table, re.MULTILINE)[1]) == pytest.approx(expected, abs=0.01)
            assert ("|text:lowercase" in table) == bool(options)
    for options, expected in ([], "0.00"), (sensitive, "100.00"), (sensitive + lowercase, "0.00"):
        table = run("eval", "upper.json", "--metric", "ter", *options).stdout
        assert re.search(r"^upper.json +([\d.]+)", table, re.MULTILINE)[1] == expected
    assert "--ter-case-sensitive is for --metric ter" in refused("eval", "upper.json", *sensitive)
    assert "--metric-text is for --mbr or --consensus" in refused("rescore", "upper.json", "--weight", "words=1", *lowercase)


def test_texts_are_measured_as_lists_of_one(folder):
    run("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "-o", "re.json")
    run("rescore", "dev.json", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "--to", "1best", "-o", "re.txt")
    references = "".join(nbest["output"] + "\n" for nbest in json.loads((folder / "dev.json").read_text()))
    result = run("eval", "dev.json", "re.json", "re.txt", "--refs", "-", stdin=references)
    assert "re.txt is not an n-best list: read as one text per line" in result.stderr
    lists, texts = (re.search(rf"{name} +([\d.]+)", result.stdout)[1] for name in ("re.json", "re.txt"))
    assert lists == texts
    refused("eval", "dev.json", "re.txt", "--format", "plain")


def wers(result) -> list[str]:
    """The scores of a table of eval, but for the oracle."""
    return re.findall(r"^(?!oracle)\S+ +([\d.]+) +[\d.]+ \.\. ", result.stdout, re.MULTILINE)


def test_eval_reads_what_rescore_writes_with_ids(folder):
    (folder / "dev.kaldi").write_text("u-2-1 a dog ran\nu-2-2 a dock ran\nu-1-1 a mad\nu-1-2 a mat\nu-3-1 the cat sat\n")
    (folder / "other.kaldi").write_text("u-3-1 the cat sat\nu-1-1 a mad\nu-1-2 a mat\nu-2-1 a dog ran\nu-2-2 a dock ran\n")
    (folder / "refs").write_text("u-1 a mat\nu-2 a dog ran\nu-3 the cat sat\n")
    for style in ("1best", "1best-kaldi", "1best-sclite"):
        run("rescore", "dev.kaldi", "--weight", "rank=-1", "--to", style, "-o", style)
    result = run("eval", "dev.kaldi", "other.kaldi", "1best", "1best-kaldi", "1best-sclite", "--refs", "refs")
    assert wers(result) == ["12.50"] * 5
    assert result.stderr.splitlines() == [
        "note: 1best is not an n-best list: read as one text per line",
        "note: 1best-kaldi is not an n-best list: read as one text per line, with ids",
        "note: 1best-sclite is not an n-best list: read as one text per line, with ids",
        "note: 3 samples are too few for a p-value of 0.05 or less, and their intervals are too narrow",
    ]
    texts = ("1best-sclite", "1best-kaldi", "--format", "text")
    assert wers(run("eval", *texts, "--refs", "refs", "--refs-by", "id")) == wers(run("eval", *texts, "--refs", "refs")) == ["12.50"] * 2
    (folder / "more").write_text("u-0 a\nu-1 a mat\nu-2 a dog ran\nu-3 the cat sat\n")
    for file in ("dev.kaldi", *texts[:2]):
        options = ("eval", file, "--refs", "more", *(texts[2:] if file in texts else ()))
        result = run(*options, "--refs-by", "id")
        assert wers(result) == ["12.50"]
        assert (
            result.stderr
            == "note: more: 1 references are of no list and left over, the first of id 'u-0': 3 lists, 4 references with ids\n"
        )
        assert "no list has the id 'u-0'" in run(*options, code=2).stderr
    (folder / "twice").write_text("u-1 a mat\nu-1 a mat\n")
    assert "the id 'u-1' is there 2 times" in refused("eval", "twice", "--refs", "more", "--refs-by", "id", "--format", "text")
    assert "which no list has" in refused("eval", "1best", "--refs", "refs", "--format", "text")
    (folder / "others").write_text("u-1-1 a mad\nu-2-1 a\nu-4-1 the\n")
    assert "such as 'u-1-1', which no list has" in refused("eval", "dev.kaldi", "others", "--refs", "refs")


def test_texts_take_the_references_of_the_lists(folder):
    run("rescore", "dev.json", "--weight", "rank=-1", "--to", "1best", "-o", "out")
    assert len(set(wers(run("eval", "dev.json", "out")))) == 1
    (folder / "blank").write_text("\n\n\n")
    assert wers(run("eval", "dev.json", "blank"))[1] == "100.00"
    (folder / "other.json").write_text(json.dumps(json.loads((folder / "dev.json").read_text())[::-1]))
    assert "other.json:1: the reference of list '0' is not that of dev.json" in refused("eval", "dev.json", "other.json")


PIECES = """\
S-0\tx
H-0\t-0.5\tthe caf\u00e9 is ope@@ n
D-0\t-0.5\tthe caf\u00e9 is open
P-0\t-1 -1 -1 -1 -1 -1
H-0\t-0.6\tthe c@@ at
D-0\t-0.6\tthe cat
P-0\t-1 -1 -1 -1 -1
"""


def test_the_metric_may_see_another_text(folder):
    """fairseq's H-lines are in subwords, references are not: without a word the score would mean nothing."""
    (folder / "gen").write_text(PIECES, encoding="utf-8")
    (folder / "refs").write_text("the cafe\u0301 is open\n", encoding="utf-8")
    steps = "join-subwords:bpe,unicode:nfc"
    (folder / "again").write_text(PIECES, encoding="utf-8")
    result = run("eval", "gen", "again", "--refs", "refs")
    assert wers(result) == ["75.00"] * 2
    warning = (
        "WARNING: the hypotheses of 1 of 1 lists carry subword marks (@@), their references do not: WER compares pieces with words; "
        "--metric-text join-subwords:bpe joins them for the metric"
    )
    assert [line for line in result.stderr.splitlines() if line.startswith("WARNING")] == [warning] * 2
    result = run("eval", "gen", "--refs", "refs", "--metric-text", steps)
    assert wers(result) == ["0.00"]
    assert ("WARNING" in result.stderr, f"|text:{steps}|" in result.stdout) == (False, True)
    assert "25.00" in run("eval", "gen", "--refs", "refs", "--metric-text", "join-subwords:bpe").stdout

    assert warning in run("tune", "gen", "--refs", "refs").stderr
    tuned = run("tune", "gen", "--refs", "refs", "--metric-text", steps)
    assert (warning in tuned.stderr, bool(re.search(r"^input 1-best +0\.00 ", tuned.stdout, re.MULTILINE))) == (False, True)
    assert "0.00" in (told := run("eval", "gen", "--refs", "refs")).stdout  # by the metric of attlm.toml, with its steps
    assert f"note: wer after {steps} is the metric of attlm.toml in this folder; --metric names another" in told.stderr
    options = ("gen", "--weight", "rank=1", "--refs", "refs", "--metric", "wer", "--report", "page.html")
    assert "--metric-text is for --mbr" in refused("rescore", "gen", "--weight", "rank=1", "-o", "out", "--metric-text", steps)
    assert warning in run("eval", *options).stderr
    assert warning not in run("eval", *options, "--metric-text", steps).stderr
    assert "|text:join-subwords:bpe,unicode:nfc|" in (folder / "page.html").read_text(encoding="utf-8")
    assert "known are" in refused("eval", "gen", "--refs", "refs", "--metric-text", "upside-down")


def test_what_only_looks_like_input_is_one_line(folder):
    (folder / "out").write_text("")
    assert "missing" in refused("rescore", "missing", "-o", "out", "--weight", "words=1")
    (folder / "bare").write_text("0\ta b\n0\ta\n")
    (folder / "refs").write_text("a\n")
    assert "no feature is left" in refused("tune", "bare", "--refs", "refs", "--without", "words", "--without", "rank")
    assert "finite" in run("rescore", "bare", "--weight", "words=1", "--mbr", "wer", "--scale", "inf", code=2).stderr
    run("eval", "bare", "--refs", "refs", "--seed", "-1", code=2)
    for text in (f"a-1 x\nb-{'1' * 5000} y\n", f"-1 -2 {'1' * 5000} a\n"):
        (folder / "long").write_text(text)
        assert "long" in refused("rescore", "long", "--weight", "words=1")
    (folder / "tiny.pt").write_bytes(b"\x80\x02.")
    assert "tiny.pt: " in refused("rescore", "dev.json", "--lm", "tiny.pt", "--weight", "lm=1")


def test_a_folder_that_is_sorted_as_text_is_doubted(folder):
    (folder / "lists").mkdir()
    for number in range(1, 11):
        (folder / "lists" / f"utt_{number}").write_text(f"-1 -2 1 w{number}\n")
    (folder / "refs").write_text("".join(f"w{number}\n" for number in range(1, 11)))
    result = run("eval", "lists", "--refs", "refs")
    assert "WARNING: the lists are sorted by their ids as text (utt_10 before utt_2), and references go by order" in result.stderr
    assert run("eval", "lists", "--refs", "refs", "--refs-by", "order").stderr == ""


def test_options_out_of_range_are_refused(folder):
    for options in (
        ["--folds", "-3"],
        ["--restarts", "-1"],
        ["--strength", "2"],
        ["--strength", "nan"],
    ):
        result = run("tune", "dev.json", *options, code=2)
        assert f"Invalid value for '{options[0]}': " in result.stderr
    assert "--folds 2: expected at least 3, or 0 for no cross-validation" in refused("tune", "dev.json", "--folds", "2")
    assert "no feature is left to tune: --without leaves out all that there are (am_score, words, rank)" in refused(
        "tune", "dev.json", "--without", "*"
    )
    for command in (["eval", "-"], ["tune", "-"]):
        assert "standard input (-) is named more than once" in refused(*command, "--refs", "-", stdin="a\n")
    assert "named more than once" in refused("eval", "-", "-", stdin="a\n")
    assert "named more than once" in refused("eval", "-", "--draw-by", "file:-", stdin="a\n")
    for command in ("eval", "tune"):
        assert "--bleu-tokenize is for --metric bleu, not for wer" in refused(command, "dev.json", "--bleu-tokenize", "zh")
    assert sorted(path.name for path in folder.iterdir()) == ["dev.json", "dict.txt", "lm.arpa", "lm.pt", "text"]


def test_a_feature_that_nothing_depends_on_here_can_be_fixed(folder):
    """Unknown words may be in other lists than those tuned on."""
    known = [{"input": ["a dog ran", "a cat ran"], "output": "a cat ran", "am_score": [-1, -2]}] * 3
    (folder / "known.json").write_text(json.dumps(known))
    options = ["tune", "known.json", "--kenlm", "lm.arpa", "--strength", "1"]
    run(*options)
    assert "kenlm_oov" not in read_config(folder / "attlm.toml").weights
    run(*options, "--fix", "kenlm_oov=-1")
    assert read_config(folder / "attlm.toml").weights["kenlm_oov"] == -1
    run(*options, "--interval", "kenlm_oov=-2:0")
    assert read_config(folder / "attlm.toml").weights["kenlm_oov"] == 0


def test_eval_takes_the_weights_of_sparse_lists(folder):
    (folder / "sparse").write_text("0 ||| a ||| LM0= -1 ||| -1\n0 ||| the ||| LM0= -2 Rare= 1 ||| -1\n")
    (folder / "refs").write_text("a\n")
    result = run("eval", "sparse", "--refs", "refs", "--weight", "LM0=1", "--weight", "Other=0.5")
    assert "rescored, max" in result.stdout
    assert "WARNING: no hypothesis has a score Other: the weight had no effect" in result.stderr
    result = run("eval", "sparse", "--refs", "refs", "--weight", "LM0=1", "--weight", "Rare=0.5", "--weight", "Other=0")
    assert "no hypothesis has" not in result.stderr
    assert "not a feature" in refused("eval", "dev.json", "--weight", "Other=0.5")


@pytest.mark.parametrize(
    ("kind", "pieces"),
    [
        ("bpe", "the c@@ at s@@ at"),
        ("sentencepiece", "\u2581the \u2581c at \u2581s at"),
        ("wordpiece", "the c ##at s ##at"),
    ],
)
def test_pieces_are_measured_as_words_where_asked(folder, kind, pieces):
    (folder / "pieces").write_text(f"{pieces}\n\n{pieces} {pieces}\n", encoding="utf-8")
    (folder / "refs").write_text("the cat sat\nthe cat sat the cat sat\n")
    result = run("eval", "pieces", "--format", "plain", "--refs", "refs", "--metric-text", f"join-subwords:{kind}")
    assert (wers(result), result.stderr) == (["0.00"], "")
    result = run("eval", "pieces", "--format", "plain", "--refs", "refs")
    assert "their references do not" in result.stderr
    assert f"--metric-text join-subwords:{kind} joins them" in result.stderr
    (folder / "refs").write_text(f"{pieces}\n{pieces} {pieces}\n", encoding="utf-8")  # as fairseq's T-lines without --remove-bpe
    assert re.fullmatch(
        rf"note: hypotheses and references are both in subwords \(.*\): figures are of pieces; --metric-text join-subwords:{kind} "
        "measures words\n",
        run("eval", "pieces", "--format", "plain", "--refs", "refs").stderr,
    )
    assert run("eval", "pieces", "--format", "plain", "--refs", "refs", "--metric-text", f"join-subwords:{kind}").stderr == ""
    result = run("rescore", "pieces", "--kenlm", "lm.arpa", "--weight", "kenlm=1")
    assert f"With --text join-subwords:{kind} it would know 100% of the words" in result.stderr


def test_a_missing_file_of_an_lm_is_told_before_a_missing_weight(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lists.jsonl").write_text('{"id": "1", "hyps": [{"text": "a"}, {"text": "b"}]}\n')
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "moved.toml").write_text('[lm.lm]\nkenlm = "lm.arpa"\n')
    assert "none.arpa: there is no such file" in refused("rescore", "lists.jsonl", "--lm", "none.arpa")
    told = refused("rescore", "lists.jsonl", "--config", "far/moved.toml", "--weight", "lm=1")
    assert "far/lm.arpa: there is no such file" in told
    assert "far/moved.toml names it: its paths are relative to its own folder" in told


def test_a_lack_of_memory_is_one_line(monkeypatch, tmp_path):
    """torch's is a RuntimeError; any other one is a mistake of the program."""
    messages = {"DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes": 2, "CUDA out of memory.": 2, "else": 1}
    (tmp_path / "a.json").write_text('[{"text": "a", "score": -1}]')
    for message, code in messages.items():
        monkeypatch.setattr("attlm_cli.convert.convert", lambda *_, message=message, **__: (_ for _ in ()).throw(RuntimeError(message)))
        result = CliRunner().invoke(main, ["convert", str(tmp_path / "a.json"), "--to", "csv"])
        assert result.exit_code == code
        assert ("there is not enough memory (of the LMs)" in result.stderr) == (code == 2)
