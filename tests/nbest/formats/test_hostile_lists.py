"""Lists that hang a careless reader, or that it takes for others: answered at once, in one line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from cli_runs import refused, run

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.formats import CONVERTIBLE, CONVERTIBLE_FOLDERS, open_nbest
from attlm_fairseq.verbs.rescore import ONE_BEST

SECONDS = 20  # what each of these took far more than, or for ever
READING = """
import sys
from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.formats import open_nbest
from attlm_fairseq.nbest.formats import text
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.line_matching import match_lines
from attlm_fairseq.nbest.other_systems import read_further
from attlm_fairseq.nbest.reference_files import TextFile
from attlm_fairseq.scoring.ngrams.kenlm_files import gist
from attlm_fairseq.text.pipeline import parse_steps

SPACES = " " * 200_000
def listed(format, text):
    open("list", "w").write(text)
    try:
        return list(open_nbest("list", format)[1])
    except InputError:
        return []
def matched(ids, lines):
    try:
        return match_lines(ids, TextFile("refs", lines))
    except InputError:
        return []
def further(text, ids):
    open("list", "w").write(text)
    try:
        return read_further("list", None, [NbestList(name, [Hypothesis("a")]) for name in ids], "first")
    except InputError:
        return []
def joined(text):
    return parse_steps(["join-subwords:wordpiece"]).words(text)
"""


@pytest.mark.parametrize(
    "work",
    [
        "listed('moses', '0 ||| a ||| F= 1 ||| 1' + '-111' * 40 + 'x')",
        "listed('srilm', '-1 -2 1 a s>' + SPACES + 'b')",
        "listed('srilm', '-1 -2 1 a' + SPACES + 's> b')",
        "joined('a' + SPACES + 'b')",
        "text._LIKE_AN_ID.fullmatch('1' * 200_000 + 'é')",
        "gist('a' * 200_000)",
        "listed('json', '{\"u\": {' + '\"a\": 1, ' * 20_000 + '\"b')",
        "listed('text:id', ''.join(f'u{i} a\\n' for i in range(100_000)) + 'u99999 b\\n')",
        "matched([f'u{i}' for i in range(100_000)], [f'u{i} a' for i in range(40_000, 140_000)])",
        "further(''.join(f'u{i}\\ta\\n' * 2 for i in range(50_000)), [f'v{i}' for i in range(50_000)])",
    ],
)
def test_nothing_takes_for_ever(tmp_path, work):
    subprocess.run([sys.executable, "-c", READING + work], cwd=tmp_path, check=True, timeout=SECONDS)


@pytest.mark.parametrize(
    ("format", "text", "line"),
    [
        ("moses", "0 ||| one two ||| F= 1 ||| -1\r0 ||| one too ||| F= 2 ||| -2\r1 ||| b ||| F= 3 ||| -3\r", None),
        ("moses", "0 ||| one two ||| F= 1 ||| -1\r0 ||| one too ||| F= 2 ||| -2\n1 ||| b ||| F= 3 ||| -3\n", 1),
        ("fairseq", "S-0\ta\rH-0\t-1\tb\rS-1\ta\rH-1\t-1\tb\r", None),
        ("fairseq", "S-0\ta\nH-0\t-1\tb\rS-1\ta\nH-1\t-1\tb\n", 2),
        ("plain", "a\rb\r\rc", None),
        ("moses", "0 ||| \r\r", None),
    ],
)
def test_lines_that_end_in_carriage_returns_are_named(tmp_path, format, text, line):
    path = tmp_path / "list"
    path.write_bytes(text.encode())
    with pytest.raises(InputError) as error:
        list(open_nbest(str(path), format)[1])
    assert str(error.value).startswith(f"{path}:{'' if line is None else f'{line}:'} found lines that end in a carriage return alone")


def test_marks_of_a_sentence_are_its_first_and_last_word(tmp_path):
    lines = {
        "<s> a b </s>": "a b", "<s>": "", "</s>": "", "<s> </s>": "", "a </s>  ": "a", "<s>a b</s>": "<s>a b</s>", "<s>\tb": "b",
        "<s> a </s> b": "a </s> b", "a  b": "a  b", "</s> a": "</s> a",
    }  # fmt: skip
    (tmp_path / "list").write_text("".join(f"-1 -2 0 {text}\n" for text in lines))
    (nbest,) = open_nbest(str(tmp_path / "list"), "srilm")[1]
    assert [hypothesis.text for hypothesis in nbest.hypotheses] == list(lines.values())


def test_a_last_line_without_its_end_is_told(folder):
    whole = "0 ||| the cat ||| F= 1 ||| -5.61\n0 ||| the mat ||| F= 2 ||| -4.75\n"
    for text, told in ((whole, False), (whole[:-3], True), (whole[: whole.index("\n")], False)):
        (folder / "list").write_text(text)
        result = run("rescore", "list", "--kenlm", "lm.arpa", "--weight", "kenlm=1")
        assert ("WARNING: list:2: the last line has no line end: if the file was cut short" in result.stderr) is told


def test_an_empty_folder_is_no_list(folder):
    (folder / "empty").mkdir()
    assert "empty: no n-best list in it" in refused("rescore", "empty", "--format", "srilm", "--kenlm", "lm.arpa", "--weight", "kenlm=1")


def test_messages_are_short_whatever_they_quote(tmp_path):
    for features in ("F= " + "9" * 5000, "F" * 100_000 + "= x", "F" * 100_000 + "="):
        (tmp_path / "list").write_text(f"0 ||| a ||| {features} ||| 1\n")
        with pytest.raises(InputError) as error:
            list(open_nbest(str(tmp_path / "list"), "moses")[1])
        assert len(str(error.value)) < 2500


@pytest.mark.parametrize("place", ["id", "text", "reference"])
@pytest.mark.parametrize("to", [*CONVERTIBLE, *CONVERTIBLE_FOLDERS, *ONE_BEST])
def test_half_of_a_surrogate_pair_is_written_to_no_file(to, place, tmp_path):
    nbest = attlm.NbestList("u", [attlm.Hypothesis("a", {"score": -1.0})], ("a",))
    half = {"id": {"id": "\ud800"}, "text": {"hypotheses": [attlm.Hypothesis("\ud800")]}, "reference": {"references": ("\ud800",)}}[place]
    for lists in ([nbest, replace(nbest, **half)], iter([nbest, replace(nbest, **half)])):
        with pytest.raises(InputError, match=r"^list '(u|\\ud800)' has '\\ud800', half of a surrogate pair"):
            attlm.write_nbest(lists, tmp_path / "out", to)
        assert not any(tmp_path.iterdir())
