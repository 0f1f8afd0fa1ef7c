from __future__ import annotations

import gzip
import io
from types import SimpleNamespace

import pytest

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.references.references import attach_references, ids_of_references, read_references


def lists(*ids: str, references: tuple[str, ...] = ()) -> list[NbestList]:
    return [NbestList(name, [Hypothesis("x", rank=1)], references, line=10 + i) for i, name in enumerate(ids)]


def write(path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_several_files_plain_and_gzip(tmp_path):
    first = write(tmp_path / "ref.0", "a b\n\n c\u2028d \n".encode())  # an empty line is a reference; only \n ends a line
    second = write(tmp_path / "ref.1.gz", gzip.compress("\ufeffé\r\nf\r\ng".encode(), mtime=0))
    assert read_references([first, second]) == [("a b", "é"), ("", "f"), (" c\u2028d ", "g")]


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a\nb\n")))
    assert read_references(["-"]) == [("a",), ("b",)]


def test_files_of_different_length(tmp_path):
    first, second = write(tmp_path / "r0", b"a\nb\nc\n"), write(tmp_path / "r1", b"a\nb\n")
    with pytest.raises(InputError, match=r"r1: 2 lines, but .*r0 has 3: every reference file needs a line a list"):
        read_references([first, second])


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
    with pytest.raises(InputError, match="no reference file"):
        read_references([])


def test_line_by_line():
    given = lists("u1", "u2", references=("old",))
    joined = list(attach_references(given, [("a", "b"), ("c", "d")]))
    assert [(nbest.id, nbest.references) for nbest in joined] == [("u1", ("a", "b")), ("u2", ("c", "d"))]
    assert given[0].references == ("old",)
    assert joined[0].hypotheses is given[0].hypotheses


def test_streams():
    def endless():
        yield from lists("u1", "u2")
        raise AssertionError("read too far")

    joined = attach_references(endless(), [("a",), ("b",), ("c",)])
    assert [next(joined).references, next(joined).references] == [("a",), ("b",)]


@pytest.mark.parametrize("count", [2, 4])
def test_wrong_number_of_lines(count):
    with pytest.raises(InputError, match=f"there are 3 lists and {count} lines of references"):
        list(attach_references(lists("u1", "u2", "u3"), [("a",)] * count))


def test_own_references():
    given = [*lists("u1", references=("a",)), *lists("u2")]
    joined = attach_references(given, None)
    assert next(joined).references == ("a",)
    with pytest.raises(InputError, match=r"list 'u2' has no reference: give a file"):
        next(joined)


def test_by_number_takes_the_line_that_the_id_says():
    joined = attach_references(lists("2", "0"), [("a",), ("b",), ("c",)], by="number")
    assert [nbest.references for nbest in joined] == [("c",), ("a",)]
    for bad in ("3", "-1", "u1", "²", ""):
        with pytest.raises(InputError, match=r"its id is no line number, expected 0 to 2"):
            list(attach_references(lists(bad), [("a",), ("b",), ("c",)], by="number"))


def test_numbers_in_another_order_are_not_guessed_about():
    """fairseq-generate writes sentences in the order of its batches: line by line would give wrong references without a word."""
    references = [("a",), ("b",), ("c",)]
    with pytest.raises(InputError, match="numbers 0 to 2 in another order"):
        list(attach_references(lists("1", "0", "2"), references))
    assert [n.references[0] for n in attach_references(lists("1", "0", "2"), references, by="order")] == ["a", "b", "c"]
    assert [n.references[0] for n in attach_references(lists("1", "0", "2"), references, by="number")] == ["b", "a", "c"]
    for in_order in (("0", "1", "2"), ("1", "2", "3"), ("7", "u", "0"), ("1", "1", "0")):
        assert [n.references[0] for n in attach_references(lists(*in_order), references)] == ["a", "b", "c"]


KALDI = ["u2 c d", "u1  a b ", "u3"]
SCLITE = ["c d (u2)", " a (laughs) b (u1)", "(u3)"]


@pytest.mark.parametrize("lines", [KALDI, SCLITE, [line.replace(" ", "\t") for line in KALDI]])
@pytest.mark.parametrize("by", [None, "id"])
def test_lines_with_ids_go_by_them(lines, by):
    joined = list(attach_references(lists("u1", "u2", "u3"), [(line,) for line in lines], by=by))
    assert [nbest.references[0].split() for nbest in joined] == [[*"ab"] if lines is not SCLITE else ["a", "(laughs)", "b"], [*"cd"], []]


def test_each_file_may_have_its_own_order_and_way():
    rows = [("u1 a", "x (u2)"), ("u2 b", "y (u1)")]
    assert [nbest.references for nbest in attach_references(lists("u2", "u1"), rows)] == [("b", "x"), ("a", "y")]


def test_ids_of_numbers_are_not_seen_in_words():
    assert [n.references for n in attach_references(lists("0", "1"), [("0 is naught",), ("one is more",)])] == [
        ("0 is naught",),
        ("one is more",),
    ]
    assert [n.references for n in attach_references(lists("0", "1"), [("1 b",), ("0 a",)])] == [("a",), ("b",)]
    assert [n.references for n in attach_references(lists("0", "1"), [("1 b",), ("0 a",)], by="order")] == [("1 b",), ("0 a",)]


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (("u1", "u2", "u4"), r"^refs: no line has the id 'u4' of the list in line 12"),
        (("u4", "u2", "u3"), r"^refs: 2 lines carry the id of one of the 3 lists"),
        (("u1", "u2"), r"^refs:3: no list has the id 'u3': 2 lists, 3 references with ids \(--refs-by id leaves such over\)"),
    ],
)
def test_ids_that_do_not_correspond(ids, message):
    with pytest.raises(InputError, match=message):
        list(attach_references(lists(*ids), [(line,) for line in KALDI], paths=["refs"]))


def test_references_of_what_was_not_decoded_are_left_over_where_asked():
    """As Kaldi's scoring with --mode=present."""
    told = []
    rows = [(line,) for line in KALDI]
    joined = attach_references(lists("u1"), rows, by="id", paths=["refs"], tell=told.append)
    assert [nbest.references for nbest in joined] == [("a b",)]
    assert told == ["note: refs: 2 references are of no list and left over, the first of id 'u2': 1 lists, 3 references with ids"]
    joined = attach_references(lists("u1", "u2", "u3"), rows, by="id", paths=["refs"], tell=told.append)
    assert (len(list(joined)), len(told)) == (3, 1)
    with pytest.raises(InputError, match="no line has the id 'u4'"):
        list(attach_references(lists("u1", "u4"), rows, by="id", paths=["refs"]))


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
    told = []
    rows = [("x",)] * len(ids)
    assert len(list(attach_references(lists(*ids), rows, tell=told.append))) == len(ids)
    assert [line.startswith("WARNING") and pair in line for line in told] == ([True] if pair else [])
    assert len(list(attach_references(lists(*ids), rows, by="order", tell=told.append))) == len(ids)
    assert len(told) == bool(pair)


def test_ids_that_are_there_twice_or_in_one_file_only():
    with pytest.raises(InputError, match=r"^refs: 3 lines carry the id of one of the 3 lists, the others none, or one twice"):
        list(attach_references(lists("u1", "u2", "u3"), [(line,) for line in [*KALDI, "u1 a"]], paths=["refs"]))
    with pytest.raises(
        InputError, match=r"^r1: not every line carries a different id, that of list 'u1' among them, as in the other files"
    ):
        list(attach_references(lists("u1", "u2"), [("u1 a", "a"), ("u2 b", "b")], paths=["r0", "r1"]))
    with pytest.raises(InputError, match=r"^refs: not every line .* expected 'id text' or 'text .id.'"):
        list(attach_references(lists("u1"), [("a",)], by="id", paths=["refs"]))


@pytest.mark.parametrize("by", [None, "number", "id"])
def test_of_several_references_empty_ones_are_none(by):
    rows = [("0 a", "0"), ("1 ", "1 b"), ("2", "2")] if by == "id" else [("a", ""), (" ", "b"), ("", "")]
    joined = list(attach_references(lists("0", "1", "2"), rows, by=by))
    assert [nbest.references for nbest in joined] == [("a",), ("b",), ("", "")]
    assert next(attach_references(lists("0"), [("",)])).references == ("",)


UNSPACED = (["明天7点叫我", "打开3号灯"], ["2024年5月3日 开会", "2024年5月4日 休息"], ["u-1", "u-2"])


def test_ids_of_references():
    assert ids_of_references([(line,) for line in KALDI], certain=True) == ["u2", "u1", "u3"]
    assert ids_of_references([("a b (x-y)",), ("a c (x_z)",)], certain=True) == ["x-y", "x_z"]
    for words in (["a b", "c d"], ["2 b", "3 c"], ["u1 a"], ["u1 a", "u1 b"], ["u1 a", "c d"], ["u1 a", ""], *UNSPACED):
        assert ids_of_references([(line,) for line in words], certain=True) is None
    assert ids_of_references([("a b",), ("c d",)]) == ["a", "c"]
