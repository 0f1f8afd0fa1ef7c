"""Rescoring in context: each list after what was chosen before it, the same bytes in any order, on any devices, after any interruption."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys

import pytest
from cli_runs import WORDS, folder, refused, run  # noqa: F401 - folder is a fixture
from lm_files import write_checkpoint

import attlm_fairseq as attlm
from attlm_fairseq.nbest.run import rescoring, score_cache
from attlm_fairseq.nbest.run.block_scores import BlockScorer
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.walk import Choice, Group, History, walk
from attlm_fairseq.nbest.run.workers import OneProcess
from attlm_fairseq.scoring.context import conversations
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.text import TextPipeline
from attlm_fairseq.verbs.shards import ShardRescorer, _split_conversations

WEIGHTS = {"lm": 0.5, "am": 1.0}


def some_lists(count: int = 30, talks: int = 5, seed: int = 1) -> list[dict]:
    random_ = random.Random(seed)
    lists = []
    for number in range(count):
        texts = {" ".join(random_.choices(WORDS, k=random_.randint(0, 6))) for _ in range(random_.randint(1, 5))}
        hypotheses = [{"text": text, "scores": {"am": -random_.random()}} for text in sorted(texts)]
        talk = random_.randrange(talks)
        lists.append({"id": f"{talk}-{number:03}", "ref": random_.choice(hypotheses)["text"], "hyps": hypotheses})
    return lists


def write(path, lists) -> str:
    path.write_text("".join(json.dumps(nbest) + "\n" for nbest in lists))
    return str(path)


def by_id(text: str) -> dict[str, str]:
    return {json.loads(line)["id"]: line for line in text.splitlines()}


@pytest.fixture
def many_lists(folder):  # noqa: F811
    write(folder / "in.jsonl", some_lists())
    return folder


OPTIONS = ("--lm", "lm=lm.pt", "--weight", "lm=0.5", "--weight", "am=1", "--context", "id:^.")


def test_each_list_is_scored_after_what_was_chosen_before_it(many_lists):
    found = attlm.rescore("in.jsonl", {"lm": "lm.pt"}, WEIGHTS, config=attlm.run_config(context="id:^(.)"))
    lm = attlm.load_lm("lm.pt")
    said: dict[str, list[list[str]]] = {}
    changed = 0
    for nbest in found.lists:
        history = said.setdefault(nbest.id[0], [])
        scores = lm.after(history).score([hypothesis.text.split() for hypothesis in nbest.hypotheses])
        for hypothesis, score in zip(nbest.hypotheses, scores, strict=True):
            assert hypothesis.lm_scores["lm"] == pytest.approx(score.total, abs=1e-4)
        history += filter(None, [nbest.hypotheses[0].text.split()])
        changed += nbest.hypotheses[0].rank > 1
    assert [nbest.id for nbest in found.lists] == [nbest["id"] for nbest in some_lists()]
    assert changed > 3


def test_silence_leaves_no_trace_in_the_context(many_lists):
    """Also if the text steps of an LM leave no words of a text."""
    spoken = [nbest for nbest in some_lists() if all(one["text"] for one in nbest["hyps"])]
    with_silence = []
    for number, nbest in enumerate(spoken):
        text = "" if number % 2 else ".."
        with_silence += [nbest, {"id": f"{nbest['id'][0]}-s{number}", "hyps": [{"text": text, "scores": {"am": -1.0}}]}]
    write(many_lists / "spoken.jsonl", spoken)
    write(many_lists / "silence.jsonl", with_silence)
    config = attlm.run_config(lms={"lm": "lm.pt"}, weights=WEIGHTS, context="id:^(.)", text="remove-punctuation")
    expected, found = (attlm.rescore(name, config=config).lists for name in ("spoken.jsonl", "silence.jsonl"))
    of_speech = [nbest for nbest in found if "s" not in nbest.id]
    assert [[one.lm_scores["lm"] for one in nbest.hypotheses] for nbest in of_speech] == [
        pytest.approx([one.lm_scores["lm"] for one in nbest.hypotheses], abs=1e-5) for nbest in expected
    ]
    loaded = config.in_memory()
    [after, after_silence] = (attlm.rescore("spoken.jsonl", config=loaded.after(said)) for said in (["the cat"], ["the cat", "", ".."]))
    assert after.lists == after_silence.lists


def test_two_lists_with_one_line_of_the_file_are_refused(many_lists):
    write(many_lists / "twice.jsonl", [some_lists()[0]] * 2)
    (many_lists / "talks").write_text("0-000 a\n1-000 a\n2-000 a\n3-000 a\n4-000 a\n")
    assert "is there twice, so that talks cannot tell its conversation" in refused(
        "rescore", "twice.jsonl", *OPTIONS[:-1], "file:talks", "-o", "out.jsonl"
    )


def test_lms_that_are_told_of_no_sentences_score_as_ever(many_lists):
    spec = attlm.LMSpec.of_files("lm", ["lm.pt"])
    alone = attlm.rescore("in.jsonl", {"lm": spec}, WEIGHTS)
    run("rescore", "in.jsonl", *OPTIONS, "--context-sentences", "lm=0", "-o", "out.jsonl")
    written = [json.loads(line) for line in (many_lists / "out.jsonl").read_text().splitlines()]
    for nbest, expected in zip(written, alone.lists, strict=True):
        assert [one["text"] for one in nbest["hyps"]] == [one.text for one in expected.hypotheses]
        scores = [one.lm_scores["lm"] for one in expected.hypotheses]
        assert [one["scores"]["lm"] for one in nbest["hyps"]] == pytest.approx(scores, abs=1e-4)


def test_any_order_and_any_devices_give_the_same_bytes(many_lists, monkeypatch):
    monkeypatch.setattr(conversations, "SIDE_BY_SIDE", 2)
    run("rescore", "in.jsonl", *OPTIONS, "-o", "out.jsonl")
    expected = by_id((many_lists / "out.jsonl").read_text())
    lists = some_lists()
    order = sorted(range(len(lists)), key=lambda place: (lists[place]["id"][0] != "3", lists[place]["id"][0] == "1", place))
    write(many_lists / "other.jsonl", [lists[place] for place in order])
    run("rescore", "other.jsonl", *OPTIONS, "-o", "other.out")
    assert by_id((many_lists / "other.out").read_text()) == expected
    monkeypatch.undo()
    monkeypatch.chdir(many_lists)
    run("rescore", "in.jsonl", *OPTIONS, "-o", "one.jsonl")
    run("rescore", "in.jsonl", *OPTIONS, "--devices", "cpu:2", "-o", "two.jsonl")
    assert (many_lists / "one.jsonl").read_bytes() == (many_lists / "two.jsonl").read_bytes()


PROGRAM = """
import os, signal, sys
from attlm_fairseq.nbest.run import score_cache
from attlm_cli.main import main
write, turns = score_cache.write_scores, []
def dying(*arguments):
    write(*arguments)
    turns.append(1)
    if len(turns) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
score_cache.write_scores = dying
main(sys.argv[2:])
"""


def test_a_run_that_was_killed_within_a_conversation_goes_on_with_the_same_bytes(many_lists, monkeypatch):
    run("rescore", "in.jsonl", *OPTIONS, "-o", "whole.jsonl")
    command = [sys.executable, "-c", PROGRAM, "3", "rescore", "in.jsonl", *OPTIONS, "-o", "out.jsonl"]
    assert subprocess.run(command, capture_output=True).returncode == -signal.SIGKILL
    assert not (many_lists / "out.jsonl").exists()
    scored = []
    score = rescoring.Rescorer._scored
    monkeypatch.setattr(rescoring.Rescorer, "_scored", lambda self, block, scores: scored.append(1) or score(self, block, scores))
    written = []
    monkeypatch.setattr(score_cache, "write_scores", lambda *arguments: written.append(1))
    result = run("rescore", "in.jsonl", *OPTIONS, "-o", "out.jsonl")
    assert "continued: the scores of 3 turns" in result.stderr
    assert len(scored) - len(written) == 3
    assert (many_lists / "out.jsonl").read_bytes() == (many_lists / "whole.jsonl").read_bytes()
    assert not list(many_lists.glob("*.unfinished"))


def test_a_run_does_not_continue_itself(many_lists, monkeypatch):
    """Of conversations that begin alike, a later group finds the scores that the run itself has just kept."""
    monkeypatch.setattr(conversations, "SIDE_BY_SIDE", 1)
    lists = [nbest | {"id": f"{talk}-{place}"} for talk in range(3) for place, nbest in enumerate(some_lists(count=4, talks=1))]
    write(many_lists / "alike.jsonl", lists)
    scored = []
    score = rescoring.Rescorer._scored
    monkeypatch.setattr(rescoring.Rescorer, "_scored", lambda self, block, scores: scored.append(1) or score(self, block, scores))
    written = []
    write_turn = score_cache.write_scores
    monkeypatch.setattr(score_cache, "write_scores", lambda *arguments: written.append(1) or write_turn(*arguments))
    assert "continued" not in run("rescore", "alike.jsonl", *OPTIONS, "-o", "out.jsonl").stderr
    assert len(written) < len(scored)


def test_scores_are_kept_for_the_texts_before_and_what_was_chosen_from_them(many_lists):
    """A run with other weights can choose other texts: the scores of the next turns are not its own."""
    first, second, third = attlm.read_nbest("in.jsonl")[:3]

    def key(earlier, chosen, turn) -> str:
        history = History()
        history.add(earlier, chosen)
        return history.key(turn)

    keys = [
        key({0: first}, ["a b"], {0: second}),
        key({0: first}, ["a c"], {0: second}),
        key({0: third}, ["a b"], {0: second}),
        key({0: first}, ["a b"], {0: third}),
        key({0: first}, ["a b"], {1: second}),
        key({0: first}, ["a ", "b"], {0: second}),
    ]
    assert len(set(keys)) == len(keys)
    assert key({0: first}, ["a b"], {0: second}) == keys[0]


def test_one_conversation_is_answered_as_it_comes(many_lists):
    lists = attlm.read_nbest("in.jsonl")
    block = BlockScorer([attlm.load_lm("lm.pt")], [TextPipeline()])
    read = []
    context = rescoring.Context(ContextSpec("all"), Choice({"am": 1.0}))
    answers = rescoring.Rescorer(OneProcess(block), RunConfig(), context=context).score(read.append(nbest) or nbest for nbest in lists)
    assert next(answers).id == lists[0].id
    assert len(read) == 1
    assert [nbest.id for nbest in answers] == [nbest.id for nbest in lists[1:]]
    first = walk(block, Group([{0: lists[0]}], [Choice()]))
    assert [found.known for found in first] == [False]


def test_an_actor_of_ray_does_what_the_command_does(many_lists):
    run("rescore", "in.jsonl", *OPTIONS, "-o", "one.jsonl")
    config = attlm.run_config(lms={"lm": "lm.pt"}, weights=WEIGHTS, context="id:^.")
    actor = ShardRescorer(config, str(many_lists))
    rows = [actor({"path": str(many_lists / "in.jsonl"), "output": str(many_lists / f"{name}.out")}) for name in ("a", "b")]
    assert (many_lists / "a.out").read_bytes() == (many_lists / "one.jsonl").read_bytes()
    assert sorted(json.loads(rows[0]["conversations"])) == ["0", "1", "2", "3", "4"]
    [none, split] = _split_conversations(rows)
    assert none == []
    assert len(split) == 5
    assert "is in in.jsonl too" in split[0]


def test_tuning_in_two_passes_and_evaluation_by_conversations(many_lists):
    write(many_lists / "in.jsonl", some_lists(60, 12))
    options = ("in.jsonl", "--lm", "lm=lm.pt", "--context", "id:^[0-9]+")
    run("tune", *options, "--folds", "4", "--strength", "1", "--restarts", "1")
    written = (many_lists / "attlm.toml").read_text()
    assert '[context]\nconversations = "id:^[0-9]+"' in written
    config = attlm.run_config("attlm.toml")
    assert config.context == ContextSpec("id", "^[0-9]+")
    found = attlm.evaluate("in.jsonl", config=config)
    found.write_report("page.html")
    assert "ln p of each word without the context: 1-best" in (many_lists / "page.html").read_text()
    assert len(set(found.measurement.lists.utterances(found.metric))) == 12
    alone = attlm.evaluate("in.jsonl", config=attlm.run_config(context="id:^[0-9]+"))
    assert [row.label for row in alone.rows] == ["in.jsonl", "oracle"]
    by_lists = attlm.evaluate("in.jsonl")
    assert alone.rows[0].interval.score == by_lists.rows[0].interval.score
    assert alone.rows[0].interval.low != by_lists.rows[0].interval.low


@pytest.mark.parametrize("of_file", [False, True])
def test_lists_without_a_reference_are_context_all_the_same(many_lists, of_file):
    lists = some_lists(40, 4)
    (many_lists / "refs").write_text("".join(f"{nbest['id']} {nbest['ref']}\n" for nbest in lists[::2]))
    for nbest in lists if of_file else lists[1::2]:
        del nbest["ref"]
    write(many_lists / "in.jsonl", lists)
    refs = attlm.ReferenceFiles(["refs"] if of_file else [], partial=True)
    config = attlm.run_config(lms={"lm": "lm.pt"}, weights=WEIGHTS, context="id:^(.)")
    rescored = attlm.rescore("in.jsonl", config=config).lists
    found = attlm.evaluate("in.jsonl", refs, {"as rescored": rescored}, config=config)
    measured = found.measurement.lists.lists
    assert [nbest.id for nbest in measured] == [nbest["id"] for nbest in lists[::2]]
    for mine, theirs in zip(measured, rescored[::2], strict=True):
        of_texts = {one.text: one.lm_scores["lm"] for one in theirs.hypotheses}
        assert {one.text: one.lm_scores["lm"] for one in mine.hypotheses} == pytest.approx(of_texts, abs=1e-4)
    scores = {row.label: row.interval.score for row in found.rows}
    assert scores["rescored, max"] == scores["as rescored"]
    tuned = attlm.tune("in.jsonl", refs, config=config, options=attlm.TuneOptions(folds=0, restarts=0, strength=1.0))
    assert tuned.record["lists"] == 20


def test_lists_that_are_only_context_get_candidates_and_may_lack_scores(many_lists):
    lists = some_lists(40, 4)
    for nbest in lists[1::2]:
        del nbest["ref"]
    for hypothesis in lists[1]["hyps"]:
        hypothesis["scores"] = {}
    write(many_lists / "in.jsonl", lists)
    (many_lists / "phrases").write_text("cat sat\nmat\ndog\n")
    run("tune", "in.jsonl", *OPTIONS[:2], "--context", "id:^.", "--partial-refs", "--phrases", "phrases", "--folds", 4, "--strength", 1)
    assert attlm.run_config("attlm.toml").candidates.phrases


def test_a_repeated_id_of_which_one_list_has_a_reference():
    lists = [
        attlm.NbestList("x", [attlm.Hypothesis("a b")], ("a b",)),
        attlm.NbestList("x", [attlm.Hypothesis("a c")]),
        attlm.NbestList("y", [attlm.Hypothesis("a d")], ("a e",)),
    ]
    found = attlm.evaluate(lists, attlm.ReferenceFiles(partial=True), {"again": lists})
    assert [row.interval.score for row in found.rows] == [25.0] * 3


def test_what_makes_no_sense_is_refused(many_lists):
    assert "for lists give --context all" in refused("rescore", "in.jsonl", *OPTIONS[:-1], "blank")
    close = ("--only-close", "lm=2", "--weight", "lm=1")
    assert "--only-close do not go with --context" in refused("rescore", "in.jsonl", *OPTIONS[:2], *close, "--context", "all")
    assert "lines of text have no ids" in refused("ppl", "text", "--lm", "lm.pt", "--context", "id:.")
    assert "--context 'some'" in refused("ppl", "text", "--lm", "lm.pt", "--context", "some")
    assert "a whole number" in refused("ppl", "text", "--lm", "lm.pt", "--context-sentences", "few")
    assert run("ppl", "text", "--lm", "lm.pt", "--context", "blank").stdout != run("ppl", "text", "--lm", "lm.pt").stdout


@pytest.mark.parametrize("command", ["fit", "mix"])
def test_a_text_does_not_change_which_lists_are_a_conversation(many_lists, command):
    """Its own context is of lines, which have no ids."""
    config = '[lm.lm]\ncheckpoint = "lm.pt"\n[lm.ngram]\nkenlm = "lm.arpa"\n[weights]\nlm = 1.0\nngram = 0.5\nam = 1.0\n'
    (many_lists / "attlm.toml").write_text(f'{config}[context]\nconversations = "id:^."\n')
    find = ["--find", "unigram-cache"] if command == "fit" else []
    told = run(command, "text", *find, "--context", "blank").stderr
    assert attlm.run_config("attlm.toml").context == ContextSpec("id", "^.")
    assert "note: [context] in attlm.toml stays id:^., which is for lists" in told
    assert ("the weights were tuned without these settings: tune them again" in told) == (command == "fit")
    elsewhere = run(command, "text", *find, "--context", "blank", "--config", "attlm.toml", "-o", "other.toml")
    assert attlm.run_config("other.toml").context == ContextSpec("id", "^.")
    assert (
        "[context]; --config" not in run(command, "text", *find, "--context", "blank", "--config", "attlm.toml", "-o", "other.toml").stderr
    )
    assert "will be without it" not in elsewhere.stderr
    read = attlm.run_config("attlm.toml", context="blank")
    (many_lists / "attlm.toml").rename("gone.toml")
    make = attlm.fit_context if command == "fit" else attlm.estimate_mixture
    assert make("text", config=read, **({"find": ["unigram-cache"]} if find else {})).config.context == ContextSpec("id", "^.")
    (many_lists / "attlm.toml").write_text(f'{config}[context]\nconversations = "all"\n')
    run(command, "text", *find, "--context", "blank")
    assert attlm.run_config("attlm.toml").context == ContextSpec("blank")


def test_an_ensemble_and_a_memory_of_slots_go_along(folder):  # noqa: F811
    write_checkpoint(folder / "slots" / "lm.pt", WORDS, _name="amsrn_lm")
    write(folder / "in.jsonl", some_lists(12, 3))
    found = attlm.rescore("in.jsonl", {"lm": ["lm.pt", "slots/lm.pt"]}, WEIGHTS, config=attlm.run_config(context="all"))
    lm = attlm.load_lm(["lm.pt", "slots/lm.pt"])
    history = [said for nbest in found.lists[:-1] if (said := nbest.hypotheses[0].text.split())]
    for hypothesis in found.lists[-1].hypotheses:
        assert hypothesis.lm_scores["lm"] == pytest.approx(lm.after(history).score([hypothesis.text.split()])[0].total, abs=1e-4)
