"""Tables: quotes, tables without a header, ranks, line ends, names of texts."""

from __future__ import annotations

import json

import pytest
from nbest_samples import read, write

from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.formats import keys, open_nbest
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

QUOTES = 'u1\t"hello" he said\t-1.0\nu1\t"hello"\t-1.5\nu1\tsay "hi" now\t-2.0\nu2\t"hi\t-2.0\nu2\t5" disk"\t-3.0\n'


def texts(lists: list[NbestList]) -> list[str]:
    return [hypothesis.text for nbest in lists for hypothesis in nbest.hypotheses]


def scored(lists: list[NbestList]) -> list[NbestList]:
    for nbest in lists:
        for hypothesis in nbest.hypotheses:
            hypothesis.lm_scores = {"lm": -0.5}
            hypothesis.total = -1.0
    return lists


def test_lines_of_tabs_alone_are_blank():
    for sample in ("\nu1\t-1.5\ta b\n\t\nu2\t-3\tc\n", "utt\ttext\tscore\nu1\ta b\t-1\n\t\t\nu2\tc\t-2\n\t\n"):
        lists = read(sample, "tsv")
        assert texts(lists) == ["a b", "c"]
        assert write(lists, "tsv") == sample
        assert texts(read(write(scored(lists), "tsv"), "tsv")) == ["a b", "c"]


def test_without_a_header_quotes_are_text(tmp_path):
    (tmp_path / "list").write_text(QUOTES)
    form, opened = open_nbest(str(tmp_path / "list"))
    lists = list(opened)
    expected = ['"hello" he said', '"hello"', 'say "hi" now', '"hi', '5" disk"']
    assert (form.name, texts(lists)) == ("tsv", expected)
    assert write(lists, "tsv") == QUOTES
    written = write(scored(lists), "tsv")
    assert 'u1\tsay "hi" now\t-2.0\t-0.5\t-1.0\n' in written  # only what begins with a quote needs some
    assert texts(read(written, "tsv")) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('u1\t"a\t-1\nu1\tb"\t-2\n', "FILE:2: a quote opens here and is closed on line 3: expected one line per row; a field that begins"),
        ('u1\t"a\t-1\nu1\tb\t-2\n', "FILE:2: not a row of a table: unexpected end of data; a field that begins with a quote needs quotes"),
    ],
)
def test_with_a_header_a_row_is_one_line(text, message):
    with pytest.raises(InputError, match=f"^{message}"):
        read("id\thyp\tscore\n" + text, "tsv")
    csv = "id,hyp,score\n" + 'u1,"a\nb",-1\n'
    assert texts(read(csv, "csv")) == ["a\nb"]


def test_line_breaks_become_spaces_in_a_table_with_tabs():
    lists = [NbestList("u1", [Hypothesis("a\nb\tc")], ("d\ne",))]
    assert write(lists, "tsv") == "id\thyp\tref\nu1\ta b c\td e\n"
    assert texts(read(write(lists, "csv"), "csv")) == ["a\nb\tc"]


@pytest.mark.parametrize(
    ("rows", "columns", "scores"),
    [
        ("u1\t1\tthe cat\nu1\t2\tthe mat\nu2\t1\ta\n", "id, rank, text", {}),
        ("u1\tthe cat\t0\nu1\tthe mat\t1\nu2\ta\t0\n", "id, text, rank", {}),
        ("u1\t1\tone alone\n", "id, rank, text", {}),
        ("u1\t2\tthe cat\nu1\t1\tthe mat\n", "id, score, text", {"score": 2.0}),  # best first: it goes down
        ("u1\t1\tthe cat\nu1\t2\tthe mat\nu2\t0\ta\n", "id, score, text", {"score": 1.0}),
        ("u1\t1\tthe cat\nu1\t3\tthe mat\n", "id, score, text", {"score": 1.0}),
        ("u1\tthe cat\t-1\n", "id, text, score", {"score": -1.0}),
    ],
)
def test_numbers_that_count_the_hypotheses_are_ranks(rows, columns, scores):
    with collected() as told:
        lists = read(rows, "tsv")
    assert told == [f"note: FILE has no header: read as {columns}"]
    assert lists[0].hypotheses[0].scores == scores
    again = read(write(scored(lists), "tsv"), "tsv")
    assert [hypothesis.scores for hypothesis in again[0].hypotheses] == [h.scores | {"lm": -0.5} for h in lists[0].hypotheses]


@pytest.mark.parametrize("last", ["\r\n", ""])
def test_line_ends_of_a_table_without_a_header_stay(last):
    lists = scored(read(f"u1\ta\t-1\r\n\r\nu1\tb\t-2{last}", "tsv"))
    lists[0].hypotheses.reverse()
    assert write(lists, "tsv") == "id\ttext\tscore\tlm\ttotal\r\nu1\tb\t-2\t-0.5\t-1.0\r\nu1\ta\t-1\t-0.5\t-1.0\r\n"


def test_rows_of_another_width():
    for header, where in (("", "the first rows"), ("id\thyp\tscore\n", "the header; a field with the separator needs quotes")):
        with pytest.raises(InputError, match=f"found 4 fields: expected 3 as in {where}$"):
            read(header + "u1\ta b\t-1\n" * 9000 + "u1\ta\tb\t-1\n", "tsv")


def test_the_reference_may_stand_in_any_row():
    assert [nbest.references for nbest in read("id,hyp,ref\nu1,a,\nu1,b,c\nu2,a,\n", "csv")] == [("c",), ()]


@pytest.mark.parametrize(
    ("name", "text", "expected", "references"),
    [
        ("csv", "id,text,display,score\nu1,a b,A b.,-1\n", "a b", ()),
        ("csv", "id,display,ref,score\nu1,A b.,a c,-1\n", "A b.", ("a c",)),
        ("json", '[{"id": "u1", "display": "A b.", "text": "a b"}]', "a b", ()),
        ("json", '[{"id": "u1", "nbest": [{"Display": "A b.", "Lexical": "a b"}]}]', "a b", ()),
    ],
)
def test_another_form_of_the_text_is_no_second_text(name, text, expected, references):
    (nbest,) = read(text, name)
    assert (nbest.hypotheses[0].text, nbest.references) == (expected, references)


SPELLED = "Utterance ID;Hypothesis;Acoustic Score;LM-Score;WER;Start Time\nu1;a b;-1.0;-2.0;3;5\nu1;a;-2.0;-1.0;0;5\n"


@pytest.mark.parametrize("lead", ["", "sep=;\n", "\ufeffsep=;\n", "\ufeff\nsep=;\n\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_columns_may_be_spelled_with_spaces_and_hyphens(tmp_path, lead, end):
    text = (lead + SPELLED).replace("\n", end)
    (tmp_path / "list").write_bytes(text.encode())
    form, opened = open_nbest(str(tmp_path / "list"))
    lists = list(opened)
    assert (form.name, [nbest.id for nbest in lists], texts(lists)) == ("csv", ["u1"], ["a b", "a"])
    assert lists[0].hypotheses[0].scores == {"Acoustic Score": -1.0, "LM-Score": -2.0}
    assert lists[0].verbatim.extras == ("WER", "Start Time")
    assert write(lists, "csv") == text
    written = write(scored(lists), "csv")
    assert written == text.replace(f"Time{end}", f"Time;lm;total{end}").replace(f";5{end}", f";5;-0.5;-1.0{end}")
    assert read(written, "csv")[0].hypotheses[0].scores == {"Acoustic Score": -1.0, "LM-Score": -2.0, "lm": -0.5}


@pytest.mark.parametrize("name", ["neg-logprob", "Start Time", "Avg Logprob", "WER", "Ref", "num tokens"])
def test_scores_come_back_whatever_their_name_would_mean_in_a_header(name):
    lists = [NbestList("u1", [Hypothesis("a", {name: -1.5})])]
    assert read(write(lists, "csv"), "csv")[0].hypotheses[0].scores == {f"{name}_score": -1.5}


@pytest.mark.parametrize("added", ["LM", "lm ", "Lm"])
def test_an_added_column_differs_from_those_read_in_more_than_case(added):
    lists = read("id,hyp,lm\nu1,a,-1\n", "csv")
    lists[0].hypotheses[0].lm_scores = {added: -0.5}
    assert sorted(read(write(lists, "csv"), "csv")[0].hypotheses[0].scores.values()) == [-1.0, -0.5]


COUNTED = [
    ("csv", ",id,hyp,am\n0,u1,a,-1.5\n1,u1,b,-2.5\n2,u2,c,-1.5\n"),  # pandas' to_csv
    ("csv", "Unnamed: 0,id,hyp,am\n4,u1,a,-1.5\n7,u1,b,-2.5\n9,u2,c,-1.5\n"),  # written from a part of a table and read again
    ("csv", "id,idx,hyp,am\nu0,0,x,-1\nu1,1,b,-1.5\nu1,0,a,-2.5\nu2,0,c,-1.5\n"),  # rescored: in another order
    ("csv", "id,hyp,place,am\n" + "".join(f"u{n},a,0,-1\nu{n},b,1,-2\n" for n in range(3))),
    ("csv", "hyp_id,id,hyp,am\n500,u0,x,-1.5\n"),  # the second part of a file
    ("csv", "hyp_id,id,hyp,am\n1,u1,a,-1.5\n2,u1,b,-2.5\n3,u2,c,-1.5\n4,u2,d,-1.5\n"),
    ("json", '{"id": "u1", "text": "a", "idx": 0, "am": -1.5}\n{"id": "u1", "text": "b", "idx": 1, "am": -2.5}\n'),
    ("json", '{"u0": [{"text": "a", "no": 1, "am": -1}], "u1": [{"text": "a", "no": 2, "am": -1.5}, {"text": "b", "no": 1, "am": -2.5}]}'),
]


def test_a_label_of_each_hypothesis_is_no_reference():
    with collected() as told:
        lists = read("id,hyp,am,label\nu1,a,-1.5,0\nu1,b,-2.5,1\n", "csv")
    assert [nbest.references for nbest in lists] == [()]
    assert [hypothesis.scores for hypothesis in lists[0].hypotheses] == [{"am": -1.5}, {"am": -2.5}]
    assert "the column 'label' differs within a list: it is not read as the reference" in told[0]


@pytest.mark.parametrize(("name", "text"), COUNTED)
def test_numbers_that_count_are_no_scores(name, text):
    with collected() as told:
        lists = read(text, name)
    assert {tuple(hypothesis.scores) for nbest in lists for hypothesis in nbest.hypotheses} == {("am",)}
    assert "counts the hypotheses or rows: it is not read as a score" in told[0]
    assert [line for line in told[1:] if "the hypotheses are not in the order of " not in line] == []
    assert write(lists, name) == text
    for nbest in scored(lists):
        nbest.hypotheses.reverse()
    again = read(write(lists, name), name)
    assert [[h.scores for h in nbest.hypotheses] for nbest in again] == [[h.scores | {"lm": -0.5} for h in n.hypotheses] for n in lists]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("csv", "id,hyp,am\nu1,a,1\nu1,b,2\nu2,a,1\nu2,b,1\n"),  # a list in which they do not count
        ("csv", "id,hyp,am\nu1,a,2\nu1,b,3\n"),
        ("csv", "id,hyp,am\nu1,a,1\nu1,b,2\nu2,a,1\nu2,b,2\nu3,a,1\n"),  # too few lists to tell
        ("csv", "id,hyp,am\nu1,a,0.0\nu1,b,1.0\n"),  # as this package writes scores
        ("csv", "id,hyp,am score\nu1,a,0\nu1,b,1\n"),
        ("csv", "id,hyp,\nu1,a,-1.5\nu1,b,-2.5\n"),
        ("csv", "id,hyp,am\nu1,a,1\n"),  # of one hypothesis alone: no order depends on it
        ("json", '{"u1": [{"text": "a", "scores": {"am": 0}}, {"text": "b", "scores": {"am": 1}}]}'),
        ("json", '{"u1": [{"text": "a", "am": 0.0}, {"text": "b", "am": 1.0}]}'),
    ],
)
def test_other_whole_numbers_are_scores(name, text):
    assert all(len(hypothesis.scores) == 1 for nbest in read(text, name) for hypothesis in nbest.hypotheses)


@pytest.mark.parametrize(
    "name",
    ["start_ms", "end_ms", "endTime", "end_time_ms", "t_start", "duration_sec", "durationInTicks", "decode_time", "latency_ms", "rtf"],
)
def test_times_are_no_scores(name, tmp_path):
    """The hypotheses of a list may end at different times: a weight would prefer the long ones."""
    rows = [("u1", "a b", 1200, -1.5), ("u1", "a", 900, -2.5), ("u2", "c", 1300, -0.5)]
    table, lines = tmp_path / "lists.csv", tmp_path / "lists.jsonl"
    table.write_text("".join(f"{','.join(map(str, row))}\n" for row in [("id", "text", name, "score"), *rows]))
    hypotheses = [{"id": row[0], "hyps": [{"text": row[1], name: row[2], "score": row[3]}]} for row in rows[1:]]
    lines.write_text("".join(json.dumps(row) + "\n" for row in hypotheses))
    for path in (table, lines):
        lists = open_nbest(str(path))[1]
        assert {score for nbest in lists for hypothesis in nbest.hypotheses for score in hypothesis.scores} == {"score"}


@pytest.mark.parametrize("name", ["lm", "end_score", "times_two", "sentence_end", "segment_score", "samples", "time_logprob"])
def test_names_that_contain_a_time_may_be_scores(name):
    assert keys.is_score(name)
