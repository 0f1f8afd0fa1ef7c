"""Files that could be read in two ways: the right one, or one line that says what to give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import refused, run

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError


def wer(lists: str, *options: str) -> float:
    return json.loads(run("eval", lists, *options, "--json").stdout)["systems"][0]["score"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(**files: str) -> None:
    for name, text in files.items():
        Path(name).write_text(text)


LISTS = "".join(json.dumps({"id": f"utt{place}", "hyps": [text, "x"]}) + "\n" for place, text in enumerate(("a b", "c d", "e f")))


def test_numbers_that_begin_all_lines_may_be_ids():
    write(hyp="001 a b\n002 c d\n003 e f\n", ref="001 a x\n002 c d\n003 e f\n", lists=LISTS)
    assert "every line begins with another number, such as 001, which may be an id or a word" in refused("eval", "hyp", "--refs", "ref")
    assert wer("hyp", "--format", "text:id", "--refs", "ref") == pytest.approx(100 / 6, abs=1e-3)
    assert wer("hyp", "--format", "text:order", "--refs", "ref", "--refs-by", "order") == pytest.approx(100 / 9, abs=1e-3)
    assert "its lines carry ids such as '001', which no list has" in refused("eval", "lists", "--refs", "ref")


def test_ids_before_a_tab_may_have_spaces():
    ids = [f"my file {place}.wav" for place in range(3)]
    lists = [{"id": name, "hyps": [text, "x"]} for name, text in zip(ids, ("a b", "c d", "e f"), strict=True)]
    write(lists="".join(json.dumps(item) + "\n" for item in lists), ref="".join(f"{ids[i]}\t{'ace'[i]} {'bdf'[i]}\n" for i in (2, 0, 1)))
    assert wer("lists", "--refs", "ref") == 0
    write(trn="the cat\t(utt0)\na dog\t(utt1)\nx y\t(utt2)\n", other=LISTS, tab="a\tb\nc\td\ne\tf\n")
    assert wer("other", "--refs", "trn") > 0  # by the ids in parentheses
    assert wer("other", "--refs", "tab", "--refs-by", "order") == wer("other", "--refs", "tab") == 0  # the lines as they are


def test_texts_and_references_without_ids_are_of_one_utterance_or_of_several():
    values = {"hyps": ["a b", "c d", "e f"], "refs": ["a b", "c x", "e f"]}
    write(bare=json.dumps(values), each=json.dumps(values | {"ids": [7, 8, 9]}), one=json.dumps(values | {"id": "u1"}))
    assert "3 texts under 'hyps' and 3 references under 'refs': add 'ids'" in refused("eval", "bare")
    assert wer("each") == pytest.approx(100 / 6, abs=1e-3)
    assert wer("one") == 0
    write(own=json.dumps({"text": ["a b", "a c"], "score": [-1.0, -2.0]}))  # which is no reference of itself
    assert [one.scores for one in attlm.read_nbest("own")[0].hypotheses] == [{"score": -1.0}, {"score": -2.0}]


def test_ids_of_each_text_divide_a_flat_list():
    values = {"ids": ["a", "a", "b", "c", "c"], "texts": ["x", "y", "z", "v", "w"], "scores": [-1, -2, -3, -4, -5.5]}
    write(flat=json.dumps(values))
    assert [(nbest.id, [one.text for one in nbest.hypotheses]) for nbest in attlm.read_nbest("flat")] == [
        ("a", ["x", "y"]),
        ("b", ["z"]),
        ("c", ["v", "w"]),
    ]
    assert run("rescore", "flat", "--weight", "score=0").stdout == json.dumps(values)
    write(refs=json.dumps(values | {"refs": ["x", "z", "q"]}), of_one=json.dumps({"id": "u", "texts": ["x", "y"], "ids": ["h1", "h2"]}))
    assert [nbest.references for nbest in attlm.read_nbest("refs")] == [("x",), ("z",), ("q",)]
    assert json.loads(run("rescore", "refs", "--weight", "score=-1").stdout)["refs"] == ["x", "z", "q"]
    assert [nbest.id for nbest in attlm.read_nbest("of_one")] == ["u"]
    reordered = json.loads(run("rescore", "flat", "--weight", "score=-1").stdout)
    assert reordered == {
        "ids": ["a", "a", "b", "c", "c"],
        "texts": ["y", "x", "z", "w", "v"],
        "scores": [-2, -1, -3, -5.5, -4],
        "total_score": [2, 1, 3, 5.5, 4],
    }


@pytest.mark.parametrize("name", ["data", "results", "segments"])
def test_utterances_may_be_called_like_what_holds_utterances(name):
    lists = [attlm.NbestList(called, [attlm.Hypothesis("a b", rank=1), attlm.Hypothesis("c", rank=2)]) for called in (name, "b", "items")]
    attlm.write_nbest(lists, "all.json")
    assert [nbest.id for nbest in attlm.read_nbest("all.json")] == [name, "b", "items"]


def test_ids_of_references_may_be_positions():
    write(lists="".join(json.dumps({"id": str(i), "hyps": [text, "x"]}) + "\n" for i, text in enumerate(("1 2", "0 1", "5"))))
    write(part=json.dumps({"0": "1 2", "1": "0 1"}), other=LISTS, whole=json.dumps({"0": "a b", "1": "c d", "2": "e f"}))
    assert wer("lists", "--refs", "part", "--partial-refs") == 0
    assert wer("lists", "--refs", "whole", "--refs-by", "id") > 0
    assert wer("other", "--refs", "whole") == 0  # the numbers of the rows


def test_an_id_that_is_twice_among_references_is_told():
    references = [{"id": name, "hyps": [{"text": text}], "ref": text} for name, text in (("utt0", "a"), ("utt0", "b"), ("utt1", "c"))]
    write(lists=LISTS, refs="".join(json.dumps(item) + "\n" for item in references))
    assert "refs: the id 'utt0' is there 2 times" in refused("eval", "lists", "--refs", "refs")


TABLE = "id\thyp\tscore\nu1\ta b\t-1\nu1\ta c\t-2\nu2\tx\t-1\n"


def test_rows_of_tabs_change_nothing():
    head, first, second, last = TABLE.splitlines(keepends=True)
    for text in (f"{head}{first}\t\t\n{second}{last}", f"\t\t\n{TABLE}", f" \n{TABLE}", TABLE + "\t\t\n"):
        write(table=text)
        found = run("rescore", "table", "--weight", "score=-1").stdout
        rows = [line for line in found.splitlines() if line.strip()]
        assert rows == ["id\thyp\tscore\ttotal", "u1\ta c\t-2\t2.0", "u1\ta b\t-1\t1.0", "u2\tx\t-1\t1.0"]


def test_rows_of_commas_are_blank_and_an_id_alone_may_not_be():
    write(table="id,hyp,score\nu1,a,-1\nu1,b,-2\n,,\n,,\n", merged="id,hyp,score\nu1,a,-1\n,b,-2\n")
    assert run("rescore", "table", "--weight", "score=-1").stdout == "id,hyp,score,total\nu1,b,-2,2.0\nu1,a,-1,1.0\n,,\n,,\n"
    assert "merged:3: the column 'id' is blank: expected an id in every row" in refused("rescore", "merged", "--weight", "score=1")


def test_scores_in_quotes_are_no_words():
    second = '{"id": "u2", "beams": [["x", "y"]]}\n'
    write(beams='{"id": "u1", "beams": [["a b", "-1.2"], ["a c", "-1.3"]]}\n' + second)
    write(words='{"id": "u1", "beams": [["version", "2.0"]]}\n' + second)
    assert "beams[0][1] is '\"-1.2\"': expected a score without quotes" in refused("rescore", "beams", "--weight", "score=1")
    assert [one.text for one in attlm.read_nbest("words")[0].hypotheses] == ["version 2.0"]


@pytest.mark.parametrize("odd", ["-inf", "nan"])
def test_nemo_lists_with_an_odd_score_need_a_beam_size_all_the_same(odd):
    write(nemo=f"a b\t-1.2\na c\t{odd}\n")
    assert "--format nemo:K" in refused("rescore", "nemo", "--weight", "score=1")


def test_silence_has_the_sum_over_no_tokens():
    hyps = [{"text": "", "ys_log_probs": []}, {"text": "a", "ys_log_probs": [-0.5, -1]}]
    write(lists=json.dumps({"id": "u1", "hyps": hyps}) + "\n")
    assert [one.scores for one in attlm.read_nbest("lists")[0].hypotheses] == [{"logprob": 0.0}, {"logprob": -1.5}]


def test_srilm_needs_the_lm_score_of_all_or_none():
    lists = [[("a b", {"acoustic": -1.0, "lm": -2.0}), ("a", {"acoustic": -1.5})]]
    with pytest.raises(InputError, match="hypothesis 2 has no score 'lm', which others of the list have"):
        attlm.convert(lists, "out", "srilm")


def test_scores_by_number_are_no_sequence_of_scores():
    with pytest.raises(InputError, match=r"scores 'qe': found \{0: -5.0, 1: -7.0\}, expected a file or numbers"):
        attlm.convert([["a", "b"]], "out.jsonl", "jsonl", scores={"qe": {0: -5.0, 1: -7.0}})


def test_beams_by_name_are_refused_and_objects_have_their_scores():
    class Beam:
        def __init__(self, text: str, logit_score: float, lm_score: float) -> None:
            self.text, self.logit_score, self.lm_score = text, logit_score, lm_score

    with pytest.raises(InputError, match="from_beams: found a dict: expected a list with one result per utterance"):
        attlm.from_beams({"u1": [("a", -1.0)]})
    [nbest] = attlm.from_beams([Beam("a", -1.0, -0.5), Beam("b", -2.0, -1.0)])
    assert [one.text for one in attlm.from_beams([nbest.hypotheses])[0].hypotheses] == ["a", "b"]
    with pytest.raises(InputError, match="from_beams: found a NoneType: expected a beam with a text"):
        attlm.from_beams([None])
    assert [one.scores for one in nbest.hypotheses] == [{"logit_score": -1.0, "score": -0.5}, {"logit_score": -2.0, "score": -1.0}]


@pytest.mark.parametrize("name", ["hyp_wer", "wer_percent", "WER%", "edit_distance", "num_errors", "Sentence BLEU"])
def test_what_was_measured_against_the_reference_is_no_score(name):
    write(table=f"id,hyp,am,{name}\nu1,a,-1,0.5\nu1,b,-2,0\n")
    told = run("rescore", "table", "--weight", "am=1").stderr
    assert f"'{name}' of a hypothesis is taken for a measurement against the reference" in told
    assert [one.scores for one in attlm.read_nbest("table")[0].hypotheses] == [{"am": -1.0}, {"am": -2.0}]
    write(predicted="id,hyp,predicted_wer,mbr_bleu,ngram_ter\nu1,a,0.5,1.5,2.5\nu1,b,0,1,2\n")
    assert attlm.read_nbest("predicted")[0].hypotheses[0].scores == {"predicted_wer": 0.5, "mbr_bleu": 1.5, "ngram_ter": 2.5}


@pytest.mark.parametrize("name", ["own", "by_id"])
def test_a_cost_under_scores_keeps_its_sign_with_a_warning(name):
    hyps = [{"text": text, "scores": {"am_cost": cost}} for text, cost in (("a b", 3.0), ("a c", 5.0))]
    write(own=json.dumps({"id": "u", "hyps": hyps}), by_id=json.dumps({"u": hyps}))
    write(below_zero='{"u": [{"text": "a b", "scores": {"cost": -3.0}}, {"text": "a c", "scores": {"cost": 0}}]}')  # as `attlm` writes it
    told = run("convert", name, "--to", "jsonl")
    assert "under scores, larger is better: 'am_cost' keeps its sign there" in told.stderr
    assert json.loads(told.stdout)["hyps"] == hyps
    assert "WARNING" not in run("convert", "below_zero", "--to", "jsonl").stderr


@pytest.mark.parametrize(
    "text",
    [
        '[["utt1", [["a b", -1.0], ["a c", -1.5]]], ["utt2", [["d", -1.0]]]]',
        '[["utt1", ["a b", "a c"]], ["utt2", ["d", "e f"]]]',
        '[["utt1", [{"text": "a", "score": -1}]], ["utt2", [{"text": "b", "score": -1}]]]',
    ],
)
def test_pairs_of_an_id_and_hypotheses_are_no_hypotheses(text):
    write(pairs=text)
    assert "a pair of an id and a list: expected an object by id" in refused("convert", "pairs", "--to", "jsonl")


def test_texts_with_other_lists_are_no_pairs_of_ids():
    write(tokens='[["a b", ["a", "b"]], ["a c", ["a", "c"]]]', words='[["a b", [["a", [0, 1]], ["b", [1, 2]]]]]')
    write(sure='[["a b", [["a", 0.9], ["b", 0.8]]]]', listed='[[["a b", [["a", 0.9], ["x", 0.8]]]]]', by_id='{"u": [["a b", ["a b"]]]}')
    for name in ("tokens", "words", "sure", "listed", "by_id"):
        assert json.loads(run("convert", name, "--to", "jsonl").stdout)["hyps"][0]["text"] == "a b"


def test_the_numbers_of_tokens_next_to_a_text_are_told():
    write(lists='{"u": [["a b", [-1, -2]], ["a c", [-2, -3]]]}')
    assert "a list of numbers next to the text of a hypothesis is not read" in run("convert", "lists", "--to", "jsonl").stderr


@pytest.mark.parametrize(("best", "told"), [("A B.", False), ("x", True), ("", False)])
@pytest.mark.parametrize("name", ["text", "pred_text"])
def test_a_best_text_apart_from_the_list_is_told(name, best, told):
    write(lists=json.dumps({"id": "u", "ref": "x", name: best, "nbest": ["a b", "a c"]}))
    told_of = "is not read: it is none of the hypotheses of 'nbest' in some list"
    assert (f"WARNING: lists: {name!r} {told_of}" in run("eval", "lists").stderr) == told
    write(manifest=json.dumps({"audio_filepath": "u", "text": best, "nbest": ["a b", "a c"]}))  # its reference
    assert told_of not in run("eval", "manifest").stderr


def test_scores_in_lists_by_name_are_refused_and_lists_of_other_names_told():
    hyps = {"id": "u", "ref": "a b", "hyps": ["a b", "a c"]}
    write(named=json.dumps(hyps | {"scores": {"am": [-1, -2], "lm": [-3, -4]}}))
    assert 'id "u"): scores is \'{"am": [-1, -2], "lm": [-3, -4]}\': expected the scores in each hypothesis' in refused("eval", "named")
    write(am=json.dumps(hyps | {"am": [-1, -2], "lm_score": None}), both=json.dumps(hyps | {"am": [-1, -2], "score": [-3, -4]}))
    write(other=json.dumps(hyps | {"scores": {"errors": [1, 2, 3]}}))
    run("eval", "other")
    told = "'am' is not read: its name is not that of a score. If it is one for each hypothesis, call it 'am_score'"
    assert told in run("eval", "am").stderr
    assert told not in run("eval", "both").stderr


@pytest.mark.parametrize("name", ["json", "jsonl"])
def test_the_words_of_a_reference_are_not_references_without_a_warning(name):
    hyps = ["a b c", "a"] if name == "json" else [{"text": "a b c", "scores": {}}, {"text": "a", "scores": {}}]
    told = "a list of words is read as that many references"
    for references, expected in ((["a", "b", "c"], True), (["a b c", "a"], False), (["d", "e"], False), (["a", "e"], False), ("a", False)):
        write(lists=json.dumps({"id": "u", "ref": references, "hyps": hyps}))
        assert (f"WARNING: lists: {told}" in run("eval", "lists").stderr) == expected


def test_lists_of_tokens_next_to_an_id_are_hypotheses_of_one_utterance():
    write(one='{"id": "u1", "hyps": [["hello", "world"], ["hello", "word"]]}', several='{"hyps": [["hello", "world"], ["word", "a"]]}')
    (nbest,) = attlm.read_nbest("one")
    assert (nbest.id, [one.text for one in nbest.hypotheses]) == ("u1", ["hello world", "hello word"])
    assert [[one.text for one in nbest.hypotheses] for nbest in attlm.read_nbest("several")] == [["hello", "world"], ["word", "a"]]
    write(named='{"file": "dev", "hyps": [["hello you", "world"], ["word", "a"]]}')
    assert "the utterance 'dev' is there twice" in refused("convert", "named", "--to", "jsonl")


def test_a_number_is_no_reference():
    write(lists='{"id": "u", "ref": 12, "hyps": ["12", "twelve"]}\n', none='{"id": "u", "ref": null, "hyps": ["12", "twelve"]}\n')
    for options in ((), ("--partial-refs",)):
        assert "ref is '12': expected a text" in refused("eval", "lists", *options)
    assert "leaves out" not in run("convert", "none", "--to", "jsonl").stderr
    for more in ('"ref": 17, "target": "12"', '"refs": 2, "reference": "12"'):
        write(lists=f'{{"id": "u", {more}, "hyps": ["12", "twelve"]}}')
        assert wer("lists") == 0
    write(missing='{"id": "u", "ref": NaN, "hyps": ["12", "twelve"]}')
    assert "has no reference" in refused("eval", "missing")


def test_nemo_lists_with_whole_numbers_need_a_beam_size_all_the_same():
    write(nemo="show me\t-7\nshow\t-12\n", text="utt 1\t7\nutt 2\t12\n", ids="utt1\t-7\nutt2\t-12\n")
    assert "--format nemo:K" in refused("convert", "nemo", "--to", "jsonl")
    for name in ("text", "ids"):
        assert json.loads(run("convert", name, "--to", "jsonl").stdout.splitlines()[0])["id"].startswith("utt")
