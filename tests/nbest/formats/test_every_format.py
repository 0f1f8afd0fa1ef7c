"""What has to hold for every format alike."""

from __future__ import annotations

import json
import random

import pytest
from nbest_samples import ALL_SAMPLES, BARE_LISTS, CSV, FAIRSEQ, KALDI, MLM, MOSES, NEMO, ROWS, read, write

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.formats import CONVERTIBLE, FOLDER_FORMATS, FORMATS, find_format, open_nbest
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

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
    assert ":" in name or next(other for other, form in FORMATS.items() if other != "espnet" and form.matches(written)) == name
    again = read(written, name)
    assert [nbest.id for nbest in again] == [nbest.id for nbest in lists]
    assert [nbest.references for nbest in again] == [nbest.references for nbest in lists]
    for old, new in zip(lists, again, strict=True):
        assert [hypothesis.text for hypothesis in new.hypotheses] == [hypothesis.text for hypothesis in old.hypotheses]
        for before, after in zip(old.hypotheses, new.hypotheses, strict=True):
            if find_format(name).has_scores and sample not in BARE_LISTS:
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
    if name == "plain:2":
        assert open_nbest(str(path))[0].name == "plain"
        return
    if name == "nemo:2":
        with pytest.raises(InputError, match="--format nemo:K"):
            open_nbest(str(path))
    else:
        assert open_nbest(str(path))[0].name == name
    takers = [other for other, form in FORMATS.items() if other != "espnet" and form.matches(sample)]
    expected = {"nemo:2": ["nemo", "plain"], "tsv": ["tsv", "plain"]}.get(name, [name])  # in the order in which they are tried
    assert [taker for taker in takers if taker != "json" or name == "json"] == expected  # json takes all JSON, after the others


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
        nbest.sparse = nbest.sparse or target == "moses"  # which has no other lists
        for hypothesis in nbest.hypotheses:
            hypothesis.lm_scores = {"lm": -1.5}
            hypothesis.total = -2.0
    again = read(write(lists, target), target)
    assert [nbest.id for nbest in again] == [nbest.id for nbest in lists]
    for old, new in zip(lists, again, strict=True):
        assert [h.text.split() for h in new.hypotheses] == [h.text.split() for h in old.hypotheses]
        if target == "moses":
            assert all(-1.5 in h.scores.values() and " ||| -2.000000" in h.verbatim.own for h in new.hypotheses)
            # the total is not a score, and what the decoder wrote is
            decoders = [h.scores.get("decoder") for h in old.hypotheses]
            assert [h.scores.get("decoder") for h in new.hypotheses] == pytest.approx(decoders, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "sample"), [("moses", MOSES), ("csv", CSV), ("json", ROWS), ("mlm", MLM), ("fairseq", FAIRSEQ), ("kaldi", KALDI)]
)
def test_lists_of_two_files_with_the_same_ids_are_refused(name, sample):
    with pytest.raises(InputError, match=f"two lists have the id .*: {name} needs a different id for each list"):
        write(read(sample, name) + read(sample, name), name)


@pytest.mark.parametrize(
    ("name", "sample"),
    [
        ("jsonl", '{"id": "u1", "hyps": [{"text": "a"}]}\n{"id": "u1", "hyps": [{"text": "b"}]}\n'),
        ("hyporadise", '[{"id": "u1", "input": ["a"]},\n{"id": "u1", "input": ["b"]}]'),
    ],
)
def test_lists_with_one_id_come_back_from_a_format_that_holds_them(name, sample):
    assert write(read(sample, name), name) == sample


def test_lists_without_ids_may_come_from_two_files():
    assert write(read(NEMO, "nemo:2") + read(NEMO, "nemo:2"), "nemo:2") == NEMO + NEMO
    assert write(read("a\nb\n\nc\n", "plain") + read("d\n\ne\n", "plain"), "plain") == "a\nb\n\nc\n\nd\n\ne\n"


SPARSE = (
    "0 ||| a b ||| LM0= -1.0 TM0= -1 -2 wt_.~.= 1 wt_,~,= 2 ||| -3\n"
    "0 ||| a c ||| LM0= -1.5 TM0= -1 -3 wt_,~,= 5 ||| -4\n"
    "1 ||| d ||| LM0= -2.0 TM0= -2 -4 ||| -5\n"
)


def test_sparse_scores_survive_other_formats():
    lists = read(SPARSE, "moses")
    as_jsonl = write(lists, "jsonl")
    again = read(as_jsonl, "jsonl")
    assert [nbest.sparse for nbest in again] == [True, True]
    assert [h.scores for nbest in again for h in nbest.hypotheses] == [h.scores for nbest in lists for h in nbest.hypotheses]
    back = read(write(again, "moses"), "moses")
    # one name for a feature in all lines, several values as one feature
    names = {"LM0": "LM0", "TM0.1": "TM0.1", "TM0.2": "TM0.2", "wt_.~.": "wt", "wt_,~,": "wt2", "decoder": "decoder"}
    for old, new in zip(lists, back, strict=True):
        expected = [{names[name]: value for name, value in h.scores.items()} for h in old.hypotheses]
        assert [h.scores for h in new.hypotheses] == expected


def test_moses_cannot_tell_a_missing_score_from_a_0():
    lists = read('{"id": "u1", "hyps": [{"text": "a", "scores": {"am": -100, "lm": -3}}, {"text": "b", "scores": {"lm": -4}}]}\n', "jsonl")
    with pytest.raises(InputError, match=r"list u1, hypothesis 2 has no score am, which others .*: in Moses' format it would be a 0"):
        write(lists, "moses")
    with pytest.raises(InputError, match=r"list 0 \(id .*\): sparse is .* expected true or false"):
        read('{"id": "u1", "sparse": "yes", "hyps": [{"text": "a"}]}\n', "jsonl")


@pytest.mark.parametrize(
    ("second", "message"),
    [({}, "has no score am, which others have"), ({"am": -1.0, "lm": -2.0}, "has a score lm, which others lack")],
)
def test_moses_has_the_same_scores_in_all_lists(second, message):
    lists = [NbestList(name, [Hypothesis("x", scores, 1)]) for name, scores in (("a", {"am": -1.0}), ("b", second))]
    with pytest.raises(InputError, match=f"list b, hypothesis 1 {message}"):
        write(lists, "moses")
    lists[1].sparse = True
    assert not second or write(lists, "moses").endswith("b ||| x ||| am= -1.000000 lm= -2.000000\n")


def test_a_flat_batch_keeps_lists_that_belong_to_utterances():
    batch = {"texts": ["a", "b", "c", "d"], "num_return_sequences": 2, "references": [["r1", "r2", "r3"], ["s1", "s2", "s3"]]}
    lists = read(json.dumps(batch), "json")
    lists[0].hypotheses.reverse()
    for nbest in lists:
        for hypothesis in nbest.hypotheses:
            hypothesis.lm_scores = {"lm": -1.0}
    again = json.loads(write(lists, "json"))
    assert again == batch | {"texts": ["b", "a", "c", "d"], "lm_score": [-1.0] * 4}


def test_a_feature_that_bears_the_name_of_an_lm_in_later_lines():
    text = "0 ||| a ||| tm= -1 ||| -3\n1 ||| b ||| tm= -1 lm= 5 ||| -3\n2 ||| c ||| tm= -1 ||| -3\n"
    lists = read(text, "moses")
    for nbest in lists:
        nbest.hypotheses[0].lm_scores = {"lm": -1.5}
    again = [nbest.hypotheses[0].scores for nbest in read(write(lists, "moses"), "moses")]
    assert [(scores.get("lm"), scores.get("lm2")) for scores in again] == [(-1.5, None), (5, -1.5), (None, -1.5)]
    again = [nbest.hypotheses[0].scores for nbest in read(write(lists[1:], "moses"), "moses")]
    assert [scores["lm2"] for scores in again] == [-1.5, -1.5]


@pytest.mark.parametrize("target", ["fairseq", "srilm", "icefall"])
def test_a_format_that_cannot_hold_foreign_lists_says_so(target):
    with pytest.raises(
        InputError, match=r"list u1: only a list that was read from (\w+), with .* unchanged, can be written as \1; write jsonl instead"
    ):
        write(read("u1\ta b\n", "plain"), target)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "espnet"])
def test_a_file_without_a_list_is_an_error(name):
    for text in ("\n", " \r\n\r\n", *(["[]", "{}"] if name in ("hyporadise", "mlm", "jsonl") else [])):
        with pytest.raises(InputError, match=r"^FILE:"):
            read(text, "nemo:2" if name == "nemo" else name)


@pytest.mark.parametrize(
    "text",
    [
        "u1\ta\t-1\nu1\t7\t-2\n",  # one text of digits among others
        "u1\t-1\ta\nu1\t-2\t\n",
        "u-1\ta\t-1\nu-1\tb\t-2\n",  # a key as Kaldi's
    ],
)
def test_a_table_needs_no_header_if_its_columns_are_clear(text, tmp_path):
    (tmp_path / "list").write_text(text)
    form, lists = open_nbest(str(tmp_path / "list"))
    (nbest,) = lists
    assert (form.name, [h.scores for h in nbest.hypotheses]) == ("tsv", [{"score": -1}, {"score": -2}])
    assert nbest.hypotheses[0].text == "a"
    nbest.hypotheses[0].total = nbest.hypotheses[1].total = 0.5
    assert write([nbest], "tsv").splitlines()[0] in ("id\ttext\tscore\ttotal", "id\tscore\ttext\ttotal")


@pytest.mark.parametrize(
    "text",
    [
        "u1\t7\t-1\n",
        "u1\ta\t-1\nu1\tb\n",
        "u1\ta\tb\n",
        "u1\ta\t-1\t-2\n",
        "a b\tu1\t-1\n",
        "utt_nr\tbest\tprob\nu1\ta\t-1\n",
        "u1\ta\nu1\tb\t-1\n",
    ],
)
def test_a_table_of_unclear_columns_is_never_read_as_texts(text, tmp_path):
    (tmp_path / "list").write_text(text)
    with pytest.raises(
        InputError, match=r"expected id<TAB>text; a table of more columns needs a header line, such as id<TAB>hyp<TAB>score"
    ):
        list(open_nbest(str(tmp_path / "list"))[1])


TEXTS = {"0": "a b", "1": "", "2": "c"}


@pytest.mark.parametrize(
    ("name", "sample", "expected"),
    [
        ("text", "a b\n\nc\n", TEXTS),
        ("text", "\ufeffa b\r\n\r\nc", TEXTS),
        ("text", "u-1 a b\nu-2\nu-3\tc\n", {"u-1": "a b", "u-2": "", "u-3": "c"}),
        ("text", "a b (u-1)\n(u-2)\nc (u-3)\n", {"u-1": "a b", "u-2": "", "u-3": "c"}),
        ("text:order", "u-1 a\nu-2\n", {"0": "u-1 a", "1": "u-2"}),
        ("text:id", "x a\ny b\n", {"x": "a", "y": "b"}),
    ],
)
def test_one_text_per_line_is_a_list_of_one_hypothesis(name, sample, expected, tmp_path):
    (tmp_path / "list").write_bytes(sample.encode())
    form, lists = open_nbest(str(tmp_path / "list"), name)
    found = list(lists)
    assert {nbest.id: [h.text for h in nbest.hypotheses] for nbest in found} == {key: [text] for key, text in expected.items()}
    assert [nbest.line for nbest in found] == list(range(1, len(expected) + 1))
    assert write(found, form.name) == sample
    found[0].hypotheses.append(found[0].hypotheses[0])
    with pytest.raises(InputError, match="has 2 hypotheses: text has one per line; write jsonl instead"):
        write(found, form.name)


@pytest.mark.parametrize(
    ("name", "sample", "message"),
    [
        ("text:id", "x a\n\n", "not every line carries an id: expected 'id text' or 'text \\(id\\)'"),
        ("text:id", "x a\nx b\n", "the id 'x' is there 2 times: expected each id once; --format text:order"),
        ("text", "\n\n", "nothing but blank lines: expected one text per line"),
    ],
)
def test_texts_that_are_refused(name, sample, message):
    with pytest.raises(InputError, match=f"^FILE: {message}"):
        read(sample, name)


@pytest.mark.parametrize("target", sorted(name for name in CONVERTIBLE if find_format(name).holds.references))
@pytest.mark.parametrize("references", [("x y",), ("x y", "x {z"), ()])
def test_what_a_format_writes_with_references_is_recognised_and_read(target, references, tmp_path):
    if target in ("csv", "tsv") and len(references) > 1:
        return  # one column of references
    lists = [NbestList(name, [Hypothesis("x y", {"am": -1.0}), Hypothesis("x z", {"am": -2.0})], references) for name in ("u1", "u2")]
    (tmp_path / "list").write_text(write(lists, target))
    form, again = open_nbest(str(tmp_path / "list"))
    assert form.name == target
    assert [nbest.references for nbest in again] == [references] * 2


def test_the_names_of_the_registry_are_those_of_the_formats():
    assert all(form.name == name for name, form in [*FORMATS.items(), *FOLDER_FORMATS.items()])
    others = {"json", "csv", "tsv", "icefall", "ctm", "text"}
    assert set(FORMATS) == {"moses", "fairseq", "hyporadise", "jsonl", "plain", "kaldi", "mlm", "espnet", "srilm", "nemo", *others}
    assert find_format("nemo:8").beam == 8
    for name in ("nemo:0", "nemo:x", "text:number", "csv9", ""):
        with pytest.raises(InputError, match="unknown n-best format"):
            find_format(name)
    with pytest.raises(InputError, match="the format moses takes no argument: found moses:3"):
        find_format("moses:3")


def test_utterances_by_id_one_of_which_is_called_like_what_holds_utterances():
    for results, ids in (
        ('{"u1": ["a", "b"], "items": ["c"], "z": ["d"]}', ["u1", "items", "z"]),
        ('{"items": [{"id": "u1", "text": "a"}, {"id": "u1", "text": "b"}], "status": "done"}', ["u1"]),
        ('{"items": [{"id": "u1", "text": "a"}, {"id": "u1", "text": "b"}]}', ["u1"]),
    ):
        assert [nbest.id for nbest in read(f'{{"results": {results}}}', "json")] == ids
