"""Lists of a file that a program has changed: their new content is written, not that of the file."""

from __future__ import annotations

import pytest
from nbest_samples import BY_ID, CSV, FAIRSEQ, HYPORADISE, JSONL, KALDI, MLM, MOSES, PLAIN_BLOCKS, ROWS, TSV, read, write

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.nbest.formats import find_format, write_nbest
from attlm_fairseq.nbest.formats.as_read import has_changed
from attlm_fairseq.nbest.formats.plain import PlainFormat
from attlm_fairseq.verbs.sources import with_sources

SAMPLES = {
    "moses": MOSES,
    "hyporadise": HYPORADISE,
    "jsonl": JSONL,
    "mlm": MLM,
    "json": BY_ID,
    "kaldi": KALDI,
    "plain": PLAIN_BLOCKS,
    "csv": CSV,
    "tsv": TSV,
}


def texts(lists):
    """The texts; a line of a new list has no tab in it."""
    return [[hypothesis.text.replace("\t", " ") for hypothesis in nbest.hypotheses] for nbest in lists]


def written(lists, name, tmp_path):
    write_nbest(lists, find_format(name), str(tmp_path / "out"))
    return attlm.read_nbest(tmp_path / "out", format=name)


@pytest.mark.parametrize("name", SAMPLES)
def test_changed_texts_are_written(name, tmp_path):
    lists = read(SAMPLES[name], name)
    for nbest in lists:
        for place, hypothesis in enumerate(nbest.hypotheses):
            hypothesis.text = f"new {place}"
    expected = texts(lists)
    assert all(map(has_changed, lists))
    assert texts(written(lists, name, tmp_path)) == expected


@pytest.mark.parametrize("name", SAMPLES)
def test_one_changed_list_changes_the_form_of_all(name, tmp_path):
    """Some formats cannot mix lists with and without the text of a file; Moses would call features by two names."""
    lists = read(SAMPLES[name], name)
    lists[-1].hypotheses[0].text = "new"
    found = written(lists, name, tmp_path)
    assert texts(found) == texts(lists)
    before, after = ([[len(hypothesis.scores) for hypothesis in nbest.hypotheses] for nbest in some] for some in (lists, found))
    assert after == before  # no score has got lost or another name in some of the lists


@pytest.mark.parametrize("name", ["moses", "hyporadise", "jsonl", "mlm", "csv", "tsv"])
def test_changed_scores_are_written(name, tmp_path):
    lists = read(SAMPLES[name], name)
    changed = next(iter(lists[0].hypotheses[0].scores))
    for nbest in lists:
        for hypothesis in nbest.hypotheses:
            hypothesis.scores = {score: value - 100 for score, value in hypothesis.scores.items()}
    expected = lists[0].hypotheses[0].scores[changed]
    found = written(lists, name, tmp_path)[0].hypotheses[0].scores
    assert any(value == pytest.approx(expected) for value in found.values())


@pytest.mark.parametrize("name", SAMPLES)
def test_hypotheses_of_two_files_in_one_list_are_all_written(name, tmp_path):
    ours, theirs = read(SAMPLES[name], name), read(SAMPLES[name], name)
    for own, other in zip(ours, theirs, strict=True):
        for place, hypothesis in enumerate(other.hypotheses):
            hypothesis.text = f"other {place}"
        own.hypotheses += other.hypotheses
    assert texts(written(ours, name, tmp_path)) == texts(ours)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_hypothesis_may_be_new_or_there_twice(name, tmp_path):
    lists = read(SAMPLES[name], name)
    lists[0].hypotheses.append(attlm.Hypothesis("new", dict(lists[0].hypotheses[0].scores), rank=2))
    lists[-1].hypotheses.append(lists[-1].hypotheses[0])
    assert texts(written(lists, name, tmp_path)) == texts(lists)


@pytest.mark.parametrize(("name", "sample"), [*SAMPLES.items(), ("fairseq", FAIRSEQ), ("json", ROWS)])
def test_order_and_number_of_hypotheses_are_no_changes(name, sample):
    lists = read(sample, name)
    for nbest in lists:
        nbest.hypotheses.reverse()
        for rank, hypothesis in enumerate(nbest.hypotheses, 1):
            hypothesis.rank = rank  # as `evaluate` and the other functions set it
    assert not any(map(has_changed, lists))
    reversed_texts = texts(lists)
    assert texts(read(write(lists, name), name)) == reversed_texts
    for nbest in lists:
        nbest.hypotheses.reverse()
    assert write(lists, name) == sample  # the same bytes, whatever the ranks


def test_a_format_for_its_own_lists_alone_refuses_changed_ones(tmp_path):
    lists = read(FAIRSEQ, "fairseq")
    lists[0].hypotheses[0].text = "new"
    with pytest.raises(InputError, match="with its id, texts and scores unchanged, can be written as fairseq"):
        written(lists, "fairseq", tmp_path)
    assert not (tmp_path / "out").exists()


def test_lists_that_are_read_on_demand_change_one_by_one(tmp_path):
    lists = read(JSONL, "jsonl")
    lists[0].hypotheses[0].text = "new"
    first, *others = write(lists, "jsonl").splitlines()
    assert '"new"' in first
    assert others == JSONL.splitlines()[1:]
    lists = read(MLM, "mlm")
    lists[0].id = "another"
    assert has_changed(lists[0])


@pytest.mark.parametrize("first", [0, 1])
def test_ranks_without_a_header_stay_ranks(first):
    table = "".join(f"u{n}\t{first + place}\t{text}\n" for n in (1, 2) for place, text in enumerate(("a b", "a", "b")))
    lists = read(table, "tsv")
    lists[0].hypotheses.reverse()
    lists[1].hypotheses.pop(0)
    again = read(write(lists, "tsv"), "tsv")
    assert texts(again) == [["b", "a", "a b"], ["a", "b"]]
    assert not any(hypothesis.scores for nbest in again for hypothesis in nbest.hypotheses)
    assert write(read(table, "tsv"), "tsv") == table


@pytest.mark.parametrize("name", ["jsonl", "json", "csv"])
def test_a_changed_source_sentence_is_written_and_one_of_the_run_is_not(name, tmp_path):
    lists = read(SAMPLES[name], name)
    given = with_sources(lists, [f"source {place}" for place, _ in enumerate(lists)])
    assert not any(map(has_changed, given))
    assert write(given, name) == write(lists, name)
    lists[0].source = "another"
    assert has_changed(lists[0])
    assert written(lists, name, tmp_path)[0].source == "another"
    lists[0].source = "source 0"  # that of the run, which these lists do not know
    assert has_changed(lists[0])


def test_a_format_gets_the_text_of_its_own_lists_alone(tmp_path):
    """So one of another package that writes `verbatim` where there is one writes no lines of another format."""

    class Own(PlainFormat):
        name = "own"

        def put(self, lists, out):
            out.writelines(
                "read\n" if nbest.verbatim is not None and hypothesis.verbatim is not None else f"{nbest.id} {hypothesis.text}\n"
                for nbest in lists
                for hypothesis in nbest.hypotheses
            )

    own = Own()
    write_nbest(read(MOSES, "moses")[:1], own, str(tmp_path / "out"))
    assert (tmp_path / "out").read_text().startswith("0 ")
    assert "read" not in (tmp_path / "out").read_text()
    write_nbest(list(own.read(TextSource("own", text=PLAIN_BLOCKS))), own, str(tmp_path / "out"))
    assert set((tmp_path / "out").read_text().split()) == {"read"}
