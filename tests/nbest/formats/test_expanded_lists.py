"""Lists that new hypotheses and scores have joined, as corrections expand them: what else their file says of them stays."""

from __future__ import annotations

import json

import pytest
from nbest_samples import ALL_SAMPLES, CSV, GENERATE_BATCH, GENERATE_FLAT, HYPORADISE, JSONL, ROWS, TSV, read, write

import attlm_fairseq as attlm
from attlm_fairseq.nbest.formats import find_format, write_nbest
from attlm_fairseq.nbest.formats.as_read import expanded_for, is_expanded
from attlm_fairseq.nbest.nbest_list import Hypothesis

KEPT = [(name, sample) for name, sample in ALL_SAMPLES if name in ("jsonl", "json", "hyporadise", "csv", "tsv")]
NEW = {"corrections": -1.5, "duration": -2.5, "cost": -0.5}  # the second is no score by its name, the third is read with the other sign


def expanded(sample, name, new=NEW):
    """Return the lists of a file, as ``corrections.expand`` returns them."""
    lists = read(sample, name)
    for nbest in lists:
        for hypothesis in nbest.hypotheses:
            hypothesis.scores = hypothesis.scores | new
        best = nbest.hypotheses[0]
        nbest.hypotheses.append(Hypothesis(f'{best.text} "new"', dict(best.scores), len(nbest.hypotheses) + 1))
    return lists


def scores_of(lists):
    return [[sorted(hypothesis.scores.values()) for hypothesis in nbest.hypotheses] for nbest in lists]


def texts(lists):
    return [(nbest.id, list(nbest.references), [hypothesis.text for hypothesis in nbest.hypotheses]) for nbest in lists]


@pytest.mark.parametrize(("name", "sample"), KEPT, ids=[f"{name}-{i}" for i, (name, _) in enumerate(KEPT)])
@pytest.mark.parametrize("rescored", [False, True])
def test_they_read_back_as_they_were(name, sample, rescored):
    lists = expanded(sample, name)
    for nbest in lists if rescored else ():
        nbest.hypotheses.reverse()
        for hypothesis in nbest.hypotheses:
            hypothesis.lm_scores, hypothesis.total = {"lm": -7.25}, -8.0
    again = read(write(list(expanded_for(lists, find_format(name).keeps)), name), name)
    assert texts(again) == texts(lists)
    more = [-7.25] if rescored else []
    assert scores_of(again) == [[sorted(scores + more) for scores in of_list] for of_list in scores_of(lists)]


@pytest.mark.parametrize(("name", "sample"), KEPT, ids=[f"{name}-{i}" for i, (name, _) in enumerate(KEPT)])
def test_the_scores_keep_their_names(name, sample):
    """A new hypothesis has the scores of the others under their names: tuned weights are of names."""
    lists = expanded(sample, name, {"corrections": -1.5})
    assert all(map(is_expanded, lists))
    again = read(write(list(expanded_for(lists, find_format(name).keeps)), name), name)
    for nbest in again:
        best, new = nbest.hypotheses[0], nbest.hypotheses[-1]
        assert new.scores.keys() == best.scores.keys()


def test_json_lines_stay_lines_with_all_their_fields(tmp_path):
    line = '{"utt": "u1", "audio": "a.wav", "nbest": [{"transcript": "a b", "am": -1.5, "words": [[0, 1]]}], "ref": "a c", "take": 2}\n'
    lists = expanded(line, "json", {"corrections": -0.5})
    written = json.loads(write(lists, "json"))
    best = {"transcript": "a b", "am": -1.5, "words": [[0, 1]], "corrections": -0.5}
    new = {"transcript": 'a b "new"', "am": -1.5, "corrections": -0.5}
    assert written == {"utt": "u1", "audio": "a.wav", "nbest": [best, new], "ref": "a c", "take": 2}


def test_texts_with_columns_of_scores_become_objects():
    sample = '{"id": "u1", "audio": "a.wav", "hyps": ["a b", "a"], "scores": [-1, -2], "timesteps": [[1, 2], [1]]}\n'
    written = json.loads(write(expanded(sample, "json", {}), "json"))
    hyps = [{"text": "a b", "score": -1.0}, {"text": "a", "score": -2.0}, {"text": 'a b "new"', "score": -1.0}]
    assert written == {"id": "u1", "audio": "a.wav", "hyps": hyps}


def test_rows_get_rows_with_what_is_the_same_in_all_of_them():
    table = "utt,audio,hyp,am,frames,how\nu1,a.wav,a b,-1,30,best\nu1,a.wav,a,-2,30,\nu2,b.wav,c,-3,20,best\n"
    written = write(expanded(table, "csv", {}), "csv")
    assert written == (
        "utt,audio,hyp,am,frames,how\nu1,a.wav,a b,-1,30,best\nu1,a.wav,a,-2,30,\n"
        'u1,a.wav,"a b ""new""",-1.0,,\nu2,b.wav,c,-3,20,best\nu2,,"c ""new""",-3.0,,\n'
    )
    rows = '{"utt": "u1", "audio": "a.wav", "hyp": "a b", "am": -1}\n{"utt": "u1", "audio": "a.wav", "hyp": "a", "am": -2}\n'
    *same, new = write(expanded(rows, "json", {}), "json").splitlines()
    assert same == rows.splitlines()
    assert json.loads(new) == {"utt": "u1", "audio": "a.wav", "hyp": 'a b "new"', "am": -1.0}


def test_costs_keep_their_sign():
    assert write(expanded("utt,hyp,cost\nu1,a,2\n", "csv", {}), "csv") == 'utt,hyp,cost\nu1,a,2\nu1,"a ""new""",2.0\n'
    assert read(write(expanded('{"utt": "u1", "nbest": [{"text": "a", "cost": 2}]}', "json", {}), "json"), "json")[0].hypotheses[
        1
    ].scores == {"cost": -2.0}


@pytest.mark.parametrize(("name", "sample"), [("json", GENERATE_BATCH), ("json", GENERATE_FLAT), ("json", '{"hyp": "a"}\n{"hyp": "b"}\n')])
def test_what_cannot_take_hypotheses_is_written_anew(name, sample):
    lists = expanded(sample, name)
    assert not any(map(find_format(name).keeps, lists))
    assert texts(read(write(list(expanded_for(lists, find_format(name).keeps)), name), name)) == texts(lists)


def test_an_earlier_total_is_not_that_of_new_hypotheses():
    sample = '[{"id": "u1", "input": ["a b", "a"], "am_score": [-1, -2], "total_score": [-3, -4], "audio": "a.wav"}]'
    assert json.loads(write(expanded(sample, "hyporadise", {}), "hyporadise")) == [
        {"id": "u1", "input": ["a b", "a", 'a b "new"'], "am_score": [-1, -2, -1.0], "audio": "a.wav"}
    ]


@pytest.mark.parametrize(("name", "sample"), [("jsonl", JSONL), ("json", ROWS), ("hyporadise", HYPORADISE), ("csv", CSV), ("tsv", TSV)])
def test_a_hypothesis_that_was_changed_makes_a_new_list(name, sample, tmp_path):
    lists = expanded(sample, name)
    lists[0].hypotheses[0].text = "changed"
    assert not is_expanded(lists[0])
    write_nbest(lists, find_format(name), str(tmp_path / "out"))
    assert texts(attlm.read_nbest(tmp_path / "out", format=name)) == texts(lists)


def test_sequences_of_lists_are_written_in_place(tmp_path):
    lists = expanded(JSONL, "jsonl", {})
    attlm.write_nbest(lists, tmp_path / "out.jsonl")
    lines = [[line for line in text.splitlines() if line] for text in (JSONL, (tmp_path / "out.jsonl").read_text(encoding="utf-8"))]
    for before, after in zip(*lines, strict=True):
        old, new = json.loads(before), json.loads(after)
        assert new.keys() == old.keys()
        assert new["hyps"][:-1] == old["hyps"]
