"""What further files of ``attlm eval`` say of the utterances of the first."""

from __future__ import annotations

import pytest

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.formats import ONE_BEST_STYLES, write_one_best
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.references.same_utterances import read_further, read_texts


def lists(**texts: str) -> list[NbestList]:
    return [NbestList(name.replace("_", "-"), [Hypothesis(text, rank=1)]) for name, text in texts.items()]


FIRST = lists(spk_1="a b", spk_2="", spk_3="c\td (e)")


def further(path, text: str, format_name: str | None = None, first: list[NbestList] = FIRST, **options: bool) -> list[tuple[str, str]]:
    path.write_text(text, encoding="utf-8")
    return [(n.id, n.hypotheses[0].text) for n in read_further(str(path), format_name, first, "FIRST", **options).lists]


def paired(*texts: str) -> list[tuple[str, str]]:
    return list(zip(["spk-1", "spk-2", "spk-3"], texts, strict=True))


@pytest.mark.parametrize("format_name", [None, "text"])
@pytest.mark.parametrize("style", ONE_BEST_STYLES)
def test_what_rescore_writes_is_read_as_it_was(style, format_name, tmp_path):
    """Without an id an empty text is a blank line as between plain lists; with one the lines look like Kaldi's lists."""
    write_one_best(FIRST[::-1] if style != "text" else FIRST, str(tmp_path / "out"), style)
    found = read_further(str(tmp_path / "out"), format_name, FIRST, "FIRST")
    assert [(n.id, n.hypotheses[0].text) for n in found.lists] == paired("a b", "", "c d (e)")
    assert (found.are_texts, found.by_id) == (True, style != "text")


@pytest.mark.parametrize("format_name", [None, "text", "plain", "nemo:8"])
def test_texts_that_look_like_lists(format_name, tmp_path):
    for texts in (["\n"] * 3, ["a\n", "\n", "b c\n"], ["a\tb\n", "c\td\n", "e\tf\n"], ["x-1 a\n", "x-2 b\n", "y-1 c\n"]):
        if format_name == "plain" and "\t" in texts[0]:
            continue
        assert further(tmp_path / "t", "".join(texts), format_name) == paired(*(text[:-1] for text in texts))
    assert further(tmp_path / "t", "-1 -2 1 a\n-1 -2 1 b\n-1 -2 0\n") == paired("-1 -2 1 a", "-1 -2 1 b", "-1 -2 0")
    assert further(tmp_path / "t", "a\t1.5\nb\t2.5\nc\t3.5\n") == paired("a\t1.5", "b\t2.5", "c\t3.5")


def test_lists_of_one_hypothesis_stay_lists(tmp_path):
    assert further(tmp_path / "t", "spk-3-1 c\nspk-1-1 a b\nspk-2-1\n") == paired("a b", "", "c")
    moses = "x ||| a ||| -1\ny ||| b ||| -1\nz ||| c ||| -1\n"
    assert further(tmp_path / "t", moses, first=lists(x="", y="", z="")) == list(zip("xyz", "abc", strict=True))
    assert further(tmp_path / "t", "a\t1.5\nb\t2.5\n", "nemo:1", first=lists(u="", v="")) == [("0", "a"), ("1", "b")]


def test_lists_of_the_same_ids_in_another_order_go_by_them(tmp_path):
    assert further(tmp_path / "t", "spk-2-1 x\nspk-2-2 y\nspk-3-1 z\nspk-1-1\n") == paired("", "x", "z")
    numbered = [NbestList(name, [Hypothesis("", rank=1)]) for name in "120"]
    assert further(tmp_path / "t", "H-0\t-1\ta\nH-1\t-1\tb\nH-2\t-1\tc\n", first=numbered) == [("1", "b"), ("2", "c"), ("0", "a")]


def test_lists_without_ids_go_by_their_order(tmp_path):
    assert further(tmp_path / "t", "a\na\n\nb\n\nc\n") == [("0", "a"), ("1", "b"), ("2", "c")]
    assert further(tmp_path / "t", "-1 -2 1 a\n", first=lists(other="x")) == [("t", "a")]  # SRILM: a list's id is its file's name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("spk-1-1 a\nspk-1-2 a\nspk-2-1 b\nspk-4-1 c\n", r"1 of the ids of the lists of FIRST are not there \(first: 'spk-3'\), and 1 are"),
        ("spk-1 a\nspk-2 b\nspk-4 c\n", r"1 of the ids of the lists of FIRST are not there \(first: 'spk-3'\), and 1 are there that"),
        ("a (spk-1)\nb (spk-2)\n", r"1 of the ids of the lists of FIRST are not there \(first: 'spk-3'\): both must"),
        ("spk-1 a\nspk-2 b\nspk-3 c\nspk-3 d\n", "the id 'spk-3' is there 2 times: expected each id of the lists of FIRST once"),
        ("a\nb\n", "2 lines of text, but FIRST has 3 lists: expected one text a line"),
        ("a\na\n\nb\nb\n", "2 lists, but FIRST has 3"),
    ],
)
def test_other_utterances_are_one_line(text, message, tmp_path):
    with pytest.raises(InputError, match=rf"t: {message}"):
        further(tmp_path / "t", text)


def test_texts_are_in_doubt_beside_numbers_in_another_order(tmp_path):
    numbered = [NbestList(name, [Hypothesis("", rank=1)]) for name in "120"]
    with pytest.raises(InputError, match="the ids of FIRST are the numbers 0 to 2 in another order: which text is whose"):
        further(tmp_path / "t", "a\nb\nc\n", first=numbered, in_doubt=True)
    assert further(tmp_path / "t", "a\nb\nc\n", first=numbered) == [("1", "a"), ("2", "b"), ("0", "c")]
    assert further(tmp_path / "t", "0 a\n1 b\n2 c\n", first=numbered, in_doubt=True) == [("1", "b"), ("2", "c"), ("0", "a")]


def test_texts_as_the_first_file(tmp_path):
    path = tmp_path / "t"
    path.write_text("\ufeffu1 a\r\n\nu2\tb\n", encoding="utf-8")
    assert [(n.id, n.hypotheses[0].text, n.line) for n in read_texts(str(path))] == [("0", "u1 a", 1), ("1", "", 2), ("2", "u2\tb", 3)]
    path.write_text("a (u1)\nb (u2)\n")
    assert [(n.id, n.hypotheses[0].text) for n in read_texts(str(path), ["u2", "u1"])] == [("u1", "a"), ("u2", "b")]
    path.write_text("a\nb\n")
    with pytest.raises(InputError, match=r"t: texts without ids, and the references have some .first: 'u2'.: expected 'id text'"):
        read_texts(str(path), ["u2", "u1"])
