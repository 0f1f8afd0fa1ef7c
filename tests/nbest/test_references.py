from __future__ import annotations

import gzip
import io
import json
import re
from types import SimpleNamespace

import pytest
from cli_runs import refused, run
from hypothesis import given
from hypothesis import strategies as st

from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.formats import ONE_BEST_STYLES, write_one_best
from attlm_fairseq.nbest.line_matching import match_lines
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.other_systems import read_further, read_texts
from attlm_fairseq.nbest.reference_files import TextFile, read_references
from attlm_fairseq.nbest.references import attach_references, with_known_references
from attlm_fairseq.verbs.references import ReferenceFiles, with_references


def lists(*ids: str, references: tuple[str, ...] = ()) -> list[NbestList]:
    return [NbestList(name, [Hypothesis("x", rank=1)], references, line=10 + i) for i, name in enumerate(ids)]


def files(*of_files: list[str]) -> list[TextFile]:
    return [TextFile(f"r{number}", lines) for number, lines in enumerate(of_files)]


def attached(ids: list[str], *of_files: list[str], by: str | None = None, told: list[str] | None = None) -> list[tuple[str, ...]]:
    with collected() as lines:
        joined = attach_references(lists(*ids), files(*of_files), by)
    if told is not None:
        told += lines
    assert [nbest.id for nbest in joined] == list(ids)
    return [nbest.references for nbest in joined]


def write(path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_several_files_plain_and_gzip(tmp_path):
    first = write(tmp_path / "ref.0", "a b\n\n c\u2028d \n".encode())  # an empty line is a reference; only \n ends a line
    second = write(tmp_path / "ref.1.gz", gzip.compress("\ufeffé\r\nf\r\ng".encode(), mtime=0))
    assert read_references([first, second]) == [TextFile(first, ["a b", "", " c\u2028d "]), TextFile(second, ["é", "f", "g"])]


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a\nb\n")))
    assert read_references(["-"]) == [TextFile("-", ["a", "b"])]


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"a\nb\xff\n", r"ref:2: not UTF-8"), (gzip.compress(b"a\nb\n" * 1000, mtime=0)[:-9], r"ref:.*gzip"), (b"", r"ref: .*empty")],
)
def test_bad_files(tmp_path, data, message):
    with pytest.raises(InputError, match=message):
        read_references([write(tmp_path / "ref", data)])


def test_no_such_file(tmp_path):
    with pytest.raises(InputError, match=r"absent: cannot be read"):
        read_references([str(tmp_path / "absent")])


def test_by_order_unless_lines_have_ids():
    given = lists("u1", "u2", references=("old",))
    joined = attach_references(given, files(["a", "c"], ["b", "d"]))
    assert [(nbest.id, nbest.references) for nbest in joined] == [("u1", ("a", "b")), ("u2", ("c", "d"))]
    assert given[0].references == ("old",)
    assert joined[0].hypotheses is given[0].hypotheses


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("by", [None, "order"])
def test_wrong_number_of_lines(count, by):
    with pytest.raises(InputError, match=rf"^r1: {count} lines, but there are 3 lists: .*--refs-by number.*--refs-by id"):
        attached(["u1", "u2", "u3"], ["a"] * 3, ["a"] * count, by=by)


def test_own_references():
    given = lists("u1", references=("a",))
    assert attach_references(given, None) == given
    with pytest.raises(
        InputError, match=r"list 'u2' has no reference: give files with one line per list \(--refs\); --partial-refs leaves"
    ):
        attach_references([*given, *lists("u2")], None)


def test_by_number_takes_the_line_that_the_id_says():
    assert attached(["2", "0"], ["a", "b", "c"], by="number") == [("c",), ("a",)]
    for bad in ("3", "-1", "u1", "²", "", "9" * 19):
        with pytest.raises(InputError, match=r"^r0: list .*: its id is not a line number from 0 to 2"):
            attached([bad], ["a", "b", "c"], by="number")


def test_numbers_in_another_order_are_not_guessed_about():
    """fairseq-generate writes sentences in the order of its batches: line by line would give wrong references without a word."""
    references = ["a", "b", "c"]
    with pytest.raises(InputError, match=r"numbers 0 to 2 in another order.*--refs-by number.*--refs-by order"):
        attached(["1", "0", "2"], references)
    assert attached(["1", "0", "2"], references, by="order") == [("a",), ("b",), ("c",)]
    assert attached(["1", "0", "2"], references, by="number") == [("b",), ("a",), ("c",)]
    for in_order in (["0", "1", "2"], ["1", "2", "3"], ["7", "u", "0"], ["1", "3", "0"]):
        assert attached(in_order, references) == [("a",), ("b",), ("c",)]


KALDI = ["u2 c d", "u1  a b ", "u3"]
SCLITE = ["c d (u2)", " a (laughs) b (u1)", "(u3)"]


@pytest.mark.parametrize("lines", [KALDI, SCLITE, [line.replace(" ", "\t") for line in KALDI]])
@pytest.mark.parametrize("by", [None, "id"])
def test_lines_with_ids_go_by_them(lines, by):
    [first, second, third] = attached(["u1", "u2", "u3"], lines, by=by)
    assert [first[0].split(), second[0].split(), third] == [
        ["a", "b"] if lines is not SCLITE else ["a", "(laughs)", "b"],
        ["c", "d"],
        ("",),
    ]


def test_each_file_may_have_its_own_order_and_form_and_number_of_lines():
    assert attached(["u2", "u1"], ["u1 a", "u2 b"], ["x (u2)", "y (u1)"]) == [("b", "x"), ("a", "y")]
    assert attached(["u2", "u1"], ["u1 a", "u2 b"], ["x (u2)", "y (u1)", "z (u0)"], by="id") == [("b", "x"), ("a", "y")]


def test_ids_of_numbers_are_not_seen_in_words():
    assert attached(["0", "1"], ["0 is naught", "one is more"]) == [("0 is naught",), ("one is more",)]
    assert attached(["0", "1"], ["1 b", "0 a"]) == [("a",), ("b",)]
    assert attached(["0", "1"], ["1 b", "0 a"], by="order") == [("1 b",), ("0 a",)]


@pytest.mark.parametrize(
    ("ids", "lines", "message"),
    [
        (
            ["u1", "u2", "u4"],
            KALDI,
            r"^r0: 2 of 3 lists have a line with their id, list 'u4' has none \(--partial-refs .*\); expected .*--refs-by order",
        ),
        (["u1", "u2"], KALDI, r"^r0:3: no list has the id 'u3': 2 lists, 3 lines with ids; --refs-by id ignores such lines"),
        (["u1", "u2", "u3"], [*KALDI, "u1 a"], r"^r0: the id 'u1' is there 2 times; expected .*--refs-by order"),
        (
            ["v1", "v2", "v3"],
            KALDI,
            r"^r0: its lines carry ids such as 'u2', which no list has \(the first is 'v1'\); .*--refs-by order",
        ),
        (["u1", "u2"], ["u1 looking on", "u3 a little"], r"^r0: its lines carry ids such as 'u3', which no list has"),
    ],
)
def test_ids_that_do_not_correspond(ids, lines, message):
    with pytest.raises(InputError, match=message):
        attached(ids, lines)
    if len(lines) == len(ids):
        assert attached(ids, lines, by="order") == [(line,) for line in lines]


def test_an_id_in_one_file_only():
    with pytest.raises(InputError, match=r"^r1: its lines carry no ids of the lists, those of the other files do; --refs-by order"):
        attached(["u1", "u2"], ["u1 a", "u2 b"], ["a", "b"])
    with pytest.raises(InputError, match=r"^r0: its lines do not carry the ids of the lists; expected 'id text' or 'text \(id\)'"):
        attached(["u1"], ["a"], by="id")


def test_references_of_what_was_not_decoded_are_left_over_where_asked():
    """As Kaldi's scoring with --mode=present."""
    told = []
    assert attached(["u1"], KALDI, by="id", told=told) == [("a b",)]
    assert told == ["note: r0: 2 references are of no list and left over, the first of id 'u2': 1 lists, 3 references with ids"]
    attached(["u1", "u2", "u3"], KALDI, by="id", told=told)
    assert sum("left over" in line for line in told) == 1
    with pytest.raises(InputError, match="list 'u4' has none"):
        attached(["u1", "u4"], KALDI, by="id")


@pytest.mark.parametrize(
    ("ids", "pair"),
    [
        (["utt_1", "utt_10", "utt_11", "utt_2"], "utt_11 before utt_2"),
        (["t1_2.nbest", "t2_10.nbest", "t2_9.nbest"], "t2_10.nbest before t2_9.nbest"),
        (["1", "10", "2"], "10 before 2"),
        (["utt_01", "utt_02", "utt_10"], None),
        (["utt_1", "utt_2", "utt_10"], None),
        (["utt_10", "utt_2", "utt_1"], None),  # sorted in no way: as the decoder wrote them
        (["1089-134686-0000", "1089-134686-0001", "121-121726-0000"], None),  # LibriSpeech's own order
        (["a", "b", "c"], None),
    ],
)
def test_the_order_of_numbered_names_as_text_is_doubted(ids, pair):
    told: list[str] = []
    attached(ids, ["x"] * len(ids), told=told)
    assert [line.startswith("WARNING") and pair in line for line in told] == ([True] if pair else [])
    attached(ids, ["x"] * len(ids), by="order", told=told)
    attached(ids, [f"{name} x" for name in ids], told=told)
    assert len(told) == bool(pair)


@pytest.mark.parametrize("by", [None, "number", "id"])
def test_of_several_references_blank_ones_are_none(by):
    of_files = (["0 a", "1 ", "2"], ["0", "1 b", "2"]) if by == "id" else (["a", " ", ""], ["", "b", ""])
    told: list[str] = []
    assert attached(["0", "1", "2"], *of_files, by=by, told=told) == [("a",), ("b",), ("", "")]
    assert any("1 of 3 references are blank, that is, silence" in line for line in told)
    assert attached(["0"], [""]) == [("",)]


@pytest.mark.parametrize(
    "words",
    [
        ["a b", "c d"],
        ["2 b", "3 c"],
        ["u1 a"],
        ["u1 a", "u1 b"],
        ["u1 a", "c d"],
        ["u1 a", ""],
        ["u-1", "u-2"],
        ["明天7点叫我", "打开3号灯"],
        ["2024年5月3日 开会", "2024年5月4日 休息"],
        ["a (1)", "b (1)"],
        ["a (1)"],
        ["a (1) b", "b (2) c"],
    ],
)
def test_words_are_not_taken_for_ids(words, tmp_path):
    ids = [f"v{place}" for place, _ in enumerate(words)]
    assert attached(ids, words) == [(line,) for line in words]
    write(tmp_path / "t", "".join(f"{line}\n" for line in words).encode())
    assert [nbest.hypotheses[0].text for nbest in read_texts(str(tmp_path / "t"))] == words


def test_texts_as_the_first_file(tmp_path):
    path = tmp_path / "t"
    path.write_text("\ufeffa\r\n\nu2\tb\n", encoding="utf-8")
    assert [(n.id, n.hypotheses[0].text, n.line) for n in read_texts(str(path))] == [("0", "a", 1), ("1", "", 2), ("2", "u2\tb", 3)]
    for text in ("u-2 a\nu-1 b\n", "a (u-2)\nb (u-1)\n"):
        path.write_text(text)
        with collected() as told:
            assert [(n.id, n.hypotheses[0].text) for n in read_texts(str(path))] == [("u-2", "a"), ("u-1", "b")]
        assert "the lines' ids, such as 'u-2', do not count as words; --format text:order" in told[0]
        assert [n.id for n in read_texts(str(path), "order")] == ["0", "1"]
    path.write_text("x a\ny b\n")
    assert [(n.id, n.hypotheses[0].text) for n in read_texts(str(path), "id")] == [("x", "a"), ("y", "b")]
    for text, message in (("a\n\n", "not every line carries an id"), ("x a\nx b\n", "the id 'x' is there 2 times: expected each id once")):
        path.write_text(text)
        with pytest.raises(InputError, match=f"t: {message}"):
            read_texts(str(path), "id")


def of_texts(**texts: str) -> list[NbestList]:
    return [NbestList(name.replace("_", "-"), [Hypothesis(text, rank=1)]) for name, text in texts.items()]


FIRST = of_texts(spk_1="a b", spk_2="", spk_3="c\td (e)")


def further(
    path, text: str, format_name: str | None = None, first: list[NbestList] = FIRST, by: str | None = None
) -> list[tuple[str, str]]:
    path.write_text(text, encoding="utf-8")
    return [(n.id, n.hypotheses[0].text) for n in read_further(str(path), format_name, first, "FIRST", by)]


def paired(*texts: str) -> list[tuple[str, str]]:
    return list(zip(["spk-1", "spk-2", "spk-3"], texts, strict=True))


@pytest.mark.parametrize("format_name", [None, "text"])
@pytest.mark.parametrize("style", ONE_BEST_STYLES)
def test_what_rescore_writes_is_read_as_it_was(style, format_name, tmp_path):
    """Without an id an empty text is a blank line as between plain lists; with one the lines look like Kaldi's lists."""
    write_one_best(FIRST[::-1] if style != "text" else FIRST, str(tmp_path / "out"), style)
    with collected() as told:
        found = read_further(str(tmp_path / "out"), format_name, FIRST, "FIRST")
    assert [(n.id, n.hypotheses[0].text) for n in found] == paired("a b", "", "c d (e)")
    expected = "read as one text per line" + ", with ids" * (style != "text")
    assert format_name == "text" or told[0].endswith(expected)


@pytest.mark.parametrize("format_name", [None, "text", "nemo:8"])
def test_texts_that_look_like_lists(format_name, tmp_path):
    for texts in (["\n"] * 3, ["a\n", "\n", "b c\n"], ["a\tb\n", "c\td\n", "e\tf\n"], ["x y\n", "x z\n", "y-1 c\n"]):
        assert further(tmp_path / "t", "".join(texts), format_name) == paired(*(text[:-1] for text in texts))
    assert further(tmp_path / "t", "-1 -2 1 a\n-1 -2 1 b\n-1 -2 0\n") == paired("-1 -2 1 a", "-1 -2 1 b", "-1 -2 0")
    assert further(tmp_path / "t", "a\t1.5\nb\t2.5\nc\t3.5\n") == paired("a\t1.5", "b\t2.5", "c\t3.5")


def test_lists_of_one_hypothesis_are_lists_if_their_format_is_named(tmp_path):
    lines = "spk-3-1 c\nspk-1-1 a b\nspk-2-1\n"
    assert further(tmp_path / "t", lines, "kaldi") == paired("a b", "", "c")
    with pytest.raises(InputError, match=r"t: its lines carry ids such as 'spk-3-1', which no list has .*; if .* say --format kaldi"):
        further(tmp_path / "t", lines)
    moses = "x ||| a ||| -1\ny ||| b ||| -1\nz ||| c ||| -1\n"
    assert further(tmp_path / "t", moses, first=of_texts(x="", y="", z="")) == list(zip("xyz", "abc", strict=True))
    assert further(tmp_path / "t", "a\t1.5\nb\t2.5\n", "nemo:1", first=of_texts(u="", v="")) == [("0", "a"), ("1", "b")]


def test_texts_whose_format_says_how_their_ids_stand_are_read_by_it(tmp_path):
    assert further(tmp_path / "t", "spk-3 c\nspk-1 a b\nspk-2\n", "text:id") == paired("a b", "", "c")
    assert further(tmp_path / "t", "x-1 c\nx-2 a b\nx-3\n", "text:order") == [("0", "x-1 c"), ("1", "x-2 a b"), ("2", "x-3")]
    for text, message in (
        ("spk-3 c\n\nspk-2\n", "not every line carries an id"),
        ("spk-3 c\nspk-1 a b\nspk-1\n", "the id 'spk-1' is there 2 times"),
        ("spk-3 c\nspk-1 a b\nspk-4\n", "lacks 1 list \\('spk-2'\\) of FIRST and has 1 list \\('spk-4'\\) that FIRST has not"),
    ):
        with pytest.raises(InputError, match=f"t: {message}"):
            further(tmp_path / "t", text, "text:id")


def test_lists_whose_format_is_named_are_of_the_same_utterances(tmp_path):
    with pytest.raises(InputError, match=r"t: lacks 1 list \('spk-2'\) of FIRST and has 1 list"):
        further(tmp_path / "t", "spk-3-1 c\nspk-1-1 a b\nspk-4-1\n", "kaldi")


def test_lists_of_the_same_ids_in_another_order_go_by_them(tmp_path):
    assert further(tmp_path / "t", "spk-2-1 x\nspk-2-2 y\nspk-3-1 z\nspk-1-1\n") == paired("", "x", "z")
    numbered = lists(*"120")
    assert further(tmp_path / "t", "H-0\t-1\ta\nH-1\t-1\tb\nH-2\t-1\tc\n", first=numbered) == [("1", "b"), ("2", "c"), ("0", "a")]


def test_lists_without_ids_go_by_their_order(tmp_path):
    assert further(tmp_path / "t", "a\na\n\nb\n\nc\n") == [("0", "a"), ("1", "b"), ("2", "c")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "spk-1-1 a\nspk-1-2 a\nspk-2-1 b\nspk-4-1 c\n",
            r"lacks 1 list \('spk-3'\) of FIRST and has 1 list \('spk-4'\)",
        ),
        ("spk-1 a\nspk-2 b\nspk-4 c\n", r"2 of 3 lists have a line with their id, list 'spk-3' has none"),
        ("a b (spk-1)\nb b (spk-2)\n", r"2 of 3 lists have a line with their id, list 'spk-3' has none"),
        ("spk-1 a\nspk-2 b\nspk-3 c\nspk-3 d\n", "the list of spk has the key spk-3 twice"),
        ("a\nb\n", "2 lines, but there are 3 lists"),
        ("a\na\n\nb\nb\n", "2 lists, but FIRST has 3"),
    ],
)
def test_other_utterances_are_one_line(text, message, tmp_path):
    with pytest.raises(InputError, match=rf"t(:1)?: {message}"):
        further(tmp_path / "t", text)


def test_texts_are_in_doubt_next_to_numbers_in_another_order(tmp_path):
    numbered = lists(*"120")
    with pytest.raises(InputError, match="ids are the numbers 0 to 2 in another order"):
        further(tmp_path / "t", "a\nb\nc\n", first=numbered)
    assert further(tmp_path / "t", "a\nb\nc\n", first=numbered, by="order") == [("1", "a"), ("2", "b"), ("0", "c")]
    assert further(tmp_path / "t", "0 a\n1 b\n2 c\n", first=numbered) == [("1", "b"), ("2", "c"), ("0", "a")]


@given(st.lists(st.text("ab1-( )", max_size=6), min_size=1, max_size=6), st.sampled_from([None, "order", "number", "id"]))
def test_every_line_goes_to_one_list_or_the_file_is_refused(lines, by):
    ids = [str(place) for place, _ in enumerate(lines)]
    try:
        found = match_lines(ids, TextFile("r", lines), by)
    except InputError:
        return
    assert len(found.texts) == len(ids)
    assert found.by_id or found.texts == lines


@pytest.mark.parametrize(
    "text",
    [
        '{"u2": "c d", "u1": "a b"}',
        '[{"utt": "u2", "text": "c d"}, {"utt": "u1", "text": "a b"}]',
        '{"audio_filepath": "u2", "text": "c d"}\n{"audio_filepath": "u1", "text": "a b"}\n',
        '{"id": "u2", "nbest": ["x", "y"], "ref": "c d"}\n{"id": "u1", "nbest": ["x"], "ref": "a b"}\n',
        'ref,id,text\nc d,u2,x\n"a b",u1,y\n',
        "id\ttext\nu2\tc d\nu1\ta b\n",
        "id,ref\nu2,c d\nu1,a b\n",
        "\nutt;reference\nu2;c d\nu1;a b\n",
        "id\tref\nu2\tc d\nu1\ta b\n",
        "id\tspeaker\tReference\nu2\ts\tc d\nu1\ts\ta b\n",
    ],
)
def test_references_by_the_names_of_json_and_tables(text, tmp_path):
    (tmp_path / "refs").write_text(text)
    lists = [NbestList(name, [Hypothesis("h", rank=1)]) for name in ("u1", "u2")]
    for by in (None, "id"):
        found = attach_references(lists, read_references([str(tmp_path / "refs")]), by)
        assert [nbest.references for nbest in found] == [("a b",), ("c d",)]
    with pytest.raises(InputError, match=r"refs: its lines carry ids such as 'u2', which no list has"):
        attach_references([NbestList("v", lists[0].hypotheses)] * 2, read_references([str(tmp_path / "refs")]))


@pytest.mark.parametrize(
    "text",
    [
        "id,hyp,ref\nu1,a b,\nu2,c,d\n",
        "id\thyp\tref\nu1\ta b\t\nu2\tc\td\n",
        '{"id": "u1", "hyp": "a b", "ref": ""}\n{"id": "u2", "text": "d"}\n',
    ],
)
def test_a_blank_reference_is_silence_and_never_the_hypothesis(text, tmp_path):
    (tmp_path / "refs").write_text(text)
    assert attach_references(lists("u1", "u2"), read_references([str(tmp_path / "refs")]))[0].references == ("",)


def test_references_in_json_without_ids_go_by_order(tmp_path):
    lists = [NbestList(name, [Hypothesis("h", rank=1)]) for name in ("u1", "u2")]
    for text in ('["a b", "c d"]', '{"text": "a b"}\n{"text": "c d"}\n'):
        (tmp_path / "refs").write_text(text)
        assert [nbest.references for nbest in attach_references(lists, read_references([str(tmp_path / "refs")]))] == [("a b",), ("c d",)]
    (tmp_path / "refs").write_text('{"id": "u1", "nbest": ["a", "b"]}\n{"id": "u2", "nbest": ["a"]}\n')
    with pytest.raises(InputError, match="refs:1: the utterance 'u1' has 2 texts and none named as its reference"):
        read_references([str(tmp_path / "refs")])
    (tmp_path / "refs").write_text("[[noise]] a b\n[laughter]\n")  # texts, whatever they begin with
    assert read_references([str(tmp_path / "refs")])[0].lines == ["[[noise]] a b", "[laughter]"]


def test_a_long_json_object_of_references_is_no_text(tmp_path):
    texts = {f"u{i}": f"word {i} " * 20 for i in range(1000)}
    (tmp_path / "refs").write_text("\ufeff" + json.dumps(texts), encoding="utf-8")
    (found,) = read_references([str(tmp_path / "refs")])
    assert dict(zip(found.ids, found.lines, strict=True)) == texts
    for cut in (60, 90_000):
        (tmp_path / "refs").write_text(json.dumps(texts)[:cut])
        with pytest.raises(InputError, match=r"refs: not valid JSON .*: is the file cut short"):
            read_references([str(tmp_path / "refs")])
    (tmp_path / "refs").write_text("[[noise]] a b\n" * 10000)
    assert read_references([str(tmp_path / "refs")])[0].lines == ["[[noise]] a b"] * 10000


STM = """\
;; CATEGORY "0" "" ""
u2 1 spk 2.50 3.00 <o,f0,male> the cat

u1\tA  spk 0 1 <o,f0,female> a dog
u2 1 spk 10 11 ran
 u2 1 spk 0.0 2.5 <o,f0,male> so
u2 1 gap 3 10 <o> ignore_time_segment_in_scoring
u3 1 spk 0 1
"""


def test_stm_is_read_by_its_fields(tmp_path):
    path = write(tmp_path / "ref.stm", STM.encode())
    with collected() as told:
        files = read_references([path])
    assert told == [f"note: {path} is read as STM: the ids are those of the recordings, and the segments of a recording are one reference"]
    assert [nbest.references for nbest in attach_references(lists("u1", "u2", "u3"), files)] == [("a dog",), ("so the cat ran",), ("",)]
    with pytest.raises(InputError, match=r"ref\.stm: no list has the id 'u3': 2 lists, 3 lines with ids"):
        attach_references(lists("u1", "u2"), files)
    with pytest.raises(InputError, match="its lines carry ids such as 'u2', which no list has"):
        attach_references(lists("a", "b", "c"), files)
    assert [nbest.references for nbest in attach_references(lists("b", "a", "c"), files, "order")][1:] == [("a dog",), ("",)]


def test_stm_with_two_channels_of_a_recording_is_refused(tmp_path):
    """Both sides of a telephone call in the order of their times are no reference for either."""
    of_other_channel = "u2 2 spk 4 5 <o,f0,male> {}\n"
    assert read_references([write(tmp_path / "gap", (STM + of_other_channel.format("")).encode())])
    with pytest.raises(InputError, match=r"ref:9: found channel 2 after channel 1 of 'u2', expected one channel of each recording"):
        read_references([write(tmp_path / "ref", (STM + of_other_channel.format("hello")).encode())])


@pytest.mark.parametrize(("text", "marked"), [("{ a / b } c", True), ("a (uh) b", True), ("f(x) is a {set}", False), ("( a )", False)])
def test_stm_with_alternatives_is_read_with_a_warning(text, marked, tmp_path):
    with collected() as told:
        (file,) = read_references([write(tmp_path / "ref", f"{STM}u4 1 spk 0 1 {text}\n".encode())])
    assert file.lines[-1] == text
    assert len(told) == 1 + marked
    assert not marked or "1 of 7 segments have alternatives such as { a / b } or optional words such as (uh)" in told[1]


@pytest.mark.parametrize(
    ("line", "marked"),
    [
        ("the {a / b} cat (u1)", True),
        ("u1 { um / @ } a cat", True),
        ("a cat / hat (u1)", False),
        ("{ a cat } (u1)", False),
        ("{a/b} cat (u1)", False),
        ("a cat (spk-u1)", False),
    ],
)
def test_lines_with_alternatives_are_read_with_a_warning(line, marked, tmp_path):
    path = write(tmp_path / "ref.trn", f"{line}\n(uh) hello (u2)\n".encode())
    with collected() as told:
        (file,) = read_references([path])
    assert file.lines == [line, "(uh) hello (u2)"]
    assert [text.startswith(f"WARNING: {path}: 1 of 2 lines have alternatives such as {{ a / b }}") for text in told] == [True] * marked


ENDS_BEFORE = "this segment of an STM file ends at 1 s, before it begins at 2.50 s"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        *((line, "expected the fields of an STM file") for line in ("u4 1 spk 0 text", "text", "u4 1 spk 0 x text", "u4 1 spk -1 2 text")),
        ("u4 1 spk 2.50 1 text", ENDS_BEFORE),
    ],
)
def test_a_damaged_line_of_stm_is_refused_and_a_text_is_no_stm(line, message, tmp_path):
    """Otherwise one cut line would make words of the fields of all others."""
    with pytest.raises(InputError, match=rf"ref:9: found .*{message}"):
        read_references([write(tmp_path / "ref", f"{STM}{line}\n".encode())])
    text = "\n".join([line, "u1 1 spk 0 1 text"])
    (file,) = read_references([write(tmp_path / "text", f"{text}\n".encode())])
    assert file == TextFile(str(tmp_path / "text"), text.split("\n"))


def test_a_segment_with_a_label_that_ends_before_it_begins_is_refused_even_alone(tmp_path):
    with pytest.raises(InputError, match=f"ref:1: found 'u1 1 spk 2.50 1 <o,f0,male> a': {ENDS_BEFORE}$"):
        read_references([write(tmp_path / "ref", b"u1 1 spk 2.50 1 <o,f0,male> a\n")])


def timed(name: str, *words: tuple[str, float, float]) -> NbestList:
    times = tuple((begin, end) for _, begin, end in words)
    hypothesis = Hypothesis(" ".join(word for word, *_ in words), rank=1, times=times, confidences=(0.5,) * (len(words) - 1) + (0.25,))
    return NbestList(name, [hypothesis], path="hyp")


IGNORING = """\
a 1 gap 0 .5 <o,,unknown> IGNORE_TIME_SEGMENT_IN_SCORING
a 1 spk 0.5 3 <o,f0,male> the cat
a 2 gap 0 9 <o,,unknown> ignore_time_segment_in_scoring
b 1 spk 0 1 <o,f0,male> a dog
b 1 gap 1 2 <o,,unknown> ignore_time_segment_in_scoring
"""


@pytest.mark.parametrize(("names", "by"), [("ab", None), ("ab", "id"), ("xy", "order")])
def test_words_in_segments_that_stm_ignores_are_left_out(names, by, tmp_path):
    """The middle of a word decides, from the begin of a segment to before its end, in the channel of the recording's text."""
    files = read_references([write(tmp_path / "ref.stm", IGNORING.encode())])
    a = timed(names[0], ("uh", 0.25, 0.5), ("the", 0.25, 0.75), ("cat", 4, 5))
    b = timed(names[1], ("a", 0.5, 1), ("dog", 0.75, 1.25), ("ran", 1.5, 2.5))
    with collected() as told:
        found = attach_references([a, b], files, by)
    assert [nbest.references for nbest in found] == [("the cat",), ("a dog",)]
    assert [(one.text, one.times, one.confidences) for nbest in found for one in nbest.hypotheses] == [
        ("the cat", ((0.25, 0.75), (4, 5)), (0.5, 0.25)),
        ("a ran", ((0.5, 1), (1.5, 2.5)), (0.5, 0.25)),
    ]
    assert told == ["note: hyp: 2 words are in segments that the references ignore (ignore_time_segment_in_scoring) and are left out"]
    assert [nbest.unscored for nbest in with_references(found, ["x", "y"])] == [(), ()]


def test_lists_with_words_without_times_keep_their_words(tmp_path):
    files = read_references([write(tmp_path / "ref.stm", IGNORING.encode())])
    whole = [timed("a", ("uh", 0, 0.5)), timed("b", ("dog", 1, 1.25))]
    whole[1].hypotheses.append(Hypothesis("", rank=2))  # no words
    whole[0].hypotheses.append(Hypothesis("the", rank=2))
    with collected() as told:
        found = attach_references(whole, files)
    assert [[one.text for one in nbest.hypotheses] for nbest in found] == [["uh", "the"], ["", ""]]
    assert told[1:] == ["note: hyp: 1 lists have words without times: all count, also in segments that the references ignore"]


def test_eval_leaves_out_what_stm_ignores_in_each_system(tmp_path):
    refs = write(tmp_path / "ref.stm", IGNORING.encode())
    words = "a 1 0.5 0.5 the 0.9\na 1 1 0.5 cat 0.9\nb 1 0 0.5 a 0.9\nb 1 .5 .4 dog 0.9\nb 1 1 0.5 noise 0.9\n"
    first = write(tmp_path / "first.ctm", words.encode())
    second = write(tmp_path / "second.ctm", f"{words}a 1 0 0.5 uh 0.9\n".encode())
    text = write(tmp_path / "text", b"a the cat\nb a dog noise\n")
    found = run("eval", first, second, text, "--refs", refs, "--json")
    assert [system["score"] for system in json.loads(found.stdout)["systems"]] == [0.0, 0.0, 25.0, 0.0]
    ignored = "are in segments that the references ignore (ignore_time_segment_in_scoring) and are left out"
    assert [line for line in found.stderr.splitlines() if "left out" in line] == [
        f"note: {first}: 1 words {ignored}",
        f"note: {second}: 2 words {ignored}",
    ]


CTM = """\
;; a comment
u2 1 0.50 0.20 cat 0.9
u2 1 0.10 0.30 the 0.875
u1 A 1 2 hello

"""


def test_ctm_is_read_by_its_words(tmp_path):
    path = write(tmp_path / "ref.ctm", CTM.encode())
    with collected() as told:
        files = read_references([path])
    assert told == [f"note: {path} is read as CTM: the ids are those of the recordings, and a list without a line has no words"]
    assert [nbest.references for nbest in attach_references(lists("u1", "u2", "u3"), files)] == [("hello",), ("the cat",), ("",)]
    with pytest.raises(InputError, match=r"no list has the id 'u2' \(the first list is 'u1'\); --refs-by id ignores such lines"):
        attach_references(lists("u1", "u3"), files)
    assert [nbest.references for nbest in attach_references(lists("u1", "u3"), files, "id")] == [("hello",), ("",)]
    with pytest.raises(InputError, match=r"no list has the id 'u2' \(the first list is 'a'\)$"):
        attach_references(lists("a", "b"), files)
    kept, by = with_known_references(lists("u1", "u3"), files)
    assert ([nbest.id for nbest in kept], by) == (["u1"], "id")
    for more, message in [
        ("u1 2 3 0.5 word", "found channel 2 after channel A of 'u1', expected one channel of each recording"),
        ("u3 1 3 words", "found 'u3 1 3 words': expected the fields of CTM: recording, channel, begin, duration, word"),
        ("u3 1 * * <ALT_BEGIN>", "found 'u3 1 * * <ALT_BEGIN>': alternatives are not read: keep one of each"),
        (f"u3 1 {'9' * 400} 1 word", "the begin is 9.*expected a finite number"),
        ("u3 1 1e300 1 word", "the word ends at 1e+300 s: expected at most 1e+09 s"),
        ("u3 1 -1 1 word", "the begin is -1 s: expected at least 0 s"),
    ]:
        with pytest.raises(InputError, match=rf"ref:6: {re.escape(message)}" if "9.*" not in message else f"ref:6: {message}"):
            read_references([write(tmp_path / "ref", f"{CTM}{more}\n".encode())])
    for comments in (b";; nothing\n", b";; a\n\n;; b\n"):
        with pytest.raises(InputError, match="ref: nothing but comments: expected one word per line"):
            read_references([write(tmp_path / "ref", comments)])
        with pytest.raises(InputError, match="nothing but comments"):
            further(tmp_path / "ref", comments.decode(), first=lists("u1"))
        assert "nothing but comments" in refused("eval", tmp_path / "ref", "--refs", path)
    (file,) = read_references([write(tmp_path / "ref", f"{CTM}u2 1 0.0 0.1 so\n".encode())])  # recordings mixed
    assert (file.ids, file.lines) == (["u2", "u1"], ["so the cat", "hello"])
    with pytest.raises(InputError, match=r"ref:2: the duration is -0\.5 s: expected at least 0 s"):
        read_references([write(tmp_path / "ref", b"u1 1 0.5 0.5 a\nu1 1 1 -0.5 b\n")])
    for row in (
        "u1 1 0. 1 a NA",
        "u1 1 .5 .25 a .5",
        "u1 1 0 1.0 a 0.5 lex",
        "u1 1 0.0 1 a NA lex spk",
        "u1 1 0. 1 a 1e-05\nu1 1 2 1 [noise] 1 non-lex spk",
    ):
        (file,) = read_references([write(tmp_path / "ref", f"{row}\n".encode())])
        assert (file.ids, file.lines) == (["u1"], ["a"])
    for text in (b"a b\nc d\nu1 1 0. 1 a\n", b"u-1 1 5 4 3\nu-2 1 2 9 5 6\n"):  # digits
        (file,) = read_references([write(tmp_path / "text", text)])
        assert file.ids is None


@pytest.mark.parametrize("by", [None, "id"])
def test_ids_match_in_any_form_of_unicode(by):
    composed, decomposed = ["caf\u00e9", "na\u00efve"], ["cafe\u0301", "nai\u0308ve"]
    for ids, names in ((composed, decomposed), (decomposed, composed)):
        assert attached(ids, [f"{names[1]} b", f"{names[0]} a"], by=by) == [("a",), ("b",)]
        assert attached(ids, [f"b ({names[1]})", f"a ({names[0]})"], by=by) == [("a",), ("b",)]
        with pytest.raises(InputError, match="no list has the id 'x-1'"):
            attached(ids, [f"{names[0]} a", f"{names[1]} b", "x-1 c"])


PATHS = ["/wav/s1/utt-1.wav", "/wav/s2/utt.2.flac"]


@pytest.mark.parametrize("by", [None, "id"])
@pytest.mark.parametrize("names", [["utt-1", "utt.2"], ["utt-1.wav", "utt.2.flac"], ["cafe\u03011", "utt.2"]])
def test_ids_match_as_names_of_audio_files(names, by):
    paths = [PATHS[0] if "utt-1" in names[0] else "C:\\wav\\caf\u00e91.MP3", PATHS[1]]
    for ids, others in ((paths, names), (names, paths)):
        assert attached(ids, [f"{others[1]}\tb", f"{others[0]}\ta"], by=by) == [("a",), ("b",)]
        assert attached(ids, [f"b ({others[1]})", f"a ({others[0]})"], by=by) == [("a",), ("b",)]
    with pytest.raises(InputError, match=r"no list has the id|which no list has"):
        attached(paths, [f"{names[0]} a", f"{names[1]} b", "x-1 c"])


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (["a/utt-1.wav", "b/utt-1.wav"], ["utt-1", "utt-2"]),  # the same name in two folders
        (["utt-1", "utt-2"], ["a/utt-1.wav", "b/utt-1.wav", "a/utt-2.wav"]),
        (["call1.left", "call2.left"], ["call1.right", "call2.right"]),
        (["spk1/utt-1.wav", "spk1/utt-2.wav"], ["spk2/utt-1.wav", "spk2/utt-2.wav"]),
        (["yes.wav", "no.wav"], ["yes", "no"]),  # perhaps what is said in them
        (["0", "1", "10"], ["0.wav", "10.wav", "1.wav"]),  # lists without ids, perhaps in the order of the file
        (["0.wav", "10.wav", "1.wav"], ["0", "1", "10"]),
    ],
)
def test_names_of_audio_files_are_not_guessed_about(ids, names):
    with pytest.raises(InputError):
        attached(ids, [f"{name}\ttext of it" for name in names], by="id")


def test_lists_of_audio_files_without_references_are_left_out_if_asked_for(tmp_path):
    (tmp_path / "refs").write_text("utt.2 b\nu9 x\n")
    found = ReferenceFiles(tmp_path / "refs", partial=True).attach(lists(*PATHS))
    assert [(nbest.id, nbest.references) for nbest in found] == [(PATHS[1], ("b",))]
    (tmp_path / "refs").write_text("spk1/utt-1.wav a\n")
    found = ReferenceFiles(tmp_path / "refs", partial=True).attach(lists("spk1/utt-1.wav", "spk2/utt-1.wav"))
    assert [(nbest.id, nbest.references) for nbest in found] == [("spk1/utt-1.wav", ("a",))]


def test_what_is_said_of_a_missing_reference_names_it_by_its_file():
    with pytest.raises(InputError, match=r"1 of 2 lists have a line with their id, list 'utt\.2' has none \(--partial-refs"):
        attached(PATHS, ["utt-1 a", "utt-3 b"], by="id")


def test_references_that_are_all_blank_are_told(tmp_path):
    all_blank, some = "WARNING: .*all references are blank", "note: .*1 of 2 references are blank"
    for text, expected in (("\n\n", all_blank), ("a\n\n", some), ("a\nb\n", None)):
        with collected() as told:
            attach_references(lists("0", "1"), read_references([write(tmp_path / "refs", text.encode())]))
        assert [bool(re.search(expected, line)) for line in told] == [True] if expected else told == []


def test_ctm_is_that_of_audio_files(tmp_path):
    (ctm,) = read_references([write(tmp_path / "r.ctm", b"utt-1 1 0.0 1.0 a\n")])
    with collected():
        assert [nbest.references for nbest in attach_references(lists(*PATHS), [ctm])] == [("a",), ("",)]


@pytest.mark.parametrize(
    ("ids", "lines"),
    [
        (["1", "2"], ["001 a b", "002 c d"]),
        (["10", "9"], ["09 a", "10"]),
        (["utt1", "utt2"], ["a b (1)", "c d (2) "]),
        (["0", "1"], ["a b (1)", "(2)"]),
    ],
)
def test_numbers_that_may_be_ids_are_not_guessed_about(ids, lines):
    with pytest.raises(InputError, match=r"^r0: its lines carry ids such as '(001|09|1|2)', which no list has .*--refs-by order takes"):
        attached(ids, lines)
    assert attached(ids, lines, by="order") == [(line,) for line in lines]


def test_texts_that_end_in_numbers_in_parentheses_are_not_guessed_about(tmp_path):
    path = write(tmp_path / "t", b"a b (1)\nc d (2)\n")
    with pytest.raises(
        InputError, match=r"t: every line ends in a number in parentheses, such as \(1\), which may be an id or a word: say"
    ):
        read_texts(path)
    assert [(n.id, n.hypotheses[0].text) for n in read_texts(path, "id")] == [("1", "a b"), ("2", "c d")]
    assert [n.hypotheses[0].text for n in read_texts(path, "order")] == ["a b (1)", "c d (2)"]


@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        (["rec A spk 0.0 1.5 <unk> hello there"], ["<unk> hello there"]),
        (["a A spk 0 1 <UNK> hello", "a A spk 1 2 <unk>"], ["<UNK> hello <unk>"]),
        (["a A spk 0 1 <noise> hello", "a A spk 1 2 there"], ["<noise> hello there"]),
        (["a A spk 0 1 <o,f0,male> <noise> hello", "b A spk 0 1 there"], ["<noise> hello", "there"]),
        (
            ["a A spk 0 1 <NA> hello", "a A spk 1 2", "b A spk 0 1 <o> there", "b A spk 1 2 ignore_time_segment_in_scoring"],
            ["hello", "there"],
        ),
    ],
)
def test_a_word_in_angle_brackets_is_no_label_of_stm(lines, texts, tmp_path):
    (file,) = read_references([write(tmp_path / "ref.stm", "".join(f"{line}\n" for line in lines).encode())])
    assert list(file.lines) == texts


def test_references_by_id_of_no_list_are_named():
    with collected() as told:
        (nbest,) = with_references(lists("u1"), {"u0": "x", "u1": "a", "u2": "b"})
    assert nbest.references == ("a",)
    assert told == ["note: 2 references are of no list and left over, the first of id 'u0': 1 lists, 3 references with ids"]


PARTIAL = [
    ("r.json", '{"u3": "c", "u1": "a", "u9": "x"}'),
    ("r.txt", "u1 a\nu9 x\nu3 c\n"),
    ("r.trn", "a (u1)\nc (u3)\nx (u9)\n"),
]


@pytest.mark.parametrize(("name", "text"), PARTIAL)
def test_lists_without_references_are_left_out_if_asked_for(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    whole = lists("u1", "u2", "u3")
    with pytest.raises(InputError):
        ReferenceFiles(tmp_path / name).attach(whole)
    with collected() as notes:
        found = ReferenceFiles(tmp_path / name, partial=True).attach(whole)
    assert [(nbest.id, nbest.references) for nbest in found] == [("u1", ("a",)), ("u3", ("c",))]
    assert "note: 1 of 3 lists have no reference and are left out" in notes
    with pytest.raises(InputError, match="none of the 1 lists has a reference, by the ids in the files"):
        ReferenceFiles(tmp_path / name, partial=True).attach(lists("u2"))
    with pytest.raises(InputError, match="--partial-refs does not go with --refs-by order"):
        ReferenceFiles(tmp_path / name, by="order", partial=True).attach(whole)


def test_source_sentences_are_of_all_lists_though_references_are_of_some(tmp_path):
    (tmp_path / "refs").write_text("u1 a\nu3 c\n")
    (tmp_path / "source").write_text("s1\ns2\ns3\n")
    found = ReferenceFiles(tmp_path / "refs", source=tmp_path / "source", partial=True).attach(lists("u1", "u2", "u3"))
    assert [(nbest.id, nbest.source) for nbest in found] == [("u1", "s1"), ("u3", "s3")]
    for text in ("u3 s3\nu1 s1\nu2 s2\n", "u3 s3\nu1 s1\n"):
        (tmp_path / "source").write_text(text)
        found = ReferenceFiles(tmp_path / "refs", source=tmp_path / "source", partial=True).attach(lists("u1", "u2", "u3"))
        assert [(nbest.id, nbest.source) for nbest in found] == [("u1", "s1"), ("u3", "s3")]
    (tmp_path / "source").write_text("s1\ns2\n")
    with pytest.raises(InputError, match="source: 2 lines, but there are 3 lists"):
        ReferenceFiles(tmp_path / "refs", source=tmp_path / "source", partial=True).attach(lists("u1", "u2", "u3"))


def test_ids_with_zeros_in_front_are_line_numbers_with_partial_references_too(tmp_path):
    (tmp_path / "refs").write_text("r0\nr1\nr2\n")
    found = ReferenceFiles(tmp_path / "refs", by="number", partial=True).attach(lists("002", "000", "007"))
    assert [(nbest.id, nbest.references) for nbest in found] == [("002", ("r2",)), ("000", ("r0",))]


def test_lists_without_own_references_are_left_out_if_asked_for(tmp_path):
    text = "".join(
        f'{{"id": "u{n}", "hyps": [{{"text": "a"}}, {{"text": "b"}}]{reference}}}\n' for n, reference in enumerate(("", ', "ref": "b"') * 3)
    )
    (tmp_path / "lists.jsonl").write_text(text)
    (tmp_path / "other.jsonl").write_text(text.replace('"a"', '"b"'))
    (tmp_path / "other.txt").write_text("b\n" * 6)
    (tmp_path / "two.txt").write_text("u1 b\nu5 a\n")
    result = run("eval", tmp_path / "lists.jsonl", tmp_path / "other.jsonl", tmp_path / "other.txt", "--partial-refs")
    assert "note: 3 of 6 lists have no reference and are left out" in result.stderr
    assert [line.split()[1] for line in result.stdout.splitlines() if line.startswith(str(tmp_path))][:3] == ["100.00", "0.00", "0.00"]
    result = run("eval", tmp_path / "lists.jsonl", tmp_path / "other.txt", "--refs", tmp_path / "two.txt", "--partial-refs")
    assert [line.split()[1] for line in result.stdout.splitlines() if line.startswith(str(tmp_path))][:2] == ["50.00", "50.00"]
    refused("eval", tmp_path / "lists.jsonl")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ["r1", "r2"], "b": ["s1"]}',
        '{"id": "a", "refs": ["r1", "r2"], "hyps": [{"text": "x"}]}\n{"id": "b", "refs": ["s1"], "hyps": [{"text": "y"}]}\n',
    ],
)
def test_several_references_by_id(tmp_path, text):
    (tmp_path / "refs").write_text(text)
    lists = [NbestList(name, [Hypothesis("x", {}, 1)], ()) for name in ("b", "a")]
    found = attach_references(lists, read_references([str(tmp_path / "refs")]))
    assert [nbest.references for nbest in found] == [("s1",), ("r1", "r2")]


def test_references_by_number_that_are_of_no_list_are_told(tmp_path):
    (tmp_path / "refs").write_text("r0\nr1\nr2\nr3\n")
    lists = [NbestList(name, [Hypothesis("x", {}, 1)], ()) for name in ("0", "2")]
    with collected() as notes:
        found = attach_references(lists, read_references([str(tmp_path / "refs")]), "number")
    assert [nbest.references for nbest in found] == [("r0",), ("r2",)]
    assert [note for note in notes if "left over" in note] == [
        f"note: {tmp_path / 'refs'}: 2 references are of no list and left over, the first of line number 1: 2 lists, 4 references"
    ]


@pytest.mark.parametrize("line", ["{id} {text}", "{text} ({id})"])
@pytest.mark.parametrize("by", [None, "id"])
def test_ids_of_several_lists_are_no_words_in_their_order(line, by):
    """Segments that are called after their recording: each line has the id of its list."""
    ids, texts = ["r0", "r0", "r1", "r0"], ["a b", "c", "d", ""]
    told: list[str] = []
    lines = [line.format(id=name, text=text) for name, text in zip(ids, texts, strict=True)]
    assert attached(ids, lines, by=by, told=told) == [(text,) for text in texts]
    assert not any("the same reference" in one for one in told)
    with pytest.raises(
        InputError, match=r"the id 'r0' is there 3 times; expected .* each id once; --refs-by order takes the lines as they are"
    ):
        attached(ids, lines[::-1], by=by)
    assert attached(ids, [lines[0], lines[2]], by=by) == [("a b",), ("a b",), ("d",), ("a b",)]  # one line for each recording
