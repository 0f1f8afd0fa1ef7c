"""Lists and LMs that are not what a run takes them for: costs, probabilities, rescored lists, another LM than that of the weights."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from cli_runs import TEXT, folder, refused, run  # noqa: F401 - a fixture

import attlm_fairseq as attlm
from attlm_fairseq.messages import collected
from attlm_fairseq.scoring.ngram_estimation import NgramOptions, estimate_ngram

LISTS = 20
DRAW = random.Random(7)
SENTENCES = [" ".join(DRAW.choices(["the", "cat", "sat", "on", "mat", "dog", "a", "ran"], k=6)) for _ in range(3 * LISTS)]


def write(path: str, score=lambda place: -1.5 * place - 1, name: str = "score") -> Path:
    lists = [
        {"id": f"u{n}", "ref": SENTENCES[3 * n + 1], "hyps": [{"text": SENTENCES[3 * n + k], "scores": {name: score(k)}} for k in range(3)]}
        for n in range(LISTS)
    ]
    Path(path).write_text("".join(json.dumps(nbest) + "\n" for nbest in lists))
    return Path(path)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("score", "warning"),
    [
        (lambda place: -1.5 * place - 1, None),
        (lambda place: 1.5 * place + 1, "score is lower for the first hypothesis than for the others in 20 of 20 lists: if it is a cost"),
        (lambda place: 0.5 - 0.2 * place, "score lies between 0 and 1, as if it were a probability"),
        (lambda place: 0.25, None),
    ],
)
def test_a_default_score_that_is_no_log_probability_is_warned_of(score, warning):
    told = run("rescore", write("lists", score), "--kenlm", "lm.arpa", "--weight", "kenlm=0.1", "-o", "out").stderr
    assert "score, the decoder's own score, has weight 1" in told
    assert (f"WARNING: {warning}" in told) if warning else "WARNING" not in told
    given = run("rescore", "lists", "--kenlm", "lm.arpa", "--weight", "kenlm=0.1", "--weight", "score=1", "-o", "out").stderr
    assert "WARNING" not in given


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("hole", [0, 7])
def test_a_hypothesis_without_the_default_score_is_told_in_every_list(hole):
    lines = [json.loads(line) for line in write("lists").read_text().splitlines()]
    lines[hole]["hyps"][2]["scores"] = {}
    Path("lists").write_text("".join(json.dumps(nbest) + "\n" for nbest in lines))
    told = refused("rescore", "lists", "--kenlm", "lm.arpa", "--weight", "kenlm=0.1", "-o", "out")
    assert f"lists:{hole + 1}: list 'u{hole}', hypothesis 3 has no score 'score'" in told
    assert (
        "WARNING: left out, because some hypotheses lack them: score (1 of 60, first in list"
        in run("tune", "lists", "--kenlm", "lm.arpa", "--folds", 0, "--restarts", 1, "-o", "x.toml").stderr
    )


@pytest.mark.usefixtures("folder")
def test_rank_in_rescored_lists_is_warned_of():
    command = ["--kenlm", "lm.arpa", "--weight", "kenlm=1", "--weight", "score=1"]
    ranked = [*command, "--weight", "rank=-0.5"]
    warning = "WARNING: the lists have the scores of kenlm already: they seem to be rescored, and rank goes by their new order"
    assert "WARNING" not in run("rescore", write("lists"), *ranked, "-o", "out").stderr
    assert warning in run("rescore", "out", *ranked, "-o", "twice").stderr
    assert "WARNING" not in run("rescore", "out", *command, "-o", "twice").stderr
    assert warning in run("tune", "out", "--kenlm", "lm.arpa", "--folds", 0, "--restarts", 1, "-o", "x.toml").stderr
    assert warning not in run("rescore", write("own", name="kenlm"), *ranked[:-4], "--weight", "rank=-0.5", "-o", "out").stderr
    rescored = attlm.rescore("lists", {"kenlm": "lm.arpa"}, {"kenlm": 1.0, "score": 1.0, "rank": -0.5}).lists
    with collected() as told:
        attlm.rescore(rescored, {"kenlm": "lm.arpa"}, {"kenlm": 1.0, "score": 1.0, "rank": -0.5})
    assert [line for line in told if line.startswith(warning)]


@pytest.mark.usefixtures("folder")
def test_another_lm_than_that_of_the_weights_is_warned_of():
    run("tune", write("lists"), "--kenlm", "lm.arpa", "--lm", "lm.pt", "--folds", 0, "--restarts", 1, "-o", "attlm.toml")
    before, weights = Path("attlm.toml").read_text().split("[weights]")
    Path("attlm.toml").write_text(before + "[weights]" + re.sub(r"(?m)^(lm|kenlm) = [-.\d]+$", r"\1 = 0.5", weights))
    assert "WARNING" not in run("rescore", "lists", "-o", "out").stderr
    Path("text").write_text("\n".join(TEXT[::2] * 2) + "\n")
    estimate_ngram(Path("text"), Path("lm.arpa"), 2, NgramOptions(discount_fallback=True))
    warning = "WARNING: kenlm is not the LM that its weight of attlm.toml was tuned with"
    told = run("rescore", "lists", "-o", "out").stderr
    assert warning in told
    assert "WARNING: lm is" not in told
    assert warning in run("eval", "lists", "--config", "attlm.toml").stderr
    assert warning not in run("rescore", "lists", "--weight", "kenlm=0", "-o", "out").stderr
    config = attlm.run_config("attlm.toml")
    assert set(config.tuned_with) == {"kenlm", "lm"}
    assert config.tuned_on not in repr(config)
    assert not config.with_weights({"kenlm": 1.0, "lm": 2.0, "score": 3.0, "words": 0.0, "rank": 0.0}).tuned_with


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("command", "joins"), [("tune", True), ("rescore", True), ("score", False)])
def test_several_files_for_a_command_of_one_are_told_how_to_join(command, joins):
    told = run(command, "dev.json", "dev.json", code=2).stderr
    assert "unexpected extra argument (dev.json)" in told
    assert ("`attlm convert A B -o all.jsonl` joins several files of lists" in told) == joins


@pytest.mark.usefixtures("folder")
def test_one_list_has_no_interval():
    lines = write("lists").read_text().splitlines()
    for count in (1, 2):
        Path("some").write_text("\n".join(lines[:count]) + "\n")
        assert ("note: one list, or lists that count as one, have no interval" in run("eval", "some").stderr) == (count == 1)
