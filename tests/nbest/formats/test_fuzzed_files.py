"""Whatever bytes a file holds: lists that are written back byte for byte, or one InputError; no other exception, and no end to wait for.

A longer session: HYPOTHESIS_EXAMPLES=5000 pytest tests/nbest/formats/test_fuzzed_files.py
"""

from __future__ import annotations

import gzip
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nbest_samples import ALL_SAMPLES

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.formats import FOLDER_FORMATS, open_nbest, write_nbest, write_one_best
from attlm_fairseq.nbest.reference_files import read_references
from attlm_fairseq.nbest.references import attach_references

EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "25"))
FUZZ = settings(max_examples=EXAMPLES, deadline=20_000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
NAMES = [*dict.fromkeys(name for name, _ in ALL_SAMPLES), None]
SEPARATORS = ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\u00a0", "\u3000", "\ufeff", "\u200b"]
PIECES = [
    *["\n", "\r\n", "\r", "\t", " ", "", "\0", "|||", " ||| ", "||||", "=", "= ", ":", "-", "-1", "1e999", "nan", "inf", "1_0", "\u0661"],
    *["{", "}", "[", "]", '"', ",", "\\", "\\u", "\\ud800", "\\udc00", "null", "true", '"hyps"', '"text"', '"input"', '"score"', '"ref"'],
    *["H-1\t", "P-1\t", "S-1\t", "T-1\t", "D-1\t", "L-1\t", "NBestList1.0", "utt-1 ", "0 ", "-0", "9" * 400, "[" * 2000],
    *SEPARATORS,
]
TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)

NEW = st.one_of(st.sampled_from(PIECES).map(str.encode), TEXT.map(str.encode), st.binary(max_size=8))
LINES = [b"utt1 a b\nutt2 c\n", b"u-1 a b\nu-2 c\n", b"u-1 5.6\nu-2 7\n", b"utt1 -3.2\nutt2 -1\n", b"-1 -2 1 a\n-3 -4 2 a b\n"]


@st.composite
def damaged(draw: st.DrawFn, sample: bytes) -> bytes:
    """The sample with some of it replaced, repeated, left out, exchanged; with other line ends, a mark before it; perhaps packed."""
    data = sample
    if draw(st.booleans()):
        data = data.replace(b"\n", draw(st.sampled_from([b"\r\n", b"\r", b"\n\n", b"\xe2\x80\xa8\n"])))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.sampled_from([0, 0, 1, 2, 10, 100, 10_000]))
        new = draw(
            st.one_of(st.sampled_from(PIECES).map(str.encode), TEXT.map(str.encode), st.binary(max_size=6), st.just(data[start:end] * 2))
        )
        data = data[:start] + new + data[end:]
    data = draw(st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b"\xff\xfe"])) + data
    if draw(st.booleans()):
        data = data.rstrip(b"\r\n")
    if draw(st.integers(0, 3)) == 0:
        data = gzip.compress(data, mtime=0)
        cut = draw(st.integers(0, len(data))) if draw(st.booleans()) else len(data)
        data = data[:cut]
    return data


def is_one_line(error: InputError, source: Path | str = "") -> None:
    assert "\n" not in str(error)
    assert str(source) in str(error)


def check(data: bytes, name: str | None) -> None:
    """Read, write as it is, then with scores."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "list", Path(folder) / "out" / "list"  # srilm takes the id from the file's name
        target.parent.mkdir()
        source.write_bytes(data)
        try:
            form, found = open_nbest(str(source), name)
            lists = list(found)
        except InputError as error:
            is_one_line(error, source)
            return
        plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        assert lists
        assert all(nbest.hypotheses for nbest in lists)
        write_nbest(lists, form, str(target))
        assert target.read_bytes() == plain
        write_nbest(lists, form, f"{target}.gz")
        assert gzip.decompress(Path(f"{target}.gz").read_bytes()) == plain
        write_one_best(lists, str(target))
        assert target.read_bytes().count(b"\n") == len(lists)
        for nbest in lists:
            for hypothesis in nbest.hypotheses:
                hypothesis.lm_scores = {"lm": -0.5 * hypothesis.rank}
                hypothesis.total = 1.0 * hypothesis.rank
            nbest.hypotheses.reverse()
        write_nbest(lists, form, str(target))
        again = list(open_nbest(str(target), name or (form.name if form.name != "nemo" else f"nemo:{len(lists[0].hypotheses)}"))[1])
        assert [nbest.id for nbest in again] == [nbest.id for nbest in lists]
        texts = [[hypothesis.text for hypothesis in nbest.hypotheses] for nbest in lists]
        assert [[hypothesis.text for hypothesis in nbest.hypotheses] for nbest in again] == texts


@pytest.mark.parametrize(("name", "sample"), ALL_SAMPLES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(ALL_SAMPLES)])
@FUZZ
@given(data=st.data())
def test_damaged_files(name, sample, data):
    check(data.draw(damaged(sample.encode())), data.draw(st.sampled_from([name, name, None])))


@pytest.mark.parametrize("data", [b"u1\t-1.5\ta b\r", b"u1\t-1.5\ta b\r\r\n\r\nu1\t-2.5\ta\r\nu2\t-3\tc\r\n"])
def test_carriage_returns_at_the_ends_of_lines(data):
    check(data, "tsv")


@pytest.mark.parametrize("name", NAMES)
@FUZZ
@given(data=st.data())
def test_any_bytes(name, data):
    pieces = st.lists(NEW, max_size=30)
    check(b"".join(data.draw(pieces)), name)


@pytest.mark.parametrize("name", ["moses", "jsonl", "hyporadise", "mlm", "plain", "kaldi", "fairseq"])
@pytest.mark.parametrize("separator", SEPARATORS, ids=ascii)
def test_odd_unicode_separators_are_text(name, separator):
    """What Python's splitlines and split take for line ends and spaces, a text may hold."""
    sample = next(sample for other, sample in ALL_SAMPLES if other == name)
    for place in ("a b", "das ist gut", "oh yeah"):
        if place in sample:
            before, after = place.split(" ", 1)
            for end in ("\n", "\r\n"):
                check(sample.replace(place, f"{before}{separator}{after}").replace("\n", end).encode(), name)
            return
    raise AssertionError(f"no text to change in the sample of {name}")


@FUZZ
@given(data=st.data(), name=st.sampled_from(list(FOLDER_FORMATS)))
def test_any_files_in_folders(data, name):
    names = {
        "espnet": ["1best_recog/text", "1best_recog/score", "2best_recog/text", "2best_recog/score"],
        "kaldi": ["text", "ac_cost", "lm_cost", "words"],
        "srilm": ["a", "b.gz", "c.nbest"],
    }
    content = st.one_of(st.sampled_from(LINES), NEW)
    with tempfile.TemporaryDirectory() as folder:
        for file in data.draw(st.lists(st.sampled_from(names[name]), unique=True)):
            path = Path(folder) / "in" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.draw(content))
        (Path(folder) / "in").mkdir(exist_ok=True)
        try:
            form, found = open_nbest(str(Path(folder) / "in"), name)
            lists = list(found)
        except InputError as error:
            is_one_line(error)
            return
        assert all(nbest.hypotheses for nbest in lists)
        try:
            write_nbest(lists, form, str(Path(folder) / "out"))
        except InputError as error:
            is_one_line(error)


@FUZZ
@given(data=st.data())
def test_any_references(data):
    content = st.lists(NEW, max_size=20)
    with tempfile.TemporaryDirectory() as folder:
        source, references = Path(folder) / "list", Path(folder) / "refs"
        source.write_text("0\ta\n1\tb\n")
        references.write_bytes(b"".join(data.draw(content)))
        try:
            lists = list(attach_references(open_nbest(str(source))[1], read_references([str(references)])))
        except InputError as error:
            is_one_line(error)
            return
        assert [len(nbest.references) for nbest in lists] == [1, 1]
