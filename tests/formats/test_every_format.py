"""What has to hold for every format alike."""

from __future__ import annotations

import random

import pytest
from nbest_samples import ALL_SAMPLES, read, write

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.formats import FOLDER_FORMATS, FORMATS, find_format, open_nbest

samples = pytest.mark.parametrize(("name", "sample"), ALL_SAMPLES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(ALL_SAMPLES)])


@samples
def test_unchanged_lists_come_back_byte_for_byte(name, sample):
    for text in (sample, "\ufeff" + sample, sample.rstrip("\n"), sample.replace("\n", "\r\n")):
        lists = read(text, name)
        assert write(lists, name) == text
        assert [hypothesis.rank for hypothesis in lists[0].hypotheses] == list(range(1, len(lists[0].hypotheses) + 1))


@samples
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_reordered_and_rescored_lists_read_back_as_such(name, sample, end):
    text = sample.replace("\n", end) if end else sample.rstrip("\n")
    lists = read(text, name)
    generator = random.Random(4)
    for nbest in lists:
        generator.shuffle(nbest.hypotheses)
        for hypothesis in nbest.hypotheses:
            hypothesis.lm_scores = {"att-lm": -0.5 * hypothesis.rank, "lm": -1.25}
            hypothesis.total = -2.5 * hypothesis.rank
    written = write(lists, name)
    assert name == "nemo:2" or next(other for other, form in FORMATS.items() if other != "espnet" and form.matches(written)) == name
    again = read(written, name)
    assert [nbest.id for nbest in again] == [nbest.id for nbest in lists]
    assert [nbest.references for nbest in again] == [nbest.references for nbest in lists]
    for old, new in zip(lists, again, strict=True):
        assert [hypothesis.text for hypothesis in new.hypotheses] == [hypothesis.text for hypothesis in old.hypotheses]
        for before, after in zip(old.hypotheses, new.hypotheses, strict=True):
            if find_format(name).has_scores:
                assert {key: after.scores[key] for key in before.scores} == before.scores
                added = {key: value for key, value in after.scores.items() if key not in before.scores}
                assert sorted(added.values()) == pytest.approx(sorted([-0.5 * before.rank, -1.25]))
            else:
                assert after.scores == before.scores


@pytest.mark.parametrize(("name", "sample"), [(name, sample) for name, sample in ALL_SAMPLES if name != "nemo:2"])
def test_lists_may_be_cut_dropped_and_put_in_another_order(name, sample):
    lists = read(sample, name)[::-1]
    for nbest in lists:
        del nbest.hypotheses[2:]
        nbest.hypotheses.reverse()
    again = read(write(lists, name), name)
    texts = [[hypothesis.text for hypothesis in nbest.hypotheses] for nbest in lists]
    assert [[hypothesis.text for hypothesis in nbest.hypotheses] for nbest in again] == texts
    assert len(read(write(lists[:1], name), name)) == 1


@samples
def test_recognised_by_content_and_taken_for_no_other(name, sample, tmp_path):
    path = tmp_path / "list"
    path.write_text(sample, encoding="utf-8")
    if name == "nemo:2":
        with pytest.raises(InputError, match="--format nemo:BEAM"):
            open_nbest(str(path))
    else:
        assert open_nbest(str(path))[0].name == name
    takers = [other for other, form in FORMATS.items() if other != "espnet" and form.matches(sample)]
    assert takers == ([name] if name != "nemo:2" else ["nemo", "plain"])  # nemo is tried first


@samples
def test_every_format_can_become_jsonl(name, sample):
    lists = read(sample, name)
    again = read(write(lists, "jsonl"), "jsonl")
    assert [(n.id, n.references, [(h.text, h.scores) for h in n.hypotheses]) for n in again] == [
        (n.id, n.references, [(h.text, h.scores) for h in n.hypotheses]) for n in lists
    ]


@samples
@pytest.mark.parametrize("target", ["moses", "plain", "kaldi"])
def test_the_line_formats_can_hold_lists_of_others(name, sample, target):
    lists = [nbest for nbest in read(sample, name) if " " not in nbest.id]
    for nbest in lists:
        for hypothesis in nbest.hypotheses:
            hypothesis.lm_scores = {"lm": -1.5}
            hypothesis.total = -2.0
    again = read(write(lists, target), target)
    assert [nbest.id for nbest in again] == [nbest.id for nbest in lists]
    for old, new in zip(lists, again, strict=True):
        assert [h.text.split() for h in new.hypotheses] == [h.text.split() for h in old.hypotheses]
        if target == "moses":
            assert all(-1.5 in h.scores.values() and " ||| -2.000000" in h.verbatim for h in new.hypotheses)
            # the total is no score, and what the decoder wrote is
            decoders = [h.scores.get("decoder", 0.0) for h in old.hypotheses]
            assert [h.scores["decoder"] for h in new.hypotheses] == pytest.approx(decoders, abs=1e-6)


@pytest.mark.parametrize("target", ["fairseq", "hyporadise", "mlm", "srilm", "nemo:2"])
def test_a_format_that_cannot_hold_foreign_lists_says_so(target):
    with pytest.raises(InputError, match=r"list u1: only a list read from \w+ can be written as \w+; write jsonl instead"):
        write(read("u1\ta b\n", "plain"), target)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "espnet"])
def test_a_file_without_a_list_is_an_error(name):
    for text in ("\n", " \r\n\r\n", *(["[]", "{}"] if name in ("hyporadise", "mlm", "jsonl") else [])):
        with pytest.raises(InputError, match=r"^FILE:"):
            read(text, "nemo:2" if name == "nemo" else name)


def test_the_names_of_the_registry_are_those_of_the_formats():
    assert all(form.name == name for name, form in [*FORMATS.items(), *FOLDER_FORMATS.items()])
    assert set(FORMATS) == {"moses", "fairseq", "hyporadise", "jsonl", "plain", "kaldi", "mlm", "espnet", "srilm", "nemo"}
    assert find_format("nemo:8").beam == 8
    for name in ("nemo:0", "nemo:x", "csv", ""):
        with pytest.raises(InputError, match="unknown n-best format"):
            find_format(name)
