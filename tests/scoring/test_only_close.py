"""``--only-close``: slow LMs score what the decoder put near to the best; the others never win by that score."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import refused, run
from foreign_lms import write_bert
from lm_files import write_arpa

from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.run.block import Block
from attlm_fairseq.nbest.run.block_scores import scored_if_close
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.nbest.run.decoder_score import distances_from_best
from attlm_fairseq.scoring.foreign_lms.masked_lm import load_masked_lm
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.scoring.ngrams.kenlm import KenLMScorer

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "a", "ran"]
LISTS = [
    {"id": "u1", "ref": "the cat sat", "hyps": [("the cat sat", -1.0), ("the cat ran", -2.5), ("a", -9.0), ("the mat", -4.0)]},
    {"id": "u2", "ref": "a dog", "hyps": [("a dog", -3.0), ("dog", -30.0)]},
]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_bert(tmp_path / "bert")
    write_arpa(tmp_path / "lm.arpa", WORDS)
    lines = [nbest | {"hyps": [{"text": text, "scores": {"am": score}} for text, score in nbest["hyps"]]} for nbest in LISTS]
    Path("lists").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def scores(path: str, name: str) -> list[dict[str, float]]:
    lists = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [{hypothesis["text"]: hypothesis["scores"][name] for hypothesis in nbest["hyps"]} for nbest in lists]


def test_far_hypotheses_get_the_lowest_score_of_the_close_ones(folder):
    run("rescore", "lists", "--lm", "bert=bert", "--only-close", "3", "--weight", "bert=1", "-o", "out")
    first, second = scores("out", "bert")
    exact = {text: score.total for text, score in zip(first, load_masked_lm("bert").score([text.split() for text in first]), strict=True)}
    close = ("the cat sat", "the cat ran", "the mat")
    assert {text: first[text] for text in close} == pytest.approx({text: exact[text] for text in close}, abs=1e-4)
    assert first["a"] == min(first[text] for text in close)
    assert exact["a"] > first["a"]  # a short text would have won by its own score
    assert second["dog"] == second["a dog"]
    run("rescore", "lists", "--lm", "bert=bert", "--only-close", "100", "--weight", "bert=1", "-o", "all")
    assert scores("all", "bert")[0] == pytest.approx(exact, abs=1e-4)


def test_only_the_close_ones_are_scored(folder, monkeypatch):
    seen = []
    lm = KenLMScorer(Path("lm.arpa"), "lm")
    monkeypatch.setattr(lm, "score", lambda sentences, real=lm.score: seen.append(len(sentences)) or real(sentences))
    block = Block(("a", "a cat", "cat", "the"), (3, 1), (None, None), (0.0, 2.0, 2.1, 0.0))
    found = scored_if_close(lm, [text.split() for text in block.texts], None, block, 2.0)
    assert seen == [3]
    assert found[2].total == min(found[0].total, found[1].total)
    assert (found[2].words, found[2].oov_count) == (1, 0)


def test_tuning_writes_the_margin_and_leaves_further_features_out(folder):
    found = run("tune", "lists", "--lm", "bert=bert", "--lm", "ngram=lm.arpa", "--only-close", "3", "--folds", "0", "-o", "attlm.toml")
    assert "bert_oov" not in found.stdout
    assert "only_close = 3.0" in Path("attlm.toml").read_text()
    run("rescore", "lists", "-o", "out")
    assert scores("out", "bert")[0]["a"] == min(scores("out", "bert")[0].values())


@pytest.mark.parametrize("objective", ["metric", "risk"])
def test_a_tuned_weight_is_never_negative(folder, objective):
    """The LM prefers what is short, the references are long: without the bound its weight is negative."""
    texts = [("the cat", "the cat sat on the mat"), ("a dog", "a dog ran on the mat"), ("the mat", "the mat sat on a dog")]
    rows = [{"id": good, "ref": good, "hyps": [{"text": text, "scores": {"am": -1.0}} for text in (bad, good)]} for bad, good in texts]
    Path("long").write_text("".join(json.dumps(row) + "\n" for row in rows))
    alone = ("--without", "words", "--without", "rank", "--without", "am", "--folds", "0", "--objective", objective)
    arguments = ("tune", "long", "--lm", "ngram=lm.arpa", *alone, "-o")
    run(*arguments, "free.toml")
    assert read_config(Path("free.toml")).weights["ngram"] < 0
    run(*arguments, "bound.toml", "--only-close", "ngram=3")
    assert read_config(Path("bound.toml")).weights["ngram"] == 0


def test_a_negative_weight_is_one_line(folder):
    options = ("--lm", "bert=bert", "--only-close", "3")
    for verb in ("rescore", "eval"):
        assert "the weight of bert is -1, expected 0 or more" in refused(verb, "lists", *options, "--weight", "bert=-1")
    assert "--fix bert allows a weight below 0" in refused("tune", "lists", *options, "--fix", "bert=-1")
    assert "--fix bert allows a weight below 0" in refused("tune", "lists", *options, "--interval", "bert=:1")


def test_an_only_hypothesis_needs_no_score_of_the_decoder(folder):
    with Path("lists").open("a") as file:
        file.write('{"id": "u3", "ref": "", "hyps": []}\n')
    options = ("--lm", "bert=bert", "--only-close", "3")
    run("rescore", "lists", *options, "--weight", "bert=1", "-o", "out")
    assert len(scores("out", "bert")) == 3
    run("tune", "lists", *options, "--folds", 0, "--restarts", 0, "--strength", 1)


def test_what_cannot_be_measured_is_one_line(folder):
    arguments = ["rescore", "lists", "--lm", "bert=bert", "--weight", "bert=1"]
    assert "there is no masked LM" in refused("rescore", "lists", "--lm", "lm.arpa", "--weight", "lm=1", "--only-close", "3")
    assert "expected a finite number that is not negative" in refused(*arguments, "--only-close", "-1")
    lines = [json.loads(line) for line in Path("lists").read_text().splitlines()]
    for hypothesis in lines[1]["hyps"]:
        hypothesis["scores"] = {"x": 1.0, "y": 2.0}
    Path("two").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "goes by the decoder's own score, expected one score for each hypothesis, found several" in refused(
        "rescore", "two", *arguments[2:], "--only-close", "3"
    )
    run("rescore", "lists", "--lm", "ngram=lm.arpa", "--weight", "ngram=1", "--only-close", "ngram=3", "-o", "out")


def test_the_decoders_score_is_not_one_of_those_that_candidates_bring():
    scores = [{"am": -1.0, "corrections": 0.0, "search_lm": -7.0}, {"am": -4.0, "corrections": -1.0, "search_lm": -9.0}]
    nbest = NbestList("u", [Hypothesis(text, own, rank) for rank, (text, own) in enumerate(zip("ab", scores, strict=True), 1)])
    assert distances_from_best(nbest, RunConfig(lms=(LMSpec("bert"),))) == [0.0, 3.0]
