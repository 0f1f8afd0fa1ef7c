"""`attlm combine`: the lists of several systems for the same utterances."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from cli_runs import refused, run

import attlm_fairseq as attlm
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

A = [[("the cat sad", -1.0), ("the  cat sat", -2.0), ("the cat sad", -9.0)], [("a dog", -1.0)]]
B = [["the cat sat", "a cat sat"], ["a dog ran"]]


def test_lists_are_joined_by_hand():
    first, second = attlm.combine({"a": A, "b": B})
    assert [(hypothesis.text, {**hypothesis.scores, "systems_vote": 0}) for hypothesis in first.hypotheses] == [
        ("the cat sad", {"a_score": -1.0, "a_rank": 0.0, "b_rank": -2.0, "systems_vote": 0}),
        ("the  cat sat", {"a_score": -2.0, "a_rank": -1.0, "b_rank": 0.0, "systems_vote": 0}),
        ("a cat sat", {"a_score": -2.0, "a_rank": -2.0, "b_rank": -1.0, "systems_vote": 0}),
    ]
    assert [hypothesis.rank for hypothesis in first.hypotheses] == [1, 2, 3]
    assert [hypothesis.scores["a_score"] for hypothesis in second.hypotheses] == [-1.0, -1.0]
    for system, lists in (("a", A), ("b", B)):  # a system's rank alone gives back its order
        best = attlm.rescore([first, second], weights={f"{system}_rank": 1.0}).lists
        of_system = [nbest[0] if isinstance(nbest[0], str) else nbest[0][0] for nbest in lists]
        assert [nbest.hypotheses[0].text.split() for nbest in best] == [text.split() for text in of_system]


def test_each_system_shares_one_vote_by_rank():
    def shares(ranks, of):
        return math.exp(-ranks) / sum(math.exp(-rank) for rank in range(of))

    [first] = attlm.combine({"a": A[:1], "b": B[:1], "c": [["the cat sat"]]})
    expected = {"the cat sad": shares(0, 2), "the  cat sat": shares(1, 2) + shares(0, 2) + 1, "a cat sat": shares(1, 2)}
    votes = {hypothesis.text: math.exp(hypothesis.scores["systems_vote"]) for hypothesis in first.hypotheses}
    assert votes == pytest.approx({text: share / 3 for text, share in expected.items()})


def test_votes_of_long_lists_and_own_word_counts():
    """exp(-1000) is 0 in double precision, but a hypothesis of rank 1000 has a vote. No note says that the score ``words`` is missing."""
    long = [[(f"a {number}", {"words": 2.0}) for number in range(1001)]]
    with collected() as notes:
        [found] = attlm.combine({"a": long, "b": [["a 1000"]]})
    assert notes == []
    log_total = math.log(math.fsum(math.exp(-rank) for rank in range(1001)))
    assert found.hypotheses[-1].scores["systems_vote"] == pytest.approx(-999 - log_total - math.log(2))


def test_a_first_system_that_is_often_outvoted_is_no_cost(folder):
    for name in "abc":
        Path(f"{name}.txt").write_text("".join(f"the {'dog' if name == 'a' else 'cat'} {number}\n" for number in range(20)))
    run("combine", *(f"{name}={name}.txt" for name in "abc"), "-o", "all.jsonl")
    told = run("rescore", "all.jsonl", "--consensus", "-o", "voted.txt").stderr
    assert "WARNING" not in told
    assert Path("voted.txt").read_text().count("cat") == 20


@pytest.mark.parametrize("rule", ["--consensus", "--mbr=wer"])
def test_equal_answers_of_several_systems_count_as_many_times(folder, rule):
    for name, text in (("a", "a hat sat"), ("b", "the cat sat"), ("c", "the cat sat"), ("d", "the cat sat")):
        Path(f"{name}.txt").write_text(f"{text}\n")
    run("combine", *(f"{name}={name}.txt" for name in "abcd"), "-o", "all.jsonl")
    found = run("rescore", "all.jsonl", rule, "--to", "1best")
    assert found.stdout == "the cat sat\n"
    assert "note: systems_vote, by which the joined systems vote, has weight 1" in found.stderr
    words = run("rescore", "all.jsonl", rule, "--to", "ctm").stdout.splitlines()[1:]
    assert [line.split()[4:] for line in words] == [["the", "0.750000"], ["cat", "0.750000"], ["sat", "1.000000"]]


def test_a_score_that_a_hypothesis_lacks_is_told():
    lists = [attlm.NbestList(name, [attlm.Hypothesis("x", {"am": -1.0}, 1), attlm.Hypothesis("y", {}, 2)]) for name in "uv"]
    with collected() as notes:
        [first, _] = attlm.combine({"a": lists, "b": [["x"], ["y"]]})
    assert notes == ["note: the score am of a is left out of 2 lists in which a hypothesis lacks it"]
    assert set(first.hypotheses[0].scores) == {"a_rank", "b_rank", "systems_vote"}


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["u", "v", "w"], "b: has 1 list ('w') that a has not: expected lists of the same utterances"),
        (["u"], "b: lacks 1 list ('v') of a: expected"),
        (["w", "x"], "b: lacks 2 lists ('u', ..) of a and has 2 lists ('w', ..) that a has not: expected"),
        (["u", "u"], "b: the id 'u' is that of several lists"),
    ],
)
def test_other_utterances_are_named(ids, message):
    with pytest.raises(attlm.InputError, match=re.escape(message)):
        attlm.combine({name: [attlm.NbestList(one, [attlm.Hypothesis("x")]) for one in of] for name, of in (("a", ["u", "v"]), ("b", ids))})


def test_ids_match_in_either_unicode_form():
    composed, decomposed = ([attlm.NbestList(one, [attlm.Hypothesis(one[0])]) for one in of] for of in (["\xe91", "b"], ["b", "e\u03011"]))
    first, second = attlm.combine({"a": composed, "b": [decomposed[1], decomposed[0]][::-1]})
    assert [nbest.id for nbest in (first, second)] == ["\xe91", "b"]
    assert [hypothesis.scores["systems_vote"] for hypothesis in second.hypotheses] == [0.0]


def test_repeated_hypotheses_are_counted():
    with collected() as notes:
        attlm.combine({"a": A, "b": B})
    assert notes == ["note: 1 hypotheses repeat the words of an earlier one of their list and are left out"]


def test_files_are_matched_by_id(folder):
    def write(name, lists, ids, refs=()):
        entries = [
            {"id": which, "hyps": [{"text": text, "scores": {"am": -1.5}} for text in hyps]} for which, hyps in zip(ids, lists, strict=True)
        ]
        for entry, ref in zip(entries, refs, strict=False):
            entry["ref"] = ref
        Path(name).write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    write("a.jsonl", [["the cat sad", "the cat sat"], ["a mad", "a mat"]], ["u", "v"])
    write("b.jsonl", [["a mat"], ["the cat sat"]], ["v", "u"], ["a mat", "the cat sat"])
    Path("c.txt").write_text("u the cat ran\nv a mat\n")
    told = run("combine", "a=a.jsonl", "b=b.jsonl", "c=c.txt", "-o", "all.jsonl").stderr
    assert "2 lists, 5 hypotheses" in told
    found = attlm.read_nbest("all.jsonl")
    assert [nbest.id for nbest in found] == ["u", "v"]
    assert [nbest.references for nbest in found] == [("the cat sat",), ("a mat",)]
    assert [hypothesis.text for hypothesis in found[0].hypotheses] == ["the cat sad", "the cat sat", "the cat ran"]
    assert {**found[1].hypotheses[0].scores, "systems_vote": 0} == {
        "a_am": -1.5,
        "a_rank": 0.0,
        "b_am": -1.5,
        "b_rank": -1.0,
        "c_rank": -1.0,
        "systems_vote": 0,
    }
    run("rescore", "all.jsonl", "--consensus", "--weight", "b_rank=1", "-o", "voted.txt")
    assert Path("voted.txt").read_text().splitlines()[1].endswith("a mat")
    assert "two systems have the same name" in refused("combine", "a=a.jsonl", "a=b.jsonl")
    assert "there is 1 system to combine" in refused("combine", "a=a.jsonl")
    assert "expected NAME=FILE" in refused("combine", "a.jsonl", "b.jsonl")
    assert "cannot be the name" in refused("combine", "1=a.jsonl", "b=b.jsonl")
    write("d.jsonl", [["a mat"]], ["w"])
    assert refused("combine", "a=a.jsonl", "d=d.jsonl", "-o", "none.jsonl")
    assert not Path("none.jsonl").exists()


def test_lists_of_programs_must_be_of_the_same_utterances():
    with pytest.raises(attlm.InputError, match=r"b: 1 lists, but a has 2: .* lists of the same utterances"):
        attlm.combine({"a": A, "b": B[:1]})
    numbered = [NbestList(str(number), [Hypothesis("a")]) for number in range(3)]
    with pytest.raises(attlm.InputError, match=r"2 lists, but a has 3: .* the first one that it lacks is '1'"):
        attlm.combine({"a": numbered, "b": [numbered[0], numbered[2]]})


def test_systems_of_one_answer_vote_word_by_word(folder):
    for name, text in (("a", "the cat sad on a mat"), ("b", "the cat sat on the mat"), ("c", "a cat sat on a mat")):
        Path(f"{name}.txt").write_text(f"{text}\n\n")
    told = run("combine", "a=a.txt", "b=b.txt", "c=c.txt", "-o", "all.jsonl").stderr
    assert told.count("read as one text per line") == 3
    found = attlm.read_nbest("all.jsonl")
    assert [[hypothesis.text for hypothesis in nbest.hypotheses] for nbest in found][1] == [""]
    run("rescore", "all.jsonl", "--consensus", *(f"--weight={name}_rank=0.01" for name in "abc"), "-o", "voted.txt", "--to", "1best")
    assert Path("voted.txt").read_text() == "the cat sat on a mat\n\n"


def test_systems_of_other_utterances_or_with_scores_of_one_name_are_refused():
    def lists(texts):
        return [attlm.NbestList(str(place), [attlm.Hypothesis(text)], (text,)) for place, text in enumerate(texts)]

    with_references, others = lists(["a b", "c d"]), lists(["c d", "a b"])
    with pytest.raises(attlm.InputError, match="b: the reference of list '0' is not that of a; compare the same utterances"):
        attlm.combine({"a": with_references, "b": others})
    with pytest.raises(attlm.InputError, match="list '0': two scores are called 'a_b_am': give a system another name"):
        attlm.combine({"a": [[("x", {"b_am": -1.0})]], "a_b": [[("x", {"am": -7.0})]]})
    with pytest.raises(attlm.InputError, match="list '0': two scores are called 'systems_vote': give a system another name"):
        attlm.combine({"systems": [[("x", {"vote": -1.0})]], "b": [["x"]]})
    with pytest.raises(attlm.InputError, match="c: the reference of list '0' is not that of b; combine the same utterances"):
        attlm.combine({"a": [["a b"], ["c d"]], "b": with_references, "c": others})


def test_silence_without_scores_is_one_hypothesis_among_others(folder):
    Path("a.jsonl").write_text('{"id": "u1", "hyps": [{"text": "a", "score": -1}, {"text": "b", "score": -2}]}\n{"id": "u2", "hyps": []}\n')
    Path("b.jsonl").write_text('{"id": "u1", "hyps": [{"text": "b", "score": -1}]}\n{"id": "u2", "hyps": [{"text": "uh", "score": -3}]}\n')
    _, second = attlm.combine({"a": "a.jsonl", "b": "b.jsonl"})
    assert [(one.text, one.scores["a_score"], one.scores["b_score"]) for one in second.hypotheses] == [("", 0.0, -3.0), ("uh", 0.0, -3.0)]
    decided = attlm.rescore([second], weights={"a_score": 1.0, "b_score": 1.0, "b_rank": 1.0}).lists
    assert decided[0].hypotheses[0].text == "uh"


def test_scores_that_lists_may_lack_stay_so(folder):
    Path("sparse").write_text("0 ||| a ||| am= -1 sp= 2 ||| 0\n0 ||| b ||| am= -2 ||| 0\n1 ||| c ||| am= -1 ||| 0\n")
    assert all(nbest.sparse for nbest in attlm.combine({"a": "sparse", "b": [["a"], ["c"]]}))


def test_texts_are_matched_by_the_numbers_of_generated_lists(tmp_path, monkeypatch):
    """fairseq-generate writes its lists sorted by length; a text in the order of the corpus has other lines next to them."""
    monkeypatch.chdir(tmp_path)
    Path("gen").write_text("H-1\t-0.5\ta b\nP-1\t-0.5 -0.5 -0.5\nH-0\t-0.6\tc d e\nP-0\t-0.6 -0.6 -0.6 -0.6\n")
    Path("text").write_text("c d f\na b\n")
    told = run("combine", "f=gen", "t=text", code=2).stderr
    assert "say --texts-by number (the id is the line number) or --texts-by order" in told
    found = {by: run("combine", "f=gen", "t=text", "--texts-by", by).stdout.splitlines() for by in ("number", "order")}
    texts = {by: [[hyp["text"] for hyp in json.loads(line)["hyps"]] for line in lines] for by, lines in found.items()}
    assert texts == {"number": [["a b"], ["c d e", "c d f"]], "order": [["a b", "c d f"], ["c d e", "a b"]]}
    assert run("combine", "f=gen", "t=text", "--texts-by", "id", code=2).stderr.startswith("attlm: error: text")
    with pytest.raises(attlm.InputError, match="expected one of order, number, id"):
        attlm.combine({"f": "gen", "t": "text"}, texts_by="line")


def test_the_format_can_be_said(folder):
    Path("a.txt").write_text("the cat sat\n\na dog\n\nthe cow\n")
    Path("b.txt").write_text("the cat sad\n\na dog\n\na cow\n")
    guessed = run("combine", "a=a.txt", "b=b.txt", "-o", "blocks.jsonl").stderr
    assert "a.txt is read as lists of several texts (plain); if it has one text per line, say --format text" in guessed
    assert "5 lists, 7 hypotheses" in run("combine", "a=a.txt", "b=b.txt", "--format", "text", "-o", "texts.jsonl").stderr


def test_fields_that_are_left_out_are_named(folder):
    Path("a.jsonl").write_text('{"id": "u", "speaker": "x", "hyps": [{"text": "a", "scores": {"am": -1}}]}\n')
    Path("b.json").write_text('{"u": [{"text": "a", "score": -1, "lang": "en"}]}\n')
    Path("c.txt").write_text("u a\n")
    expected = "note: of joined lists only ids, references, texts and scores are written; left out: lang, speaker\n"
    assert expected in run("combine", "a=a.jsonl", "b=b.json", "c=c.txt", "-o", "all.jsonl").stderr
    assert "left out" not in run("combine", "a=all.jsonl", "b=c.txt", "-o", "more.jsonl").stderr


def test_utterances_without_a_line_in_ctm_are_silence(folder):
    Path("a.ctm").write_text("u 1 0 0.5 the 0.9\nu 1 0.5 0.5 cat 0.8\n")
    Path("b.ctm").write_text("v 1 0.0 1.0 dog\nu 1 0.0 1.0 the\n")
    joined = [json.loads(line) for line in run("combine", "a=a.ctm", "b=b.ctm").stdout.splitlines()]
    assert [one["scores"].keys() for nbest in joined for one in nbest["hyps"]] == [
        {"a_log_confidence", "a_rank", "b_rank", "systems_vote"}
    ] * 4
    assert [(nbest["id"], [one["text"] for one in nbest["hyps"]]) for nbest in joined] == [("u", ["the cat", "the"]), ("v", ["", "dog"])]
    of_a = [[one["scores"]["a_log_confidence"] for one in nbest["hyps"]] for nbest in joined]
    assert of_a == [[pytest.approx(math.log(0.9 * 0.8))] * 2, [0.0, 0.0]]
    told = run("combine", "a=a.ctm", "b=b.ctm").stderr
    assert "note: a.ctm: 1 utterances have no line, and so no words, the first of id 'v'" in told
    assert "left out: confidence" in told
    Path("ref").write_text("v a dog\nu the cat\n")
    for options in (["a.ctm", "--refs", "ref"], ["a.ctm", "b.ctm", "--refs", "ref"]):
        assert json.loads(run("eval", *options, "--json").stdout)["systems"][0]["score"] == 50.0
    assert json.loads(run("eval", "a.ctm", "--refs", "ref", "--refs-by", "id", "--json").stdout)["systems"][0]["score"] == 0.0
    Path("c.ctm").write_text(f"{Path('a.ctm').read_text()}x 1 0.0 1.0 more\n")  # which has no reference
    assert json.loads(run("eval", "c.ctm", "--refs", "ref", "--partial-refs", "--json").stdout)["systems"][0]["score"] == 50.0
    run("eval", "a.ctm", "b.ctm", "--refs", "ref", "--partial-refs")
    assert attlm.evaluate("a.ctm", {"u": "the cat", "v": "a dog"}).rows[0].interval.score == 50.0


def test_utterances_of_audio_files_are_those_of_other_systems(folder):
    Path("a.jsonl").write_text(
        "".join(f'{{"audio_filepath": "/wav/{name}.wav", "nbest": [{{"text": "the {name}"}}]}}\n' for name in ("u1", "u2"))
    )
    Path("b").write_text("u2 a dog\nu1 a cat\n")
    Path("c.ctm").write_text("u2 1 0.0 1.0 cats\n")
    joined = [json.loads(line) for line in run("combine", "a=a.jsonl", "b=b", "c=c.ctm").stdout.splitlines()]
    texts = [(nbest["id"], [one["text"] for one in nbest["hyps"]]) for nbest in joined]
    assert texts == [("/wav/u1.wav", ["the u1", "a cat", ""]), ("/wav/u2.wav", ["the u2", "a dog", "cats"])]


def test_utterances_of_audio_files_without_a_line_in_ctm_are_silence(folder):
    Path("a.ctm").write_text("u1 1 0 0.5 the 0.9\nu1 1 0.5 0.5 cat 0.8\n")
    for path in ("u%d", "/wav/u%d.wav"):
        Path("ref").write_text(f"{path % 1} the cat\n{path % 2} a dog\n")
        for options in ((), ("--partial-refs",)):
            assert json.loads(run("eval", "a.ctm", "--refs", "ref", *options, "--json").stdout)["systems"][0]["score"] == 50.0


def test_lists_of_a_part_of_ctm_get_no_silence(folder):
    Path("a.ctm").write_text("u 1 0.0 0.5 the 0.9\nv 1 0.5 0.5 cat 0.8\n")
    references = {"u": "the", "v": "dog", "w": "more"}
    first, second = attlm.read_nbest("a.ctm")
    assert attlm.evaluate([first], references).rows[0].interval.score == 0.0
    assert attlm.evaluate([first, second], references).rows[0].interval.score == pytest.approx(200 / 3)
    others = [[("the", -1.0)], [("dog", -1.0)], [("more", -1.0)]]
    lists = [attlm.NbestList(name, [attlm.Hypothesis(one[0][0])]) for name, one in zip("uvw", others, strict=True)]
    joined = attlm.combine({"a": lists, "b": [first, second]})
    assert [[one.text for one in nbest.hypotheses] for nbest in joined] == [["the"], ["dog", "cat"], ["more", ""]]
    joined = attlm.combine({"a": lists, "b": "a.ctm"})
    assert [[one.scores.get("b_log_confidence") for one in nbest.hypotheses] for nbest in joined] == [
        [pytest.approx(math.log(0.9))],
        [pytest.approx(math.log(0.8))] * 2,
        [0.0, 0.0],
    ]
    assert joined[1].hypotheses[1].times == ((0.5, 1.0),)


def test_times_of_whichever_system_has_them():
    with_times = attlm.NbestList("u", [attlm.Hypothesis("a b", {"am": -1.0}, 1, times=((0.5, 1.0), (1.0, 2.0)))])
    without = attlm.NbestList("u", [attlm.Hypothesis("a b", {"am": -1.0}, 1)])
    for systems in ({"p": [without], "q": [with_times]}, {"p": [with_times], "q": [without]}):
        [joined] = attlm.combine(systems)
        assert joined.hypotheses[0].times == ((0.5, 1.0), (1.0, 2.0))
