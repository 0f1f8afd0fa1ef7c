"""Formats that spread their lists over a folder: ESPnet, Kaldi with costs, SRILM."""

from __future__ import annotations

import gzip
import math
import re
import resource
from functools import partial
from pathlib import Path

import pytest
from limits import limited

from attlm_fairseq.errors import InputError, visible
from attlm_fairseq.files.reading import HEAD
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.formats import FOLDER_FORMATS, open_nbest, write_nbest
from attlm_fairseq.nbest.formats.sausage import write_sausages
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList, Sausage

ESPNET = {
    "1best_recog/text": "utt1 the text\nutt2\nutt3 three\n",
    "1best_recog/score": "utt1 -3.2\nutt2 tensor(-0.5)\nutt3 tensor([-1.25], device='cuda:0')\n",
    "1best_recog/token": "utt1 the te xt\nutt2 \nutt3 three\n",
    "2best_recog/text": "utt1 a text\nutt3 tree",
    "2best_recog/score": "utt1 -4\nutt3 tensor(-2e-05)\n",
    "2best_recog/token": "utt1 a te xt\nutt3 tree\n",
    "3best_recog/text": "utt3 free\n",
    "3best_recog/score": "utt3 -7.5\n",
    "3best_recog/token": "utt3 free\n",
}
KALDI = {
    "text": "s-u-1 oh yeah\ns-u-2 oh\ns-v-1\n",
    "ac_cost": "s-u-1 5.67\ns-u-2 -6\ns-v-1 1e-3\n",
    "lmwt.nolm": "s-u-1 1\ns-u-2 2\ns-v-1 3\n",
    "ids": "s-u-1 4 5\ns-u-2 4\ns-v-1\n",
}
SRILM = {
    "a": "-10 -1 2 x y\n-11 -1.5 1 x\n",
    "b.gz": "-5 -2 0\n",
    "pron/a": "-0.5\n-0.25\n",
    "pron/b.gz": "-1",
}


def make(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_bytes(gzip.compress(text.encode(), mtime=0) if name.endswith(".gz") else text.encode())
    return str(folder)


def contents(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found[str(path.relative_to(folder))] = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    return found


def scored_backwards(lists: list[NbestList]) -> list[NbestList]:
    for nbest in lists:
        nbest.hypotheses.reverse()
        for hypothesis in nbest.hypotheses:
            hypothesis.lm_scores = {"my lm": -0.5 * hypothesis.rank}
            hypothesis.total = -2.0 * hypothesis.rank
    return lists


@pytest.mark.parametrize(("name", "files"), [("espnet", ESPNET), ("kaldi", KALDI), ("srilm", SRILM)])
def test_a_folder_comes_back_byte_for_byte_and_survives_rescoring(name, files, tmp_path):
    form, lists = open_nbest(make(tmp_path / "in", files))
    assert form.name == name
    write_nbest(lists, form, str(tmp_path / "out"))
    assert contents(tmp_path / "out") == files
    lists = scored_backwards(list(open_nbest(str(tmp_path / "in"), name)[1]))
    write_nbest(lists, form, str(tmp_path / "again"))
    again = list(open_nbest(str(tmp_path / "again"))[1])
    assert [[h.text for h in nbest.hypotheses] for nbest in again] == [[h.text for h in nbest.hypotheses] for nbest in lists]
    for old, new in zip(lists, again, strict=True):
        for before, after in zip(old.hypotheses, new.hypotheses, strict=True):
            (added,) = after.scores.keys() - before.scores.keys()
            assert after.scores[added] == pytest.approx(-0.5 * before.rank, rel=1e-5)
            assert {key: after.scores[key] for key in before.scores} == before.scores


def test_espnet_scores(tmp_path):
    first, second, third = open_nbest(make(tmp_path, ESPNET))[1]
    assert [nbest.id for nbest in (first, second, third)] == ["utt1", "utt2", "utt3"]
    assert [[h.text for h in nbest.hypotheses] for nbest in (first, second, third)] == [
        ["the text", "a text"],
        [""],
        ["three", "tree", "free"],
    ]
    assert [h.scores["score"] for nbest in (first, second, third) for h in nbest.hypotheses] == [-3.2, -4, -0.5, -1.25, -2e-05, -7.5]


def test_espnet_output(tmp_path):
    form, lists = open_nbest(make(tmp_path / "in", ESPNET))
    write_nbest(scored_backwards(list(lists)), form, str(tmp_path / "out"))
    found = contents(tmp_path / "out")
    assert found["1best_recog/text"] == "utt1 a text\nutt2\nutt3 free\n"
    assert found["1best_recog/token"] == "utt1 a te xt\nutt2 \nutt3 free\n"
    assert found["1best_recog/score"] == "utt1 -4\nutt2 tensor(-0.5)\nutt3 -7.5\n"
    assert found["1best_recog/score_my_lm"] == "utt1 -1.000000\nutt2 -0.500000\nutt3 -1.500000\n"
    assert found["3best_recog/score_total"] == "utt3 -2.000000\n"
    assert len(found) == 3 * 5


def test_scores_of_espnet_in_another_order_are_refused(tmp_path):
    """Or of other utterances, or none: such a file was once left out without a word."""
    for scores in ("u2 -1\nu1 -2\n", "u2 -1\n", ""):
        folder = make(tmp_path, {"1best_recog/text": "u1 a b\nu2 c\n", "1best_recog/score": scores})
        with pytest.raises(InputError, match=r"1best_recog/score.*(expected 'u1': the files have to hold the same keys|the file is empty)"):
            list(open_nbest(folder)[1])
    files = {"1best_recog/text": "u1 a b\n", "2best_recog/text": "u1 a\n", "2best_recog/score_lm": "u1 -1\n"}
    with pytest.raises(InputError, match="1best_recog/score_lm: cannot be read"):
        list(open_nbest(make(tmp_path / "second", files))[1])


def test_kaldi_costs(tmp_path):
    first, second = open_nbest(make(tmp_path, KALDI))[1]
    assert (first.id, second.id) == ("s-u", "s-v")
    assert first.hypotheses[0].scores == {"ac_cost": -5.67, "lmwt.nolm": -1.0}
    assert second.hypotheses[0].scores == {"ac_cost": -0.001, "lmwt.nolm": -3.0}


def test_kaldi_output(tmp_path):
    form, lists = open_nbest(make(tmp_path / "in", KALDI))
    write_nbest(scored_backwards(list(lists)), form, str(tmp_path / "out"))
    assert contents(tmp_path / "out") == {
        "text": "s-u-2 oh\ns-u-1 oh yeah\ns-v-1\n",
        "ac_cost": "s-u-2 -6\ns-u-1 5.67\ns-v-1 1e-3\n",
        "lmwt.nolm": "s-u-2 2\ns-u-1 1\ns-v-1 3\n",
        "ids": "s-u-2 4\ns-u-1 4 5\ns-v-1\n",
        "lmwt.my_lm": "s-u-2 1.000000\ns-u-1 0.500000\ns-v-1 0.500000\n",
        "total_cost": "s-u-2 4.000000\ns-u-1 2.000000\ns-v-1 2.000000\n",
    }


def test_kaldi_files_of_costs_of_single_words_are_no_costs_of_hypotheses(tmp_path):
    """As `lmrescore_nbest_pytorchnn.sh` leaves them next to their sums."""
    of_words = {"lmwt.nn": "s-u-1 0.5 1 2\ns-u-2 0.5 2\ns-v-1 3\n", "lmwt.nn.sum": "s-u-1 3.5\ns-u-2 2.5\ns-v-1 3\n"}
    folder = make(tmp_path / "in", KALDI | of_words)
    with collected() as told:
        form, lists = open_nbest(folder)
        lists = list(lists)
    assert f"note: {folder}: lmwt.nn has several numbers in a line, as for single words, and is not read as a cost" in told
    assert lists[0].hypotheses[1].scores == {"ac_cost": 6.0, "lmwt.nolm": -2.0, "lmwt.nn.sum": -2.5}
    write_nbest(lists, form, str(tmp_path / "out"))
    assert contents(tmp_path / "out") == KALDI | of_words
    (tmp_path / "in" / "lmwt.nn").write_text("s-u-1 0.5 x\ns-u-2 0.5\ns-v-1 3\n")
    with pytest.raises(InputError, match=r"lmwt\.nn:1: the cost is '0\.5 x'"):
        list(open_nbest(folder)[1])


def test_a_kaldi_folder_of_numbers_of_words_says_what_to_do(tmp_path):
    folder = make(tmp_path, {"words": KALDI["ids"], "ac_cost": KALDI["ac_cost"]})
    with pytest.raises(InputError, match=r"`words` has numbers of words: int2sym\.pl -f 2- words\.txt < words > words_text"):
        list(open_nbest(folder)[1])
    (tmp_path / "words_text").write_text(KALDI["text"])
    form, lists = open_nbest(folder)
    assert (form.name, next(lists).hypotheses[0].text) == ("kaldi", "oh yeah")


def test_srilm_scores(tmp_path):
    first, second = open_nbest(make(tmp_path, SRILM))[1]
    assert (first.id, second.id) == ("a", "b")
    expected = {"acoustic": -11.0, "lm": -1.5, "pron": -0.25}
    assert first.hypotheses[1].scores == pytest.approx({name: score * math.log(10) for name, score in expected.items()})
    assert [h.text for h in second.hypotheses] == [""]


def test_srilm_output(tmp_path):
    form, lists = open_nbest(make(tmp_path / "in", SRILM))
    write_nbest(scored_backwards(list(lists)), form, str(tmp_path / "out"))
    assert contents(tmp_path / "out") == {
        "a": "-11 -1.5 1 x\n-10 -1 2 x y\n",
        "b.gz": "-5 -2 0\n",
        "pron/a": "-0.25\n-0.5\n",
        "pron/b.gz": "-1",
        "my_lm/a": f"{-1 / math.log(10):.6f}\n{-0.5 / math.log(10):.6f}\n",
        "my_lm/b.gz": f"{-0.5 / math.log(10):.6f}\n",
        "total/a": f"{-4 / math.log(10):.6f}\n{-2 / math.log(10):.6f}\n",
        "total/b.gz": f"{-2 / math.log(10):.6f}\n",
    }


def test_several_srilm_files(tmp_path):
    make(tmp_path, SRILM)
    form, lists = open_nbest([str(tmp_path / "b.gz"), str(tmp_path / "a")])
    lists = list(lists)
    assert [nbest.id for nbest in lists] == ["b", "a"]
    write_nbest(lists, form, str(tmp_path / "out"))
    assert contents(tmp_path / "out") == {"a": SRILM["a"], "b.gz": SRILM["b.gz"]}
    with pytest.raises(InputError, match="several files"):
        open_nbest(["a", "b"], "moses")


def test_srilm_files_of_one_name_are_refused_and_those_of_one_id_stay(tmp_path):
    make(tmp_path / "in", {"a": SRILM["a"], "a.gz": SRILM["a"]})
    form, lists = open_nbest(str(tmp_path / "in"))
    write_nbest(lists, form, str(tmp_path / "out"))
    assert contents(tmp_path / "out") == contents(tmp_path / "in")
    form, lists = open_nbest([str(tmp_path / "in" / "a"), str(tmp_path / "out" / "a")])
    with pytest.raises(InputError, match="two lists have the id 'a': srilm needs a different id for each list"):
        write_nbest(lists, form, str(tmp_path / "both"))
    for name in ("u.gz", "u.score"):  # read again, each would have the id `u`
        with pytest.raises(InputError, match=rf"the id '{re.escape(name)}' cannot be the name of a file"):
            write_nbest([NbestList(name, [Hypothesis("a", {"score": -1.0})])], form, str(tmp_path / "both"))


@pytest.mark.parametrize(
    ("list_file", "score_file"),
    [("a.score.gz", "a.gz"), ("a.score", "a"), ("a.gz", "a.gz"), ("a.score.gz", "a"), ("a.gz", "a.score.gz"), ("a", "a.score")],
)
def test_srilm_ids_and_score_directories_go_without_the_endings_of_its_scripts(list_file, score_file, tmp_path):
    files = {list_file: SRILM["a"], f"pron/{score_file}": SRILM["pron/a"]}
    form, lists = open_nbest(make(tmp_path / "in", files))
    [nbest] = lists = list(lists)
    assert nbest.id == "a"
    assert [h.scores["pron"] for h in nbest.hypotheses] == pytest.approx([-0.5 * math.log(10), -0.25 * math.log(10)])
    write_nbest(scored_backwards(lists), form, str(tmp_path / "out"))
    of_list = "a.gz" if list_file.endswith(".gz") else "a"  # as rescore-decipher calls them
    found = contents(tmp_path / "out")
    assert found.keys() == {list_file, *(f"{directory}/{of_list}" for directory in ("pron", "my_lm", "total"))}
    assert (found[list_file], found[f"pron/{of_list}"]) == ("-11 -1.5 1 x\n-10 -1 2 x y\n", "-0.25\n-0.5\n")
    [again] = open_nbest(str(tmp_path / "out"))[1]
    assert (again.id, again.hypotheses[1].scores) == ("a", nbest.hypotheses[1].scores | {"my_lm": pytest.approx(-0.5, abs=1e-5)})


def test_srilm_files_come_back_as_its_scripts_call_them(tmp_path):
    files = {"a.score.gz": SRILM["a"], "b.score": SRILM["b.gz"], "pron/a.gz": SRILM["pron/a"], "pron/b": SRILM["pron/b.gz"]}
    form, lists = open_nbest(make(tmp_path / "in", files))
    write_nbest(lists, form, str(tmp_path / "out"))
    assert contents(tmp_path / "out") == files


def test_srilm_lists_whose_scores_would_be_one_file_are_refused(tmp_path):
    form, lists = open_nbest(make(tmp_path / "in", {"a": SRILM["a"], "a.score": SRILM["a"]}))
    lists = list(lists)
    write_nbest(lists, form, str(tmp_path / "out"))  # without scores, each has a file of its own
    assert contents(tmp_path / "out") == contents(tmp_path / "in")
    with pytest.raises(InputError, match="two lists have the scores of one file, a: rename one of them"):
        write_nbest(scored_backwards(lists), form, str(tmp_path / "again"))


def test_an_srilm_list_that_is_called_as_one_of_its_scores_is_refused(tmp_path):
    lists = [NbestList(name, [Hypothesis("a", {"acoustic": -1.0, "q9": 3.0})]) for name in ("q8", "q9")]
    with pytest.raises(InputError, match="the list 'q9' and a folder of scores would both be called q9; write jsonl instead"):
        write_nbest(lists, FOLDER_FORMATS["srilm"], str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a b", "a\nb", "x\x1b[31m", "a/b", ".a", "", "é" * 101])
def test_ids_that_programs_cannot_read_are_no_names_of_files(name, tmp_path):
    nbest = NbestList(name, [Hypothesis("a", {"score": -1.0})], sausage=Sausage((), ()))
    for write in (partial(write_nbest, fmt=FOLDER_FORMATS["srilm"]), write_sausages):
        with pytest.raises(InputError, match="cannot be the name of a file") as refused:
            write([nbest], path=str(tmp_path / "out"))
        assert visible(str(refused.value)) == str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format_name", ["espnet", "kaldi", "srilm"])
def test_more_files_than_may_be_open_are_told_of_and_the_folder_is_the_users(format_name, tmp_path):
    hypotheses = [Hypothesis(f"a{place}", {"score": -1.0, **{f"s{number}": 1.0 for number in range(80)}}) for place in range(80)]
    few = len(list(Path("/proc/self/fd").iterdir())) + 30
    if format_name == "srilm":  # one file after the other
        with limited(resource.RLIMIT_NOFILE, few):
            write_nbest([NbestList("1", hypotheses)], FOLDER_FORMATS[format_name], str(tmp_path / "out"))
        return
    message = r"cannot be written: Too many open files: the system allows .*or use a format with one file"
    with limited(resource.RLIMIT_NOFILE, few), pytest.raises(InputError, match=message) as told:
        write_nbest([NbestList("1", hypotheses)], FOLDER_FORMATS[format_name], str(tmp_path / "out"))
    assert str(told.value).startswith(f"{tmp_path / 'out'}: ")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_whole_is_called_as_the_user_called_it(tmp_path):
    hypotheses = [Hypothesis("a" * 3000, {"acoustic": -1.0})]
    for format_name in ("espnet", "kaldi", "srilm"):
        with limited(resource.RLIMIT_FSIZE, 1000), pytest.raises(InputError, match="out: cannot be written: File too large") as told:
            write_nbest([NbestList("1", hypotheses)], FOLDER_FORMATS[format_name], str(tmp_path / "out"))
        assert str(told.value).startswith(f"{tmp_path / 'out'}: ")
        assert not list(tmp_path.iterdir())


def test_the_scores_of_an_srilm_list_have_its_own_name_first(tmp_path):
    """`attlm` once called them like the list: `pron/a.score`, not `pron/a`."""
    files = {"a.score": SRILM["a"], "pron/a.score": "-0.5\n-0.25\n", "pron/a": "-1\n-1\n"}
    [nbest] = open_nbest(make(tmp_path, files))[1]
    assert nbest.hypotheses[1].scores["pron"] == pytest.approx(-0.25 * math.log(10))


@pytest.mark.parametrize(
    ("files", "name", "text", "message"),
    [
        (
            ESPNET,
            "2best_recog/text",
            "utt0 tree\nutt1 a text\n",
            "2best_recog/text:1: the key 'utt0' is not in the texts, or not in this place",
        ),
        (ESPNET, "2best_recog/score", "utt1 -4\n", "2best_recog/score: found the end of the file, expected 'utt3'"),
        (ESPNET, "2best_recog/score", "utt2 -4\n", "2best_recog/score:1: found key 'utt2', expected 'utt1'"),
        (ESPNET, "2best_recog/score", None, "2best_recog/score: cannot be read: No such file"),
        (ESPNET, "1best_recog/score", ESPNET["1best_recog/score"].replace("-0.5", "nan"), "1best_recog/score:2: the score is nan"),
        (ESPNET, "1best_recog/text", "utt1 a\nutt1 b\n", "1best_recog/text:2: the utterance utt1 is there twice"),
        (ESPNET, "1best_recog/text", "utt1 a\n\nutt2\nutt3 b\n", "1best_recog/text:2: found '\\n': expected a key"),
        (ESPNET, "5best_recog/text", "utt1 a\n", "expected 1best_recog, 2best_recog and so on"),
        (KALDI, "ac_cost", "s-u-1 5\ns-v-1 6\n", "ac_cost:2: found key 's-v-1', expected 's-u-2'"),
        (KALDI, "ac_cost", KALDI["ac_cost"] + "s-w-1 3\n", "ac_cost:4: the key 's-w-1' is not in the texts"),
        (KALDI, "ac_cost", KALDI["ac_cost"].replace("5.67", "inf"), "ac_cost:1: the cost is inf"),
        (KALDI, "ac_cost", "7 8\n", "ac_cost:1: found key '7', expected 's-u-1'"),
        (KALDI, "text", KALDI["text"] + "s-u-3 no\n", "ac_cost: found the end of the file, expected 's-u-3'"),
        (SRILM, "pron/a", "-1\n", "pron/a: found 1 scores for 2 hypotheses"),
        (SRILM, "pron/a", "-1\nx\n", "pron/a:2: the score is 'x'"),
        (SRILM, "pron/b.gz", None, "pron/b.gz: cannot be read: No such file"),
        (SRILM, "a", "-1 -2 3 x\n", "a:1: found 1 words, expected 3"),
    ],
)
def test_malformed_folders(files, name, text, message, tmp_path):
    folder = make(tmp_path, {file: content for file, content in (files | {name: text}).items() if content is not None})
    with pytest.raises(InputError) as caught:
        list(open_nbest(folder)[1])
    assert message in str(caught.value)


def test_a_folder_is_never_written_over_and_never_half(tmp_path):
    form, lists = open_nbest(make(tmp_path / "in", KALDI))
    with pytest.raises(InputError, match="already exists"):
        write_nbest(lists, form, str(tmp_path / "in"))
    with pytest.raises(InputError, match="not to standard output"):
        write_nbest(lists, form, "-")

    def broken():
        yield from lists
        raise InputError("broken")

    with pytest.raises(InputError, match="broken"):
        write_nbest(broken(), form, str(tmp_path / "out"))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert contents(tmp_path / "in") == KALDI


def test_a_kaldi_folder_whose_keys_are_sorted_as_text_has_the_order_of_their_numbers(tmp_path):
    keys = sorted(f"u-{number}" for number in range(1, 12))
    files = {"text": "".join(f"{key} x{key[2:]}\n" for key in keys), "ac_cost": "".join(f"{key} {key[2:]}\n" for key in keys)}
    form, lists = open_nbest(make(tmp_path / "in", files))
    (nbest,) = lists
    assert [(h.text, h.rank, h.scores["ac_cost"]) for h in nbest.hypotheses] == [(f"x{i}", i, -i) for i in range(1, 12)]
    write_nbest([nbest], form, str(tmp_path / "out"))
    assert contents(tmp_path / "out") == files
    nbest.hypotheses.reverse()
    write_nbest([nbest], form, str(tmp_path / "again"))
    assert [h.text for h in next(open_nbest(str(tmp_path / "again"))[1]).hypotheses] == [f"x{i}" for i in range(11, 0, -1)]


@pytest.mark.parametrize("size", range(1, 17, 3))
def test_srilm_files_longer_than_the_head_are_recognised_wherever_it_ends(size, tmp_path):
    line = "-10.25 -1.5 1 x\n"
    first = f"-10.25 -1.5 1 {'x' * size}\n"
    make(tmp_path, {"a": first + line * (HEAD // len(line) + 2)})
    form, lists = open_nbest(str(tmp_path))
    assert (form.name, len(next(lists).hypotheses)) == ("srilm", HEAD // len(line) + 3)
