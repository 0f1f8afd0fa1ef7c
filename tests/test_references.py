from __future__ import annotations

import gzip
import io
from types import SimpleNamespace

import pytest

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.references import attach_references, read_references


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
    with pytest.raises(InputError, match=r"list 'u2' \(line 10\) has no reference: give a file"):
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
