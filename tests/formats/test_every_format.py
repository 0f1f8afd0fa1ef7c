"""What has to hold for every format alike."""

from __future__ import annotations

import random

import pytest
from nbest_samples import ALL_SAMPLES, read, write

from attlm_fairseq.nbest.formats import FORMATS, open_nbest

samples = pytest.mark.parametrize(("name", "sample"), ALL_SAMPLES)


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
    again = read(write(lists, name), name)
    assert [nbest.id for nbest in again] == [nbest.id for nbest in lists]
    assert [nbest.references for nbest in again] == [nbest.references for nbest in lists]
    for old, new in zip(lists, again, strict=True):
        assert [hypothesis.text for hypothesis in new.hypotheses] == [hypothesis.text for hypothesis in old.hypotheses]
        for before, after in zip(old.hypotheses, new.hypotheses, strict=True):
            if FORMATS[name].has_scores:
                kept = {key: value for key, value in before.scores.items() if key not in ("decoder", "H")}
                assert {key: after.scores[key] for key in kept} == kept
                added = {key: value for key, value in after.scores.items() if key not in before.scores}
                assert sorted(added.values()) == pytest.approx(sorted([-0.5 * before.rank, -1.25]))
            else:
                assert after.scores == {}


@samples
def test_the_lists_may_be_cut_and_dropped(name, sample):
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
    assert open_nbest(str(path))[0].name == name
    assert [other.name for other in FORMATS.values() if other.matches(sample)] == [name]


@samples
def test_every_format_can_become_jsonl(name, sample):
    lists = read(sample, name)
    again = read(write(lists, "jsonl"), "jsonl")
    assert [(n.id, n.references, [(h.text, h.scores) for h in n.hypotheses]) for n in again] == [
        (n.id, n.references, [(h.text, h.scores) for h in n.hypotheses]) for n in lists
    ]
