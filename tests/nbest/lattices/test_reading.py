"""Lattices of Kaldi, binary and as text, and SLF: what the files say becomes arcs; what they do not hold is told in one line."""

from __future__ import annotations

import gzip
import json
import math
import re
import struct
from pathlib import Path

import pytest
from cli_runs import refused, run

from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.formats import open_nbest
from attlm_fairseq.nbest.lattices.read import read_lattices
from attlm_fairseq.verbs.lattices import lists_from_lattices

SYMBOLS = {0: "<eps>", 1: "SIL", 3: "the", 4: "a", 5: "cat", 6: "hat"}
WORDS = "".join(f"{word} {number}\n" for number, word in SYMBOLS.items())
TEXT = """\
u1\x20
0 1 3 1,10,1_1_1
0 1 4 0.5,12,1_1
1 2 5 1,20,2
2 2 1 Infinity,Infinity,
1 2 6 0,31,
2 0.1,0,

u2
0 1 1 1,1,
1 2 0 ,,4_5
2

"""
ARCS = {  # of u1
    (0, 1, "the"): (-1.0, -10.0),
    (0, 1, "a"): (-0.5, -12.0),
    (1, 2, "cat"): (-1.0, -20.0),
    (1, 2, "hat"): (0.0, -31.0),
}
OF_KALDIFST = bytes.fromhex(  # u1 as kaldifst 1.8.3 writes it (Lattice.write), with states in another order and one arc twice
    "d6fdb27e06000000766563746f72080000006c6174746963653402000000000000000300825a690000000000000000000000040000000000000000000000000000"
    "000000807f0000807f020000000000000001000000030000000000803f000020410100000001000000040000000000003f00004041020000000000807f0000807f"
    "020000000000000002000000050000000000803f0000a041030000000200000006000000000000000000f041030000000000807f0000807f010000000000000002"
    "000000050000000000803f0000a04103000000cdcccc3d000000000000000000000000"
)
SLF = """\
VERSION=1.0
UTTERANCE=/data/test1.mfc
lmname=wdnet
lmscale=15.0 wdpenalty=-4.5
# node information
N=4    L=5
I=0    t=0.00
I=1    t=0.36
I=2    t=0.75
I=3    t=0.81
J=0     S=0    E=1    W=!NULL     v=0  a=-32.5    l=0.000
J=1     S=1    E=2    W=four      v=0  a=-38.25   l=-1.0
J=2     S=1    E=2    W="f\\303\\274nf" v=0  a=-38.5    l=-1.5
J=3     S=2    E=3    W=SILENCE   v=0  a=-24.5    l=0.000
J=4     S=1    E=3    W='it\\'s'   a=-60 l=-3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text(WORDS)
    return tmp_path


def binary(compact: bool, arc_type: str | None = None, flags: int = 0) -> bytes:
    """The lattices of TEXT as a binary archive of Kaldi."""

    def weight(graph: float, acoustic: float, alignment: tuple[int, ...] = ()) -> bytes:
        found = struct.pack("<ff", graph, acoustic)
        return found + struct.pack(f"<i{len(alignment)}i", len(alignment), *alignment) if compact else found

    def fst(states: list[tuple[bytes, list[bytes]]]) -> bytes:
        kind = (arc_type or ("compactlattice44" if compact else "lattice4")).encode()
        header = struct.pack("<i", 2125659606) + struct.pack("<i", 6) + b"vector" + struct.pack("<i", len(kind)) + kind
        header += struct.pack("<iiQqqq", 2, flags, 7, 0, len(states), sum(len(arcs) for _, arcs in states))
        return header + b"".join(final + struct.pack("<q", len(arcs)) + b"".join(arcs) for final, arcs in states)

    def arc(target: int, word: int, *costs) -> bytes:
        return struct.pack("<ii", word if compact else 99, word) + weight(*costs) + struct.pack("<i", target)

    no_end = weight(float("inf"), float("inf"))
    first = [arc(1, 3, 1, 10, (1, 1, 1)), arc(1, 4, 0.5, 12, (1, 1))], [arc(2, 5, 1, 20, (2,)), arc(2, 6, 0, 31)], []
    one = fst([(no_end, first[0]), (no_end, first[1]), (weight(0.1, 0), [])])
    two = fst([(no_end, [arc(1, 1, 1, 1)]), (no_end, [arc(2, 0, 0, 0, (4, 5))]), (weight(0, 0), [])])
    return b"u1 " + one + b"u2 " + two


def arcs_of(lattice) -> dict[tuple[int, int, str], tuple[float, ...]]:
    return {(state, arc.target, arc.word): arc.scores for state, arcs in enumerate(lattice.arcs) for arc in arcs}


@pytest.mark.parametrize("kind", ["text", "words", "plain text", "compact", "not compact", "gzip"])
def test_kaldi(kind):
    files = {
        "text": TEXT.encode(),
        "words": TEXT.replace(" 3 1,", " the 1,")
        .replace(" 4 0.5", " a 0.5")
        .replace(" 5 1", " cat 1")
        .replace(" 6 0,", " hat 0,")
        .replace("0 1 1 1,1", "0 1 SIL 1,1")
        .replace("1 2 0 ,", "1 2 <eps> ,")
        .encode(),
        "plain text": TEXT.replace("0 1 3", "0 1 7 3").replace("0 1 4", "0 1 7 4").replace(",1_1_1", "").replace(",1_1", "").encode(),
        "compact": binary(compact=True),
        "not compact": binary(compact=False),
        "gzip": gzip.compress(binary(compact=True)),
    }
    Path("lat.1").write_bytes(files[kind])
    first, second = read_lattices(["lat.1"], None if kind == "words" else SYMBOLS)
    assert (first.id, first.start, first.names) == ("u1", 0, ("graph", "acoustic"))
    assert arcs_of(first) == ARCS
    assert {state: pytest.approx(scores) for state, scores in first.finals.items()} == {2: (-0.1, 0.0)}
    assert second.id == "u2"
    assert arcs_of(second) == {(0, 1, "SIL"): (-1.0, -1.0), (1, 2, ""): (0.0, 0.0)}
    assert second.finals == {2: (0.0, 0.0)}


def test_what_kaldifst_writes():
    Path("lat.1").write_bytes(b"u1 " + OF_KALDIFST)
    [nbest] = lists_from_lattices("lat.1", words="words.txt")
    assert [hypothesis.text for hypothesis in nbest.hypotheses] == ["a cat", "the cat", "the hat"]
    assert nbest.hypotheses[0].scores == pytest.approx({"graph": -1.6, "acoustic": -32.0})


def test_slf():
    Path("test1.lat").write_text(SLF)
    [lattice] = read_lattices(["test1.lat"])
    assert (lattice.id, lattice.start, lattice.names) == ("test1", 0, ("acoustic", "lm"))
    assert lattice.weights == {"acoustic": 1.0, "lm": 15.0, "words": -4.5}
    assert arcs_of(lattice) == {
        (0, 1, ""): (-32.5, 0.0),
        (1, 2, "four"): (-38.25, -1.0),
        (1, 2, "fünf"): (-38.5, -1.5),
        (2, 3, "SILENCE"): (-24.5, 0.0),
        (1, 3, "it's"): (-60.0, -3.0),
    }
    assert lattice.finals == {3: (0.0, 0.0)}


def test_slf_with_words_on_nodes_another_base_and_named_ends():
    """As SRILM writes it: words on nodes, scores in base 10, start and end in the header, long names."""
    Path("a.slf").write_text(
        "VERSION=1.1\nUTTERANCE=a\nbase=10\ninitial=0\nstart=0 end=2\nacscale=0.5 prscale=2 ngscale=12\nNODES=4 LINKS=3\n"
        "I=0 WORD=<s>\nI=1 WORD=yes\nI=2 WORD=</s>\nI=3 WORD=no\n"
        "J=0 START=0 END=1 acoustic=-2 language=-1 r=-0.5\nJ=1 START=1 END=2 a=-1 n=-3 x3=-4\nJ=2 S=2 E=3\n"
    )
    [lattice] = read_lattices(["a.slf"])
    ten = 2.302585092994046
    assert lattice.weights == {"acoustic": 0.5, "lm": 1.0, "ngram": 12.0, "pronunciation": 2.0, "x3": 0.0, "words": 0.0}
    assert arcs_of(lattice) == {
        (0, 1, "yes"): pytest.approx((-2 * ten, -ten, 0.0, -0.5 * ten, 0.0)),
        (1, 2, ""): pytest.approx((-ten, 0.0, -3 * ten, 0.0, -4 * ten)),
        (2, 3, "no"): (0.0, 0.0, 0.0, 0.0, 0.0),
    }
    [nbest] = lists_from_lattices(["a.slf"])
    assert [hypothesis.text for hypothesis in nbest.hypotheses] == ["yes"]


def test_lattices_without_a_path_become_empty_texts():
    Path("lat.1").write_text("u1\n" + ONE + "u2\n\nu3\n0 1 3 1,1,\n2 0,0,\n\n")
    told = run("lattices", "lat.1", "--words", "words.txt")
    found = [json.loads(line)["hyps"] for line in told.stdout.splitlines()]
    assert [[hypothesis["text"] for hypothesis in hyps] for hyps in found] == [["the"], [""], [""]]
    assert found[2][0]["scores"] == {"graph": 0.0, "acoustic": 0.0}
    assert "WARNING: 2 lattices have no path to an end, such as 'u2': their lists have one empty text" in told.stderr
    no_states = OF_KALDIFST[:26] + struct.pack("<iiQqqq", 2, 0, 0, -1, 0, 0)
    for archive in (b"u0 \n\nu00\n\nu1\n" + ONE.encode(), b"u0 " + no_states + b"u1 " + OF_KALDIFST):
        Path("lat.1").write_bytes(archive)
        *empty, last = lists_from_lattices("lat.1", words="words.txt")
        assert empty
        assert {hypothesis.text for nbest in empty for hypothesis in nbest.hypotheses} == {""}
        assert last.hypotheses[0].text


@pytest.mark.parametrize(
    ("ids", "lattice", "warned"),
    [
        (("u1-1", "u1-2", "u2-1"), "{} \n0 1 3 1,1,\n1 0,0,\n\n", True),
        (("u1-1", "u2-1"), "{} \n0 1 3 1,1,\n1 0,0,\n\n", False),  # no list has a second hypothesis
        (("u1", "u2"), "{} \n0 1 3 1,1,\n1 0,0,\n\n", False),
        (("u1-1", "u1-2"), "{} \n0 1 3 1,1,\n0 1 4 1,1,\n1 0,0,\n\n", False),  # two paths each
    ],
)
def test_archives_of_lattice_to_nbest_get_a_warning(ids, lattice, warned):
    Path("nbest1.1").write_text("".join(lattice.format(name) for name in ids))
    with collected() as told:
        found = list(lists_from_lattices("nbest1.1", words="words.txt"))
    assert [nbest.id for nbest in found] == list(ids)
    assert any("as Kaldi's lattice-to-nbest writes them" in line for line in told) == warned


def test_one_lattice_with_several_paths_tells_lattices_from_hypotheses():
    Path("lat.1").write_text("u-1 \n0 1 3 1,1,\n1 0,0,\n\nu-2 \n0 1 3 1,1,\n0 1 4 1,1,\n1 0,0,\n\nu-3 \n0 1 3 1,1,\n1 0,0,\n\n")
    with collected() as told:
        list(lists_from_lattices("lat.1", words="words.txt"))
    assert not any("lattice-to-nbest" in line for line in told)


@pytest.mark.parametrize(
    ("text", "has_path"),
    [
        ("start=0 end=3\nN=4 L=2\nI=0\nI=1\nI=2\nI=3\nJ=0 S=0 E=1 W=a x1=-1\nJ=1 S=1 E=2 W=b x1=-1\n", False),  # no link enters the end
        ("start=3 end=1\nN=4 L=1\nJ=0 S=0 E=1 W=a x1=-1\n", False),  # no link leaves the start, and nodes have no lines
        ("start=0 end=1\nN=2 L=0\nI=0\nI=1\n", False),
        ("N=0 L=0\n", False),
        ("N=1 L=0\nI=0 t=0\n", True),  # a path without links
        ("start=0 end=0\nN=1 L=0\nI=0\n", True),
        ("start=0 end=0\nN=2 L=1\nI=0\nI=1\nJ=0 S=0 E=1 W=a x1=-1\n", True),
    ],
)
def test_slf_without_words_becomes_an_empty_text(text, has_path):
    Path("u.lat").write_text("VERSION=1.0\n" + text)
    Path("u1.lat").write_text(re.sub("l=", "x1=", SLF))
    with collected() as told:
        found, other = lists_from_lattices(["u.lat", "u1.lat"], weights={"x1": 1.0})
    [hypothesis] = found.hypotheses
    assert (hypothesis.text, hypothesis.scores["acoustic"], hypothesis.scores["lm"]) == ("", 0.0, 0.0)
    assert other.hypotheses[0].text
    warning = "WARNING: 1 lattices have no path to an end, such as 'u': their lists have one empty text"
    assert (warning in told) is not has_path


@pytest.mark.parametrize("links", ["", "J=0 S=0 E=1 a=-1\n", "J=0 S=0 E=1 a=-1 W=it\n"])
def test_the_word_of_the_first_node_is_a_word_too(links):
    """No arc leads to it, so that the reader adds one."""
    Path("u.lat").write_text(
        f"VERSION=1.0\nN={2 if links else 1} L={links.count('J')}\nI=0 t=0.5 W=so\n" + ("I=1 t=1.5 W=it\n" + links if links else "")
    )
    [found] = lists_from_lattices("u.lat")
    [hypothesis] = found.hypotheses
    assert hypothesis.text == ("so it" if links else "so")
    assert hypothesis.times == ((0.0, 0.5), (0.5, 1.5))[: 1 + bool(links)]
    assert hypothesis.scores["acoustic"] == (-1.0 if links else 0.0)
    Path("u.lat").write_text(Path("u.lat").read_text().replace("W=so", "W=!NULL"))
    [found] = lists_from_lattices("u.lat")
    assert found.hypotheses[0].text == ("it" if links else "")


def test_digits_may_be_words():
    Path("lat.1").write_text("u1\n0 1 7 1,1,\n0 1 0 2,1,\n1 2 pm 0,0,\n2 0,0,\n\n")
    [nbest] = lists_from_lattices("lat.1")
    assert [hypothesis.text for hypothesis in nbest.hypotheses] == ["7 pm", "0 pm"]


def test_words_that_begin_and_end_with_the_same_letter_have_no_quotes():
    for word in ("did", "'tis'", '"did"', "'"):
        Path("test1.lat").write_text(SLF.replace("W=four", f"W={word}"))
        [lattice] = read_lattices(["test1.lat"])
        assert lattice.arcs[1][0].word == {"'tis'": "tis", '"did"': "did"}.get(word, word)


def test_names_and_scores_of_slf():
    for name in ("spk.utt1", "utt2.lat", "utt3.htk"):
        Path(name).write_text(SLF)
    assert [nbest.id for nbest in lists_from_lattices(["spk.utt1", "utt2.lat", "utt3.htk"])] == ["spk.utt1", "utt2", "utt3"]
    told = run("lattices", "-", "--leave-out", "SILENCE, sil", stdin=SLF)
    assert json.loads(told.stdout)["id"] == "test1"
    assert "WARNING: no lattice has the word 'sil', which is to be left out" in told.stderr
    Path("utt2.lat").write_text(re.sub(r" l=[-.\d]+", "", SLF))
    assert [set(nbest.hypotheses[0].scores) for nbest in lists_from_lattices(["utt2.lat", "utt3.htk"])] == [{"acoustic", "lm"}] * 2
    Path("utt2.lat").write_text(re.sub(r" [al]=[-.\d]+", "", SLF))
    assert "WARNING: utt2.lat: the lattice has no scores" in run("lattices", "utt2.lat").stderr


def test_words_have_times():
    """Those of their nodes in SLF, of the frames of their arcs in Kaldi's lattices. What is left out takes its time."""
    Path("test1.lat").write_text(SLF)
    [nbest] = lists_from_lattices("test1.lat", leave_out=["SILENCE"])
    assert [(found.text, found.times) for found in nbest.hypotheses] == [
        ("four", ((0.36, 0.75),)),
        ("fünf", ((0.36, 0.75),)),
        ("it's", ((0.36, 0.81),)),
    ]
    Path("test1.lat").write_text(SLF.replace("t=0.00", "t=0.10"))
    [nbest] = lists_from_lattices("test1.lat")
    assert nbest.hypotheses[0].times == ((0.36, 0.75), (0.75, 0.81))
    Path("test1.lat").write_text(SLF.replace("lmname=wdnet", "tscale=0.01").replace("t=0.00", "t=10").replace("t=0.36", "t=36"))
    with collected() as told:
        [nbest] = lists_from_lattices("test1.lat")
    assert not nbest.hypotheses[0].times
    assert "WARNING: 1 lattices have links that end before they begin, such as 'test1': their words get no times" in told
    Path("test1.lat").write_text(
        re.sub(r" t=(\S+)", lambda found: f" t={100 * float(found[1]):g}", SLF).replace("lmname=wdnet", "tscale=.01")
    )
    [nbest] = lists_from_lattices("test1.lat")
    assert nbest.hypotheses[0].times == ((0.36, 0.75), (0.75, 0.81))
    Path("test1.lat").write_text(SLF.replace("t=0.75", ""))  # one node without a time
    [nbest] = lists_from_lattices("test1.lat")
    assert not nbest.hypotheses[0].times
    Path("test1.lat").write_text(SLF.replace('W="f\\303\\274nf"', 'W="to  four"'))  # words that share the time of their arc
    [nbest] = lists_from_lattices("test1.lat", leave_out=["SILENCE"])
    assert next(found.times for found in nbest.hypotheses if found.text.split() == ["to", "four"]) == ((0.36, 0.555), (0.555, 0.75))
    Path("test2.lat").write_text(SLF.replace("lmscale=15.0", "lmscale=1.0"))
    told = run("lattices", "test1.lat", "test2.lat", "-o", "lists.jsonl").stderr
    assert "note: test2.lat: its scales are others than those of the first lattice; each lattice is searched with its own" in told
    assert len(list(open_nbest("lists.jsonl")[1])) == 2
    for archive in (TEXT.encode(), binary(compact=True)):
        Path("lat.1").write_bytes(archive)
        first, _ = lists_from_lattices("lat.1", words="words.txt", frame_shift=0.03)
        found = {hypothesis.text: hypothesis.times for hypothesis in first.hypotheses}
        assert found["the cat"] == ((0.0, 0.09), (0.09, 0.12))
        assert found["a cat"] == ((0.0, 0.06), (0.06, 0.09))
        assert found["a hat"] == ((0.0, 0.06), (0.06, 0.06))  # without an alignment
    told = run("lattices", "lat.1", "--words", "words.txt", "--frame-shift", 0.03).stdout
    assert json.loads(told.splitlines()[0])["hyps"][0]["times"] == [[0.0, 0.06], [0.06, 0.09]]


def test_folders_are_read_in_the_order_of_numbers():
    Path("decode").mkdir()
    for number in (10, 2, 1):
        with gzip.open(f"decode/lat.{number}.gz", "wb") as file:
            file.write(binary(compact=True).replace(b"u1 ", b"a%d " % number).replace(b"u2 ", b"b%d " % number))
    Path("decode/num_jobs").write_text("3\n")
    with collected() as told:
        list(read_lattices(["decode"], SYMBOLS))
    assert told == ["note: decode: 1 files with other names than lat.1.gz or NAME.lat are not read, such as num_jobs"]
    assert [lattice.id for lattice in read_lattices(["decode"], SYMBOLS)] == ["a1", "b1", "a2", "b2", "a10", "b10"]


def test_command():
    Path("lat.1").write_bytes(binary(compact=True))
    Path("test1.slf").write_text(SLF)
    told = run("lattices", "lat.1", "--words", "words.txt", "--leave-out", "SIL", "-o", "dev.jsonl").stderr
    assert "total = 1 graph + 0.1 acoustic" in told
    assert "note: 2 lists have fewer than 100 hypotheses" in told
    assert "2 lists, 5 hypotheses" in told
    first, second = map(json.loads, Path("dev.jsonl").read_text().splitlines())
    assert [hypothesis["text"] for hypothesis in first["hyps"]] == ["a cat", "a hat", "the cat", "the hat"]
    assert first["hyps"][0]["scores"] == pytest.approx({"graph": -1.6, "acoustic": -32.0})
    assert [hypothesis["text"] for hypothesis in second["hyps"]] == [""]
    one = run("lattices", "lat.1", "--words", "words.txt", "-n", 1, "--weight", "acoustic=1", "--weight", "graph=0.1").stdout
    assert [json.loads(line)["hyps"][0]["text"] for line in one.splitlines()] == ["the cat", "SIL"]
    told = run("lattices", "test1.slf", "--leave-out", "SILENCE")
    assert "total = 1 acoustic + 15 lm + -4.5 words" in told.stderr
    assert [hypothesis["text"] for hypothesis in json.loads(told.stdout)["hyps"]] == ["four", "fünf", "it's"]
    Path("refs").write_text("u1 the cat\nu2\n")
    run("tune", "dev.jsonl", "--refs", "refs", "--folds", 0, "-o", "attlm.toml")  # its lists are lists
    assert "oracle" in run("eval", "dev.jsonl", "--refs", "refs").stdout


ONE = "0 1 3 1,10,\n1 0,0,\n\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("u1\n" + ONE + "u1\n" + ONE, "lat.1:5: the lattice of 'u1' has the id of an earlier one"),
        ("u1\n0 1 3 1,x,\n1 0,0,\n", "lat.1:2: a cost is 'x': expected a number"),
        ("u1\n0 1 3 nan,1,\n1 0,0,\n", "lat.1:2: a cost is nan: expected a finite number"),
        ("u1\n0 1 9 1,1,\n1 0,0,\n", "has the word number 9, which --words does not have"),
        ("u1\n0 1 3 1,1,\n0 1 3 4 5 1,1\n1 0,0\n", "lat.1:3: found '0 1 3 4 5 1,1': expected `from to word graph,acoustic,alignment`"),
        ("u1\n0 1 3 1,1,\n1 x\n", "lat.1:3: found '1 x': expected"),
        ("u1\n" + ONE + "0 1 3 1,10,\n", "lat.1:5: found '0 1 3 1,10,': expected the id of an utterance"),
        ("u1\n0 1 3 1,1,\n1 0 3 1,1,\n1 0,0,\n", "lat.1:1: the lattice of 'u1' has a path that leads back to its own state"),
        ("u1\n0 1 the 1,1,\n1 0,0,\n", "lat.1:1: the lattice of 'u1' has words, such as 'the', not their numbers: leave --words out"),
        ("u1\n0 400000000 3 1,1,\n", "lat.1:1: the lattice of 'u1' has a state with the number 400000000: expected less than"),
        ("a sentence\nanother\n", "lat.1: holds no lattices: expected lattices of Kaldi"),
        ("\n" * 200 + "hello\n", "lat.1: holds no lattices: expected lattices of Kaldi"),
        ("", "lat.1: the file is empty: expected lattices of Kaldi"),
        (SLF.replace("E=3    W=SILENCE", "E=7 W=x"), "lat.1:14: E is 7, which is no node of the lattice"),
        (SLF.replace("a=-24.5", "a=x"), "lat.1:14: a is 'x': expected a number"),
        (SLF.replace("S=2 ", "S=two "), "lat.1:14: S is 'two': expected a whole number"),
        pytest.param(SLF.replace("S=2 ", f"S={'9' * 5000} "), "expected a whole number", id="a number that Python refuses"),
        pytest.param("u1\n" + ONE.replace("0 1", "9" * 5000 + " 1"), "expected `from to word", id="a state that Python refuses"),
        (SLF.replace("S=2 ", ""), "lat.1:14: a link has no S=: expected the nodes S= and E="),
        (SLF.replace("L=5", "L=6"), "lat.1: has 5 links, and its header says 6: is the file cut short?"),
        (SLF.replace("L=5", "L=4").replace(SLF.splitlines()[13] + "\n", ""), "lat.1: has the end nodes 2, 3: expected one, or end=NODE"),
        (SLF.replace("I=1 ", "I=1 L=sub "), "lat.1:8: has sub-lattices, which are not read"),
        (SLF.replace("lmname=wdnet", "dir=b"), "lat.1:3: is a backward lattice"),
        (SLF.replace("lmname=wdnet", "base=ten"), "lat.1:3: base is 'ten': expected a number"),
        (SLF.replace("lmname=wdnet", "base=1"), "lat.1:3: has the base 1 of logarithms"),
        (SLF.replace("lmname=wdnet", "tscale=0"), "lat.1:3: tscale is 0: expected a number above 0"),
        (SLF.replace("lmname=wdnet", "tscale=inf"), "lat.1:3: tscale is inf: expected a finite number"),
        (SLF.replace("lmscale=15.0", "lmscale=x"), "lat.1:4: lmscale is 'x': expected a number"),
        (SLF.replace("-4.5", "x"), "lat.1:4: wdpenalty is 'x': expected a number"),
        (SLF.replace("lmname=wdnet", "start=zero"), "lat.1:3: start is 'zero': expected a whole number"),
        (SLF.replace("lmname=wdnet", "end=9"), "lat.1:3: end is 9, which is no node of the lattice"),
        (SLF.replace("N=4 ", "N=x "), "lat.1:6: N is 'x': expected a whole number"),
        (SLF.replace("I=1 ", "I=0 "), "lat.1:8: has the number of an earlier node, 0: expected another number I= for each"),
        (SLF.replace("J=1 ", "J=0 "), "lat.1:12: has the number of an earlier link, '0': expected another number J= for each"),
        (SLF.replace("a=-24.5", "a=-24.5 a=-5"), "lat.1:14: has the field a twice: expected it once in a line"),
        (SLF.replace("a=-24.5", "a=-24.5 acoustic=-5"), "lat.1:14: has the field a twice"),
        (SLF.replace("W=SILENCE", 'W="SILENCE'), "a=-12.5 l=-1.2, with each quote closed"),
        *(
            (SLF.replace("t=0.36", f"t=0.36 {name}=-5"), f"lat.1:8: has scores on a node, such as {shown}: expected them on links")
            for name, shown in {"a": "a", "acoustic": "a", "language": "l", "l": "l", "n": "n", "r": "r", "ds": "ds", "x9": "x9"}.items()
        ),
        (SLF.replace("lmname=wdnet", "base=0"), "a is -32.5: with base=0 expected a likelihood"),
        (
            re.sub(r"=-[.\d]+", "=1", SLF.replace("lmname=wdnet", "base=0")).replace("wdpenalty=1", "wdpenalty=-1"),
            "lat.1:4: wdpenalty is -1: ",
        ),
        (SLF, "lat.1: the lattice of 'lat.1' has words, such as 'SILENCE', not their numbers: leave --words out"),
        (
            re.sub(r"W=\S+", "W=3", SLF) + SLF.replace("UTTERANCE", "NAME"),
            "lat.1:16: is one of several lattices in this file: expected UTTERANCE=ID in the header of",
        ),
        (
            SLF.replace("UTTERANCE", "NAME") + SLF,
            "lat.1:1: is one of several lattices in this file: expected UTTERANCE=ID in the header of",
        ),
        (SLF.replace("lmname=wdnet", "base=-2"), "lat.1:3: has the base -2 of logarithms"),
        (SLF.replace("J=0 ", "J=0 nonsense "), "lat.1:11: found 'nonsense S=0"),
    ],
)
def test_bad_files_are_one_line(text, message):
    Path("lat.1").write_text(text)
    assert message in refused("lattices", "lat.1", "--words", "words.txt", "-o", "out")
    assert not Path("out").exists()


def test_weights_are_finite_numbers():
    Path("lat.1").write_text(SLF)
    for weight, shown in ((float("nan"), "nan (float)"), ("0.1", "'0.1' (str)")):
        with pytest.raises(InputError, match=re.escape(f"the weight of acoustic is {shown}: expected a finite number")):
            list(lists_from_lattices("lat.1", weights={"acoustic": weight}))


@pytest.mark.parametrize("end", range(1, 380, 7))
def test_binary_archives_that_are_cut_short_are_told(end):
    whole = binary(compact=True)
    assert len(whole) > end
    Path("lat.1").write_bytes(whole[:end])
    with pytest.raises(InputError):
        list(read_lattices(["lat.1"], SYMBOLS))


LAST_ARC = struct.pack("<iiffii", 6, 6, 0, 31, 0, 2)  # of u1, to the state 2


@pytest.mark.parametrize(
    ("archive", "message"),
    [
        (binary(compact=True, arc_type="standard"), "the lattice of 'u1' is an FST of the type 'vector' with arcs 'standard': expected"),
        (b"u1 " + OF_KALDIFST[:26] + struct.pack("<iiQqqq", 2, 0, 0, 0, 1 << 40, 0), "the lattice of 'u1' has 1099511627776 states"),
        (binary(compact=True).replace(struct.pack("<4i", 3, 1, 1, 1), struct.pack("<4i", -3, 1, 1, 1)), "an alignment has -3 frames"),
        (binary(compact=True, flags=1), "the lattice of 'u1' has 3 states, the start 0 and the flags 1: expected"),
        (binary(compact=True) + b"u1 " + OF_KALDIFST, "the lattice of 'u1' has the id of an earlier one"),
        *((binary(compact=True).replace(LAST_ARC, LAST_ARC[:-4] + struct.pack("<i", n)), f"an arc to the state {n} of 3") for n in (-1, 3)),
        (binary(compact=True) + b"u3", "lat.1: ends after the id 'u3': the file is cut short"),
        (binary(compact=True) + b"u3 rest", "the lattice of 'u3' begins with the bytes b'rest'"),
        (binary(compact=True).replace(struct.pack("<i", 4), struct.pack("<i", 8)), "has the word number 8, which --words does not have"),
    ],
)
def test_bad_archives_are_one_line(archive, message):
    Path("lat.1").write_bytes(archive)
    assert message in refused("lattices", "lat.1", "--words", "words.txt", "-o", "out")
    assert not Path("out").exists()


def test_words_and_weights_that_do_not_fit_are_one_line():
    Path("lat.1").write_bytes(binary(compact=True))
    Path("lat.2").write_text(TEXT)
    assert "give Kaldi's words.txt (--words graph/words.txt)" in refused("lattices", "lat.1")
    assert "lat.2:1: the lattice of 'u1' has numbers for words: give Kaldi's words.txt" in refused("lattices", "lat.2")
    given = ["lattices", "lat.1", "--words", "words.txt"]
    assert "has no score 'lm' to give a weight; there are graph, acoustic, words" in refused(*given, "--weight", "lm=1")
    assert "the value of hypotheses is 0" in refused(*given, "-n", 0)
    assert "would overwrite the input" in refused(*given, "-o", "lat.1")
    assert "the value of frame_shift is 0.0: expected seconds" in refused(*given, "--frame-shift", 0)
    Path("lat.3").write_bytes(binary(compact=False))
    Path("lat.4").write_text(TEXT.replace("0 1 3", "0 1 7 3").replace(",1_1_1", ""))
    for path in ("lat.3", "lat.4"):
        assert "is not compact, so that its words have no ends" in refused("lattices", path, *given[2:], "--frame-shift", 0.03)
    Path("test1.slf").write_text(SLF)
    assert "SLF has its own times" in refused("lattices", "test1.slf", "--frame-shift", 0.03)
    for text, message in (
        ("a 1 2\n", "words.txt:1: found 'a 1 2': expected a word and its number"),
        ("a 1\nb 1\n", "words.txt:2: 'b' has"),
    ):
        Path("words.txt").write_text(text)
        assert message in refused(*given)
    Path("decode").mkdir()
    assert "decode: no lattices in this folder" in refused("lattices", "decode")
    assert "`attlm lattices FILE --words words.txt -o lists.jsonl` makes them" in refused("rescore", "lat.2")
    Path("test1.slf").write_text(SLF)
    assert "`attlm lattices FOLDER -o lists.jsonl` makes them" in refused("rescore", "test1.slf")
    assert "`attlm lattices FILE --words words.txt -o lists.jsonl` makes them" in refused("rescore", "lat.1")


def test_scales_of_srilm():
    """Without duscale in the header durations have no weight; and Moses numbers its features beyond 9."""
    Path("u.lat").write_text(
        "VERSION=1.1\nbase=10 x10scale=2\nN=2 L=2\nJ=0 S=0 E=1 W=x a=-1 l=-1 ds=-1 x9=-1 x10=-1\n"
        "J=1 S=0 E=1 W=b a=-1.1 l=-1 ds=-0.5 x10=-50\n"
    )
    [lattice] = read_lattices(["u.lat"])
    assert lattice.names == ("acoustic", "lm", "duration", "x9", "x10")
    assert lattice.weights == {"acoustic": 1.0, "lm": 1.0, "duration": 0.0, "x9": 0.0, "x10": 2.0, "words": 0.0}
    [nbest] = lists_from_lattices("u.lat")
    assert [hypothesis.text for hypothesis in nbest.hypotheses] == ["x", "b"]
    assert nbest.hypotheses[1].scores["x10"] == pytest.approx(-50 * math.log(10))


def test_bytes_of_srilm_and_htk():
    for written in (r"\303\244y", r"\0303\0244y", r"\037777777703\037777777644y"):
        Path("u.lat").write_text(f"VERSION=1.0\nN=2 L=1\nJ=0 S=0 E=1 W=x{written} a=-1\n")
        assert lists_texts("u.lat") == ["xäy"]
    Path("u.lat").write_text("VERSION=1.0\nN=2 L=1\nJ=0 S=0 E=1 W=a\\040b a=-1\n")
    assert lists_texts("u.lat") == ["a b"]


def lists_texts(*paths: str, **options: object) -> list[str]:
    return [hypothesis.text for nbest in lists_from_lattices(paths, **options) for hypothesis in nbest.hypotheses]


def test_words_of_pocketsphinx_begin_at_their_nodes():
    """And the score of a word stands on the link that leaves its node."""
    Path("u.lat").write_text(
        "# Lattice generated by PocketSphinx\n#\n# Header\n#\nVERSION=1.0\nstart=4\nend=0\n#\nN=5\tL=4\n#\n# Node definitions\n#\n"
        "I=4\tt=0.00\tW=!SENT_START\tv=1\nI=3\tt=0.10\tW=go\tv=1\nI=2\tt=0.50\tW=forward\tv=1\nI=1\tt=1.20\tW=ten\tv=1\n"
        "I=0\tt=1.70\tW=!SENT_END\tv=1\n#\n# Link definitions\n#\n"
        "J=0\tS=4\tE=3\ta=-1\tp=1\nJ=1\tS=3\tE=2\ta=-2\tp=1\nJ=2\tS=2\tE=1\ta=-4\tp=1\nJ=3\tS=1\tE=0\ta=-8\tp=1\n"
    )
    [nbest] = lists_from_lattices("u.lat")
    [found] = nbest.hypotheses
    assert (found.text, found.scores) == ("go forward ten", {"acoustic": -15.0, "lm": 0.0})
    assert found.times == ((0.1, 0.5), (0.5, 1.2), (1.2, 1.7))
    Path("u.lat").write_text(Path("u.lat").read_text().replace("W=!SENT_END", "W=metres"))
    assert lists_texts("u.lat") == ["go forward ten metres"]


def test_numbers_of_words_in_slf():
    """As Kaldi's convert_slf.pl leaves them; several lattices are in one file."""
    lattice = "VERSION=1.0\nUTTERANCE=%s\nN=2 L=2\nJ=0 S=0 E=1 W=%d l=-1 a=-1\nJ=1 S=0 E=1 W=0 l=-2 a=-2\n"
    Path("u.lat").write_text(lattice % ("sp1.2-u1.wav", 5) + lattice % ("u2", 6))
    found = list(lists_from_lattices("u.lat", words="words.txt"))
    assert [(nbest.id, [hypothesis.text for hypothesis in nbest.hypotheses]) for nbest in found] == [
        ("sp1.2-u1", ["cat", ""]),
        ("u2", ["hat", ""]),
    ]
    assert "u.lat:6: the lattice of 'u2' has the word number 9, which --words does not have" in refused(
        *("lattices", "-", "--words", "words.txt"), stdin=(lattice % ("u1", 5) + lattice % ("u2", 9))
    ).replace("<stdin>", "u.lat")
    assert lists_texts("u.lat") == ["5", "0", "6", "0"]
    assert json.loads(run("lattices", "-", stdin=lattice % ("sp1.2", 5)).stdout)["id"] == "sp1.2"


def test_slf_as_programs_write_it():
    """An empty value before another field, a path with spaces, a quote as a word, a comment at the end of a line."""
    Path("u.lat").write_text(
        "VERSION=1.1 # of a program\nUTTERANCE=/data/My Files/a.mfc lmname= lmscale=15\nN=3 L=2\n"
        'J=0 S=0 E=1 W= v=0 a=-1\nJ=1 S=1 E=2 W=" a=-1 l=-1 # the quote\n'
    )
    [lattice] = read_lattices(["u.lat"])
    assert lattice.weights["lm"] == 15.0
    assert arcs_of(lattice) == {(0, 1, ""): (-1.0, 0.0), (1, 2, '"'): (-1.0, -1.0)}
    lattices = "".join(f"VERSION=1.0\nUTTERANCE=/My Files/{name}.mfc\nN=2 L=1\nJ=0 S=0 E=1 W=a a=-1\n" for name in "xy")
    assert [json.loads(line)["id"] for line in run("lattices", "-", stdin=lattices).stdout.splitlines()] == ["x", "y"]


@pytest.mark.parametrize("base", ["base=10", "base=0"])
def test_links_of_probability_zero_are_left_out(base):
    """lattice-tool writes them for words that its LM does not have."""
    zero, one = ("-inf", "-1") if base == "base=10" else ("0", "0.1")
    Path("u.lat").write_text(
        f"VERSION=1.1\n{base} wdpenalty={one}\nN=3 L=3\n"
        f"J=0 S=0 E=2 W=a a={one} l={zero}\nJ=1 S=0 E=2 W=b a={one} l={one}\nJ=2 S=2 E=1 a={one}\n"
    )
    with collected() as told:
        [nbest] = lists_from_lattices("u.lat")
    assert [hypothesis.text for hypothesis in nbest.hypotheses] == ["b"]
    assert "note: 1 lattices have links with a score of -inf, such as 'u': these are left out" in told
    assert "total = 1 acoustic + 1 lm + -2.30259 words" in told


def test_a_weight_for_a_score_that_some_lattices_lack():
    Path("u1.lat").write_text("VERSION=1.0\nN=2 L=2\nJ=0 S=0 E=1 W=a l=-1 r=-1\nJ=1 S=0 E=1 W=b l=-1.5 r=0\n")
    Path("u2.lat").write_text("VERSION=1.0\nN=2 L=1\nJ=0 S=0 E=1 W=!NULL l=-1\n")
    assert lists_texts("u2.lat", "u1.lat", weights={"pronunciation": 2.0}) == ["", "b", "a"]
    given = ("lattices", "u1.lat", "u2.lat", "--weight")
    assert "no lattice has a score 'x3' to give a weight; there are acoustic, lm, pronunciation, words" in refused(*given, "x3=1")
    assert "has no score 'typo' to give a weight" in refused(*given, "typo=1")


def test_texts_with_spaces_in_words_are_there_once():
    Path("u.lat").write_text('VERSION=1.0\nN=3 L=3\nJ=0 S=0 E=1 W=a a=-1\nJ=1 S=1 E=2 W=b a=-1\nJ=2 S=0 E=2 W="a b" a=-3\n')
    [nbest] = lists_from_lattices("u.lat")
    assert [(hypothesis.text, hypothesis.scores["acoustic"]) for hypothesis in nbest.hypotheses] == [("a b", -2.0)]


def test_digits_alone_are_words_if_the_archive_has_words():
    """As int2sym.pl leaves them; and a word may hold a space that is not ASCII."""
    Path("lat.1").write_text("u1\n0 1 5 1,1,\n1 0,0,\n\nu2\n0 1 two 1,1,\n1 0,0,\n\n")
    assert lists_texts("lat.1") == ["5", "two"]
    assert "lat.1:5: the lattice of 'u2' has words, such as 'two'" in refused("lattices", "lat.1", "--words", "words.txt")
    Path("words.txt").write_text("<eps> 0\nb\xa0c 5\n")
    Path("lat.1").write_text("u1\n0 1 5 1,1,\n1 0,0,\n\n")
    assert lists_texts("lat.1", words="words.txt") == ["b c"]
