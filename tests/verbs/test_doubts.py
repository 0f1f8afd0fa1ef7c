"""Lists and LMs that are not what a run takes them for: costs, probabilities, rescored lists, another LM than that of the weights."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runs import TEXT, folder, refused, run  # noqa: F401 - a fixture

import attlm_fairseq as attlm
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.run.decoder_score import distances_from_best, total_without_lms
from attlm_fairseq.scoring.ngrams.ngram_estimation import NgramOptions, estimate_ngram
from attlm_fairseq.verbs.mixture import with_mixture

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
    evaluated = run("eval", "lists", "--kenlm", "lm.arpa", "--weight", "kenlm=0.1").stderr
    assert (f"WARNING: {warning}" in evaluated) if warning else "WARNING: score" not in evaluated


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
    hyporadise = [{"input": ["the cat sat", "the cat ran"], "output": "the cat ran", "am_score": [-1.0, -1.1]}] * 3
    Path("lists.json").write_text(json.dumps(hyporadise))
    command = ["--kenlm", "lm.arpa", "--weight", "kenlm=1", "--weight", "am_score=1", "--weight", "rank=-0.5"]
    run("rescore", "lists.json", *command, "-o", "out.json")  # there the score is called kenlm_score
    assert warning in run("rescore", "out.json", *command, "-o", "twice.json").stderr


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
    run("rescore", "lists", "-o", "expected")
    Path("lm.arpa").rename("newer.arpa")
    told = run("rescore", "lists", "--config", "attlm.toml", "--kenlm", "kenlm=newer.arpa", "-o", "out").stderr
    assert warning in told  # which is not about lm
    assert Path("out").read_bytes() == Path("expected").read_bytes()
    Path("newer.arpa").rename("lm.arpa")
    config = attlm.run_config("attlm.toml")
    assert set(config.tuned_with) == {"kenlm", "lm"}
    assert config.tuned_on not in repr(config)
    assert not config.with_weights({"kenlm": 1.0, "lm": 2.0, "score": 3.0, "words": 0.0, "rank": 0.0}).tuned_with


@pytest.mark.usefixtures("folder")
def test_a_mixture_leaves_nothing_of_its_members_weights_and_another_one_is_warned_of():
    """The weights of its features (and confidences fitted for them) go, too."""
    tune = ("tune", write("lists"), "--folds", 0, "--restarts", 1)
    run(*tune, "--kenlm", "a=lm.arpa", "--lm", "b=lm.pt", "--confidence")
    given = {"a": 0.1, "b": 0.2, "a_oov": -0.3, "b_tokens": 0.4, "a_minus_b": 0.5, "mix_oov": 0.7, "score": 0.6}
    config = attlm.run_config("attlm.toml")
    config = replace(config, weights=given)
    _, mixed = with_mixture(config, "mix")
    assert mixed.weights == {"mix_oov": 0.7, "score": 0.6}
    assert config.confidence is not None
    assert mixed.confidence is None
    assert mixed.tuned_on == config.tuned_on != ""
    assert with_mixture(replace(config, weights={"a": 1.0}), "mix")[1].tuned_on == ""
    three = replace(mixed, lms=(*mixed.lms, attlm.LMSpec.of("lm.arpa", name="c")), weights={"c_minus_mix": 0.1, "mix": 0.2, "all_oov": 0.3})
    assert with_mixture(three, "all")[1].weights == {"mix": 0.2, "all_oov": 0.3}
    like = tuple(attlm.LMSpec.of("lm.arpa", name=name) for name in ("a", "all_oov"))
    assert with_mixture(replace(config, lms=like, weights={"a": 1.0, "all_oov": 0.3}), "all")[1].weights == {}
    run("mix", "text")
    for name in ("a", "b"):
        assert f"{name}_" not in "".join(attlm.run_config("attlm.toml").weights)
    run(*tune)
    Path("attlm.toml").write_text(re.sub(r"(?m)^mix = [-.\d]+$", "mix = 0.5", Path("attlm.toml").read_text()))
    warning = "WARNING: mix is not the LM that its weight of attlm.toml was tuned with"
    assert warning not in run("rescore", "lists", "-o", "out").stderr
    assert warning in run("rescore", "lists", "--mixture", "mix=a:0.01,b:0.99", "-o", "out").stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("command", "joins"), [("tune", True), ("rescore", True), ("score", False)])
def test_several_files_for_a_command_of_one_are_told_how_to_join(command, joins):
    told = run(command, "dev.json", "dev.json", code=2).stderr
    assert "unexpected extra argument (dev.json)" in told
    assert ("`attlm convert A B -o all.jsonl` joins several files of lists" in told) == joins


@pytest.mark.usefixtures("folder")
def test_an_lm_in_place_of_one_of_the_configuration_keeps_its_settings():
    lms = {"a": attlm.LMSpec.of("lm.arpa", text="lowercase", oov="penalty:-12"), "b": "lm.pt"}
    config = attlm.run_config(lms=lms)
    Path("newer.arpa").write_bytes(Path("lm.arpa").read_bytes())
    changed = attlm.run_config(config, lms={"a": "newer.arpa"}).lms
    assert changed == (attlm.LMSpec.of_files("a", "newer.arpa").in_place_of(config.lms[0]), config.lms[1])
    assert (changed[0].kenlm, changed[0].text, changed[0].oov) == (Path("newer.arpa"), config.lms[0].text, config.lms[0].oov)
    own = attlm.run_config(config, lms={"a": attlm.LMSpec.of("lm.pt", text="tokenize:en"), "c": "lm.arpa"}).lms
    assert [lm.name for lm in own] == ["a", "b", "c"]
    assert (own[0].kenlm, own[0].checkpoints, str(own[0].text.steps[0])) == (None, (Path("lm.pt"),), "tokenize:en")
    loaded = attlm.run_config(config, lms={"a": attlm.load_lm("lm.arpa")}).lms[0]
    assert (loaded.kenlm, loaded.text, loaded.loaded is None) == (Path("lm.arpa").absolute(), config.lms[0].text, False)
    in_memory = attlm.run_config(config.in_memory(), lms={"a": "newer.arpa"}).lms[0]
    assert (in_memory.kenlm, in_memory.text, in_memory.oov, in_memory.loaded) == (Path("newer.arpa"), lms["a"].text, lms["a"].oov, None)
    made = attlm.run_config(config, lms={"a": attlm.load_lm(attlm.LMSpec.of("newer.arpa", oov="penalty:-3"))}).lms[0]
    assert (made.oov, made.text, made.loaded is None) == (attlm.LMSpec.of("lm.pt", oov="penalty:-3").oov, lms["a"].text, False)
    translating = attlm.run_config(lms={"b": attlm.LMSpec.of("lm.pt", translation="forward")})
    with pytest.raises(attlm.InputError, match="b in place of that of the configuration: translation is not for an ARPA"):
        attlm.run_config(translating, lms={"b": "lm.arpa"})
    mixed = attlm.run_config(config, lms={"mix": attlm.LMSpec("mix", mixture={"a": 1, "b": 1})})
    with pytest.raises(attlm.InputError, match="'mix' is a mixture in the configuration: give the LM another name"):
        attlm.run_config(mixed, lms={"mix": "lm.arpa"})


@pytest.mark.usefixtures("folder")
def test_a_score_of_an_lms_name_stays_next_to_it():
    told = run("rescore", write("lists", name="kenlm"), "--kenlm", "lm.arpa", "--weight", "kenlm=1", "-o", "out").stderr
    note = "note: the lists have a score 'kenlm' of their own. The LM of that name decides; a file has its score as kenlm2 (or 3, ..)"
    assert note in told
    before, after = attlm.read_nbest("lists")[0], attlm.read_nbest("out")[0]
    assert {one.text: one.scores["kenlm"] for one in before.hypotheses} == {one.text: one.scores["kenlm"] for one in after.hypotheses}
    assert all(one.scores["kenlm2"] != one.scores["kenlm"] for one in after.hypotheses)


WARNED = "WARNING: lists: the hypotheses are not in the order of "


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "ranks", "warned"),
    [
        ("rank", [2, 1, 3], True),
        ("Hyp rank", [1, 0], True),
        ("rank", [0, 1, 1, 3], False),
        ("rank", [3.5, 1.5], False),
        ("n-th", [2, 1, 3], True),
        ("n-th", [1, 2, 3], False),
        ("rank", [3.0, 1.0, 2.0], True),
        ("hyp_index", [1, 0, 2], True),
        ("row", [7, 5, 6], None),
    ],
)
@pytest.mark.parametrize("kind", ["json", "rows", "table"])
def test_ranks_that_contradict_the_order_are_warned_of(name, ranks, warned, kind):
    def told() -> bool:
        return f"{WARNED}{name!r}: the first of each list counts" in run("eval", "lists").stderr

    step, warned = (10, False) if warned is None else (0, warned)  # a counter of the file's rows
    rows = [
        {"id": f"u{n}", "text": f"a b {place}", "ref": "a b 1", name: rank + n * step} for n in range(3) for place, rank in enumerate(ranks)
    ]
    if kind == "json":
        lists = [[row for row in rows if row["id"] == f"u{n}"] for n in range(3)]
        write_lists([{"id": f"u{n}", "ref": "a b 1", "hyps": of_list} for n, of_list in enumerate(lists)])
    elif kind == "rows":
        write_lists(rows)
    else:
        Path("lists").write_text("\t".join(rows[0]) + "\n" + "".join("\t".join(map(str, row.values())) + "\n" for row in rows))
    assert told() == warned
    run("rescore", "lists", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "--weight", "rank=-1", "-o", "out")
    Path("out").rename("lists")
    assert not told(), "rescored lists have another order"


@pytest.mark.usefixtures("folder")
def test_one_rank_in_the_order_is_enough():
    rows = [{"text": f"a {place}", "asr_rank": place, "lm_rank": 2 - place, "hyp_index": 2 - place} for place in range(3)]
    write_lists([{"id": f"u{n}", "ref": "a 1", "nbest": rows} for n in range(3)])
    assert WARNED not in run("eval", "lists").stderr
    for row in rows:
        row["asr_rank"] = row.pop("hyp_index")
        row["hyp_index"] = 2 - row["asr_rank"]
    write_lists([{"id": f"u{n}", "ref": "a 1", "nbest": rows} for n in range(3)])
    assert f"{WARNED}'asr_rank'" in run("eval", "lists").stderr


@pytest.mark.usefixtures("folder")
def test_one_list_has_no_interval():
    lines = write("lists").read_text().splitlines()
    for count in (1, 2):
        Path("some").write_text("\n".join(lines[:count]) + "\n")
        assert ("note: one list, or lists that count as one, have no interval" in run("eval", "some").stderr) == (count == 1)


def write_lists(lists, path: str = "lists") -> None:
    Path(path).write_text("".join(json.dumps(nbest) + "\n" for nbest in lists))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "options",
    [
        ("--weight", "kenlm_oov=-1", "--context", "all", "--unigram-cache", "kenlm=100:0.5"),
        ("--context", "all", "--unigram-cache", "kenlm=100:0.5"),
        ("--only-close", "kenlm=4"),
    ],
)
@pytest.mark.parametrize(("name", "decoder"), [("jsonl", "am"), ("hyporadise", "am_score")])
def test_features_of_the_lms_in_the_lists_are_no_scores_of_the_decoder(options, name, decoder):
    """An earlier run has written ``kenlm_oov``: the decoder's score has weight 1 wherever it counts."""
    lms = ("--kenlm", "lm.arpa", "--weight", "kenlm=0.3")
    attlm.write_nbest(attlm.read_nbest(write("jsonl", name=decoder)), "lists", name)
    run("rescore", "lists", *lms, "--weight", "kenlm_oov=-1", "--weight", f"{decoder}=1", "-o", "once")
    assert "kenlm_oov" in Path("once").read_text()
    told = run("rescore", "once", *lms, *options, "-o", "implied").stderr
    assert f"{decoder}, the decoder's own score, has weight 1" in told
    run("rescore", "once", *lms, *options, "--weight", f"{decoder}=1", "-o", "given")
    assert Path("implied").read_bytes() == Path("given").read_bytes()


@pytest.mark.usefixtures("folder")
def test_what_an_lm_of_close_hypotheses_has_left_in_the_lists_may_have_a_weight():
    """It has no features of its own, so these are scores of the lists, but not the decoder's."""
    lists = [
        {"id": "u", "hyps": [{"text": "a", "scores": {"am": -1, "kenlm_oov": 0}}, {"text": "b", "scores": {"am": -2, "kenlm_oov": 1}}]}
    ]
    write_lists(lists)
    for weight in ("kenlm_oov=-1", "kenlm_oov=0"):
        lm = ("--kenlm", "lm.arpa", "--weight", "kenlm=1", "--only-close", "kenlm=4")
        told = run("rescore", "lists", *lm, "--weight", weight, "-o", "out")
        assert "am, the decoder's own score, has weight 1" in told.stderr
    config = attlm.run_config(lms={"kenlm": attlm.LMSpec.of("lm.arpa", only_close=4.0)}, weights={"kenlm": 1.0, "kenlm_oov": -2.0})
    assert total_without_lms(attlm.read_nbest("lists")[0], config) == [-1.0, -4.0]


@pytest.mark.usefixtures("folder")
def test_a_score_may_have_the_name_of_a_member_of_a_mixture():
    """A member replaces nothing. ``--only-close`` of the mixture goes by another score, if there is one."""
    lms = ("--kenlm", "a=lm.arpa", "--kenlm", "b=lm.arpa", "--mixture", "mix=a:0.5,b:0.5", "--weight", "mix=1")
    for given, weighted, distances in (
        ({"a": -1}, "a", [0, 8]),
        ({"score": -1, "a": -2}, "score", [0, 8]),
        ({"am": -1, "a": -2}, None, [0, 8]),
    ):
        hypotheses = [
            {"text": text, "scores": {name: place + score for name, score in given.items()}} for text, place in (("a", 0), ("b", -8))
        ]
        write_lists([{"id": "u", "hyps": hypotheses}])
        told = run("rescore", "lists", *lms, "-o", "out").stderr
        assert [name for name in given if f"{name}, the decoder's own score, has weight 1" in told] == ([weighted] if weighted else [])
        config = attlm.run_config(lms={"a": "lm.arpa", "b": "lm.arpa", "mix": attlm.LMSpec("mix", mixture={"a": 1, "b": 1}, only_close=9)})
        assert distances_from_best(attlm.read_nbest("lists")[0], config) == distances


@pytest.mark.usefixtures("folder")
def test_a_score_with_the_name_of_an_lm_and_score_is_that_of_the_decoder_if_there_is_no_other():
    write_lists([{"id": "u", "hyps": [{"text": "a", "scores": {"asr_score": -1}}, {"text": "b", "scores": {"asr_score": -9}}]}])
    lm = ("--kenlm", "asr=lm.arpa", "--only-close", "asr=4", "--weight", "asr=1", "--weight", "asr_score=1")
    assert "total = 1 asr + 1 asr_score" in run("rescore", "lists", *lm, "-o", "out").stderr


@pytest.mark.usefixtures("folder")
def test_scores_of_an_earlier_call_are_not_the_decoders():
    """Of lists in memory, whose file had them as well."""
    hypotheses = [{"text": "a", "scores": {"am": -1, "kenlm": -3}}, {"text": "b", "scores": {"am": -2, "kenlm": -3}}]
    write_lists([{"id": "u", "hyps": hypotheses}])
    lists = attlm.rescore("lists", {"kenlm": "lm.arpa"}, {"kenlm": 0.3, "am": 1.0}).lists
    assert attlm.rescore(lists, {"b": "lm.arpa"}, {"b": 0.3}).weights == {"b": 0.3, "am": 1.0}


@pytest.mark.usefixtures("folder")
def test_the_decoders_score_counts_in_what_could_change_a_decision():
    run("rescore", write("lists", name="am"), "--kenlm", "lm.arpa", "--weight", "kenlm=1", "--weight", "kenlm_oov=-1", "-o", "once")
    nbest = attlm.read_nbest("once")[-1]
    config = attlm.run_config(lms={"kenlm": "lm.arpa"}, weights={"kenlm": 1.0, "kenlm_oov": -1.0})
    assert total_without_lms(nbest, config) == [hypothesis.scores["am"] for hypothesis in nbest.hypotheses]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_only_close_goes_by_is_a_number(score):
    close = {"lm": attlm.LMSpec.of("lm.arpa", only_close=3.0)}
    with pytest.raises(attlm.InputError, match=r"score 'am' is .*, expected a number from"):
        attlm.rescore([[("a cat", {"am": score}), ("the cat", {"am": -1.0})]], close, {"lm": 1.0, "am": 1.0})


@pytest.mark.usefixtures("folder")
def test_lists_of_texts_alone_are_warned_of_unless_the_weights_say_what_to_do():
    write_lists([{"id": f"u{n}", "hyps": ["the cat sat", "a dog ran", ""]} for n in range(2)])
    lms = ("--kenlm", "lm.arpa", "--weight", "kenlm=0.5", "-o", "out")
    told = "WARNING: the lists have no score of the decoder: the LMs decide alone"
    assert told in run("rescore", "lists", *lms).stderr
    assert told in run("rescore", "lists", *lms, "--weight", "words=1").stderr
    for weight in ("rank=-1", "rank=0"):
        assert "WARNING" not in run("rescore", "lists", *lms, "--weight", weight).stderr
    assert "WARNING" not in run("rescore", "lists", "--kenlm", "lm.arpa", "--weight", "kenlm=0", "-o", "out").stderr
    with collected() as notes:
        attlm.rescore([["the cat sat"], []], {"k": "lm.arpa"}, {"k": 1})  # nothing to choose
    assert not any("the LMs decide alone" in line for line in notes)
    with collected() as notes:
        attlm.rescore([["the cat sat", ""]], {"k": "lm.arpa"}, {"k": 1})
    assert any("the LMs decide alone" in line for line in notes)


@pytest.mark.usefixtures("folder")
def test_scores_of_a_later_list_are_not_left_out_because_the_first_has_none():
    bare = {"id": "bare", "hyps": ["the cat sat", "a dog ran"]}
    silence = {"id": "silence", "hyps": []}
    scored = {"id": "scored", "hyps": [{"text": "the mat", "scores": {"am": -1}}, {"text": "the cat sat", "scores": {"am": -9}}]}
    lms = ("--kenlm", "lm.arpa", "--weight", "kenlm=0.5", "-o", "out")
    write_lists([silence, bare, scored])
    told = "^lists:3: list 'scored' has the scores am, list 'bare' before it has none of its own: give every list its scores"
    with pytest.raises(attlm.InputError, match=told):
        attlm.rescore("lists", {"kenlm": "lm.arpa"}, {"kenlm": 0.5})
    kept = run("rescore", "lists", *lms, "--weight", "am=1", "--keep-incomplete")
    assert "WARNING: 1 of 3 lists, the first 'bare', lack a score that has a weight" in kept.stderr
    write_lists([silence, scored])
    assert "am, the decoder's own score, has weight 1" in run("rescore", "lists", *lms).stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("further", [(), ("--mbr", "wer"), ("--consensus",), ("--context", "all"), ("--to", "ctm")])
def test_incomplete_lists_are_kept_on_request(further):
    whole = [{"id": f"u{n}", "hyps": [{"text": text, "scores": {"am": -1}} for text in ("mat the on", "the cat sat")]} for n in range(3)]
    holes = [{"id": "hole", "hyps": [{"text": "mat the on", "scores": {"am": None}}, {"text": "the cat sat", "scores": {"am": -1}}]}]
    options = ("--kenlm", "lm.arpa", "--weight", "kenlm=1", "--weight", "am=1", *further)
    write_lists(whole)
    alone = run("rescore", "lists", *options, "-o", "whole").stdout
    write_lists([*whole[:2], *holes, *whole[2:]])
    assert "lists:3: list 'hole', hypothesis 1 has no score 'am'; its scores: kenlm; `attlm rescore --keep-incomplete`" in refused(
        "rescore", "lists", *options, "-o", "out"
    )
    told = run("rescore", "lists", *options, "--keep-incomplete", "-o", "out")
    assert alone == told.stdout
    assert "WARNING: 1 of 4 lists, the first 'hole', lack a score that has a weight: they keep their input order" in told.stderr
    assert "2 unchanged" not in told.stderr
    assert "3 changed" in told.stderr
    lines = Path("out").read_text().splitlines()
    if not further:
        kept = json.loads(lines[2])["hyps"]
        assert [found["text"] for found in kept] == ["mat the on", "the cat sat"]
        assert all("kenlm" in found["scores"] and "total" not in found for found in kept)
        assert [*lines[:2], *lines[3:]] == Path("whole").read_text().splitlines()
    if further == ("--consensus",):
        assert lines[2] == "mat the on"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("key", ["hyps", "nbest", "hypotheses"])
def test_an_utterance_without_hypotheses_is_silence(key):
    texts = [{"text": "the mat", "scores": {"am": -1}}, {"text": "the cat sat", "scores": {"am": -2}}]
    write_lists([{"id": "none", key: [], "ref": "the cat", "speaker": 1}, {"id": "some", key: texts, "ref": "the cat sat"}])
    before = run("eval", "lists")
    assert "utterances without hypotheses are read as silence: one hypothesis, an empty text" in before.stderr
    assert before.stdout.split("\n")[1].split()[1] == "80.00"  # two deletions, a substitution and a deletion of five words
    run("rescore", "lists", "--kenlm", "lm.arpa", "--weight", "kenlm=0", "--weight", "am=-1", "-o", "out")
    first, second = map(json.loads, Path("out").read_text().splitlines())
    assert (first["speaker"], [found["text"] for found in first[key]]) == (1, [""])
    assert [found["text"] for found in second[key]] == ["the cat sat", "the mat"]
    answers = run("rescore", "lists", "--kenlm", "lm.arpa", "--weight", "kenlm=0", "--weight", "am=-1", "--to", "1best-kaldi").stdout
    assert [line.split() for line in answers.splitlines()] == [["none"], ["some", "the", "cat", "sat"]]
    assert [nbest.hypotheses[0].text for nbest in attlm.rescore([[], ["the cat"]], {"k": "lm.arpa"}, {"k": 1}).lists] == ["", "the cat"]


@pytest.mark.usefixtures("folder")
def test_lists_of_one_id_that_share_a_reference_are_warned_of():
    Path("kaldi").write_text("a-1 the cat\na-2 the mat\nb-1 a dog\nb-2 a mat\n")
    Path("refs").write_text("a_1 the cat\nb_1 a dog\n")
    write_lists([{"id": "a_1", "hyps": ["the cat", "x"]}, {"id": "b_1", "hyps": ["a dog", "x"]}])
    assert "several lists" not in run("eval", "lists", "--refs", "refs").stderr
    lists = [*attlm.read_nbest("lists"), *attlm.read_nbest("lists")]
    with collected() as notes:
        attlm.evaluate(lists, attlm.ReferenceFiles("refs", "id"))
    assert any("several lists have the id 'a_1', and the same reference" in line for line in notes)


@pytest.mark.usefixtures("folder")
def test_conversations_of_one_list_each_are_warned_of():
    write("lists")
    options = ("--kenlm", "lm.arpa", "--weight", "kenlm=1", "--weight", "score=1", "-o", "out")
    told = "WARNING: 20 conversations of one list each: --context has no effect"
    assert told in run("rescore", "lists", *options, "--context", "id:^([^-]+)").stderr
    assert told not in run("rescore", "lists", *options, "--context", "id:^u").stderr
    tuned = run("tune", "lists", "--kenlm", "lm.arpa", "--context", "id:^([^-]+)", "-o", "attlm.toml").stderr
    assert tuned.count(told) == 1


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("text", "first", "answers"),
    [
        (
            '{"id": "s", "hyps": [{"text": "the cat", "scores": {"am": -1}}]}\n{"id": "e", "hyps": [ ]}\n',
            '"hyps": [{"text": "", ',
            ["the cat", ""],
        ),
        (
            '{"id": "e", "hyps": []}\n{"id": "s", "hyps": [{"text": "the cat", "scores": {"am": -1}}]}\n',
            '"hyps": [{"text": "", ',
            ["", "the cat"],
        ),
        (
            '[{"input": ["the cat", "a"], "output": "a", "am_score": [-1, -2]}, {"input": [], "output": "b", "am_score": []}]',
            '"input": [""]',
            ["the cat", ""],
        ),
        ('{"s": ["the cat", "a"], "e": [], "t": ["a", "the"]}', '"e": [""]', ["the cat", "", "a"]),
        ('[["the cat", "a"], [ ], ["a", "the"]]', '[""]', ["the cat", "", "a"]),
        (
            '{"audio_filepath": "a", "text": "x", "beams": []}\n{"audio_filepath": "b", "beams": [["the cat", -1], ["a", -2]]}\n',
            '"beams": [{"text": ""',
            ["", "the cat"],
        ),
    ],
)
def test_silence_in_each_json_shape_is_read_and_written(text, first, answers):
    Path("lists").write_text(text)
    read = list(attlm.read_nbest("lists"))
    assert [found.text for nbest in read for found in nbest.hypotheses if not found.text] == [""]
    told = run("rescore", "lists", "--kenlm", "lm.arpa", "--weight", "kenlm=0.01", "--weight", "rank=-1", "-o", "out").stderr
    assert "utterances without hypotheses are read as silence" in told
    assert first in Path("out").read_text()
    again = [nbest.hypotheses[0].text for nbest in attlm.read_nbest("out")]
    attlm.write_nbest(read, "same", attlm.NbestFile("lists").open()[0].name)
    assert Path("same").read_text() == text
    assert again == answers


@pytest.mark.usefixtures("folder")
def test_a_hypothesis_next_to_an_empty_list_of_alternatives_stays():
    write_lists([{"id": "a", "text": "the cat", "alternatives": []}])
    assert [nbest.hypotheses[0].text for nbest in attlm.read_nbest("lists")] == ["the cat"]


@pytest.mark.usefixtures("folder")
def test_a_mistyped_weight_is_told_even_if_incomplete_lists_are_kept():
    write("lists")
    told = refused("rescore", "lists", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "--weight", "scoer=1", "--keep-incomplete", "-o", "out")
    assert "no list has all scores that have a weight (kenlm, scoer, score): is a name mistyped?" in told
    assert not Path("out").exists()


@pytest.mark.usefixtures("folder")
def test_rescored_lists_that_begin_with_silence_are_rescored_again():
    write("lists")
    Path("lists").write_text('{"id": "none", "hyps": []}\n' + Path("lists").read_text())
    for source, out, lm in (("lists", "once", "kenlm"), ("once", "twice", "kenlm"), ("once", "other", "other")):
        told = run("rescore", source, "--lm", f"{lm}=lm.arpa", "--weight", f"{lm}=0.1", "-o", out).stderr
        assert "score, the decoder's own score, has weight 1" in told


@pytest.mark.usefixtures("folder")
def test_incomplete_lists_are_kept_with_only_close():
    lines = [json.loads(line) for line in write("lists").read_text().splitlines()]
    lines[3]["hyps"][1]["scores"] = {}
    write_lists(lines)
    options = ("--lm", "kenlm=lm.arpa", "--only-close", "kenlm=2", "--weight", "kenlm=0.1", "--weight", "score=1")
    assert "hole" not in run("rescore", "lists", *options, "--keep-incomplete", "-o", "out").stderr
    assert [found["text"] for found in json.loads(Path("out").read_text().splitlines()[3])["hyps"]] == SENTENCES[9:12]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["jsonl", "json", "hyporadise"])
def test_kept_lists_have_no_totals_of_an_earlier_run(name):
    lists = [
        attlm.NbestList(f"u{n}", [attlm.Hypothesis("the cat", {"am_score": -1.0}), attlm.Hypothesis("a", {"am_score": -2.0})])
        for n in (1, 2)
    ]
    attlm.write_nbest(lists, "lists", name)
    run("rescore", "lists", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "-o", "once")
    before = Path("once").read_text()
    assert before.count("total") == (2 if name == "hyporadise" else 4)
    if name == "hyporadise":  # which refuses hypotheses without the others' scores
        run("rescore", "once", "--kenlm", "lm.arpa", "--weight", "kenlm=0", "--weight", "am_score=0", "-o", "twice")
        assert "total" not in Path("twice").read_text()
        return
    Path("once").write_text(before.replace('"am_score": -2.0', '"am_score": null', 1))
    told = run(
        "rescore", "once", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "--weight", "am_score=1", "--keep-incomplete", "-o", "twice"
    ).stderr
    assert "WARNING: 1 of 2 lists" in told
    assert Path("twice").read_text().count("total") == 2


@pytest.mark.usefixtures("folder")
def test_the_order_of_incomplete_lists_does_not_matter():
    bare = {"id": "bare", "hyps": [{"text": "the cat sat"}, {"text": "a dog ran"}]}
    scored = {"id": "scored", "hyps": [{"text": "the mat", "scores": {"am": -1}}, {"text": "the cat sat", "scores": {"am": -9}}]}
    for lists in ([bare, scored], [scored, bare]):
        write_lists(lists)
        told = run("rescore", "lists", "--kenlm", "lm.arpa", "--weight", "kenlm=1", "--keep-incomplete", "-o", "out").stderr
        assert "am, the decoder's own score, has weight 1" in told
        assert "1 of 2 lists, the first 'bare'" in told


@pytest.mark.usefixtures("folder")
def test_a_comparison_of_lms_that_see_other_words_is_warned_of():
    Path("signs").write_text("the cat , sat .\n" * 30)
    told = run("ppl", "signs", "--kenlm", "a=lm.arpa", "--kenlm", "b=lm.arpa", "--text", "b=remove-punctuation", "--compare").stderr
    assert "WARNING: b sees 90 of 150 words: if its text steps remove words, it looks too good" in told
    assert "so short a text has single lines as samples" in told
    assert "a fixed penalty: it has no perplexity" in refused("ppl", "signs", "--kenlm", "lm.arpa", "--oov", "penalty:-9", "--compare")


@pytest.mark.usefixtures("folder")
def test_a_table_has_the_columns_of_its_first_lists_together():
    sparse = [{"text": "a", "scores": {"am": -1, "lm": -2}}, {"text": "the cat", "scores": {"am": -1}}]
    write_lists([{"id": "a", "hyps": sparse}, {"id": "b", "hyps": [{"text": text, "scores": {"am": -3}} for text in ("a", "the")]}])
    run("convert", "lists", "-o", "table.csv")
    assert Path("table.csv").read_text().splitlines() == [
        *("id,hyp,ref,am,lm", "a,a,,-1.0,-2.0", "a,the cat,,-1.0,", "b,a,,-3.0,", "b,the,,-3.0,"),
    ]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("first", ["silent", "incomplete"])
def test_a_table_has_the_columns_of_lists_after_an_unusable_one(first):
    hypotheses = {"silent": [], "incomplete": [{"text": "a", "scores": {"am": -1}}, {"text": "the cat", "scores": {"lm": -2}}]}[first]
    usable = [{"text": "the cat", "scores": {"am": -3, "lm": -2}}, {"text": "a dog", "scores": {"am": -1, "lm": -1}}]
    write_lists([{"id": "a", "hyps": hypotheses}, {"id": "b", "hyps": usable}])
    run("convert", "lists", "-o", "table.csv")
    rows = Path("table.csv").read_text().splitlines()
    assert rows[0] == "id,hyp,ref,am,lm"
    assert rows[-1] == "b,a dog,,-1.0,-1.0"
    options = () if first == "silent" else ("--keep-incomplete",)
    run("rescore", "table.csv", "--weight", "am=1", "--weight", "lm=1", *options, "-o", "out.csv")
    rows = Path("out.csv").read_text().splitlines()
    assert rows[0] == "id,hyp,ref,am,lm,total"
    assert rows[-2] == "b,a dog,,-1.0,-1.0,-2.0"


def test_a_table_that_lacks_a_column_says_which(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("scored.csv").write_text("id,src,mt,score\n1,a b,x y,-1\n1,a b,x z,-2\n")  # as COMET has them
    run("convert", "scored.csv", "-o", "lists.jsonl")
    assert [one.text for one in attlm.read_nbest("lists.jsonl")[0].hypotheses] == ["x y", "x z"]
    Path("other.csv").write_text("id,src,answer,score\n1,a b,x y,-1\n")
    told = refused("convert", "other.csv", "-o", "new.jsonl")
    assert "other.csv:1: found the header 'id,src,answer,score\\n': expected names of columns, among them an id (id, utt, ..)" in told
    assert told.rstrip().endswith("; no column has the name of a text")
    Path("other.csv").write_text("no;text;score\n1;x y;-1\n")
    assert refused("convert", "other.csv", "-o", "new.jsonl", "--format", "csv").rstrip().endswith("; no column has the name of an id")
    Path("other.csv").write_text("no;what;score\n1;x y;-1\n")
    assert refused("convert", "other.csv", "-o", "new.jsonl", "--format", "csv").rstrip().endswith("and a text (hyp, text, mt, ..)")


@pytest.mark.usefixtures("folder")
def test_eval_measures_by_the_metric_of_the_folder():
    write("lists")
    run("tune", "lists", "--kenlm", "lm.arpa", "--metric", "chrf", "--folds", 0, "-o", "attlm.toml")
    told = run("eval", "lists")
    assert "note: chrf is the metric of attlm.toml in this folder; --metric names another" in told.stderr
    assert "CHRF" in told.stdout
    assert "scored" not in told.stdout  # nothing is rescored
    named = run("eval", "lists", "--metric", "wer")
    assert "in this folder" not in named.stderr
    assert "WER" in named.stdout
