"""Opening, recognising, writing: standard streams, gzip, broken files, memory."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from nbest_samples import ALL_SAMPLES, FAIRSEQ, HYPORADISE, JSONL, MLM, MOSES, GivenPieces, read

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import HEAD
from attlm_fairseq.files.writing import NOT_WRITTEN, whole_file
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.formats import FORMATS, ONE_BEST_STYLES, find_format, open_nbest, write_nbest, write_one_best
from attlm_fairseq.nbest.formats.json_values.framing import ONE, framing_of
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

ROOT = Path(__file__).parents[3]


class Pipe(io.RawIOBase):
    """A stream that gives one byte at a time and cannot be rewound."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        return self._data.readinto(memoryview(buffer)[:1])


def stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Pipe(data))))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "text"), [("moses", MOSES), ("fairseq", FAIRSEQ), ("hyporadise", HYPORADISE), ("jsonl", JSONL), ("mlm", MLM)]
)
def test_standard_input_and_gzip_by_content(name, text, packed, tmp_path, monkeypatch):
    data = gzip.compress(text.encode(), mtime=0) if packed else text.encode()
    path = tmp_path / "no-suffix"
    path.write_bytes(data)
    stdin(monkeypatch, data)
    for source in (str(path), "-"):
        form, lists = open_nbest(source)
        assert form.name == name
        assert [nbest.id for nbest in lists] == [nbest.id for nbest in read(text, name)]
    assert not sys.stdin.buffer.closed


def test_a_named_pipe(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=lambda: path.write_text(MOSES))
    writer.start()
    assert len(list(open_nbest(str(path))[1])) == 2
    writer.join()


def test_several_gzip_members_are_one_file(tmp_path):
    path = tmp_path / "list.gz"
    path.write_bytes(gzip.compress(MOSES[:50].encode(), mtime=0) + gzip.compress(MOSES[50:].encode(), mtime=0))
    assert len(list(open_nbest(str(path))[1])) == 2


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("bzip2", bz2.compress(MOSES.encode())),
        ("xz", lzma.compress(MOSES.encode())),
        ("zstd", bytes.fromhex("28b52ffd2401090000610a")),
        ("zip", b"PK\x03\x04\x14\x00\x00\x00"),
    ],
)
def test_other_compressions_are_named(name, data, tmp_path):
    path = tmp_path / "list"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        open_nbest(str(path))
    assert str(caught.value) == f"{path}: is compressed with {name}: expected plain text or gzip; decompress the file"


@pytest.mark.parametrize("suffix", NOT_WRITTEN)
def test_other_compressions_are_not_written_as_text(suffix, tmp_path):
    path = tmp_path / f"list{suffix}"
    with pytest.raises(InputError, match=f"files are written as text or .gz: name it without {suffix}"), whole_file(str(path)):
        pass
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("size", [5, 30, 60])
def test_gzip_cut_short(size, tmp_path):
    path = tmp_path / "list.gz"
    path.write_bytes(gzip.compress(MOSES.encode(), mtime=0)[:size])
    with pytest.raises(InputError, match=r"list\.gz:.* the gzip data is damaged or cut short"):
        list(open_nbest(str(path))[1])


def test_gzip_damaged_late(tmp_path):
    lines = "".join(f"{i} ||| a{i * 7919 % 10007} ||| L= {i * 104729 % 1000003} ||| {i}\n" for i in range(50_000))
    data = bytearray(gzip.compress(lines.encode(), mtime=0))
    data[-1000] ^= 0xFF
    path = tmp_path / "list.gz"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"list\.gz:\d+: "):
        list(open_nbest(str(path))[1])


@pytest.mark.parametrize("name", ["moses", "hyporadise"])
@pytest.mark.parametrize("ahead", [3, 5000])
def test_bad_utf8_has_a_line_number(name, ahead, tmp_path):
    """In the head by which the format is recognised, and beyond."""
    line = "0 ||| {} ||| LM= -1 ||| -2\n" if name == "moses" else '{{"input": ["{}"]}},\n'
    text = ("[" if name == "hyporadise" else "") + "".join(line.format("gr\u00fcn") for _ in range(ahead)) + line.format("BAD")
    path = tmp_path / "list"
    path.write_bytes(text.encode().replace(b"BAD", b"\xfc"))
    with pytest.raises(InputError, match=rf"list:{ahead + 1}: not UTF-8: found 0xfc"):
        list(open_nbest(str(path))[1])


def test_utf8_cut_by_the_edge_of_the_head_is_not_bad(tmp_path):
    for shift in range(4):
        text = " " * shift + "0 ||| " + "\U0001f600" * 17_000 + " ||| LM= -1 ||| -2\n"
        path = tmp_path / "list"
        path.write_text(text, encoding="utf-8")
        assert len(list(open_nbest(str(path))[1])) == 1
    path.write_bytes("0 ||| gr\u00fcn".encode()[:-2])
    with pytest.raises(InputError, match="list:1: not UTF-8: found 0xc3 at byte 9 of the line"):
        open_nbest(str(path))


def test_what_cannot_be_opened(tmp_path):
    empty, blank, text, odd = (tmp_path / name for name in ("empty", "blank", "one-best", "odd"))
    empty.touch()
    blank.write_text("\n \n\n")
    text.write_text("one line\nanother line\n")
    odd.write_bytes(bytes(range(1, 9)))
    for path, message in [
        (tmp_path / "absent", "cannot be read: No such file or directory"),
        (empty, "the file is empty"),
        (blank, "nothing but blank lines"),
        (
            text,
            "tried moses, .*, json, csv, icefall, srilm, nemo, tsv, ctm, kaldi, plain.*--format; text is one text per line, plain:K has K",
        ),
        (odd, "not recognised"),
        (tmp_path, "a folder|not recognised as a folder"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            open_nbest(str(path))
        assert str(caught.value).startswith(f"{path}:")
    with pytest.raises(InputError, match="expected a folder, as espnet has it"):
        open_nbest(str(text), "espnet")
    with pytest.raises(InputError, match="expected a file, as moses has it"):
        open_nbest(str(tmp_path), "moses")
    assert [nbest.hypotheses[0].text for nbest in open_nbest(str(text), "plain")[1]] == ["one line"]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("1\n00:00:01,000 --> 00:00:02,000\nhello\n\n2\n00:00:02,000 --> 00:00:03,000\nworld\n", "subtitles: one text for each time"),
        ("WEBVTT\n\n00:01.000 --> 00:02.000\nhello\n", "subtitles: one text for each time"),
        ("start\tend\ttext\n0\t1200\thello\n", "Whisper's table of segments"),
        ("VERSION=1.0\nN=2 L=1\nI=0 t=0.0\n", "a lattice \\(SLF\\): .*`attlm lattices FOLDER"),
        ("utt1 \n0 1 a 1.25,3.5,1_2_3\n1 2 b ,,4_5\n2 0,0,\n\n", "a lattice of Kaldi: .*`attlm lattices FILE"),
        ("wav utt1\ncandidate -1.25 a b\n\nwav utt2\ncandidate -1.5 a c\n", "WeNet's n-best output"),
        ("[2026-12-01 10:00:00,123 INFO] \nSENT 1: ['x']\nPRED 1: a b\nPRED SCORE: -0.5000\n", "the log of OpenNMT-py"),
        ("[2026-12-01 10:00:00,123 INFO] Loading\n" * 2 + "[2026-12-01 10:00:01,123 INFO] \nSENT 1: ['x']\n", "the log of OpenNMT-py"),
    ],
)
def test_what_is_no_list_is_called_by_its_name(text, advice, tmp_path):
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(InputError, match=f"{path}: is {advice}"):
        open_nbest(str(path))


def test_folders_in_parts_are_named(tmp_path):
    for part in (1, 2):
        best = tmp_path / f"decode/logdir/output.{part}/1best_recog"
        best.mkdir(parents=True)
        (best / "text").write_text(f"u{part} a\n")
    for folder, parts in (("decode", "logdir/output.*"), ("decode/logdir", "output.*")):
        with pytest.raises(InputError, match=r"holds n-best lists in 2 folders, such as output\.1; join them") as caught:
            open_nbest(str(tmp_path / folder))
        assert f"attlm convert {tmp_path / folder}/{parts} -o lists.jsonl" in str(caught.value)


def test_a_format_that_is_named_is_not_guessed(tmp_path):
    path = tmp_path / "list"
    path.write_text("a 0\t2\n")
    assert open_nbest(str(path))[0].name == "plain"
    assert [nbest.id for nbest in open_nbest(str(path), "nemo:1")[1]] == ["0"]


@pytest.mark.parametrize("name", ["list", "list.gz"])
def test_written_files_are_whole_and_the_same_each_time(name, tmp_path):
    path = tmp_path / name
    lists = read(MOSES, "moses")
    write_nbest(lists, FORMATS["moses"], str(path))
    first = path.read_bytes()
    assert (gzip.decompress(first) if name.endswith(".gz") else first).decode() == MOSES
    assert not name.endswith(".gz") or first[4:8] == bytes(4)  # no time stamp
    write_nbest(lists, FORMATS["moses"], str(path))
    assert path.read_bytes() == first
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("name", ["list", "list.gz"])
@pytest.mark.parametrize("error", [InputError("broken"), RuntimeError("broken"), KeyboardInterrupt()])
def test_a_failure_leaves_everything_as_it_was(name, error, tmp_path):
    path = tmp_path / name
    path.write_text("precious")

    def lists() -> Iterator[NbestList]:
        yield from read(MOSES, "moses")
        raise error

    with pytest.raises(type(error)):
        write_nbest(lists(), FORMATS["moses"], str(path))
    with pytest.raises(type(error)):
        write_one_best(lists(), str(path))
    assert [found.name for found in tmp_path.iterdir()] == [name]
    assert path.read_text() == "precious"


@pytest.mark.parametrize(("name", "sample"), ALL_SAMPLES)
def test_every_list_tells_where_it_begins(name, sample):
    for nbest in read(sample, name):
        assert str(nbest.error("wrong")) == f"FILE:{nbest.line}: wrong"


def test_a_list_can_replace_itself(tmp_path):
    path = tmp_path / "list"
    path.write_text(MOSES)
    form, lists = open_nbest(str(path))
    write_nbest(lists, form, str(path))
    assert path.read_text() == MOSES


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path):
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.write_text("old")
    link.symlink_to(real)
    write_nbest(read(MOSES, "moses"), FORMATS["moses"], str(link))
    assert link.is_symlink()
    assert real.read_text() == MOSES
    os.mkfifo(pipe)
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    write_nbest(read(MOSES, "moses"), FORMATS["moses"], str(pipe))
    reader.join()
    assert found == [MOSES]
    assert pipe.is_fifo()


def test_what_has_no_name_but_the_shells_is_written_to():
    """`-o >(program)` is /dev/fd/63, which resolves to a name that does not exist."""
    reading, writing = os.pipe()
    write_nbest(read(MOSES, "moses"), FORMATS["moses"], f"/dev/fd/{writing}")
    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == MOSES


def test_standard_output_by_its_name_adds_to_a_file(tmp_path):
    """`-o /dev/stdout >> all`."""
    (tmp_path / "all").write_text("before\n")
    program = "from attlm_fairseq.files.writing import whole_file\nwith whole_file('/dev/stdout') as out: out.write('after\\n')"
    with (tmp_path / "all").open("a") as out:
        subprocess.run([sys.executable, "-c", program], stdout=out, check=True)
    assert (tmp_path / "all").read_text() == "before\nafter\n"
    assert len(list(tmp_path.iterdir())) == 1


def test_what_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for path in ("absent/list", "file/list", "."):
        with pytest.raises(InputError, match="cannot be written"):
            write_nbest(read(MOSES, "moses"), FORMATS["moses"], str(tmp_path / path))
    if Path("/dev/full").exists():
        with pytest.raises(InputError, match="/dev/full: cannot be written: No space left on device"):
            write_nbest(read(MOSES, "moses"), FORMATS["moses"], "/dev/full")


def test_standard_output_gets_all_or_nothing(capfdbinary, monkeypatch):
    write_nbest(read(FAIRSEQ, "fairseq"), FORMATS["fairseq"], "-")
    assert capfdbinary.readouterr().out.decode() == FAIRSEQ

    def lists() -> Iterator[NbestList]:
        yield from read(FAIRSEQ, "fairseq")
        raise InputError("broken")

    with pytest.raises(InputError):
        write_nbest(lists(), FORMATS["fairseq"], "-")
    assert capfdbinary.readouterr().out == b""
    print("still open")
    assert capfdbinary.readouterr().out == b"still open\n"


def test_one_best(tmp_path):
    path = tmp_path / "best"
    expected = {"text": "a b\n\nc d\n", "kaldi": "u1 a b\nu2\nu3 c d\n", "sclite": "a b (u1)\n(u2)\nc d (u3)\n"}
    lists = [NbestList(f"u{i}", [Hypothesis(text), Hypothesis("worse")]) for i, text in enumerate(["a b", "", "c\nd"], 1)]
    assert set(expected) == set(ONE_BEST_STYLES)
    for style, text in expected.items():
        write_one_best(lists, str(path), style)
        assert path.read_text() == text
    for bad in ("a b", "", "u1"):
        with pytest.raises(InputError, match=r"has white space in it|two lists have the id"):
            write_one_best([*lists, NbestList(bad, [Hypothesis("x")])], str(path), "kaldi")
        assert path.read_text() == expected["sclite"]
    write_one_best([NbestList("u", [Hypothesis("c\td")])], str(path))
    assert path.read_text() == "c d\n"


MANY = 400
UTTERANCE = {"hyps": [{"text": "a b " * 40, "score": -1.5}, {"text": "a", "score": -2}]}
DEEPGRAM = {"alternatives": [{"transcript": "a b " * 40, "confidence": 0.5}, {"transcript": "a", "confidence": 0.25}]}
LONG_JSON = {
    "objects with hyps by id": ("json", {f"u{i}": UTTERANCE for i in range(MANY)}),
    "wrapped with hyps": ("json", {"utts": {f"u{i}": UTTERANCE for i in range(MANY)}}),
    "metadata first": ("json", {"metadata": {"id": "x", "models": ["y"]}, "results": {"channels": [DEEPGRAM] * MANY}}),
    "array of utterances": ("json", {"results": [UTTERANCE] * MANY}),
    "one list": ("jsonl", {"meta": {"speaker": "x"}, "hyps": UTTERANCE["hyps"] * MANY}),
}


@pytest.mark.parametrize("name", LONG_JSON)
def test_json_is_recognised_when_its_head_is_cut(name, tmp_path):
    form, value = LONG_JSON[name]
    text = json.dumps(value)
    assert len(text) > HEAD
    (tmp_path / "file").write_text(text)
    found, lists = open_nbest(str(tmp_path / "file"))
    assert found.name == form
    assert sum(len(nbest.hypotheses) for nbest in lists) == 2 * MANY


def test_a_document_of_one_line_whose_cut_head_ends_in_a_brace_is_no_file_of_lines():
    head = json.dumps({"results": [UTTERANCE] * 400})
    assert framing_of(head[: head.index("}, {") + 1]) == ONE


PADDING = "and so on " * 30
LONG = {
    "moses": lambda i: "".join(f"{i} ||| word{i} {PADDING} ||| LM= -{k}.5 ||| -1\n" for k in range(3)),
    "fairseq": lambda i: "".join(f"H-{i * 7919 % 10007}\t-{k}.5\tword{i}\nP-{i * 7919 % 10007}\t{'-1 ' * 90}\n" for k in range(3)),
    "hyporadise": lambda i: f'{"," if i else "["}{{"input": ["word{i} {PADDING}", "word {PADDING}", "b"], "am_score": [-1, -2, -3]}}',
    "mlm": lambda i: f'{"," if i else "{"}"{i}": {{"hyp_1": {{"score": -1.5, "text": "word{i} {PADDING}"}}, "ref": "{PADDING}"}}',
    "jsonl": lambda i: f'{{"id": {i}, "hyps": [{{"text": "word{i} {PADDING}", "scores": {{"lm": -1.5}}}}, {{"text": "b {PADDING}"}}]}}\n',
    "plain": lambda i: f"word{i} {PADDING}\nword {PADDING}\nanother\n\n",
    "kaldi": lambda i: f"{i}-1 word{i} {PADDING}\n{i}-2 word {PADDING}\n",
    "nemo:2": lambda i: f"word{i} {PADDING}\t-1.5\nword {PADDING}\t-2.5\n",
}
ENDS = {"hyporadise": "]", "mlm": "}"}


def test_a_fault_early_in_a_long_document_is_found_early():
    def pieces() -> Iterator[str]:
        yield '[{"input": ["a"]}, {"input": ["b"],, "output": "c"}, ' + " " * 1000
        raise AssertionError("read on after the fault")

    with pytest.raises(InputError, match="FILE:1: item 2 is not valid JSON"):
        list(find_format("hyporadise").read(GivenPieces(pieces())))


@pytest.mark.parametrize("name", LONG)
def test_no_list_is_kept_once_it_is_written(name):
    """A list takes about 2 kB: what is still held after 600 of them is much less than that."""
    held = []

    def text() -> Iterator[str]:
        for i in range(700):
            yield from LONG[name](i).splitlines(keepends=True)
        yield ENDS.get(name, "")

    def watched() -> Iterator[NbestList]:
        for i, nbest in enumerate(find_format(name).read(GivenPieces(text()))):
            if i == 100:
                tracemalloc.start()
            if i in (101, 699):
                held.append(tracemalloc.get_traced_memory()[0])
            yield nbest
        tracemalloc.stop()

    class Nowhere(io.TextIOBase):
        def write(self, text: str) -> int:
            return len(text)

    find_format(name).write(watched(), Nowhere())
    assert held[1] - held[0] < 50_000


MEASURE = """
from pathlib import Path
from attlm_fairseq.nbest.formats import open_nbest, write_nbest
form, lists = open_nbest("-")
write_nbest(lists, form, "/dev/null")
print(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from Linux's /proc")
def test_a_long_file_takes_no_more_memory_than_a_short_one():
    """20,000 lines more (six megabytes) from standard input to a file: less than two megabytes more of memory."""

    def megabytes(lists: int) -> float:
        text = "".join(LONG["moses"](i) for i in range(lists))
        found = subprocess.run([sys.executable, "-c", MEASURE], input=text, capture_output=True, text=True, check=True, cwd=ROOT)
        return int(found.stdout) / 1024

    assert megabytes(7_000) - megabytes(300) < 2


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_json_lines_may_begin_with_a_line_longer_than_the_head(mark, tmp_path):
    lines = [{"id": f"u{i}", "nbest": [{"text": "a b " * (HEAD // 2), "score": -1.5}, {"text": "a", "score": -2}]} for i in range(3)]
    text = mark + "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "file").write_text(text, encoding="utf-8")
    form, opened = open_nbest(str(tmp_path / "file"))
    lists = list(opened)
    assert (form.name, [nbest.id for nbest in lists]) == ("json", ["u0", "u1", "u2"])
    write_nbest(lists, form, str(tmp_path / "out"))
    assert (tmp_path / "out").read_text(encoding="utf-8") == text


def test_texts_whose_ids_end_in_numbers_are_doubted_as_kaldis_lists():
    texts = "".join(f"utt-{number} {text}\n" for number, text in enumerate(["a b c", "d e f", "g h"], 1))
    with collected() as told:
        [nbest] = read(texts, "kaldi")
    assert len(nbest.hypotheses) == 3
    assert told == [
        "WARNING: FILE is read as Kaldi's n-best lists, keys UTTERANCE-RANK, and most lists' hypotheses have hardly a word in common: "
        "if it has one text per line, say --format text"
    ]
    with collected() as told:
        read("u-1 a b c\nu-2 a b\nv-1 c\nv-2 d\n", "kaldi")
        read("u-1 \u4eca\u5929\nu-2 \u660e\nv-1 yes\nv-2 yeah\nw-1\nw-2 a b c\n", "kaldi")
    assert told == []
    assert FORMATS["kaldi"].matches("u-0 a b\nu-1 a\n")
    assert not FORMATS["kaldi"].matches("rec-0001 a b\nrec-0002 c\nrec-1 d\n")
