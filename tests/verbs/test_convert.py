"""From every format to every other one: what is held comes back, what is lost is said, and nothing is overwritten."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runs import refused, run

import attlm_fairseq as attlm
from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import collected
from attlm_fairseq.nbest.formats import CONVERTIBLE_FOLDERS, FOLDER_FORMATS, ONE_BEST, find_format
from attlm_fairseq.nbest.formats.score_names import fresh_names
from attlm_fairseq.verbs.convert import TARGETS

sys.path.insert(0, str(Path(__file__).parents[1] / "nbest" / "formats"))
from nbest_samples import ALL_SAMPLES, BY_ID, CSV, FAIRSEQ, HYPORADISE, MANIFEST, MARIAN, MLM, MOSES

TO = [*(to for to in TARGETS if to not in ONE_BEST and to != "srilm"), *(f"{folder}/" for folder in CONVERTIBLE_FOLDERS)]


def written(lists: list[attlm.NbestList], to: str, folder: Path) -> tuple[attlm.Converted, list[attlm.NbestList]]:
    path = f"{folder / 'out'}/" if to.endswith("/") else str(folder / "out")
    found = attlm.convert(lists, path, to.rstrip("/"))
    size = len(lists[0].hypotheses)
    return found, attlm.read_nbest(path, format=f"nemo:{size}" if to == "nemo" else to.rstrip("/"))


@pytest.mark.parametrize("to", TO)
@pytest.mark.parametrize(("name", "sample"), ALL_SAMPLES, ids=[f"{name}-{i}" for i, (name, _) in enumerate(ALL_SAMPLES)])
def test_what_is_held_comes_back_and_the_rest_is_said(name, sample, to, tmp_path):
    (tmp_path / "in").write_text(sample, encoding="utf-8")
    lists = attlm.read_nbest(tmp_path / "in", format=name)
    holds = (FOLDER_FORMATS[to[:-1]] if to.endswith("/") else find_format(to)).holds
    assert holds is not None
    if name.partition(":")[0] == to:
        return  # its own format holds all, as test_every_format has it
    try:
        found, again = written(lists, to, tmp_path)
    except InputError:  # an id, a text or a list without score that the format has no way to write
        assert not (tmp_path / "out").exists()
        return
    if to != "srilm/":  # a folder, in the order of the names of its files
        assert [nbest.id for nbest in again] == [nbest.id if holds.ids else str(place) for place, nbest in enumerate(lists)]
    lost = " ".join(found.lost)
    for old, new in zip(sorted(lists, key=lambda nbest: nbest.id), sorted(again, key=lambda nbest: nbest.id), strict=True):
        assert [" ".join(h.text.split()) for h in new.hypotheses] == [" ".join(h.text.split()) for h in old.hypotheses]
        references = tuple(filter(str.strip, old.references)) if to in ("csv", "tsv") else old.references  # blank is none there
        assert new.references == (references if holds.references else ())
        assert holds.references or not old.references or "references" in lost
        assert new.source == ((old.source if holds.blank_sources else old.source or None) if holds.sources else None)
        assert holds.sources or old.source is None or "source sentences" in lost
        assert holds.ids or old.id == new.id or "ids" in lost
        assert not old.sparse or new.sparse or "does not name is 0" in lost or not holds.scores
        for before, after in zip(old.hypotheses, new.hypotheses, strict=True):
            check_scores(before.scores, after.scores, holds, lost, to)
    for extra in {extra for nbest in lists if nbest.verbatim for extra in nbest.verbatim.extras}:
        assert extra in lost


def check_scores(before, after, holds, lost, to):
    if not holds.scores:
        assert not after
        assert all(name in lost for name in before)
        return
    values = sorted(after.values()) if to != "srilm/" or "lm" in before else sorted(value for key, value in after.items() if key != "lm")
    assert values == (pytest.approx(sorted(before.values()), abs=2e-6) if holds.decimals else sorted(before.values()))
    if to not in ("srilm/", "mlm", "nemo"):  # which have one name for the decoder's own
        new = fresh_names(before, [holds.total_name] if holds.total_name else [], holds.score_name)
        assert all(new[name] in after or name == "decoder" for name in before)
        assert all(name in after or f"{name} -> " in lost for name in before)


@pytest.mark.parametrize("to", TO)
def test_a_score_with_the_name_of_the_total_is_said_to_get_the_name_that_it_gets(to, tmp_path):
    lists = [attlm.NbestList("u1", [attlm.Hypothesis("a", {"score": -1.0, "total": -2.0}, 1)])]
    found, again = written(lists, to, tmp_path)
    holds = (FOLDER_FORMATS[to[:-1]] if to.endswith("/") else find_format(to)).holds
    check_scores(lists[0].hypotheses[0].scores, again[0].hypotheses[0].scores, holds, " ".join(found.lost), to)


@pytest.mark.parametrize("ids", [("u1", "u1", "u2"), ("u1", "u2", "u1")])
@pytest.mark.parametrize("to", TO)
def test_two_lists_of_one_id_both_come_back_or_are_refused(to, ids, tmp_path):
    lists = [
        attlm.NbestList(name, [attlm.Hypothesis(f"{word} {place}", {"score": -1.0}, rank) for rank, word in enumerate("ab", 1)])
        for place, name in enumerate(ids)
    ]
    if to in ("jsonl", "hyporadise", "nemo"):
        again = written(lists, to, tmp_path)[1]
        assert [[h.text for h in nbest.hypotheses] for nbest in again] == [[h.text for h in nbest.hypotheses] for nbest in lists]
        return
    with pytest.raises(InputError) as error:
        written(lists, to, tmp_path)
    name = to.rstrip("/")
    assert str(error.value) == f"two lists have the id 'u1': {name} needs a different id for each list; rename one, or write jsonl"
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("to", "ids"), [("moses", ("a", "a ")), ("plain", ("a b", "a\tb")), ("tsv", ("a\nb", "a\tb"))])
def test_ids_that_a_format_makes_equal_are_refused(to, ids, tmp_path):
    lists = [attlm.NbestList(name, [attlm.Hypothesis("a", {"score": -1.0}, 1)]) for name in ids]
    with pytest.raises(InputError, match="two lists have the id 'a"):
        written(lists, to, tmp_path)
    assert len(written(lists, "csv", tmp_path)[1]) == 2


@pytest.mark.parametrize("to", TO)
def test_an_empty_id_comes_back_or_is_refused(to, tmp_path):
    lists = [attlm.NbestList("", [attlm.Hypothesis("a", {"score": -1.0}, 1)])]
    if to in ("moses", "plain", "kaldi", "kaldi/", "espnet", "espnet/", "srilm/", "csv", "tsv"):
        with pytest.raises(InputError, match=r"the id '' |an empty id"):
            written(lists, to, tmp_path)
        assert not any(tmp_path.iterdir())
    else:
        assert [nbest.id for nbest in written(lists, to, tmp_path)[1]] == ["0" if to == "nemo" else ""]


@pytest.mark.parametrize(("to", "lost"), [("csv", True), ("tsv", True), ("json", False), ("hyporadise", False)])
def test_a_lost_reference_of_silence_is_said(to, lost, tmp_path):
    lists = [
        attlm.NbestList(str(place), [attlm.Hypothesis("", {"score": -1.0}, 1)], (reference,)) for place, reference in enumerate(("", "a"))
    ]
    found, again = written(lists, to, tmp_path)
    assert found.lost == (("has no blank references, of silence: those of 1 lists are lost",) if lost else ())
    assert [nbest.references for nbest in again] == [() if lost else ("",), ("a",)]


@pytest.mark.parametrize("name", ["sr", "sr/", "new.srilm"])
def test_srilm_is_a_folder_with_and_without_a_slash(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.moses").write_text(MOSES)
    run("convert", "in.moses", "-o", name, *([] if "." in name else ["--to", "srilm"]))
    assert sorted(path.name for path in Path(name).iterdir() if path.is_file()) == ["0", "7"]
    run("convert", name, "-o", "again", "--to", "srilm")
    assert Path("again/0").read_text() == Path(name, "0").read_text()
    run("convert", "again/0", "-o", "one", "--to", "srilm")
    run("convert", "again/0", "-o", "folder/", "--to", "srilm")
    assert Path("one").read_text() == Path("folder/0").read_text() == Path("again/0").read_text()
    assert "srilm is written as a folder, not to standard output" in run("convert", "in.moses", "--to", "srilm", code=2).stderr


@pytest.mark.parametrize(("to", "name"), [("srilm", "out"), ("srilm", "out/"), ("espnet", "out"), ("kaldi", "out/")])
def test_rescored_lists_are_written_as_a_folder_too(to, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("id,hyp,score\nu1,a b,-2\nu1,a,-1\n")
    run("rescore", "in.csv", "--weight", "score=1", "--to", to, "-o", name)
    (nbest,) = attlm.read_nbest("out")
    assert [hypothesis.text for hypothesis in nbest.hypotheses] == ["a", "a b"]
    assert "a folder, but moses is a file" in run("rescore", "in.csv", "--weight", "score=1", "--to", "moses", "-o", "new/", code=2).stderr


def test_the_command_says_what_is_lost_and_overwrites_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.json").write_text(MANIFEST)
    result = run("convert", "in.json", "-o", "out.moses", "--to", "moses")
    assert result.stderr.splitlines() == [
        "note: moses has no references: those of 2 lists are lost",
        "note: moses leaves out duration, pred_text",
        "2 lists, 4 hypotheses",
    ]
    assert Path("out.moses").read_text().splitlines()[0] == "/d/u1.wav ||| a b ||| score= -3.500000"
    before = Path("out.moses").read_text()
    assert "out.moses: already exists" in run("convert", "in.json", "-o", "out.moses", "--to", "jsonl", code=2).stderr
    assert Path("out.moses").read_text() == before
    assert "would overwrite the input" in run("convert", "in.json", "-o", "in.json", "--to", "jsonl", code=2).stderr
    assert Path("in.json").read_text() == MANIFEST
    assert "fairseq cannot hold lists from another format" in run("convert", "in.json", "-o", "x", "--to", "fairseq", code=2).stderr
    Path("in.csv").write_text(CSV)
    result = run("convert", "in.csv", "--to", "1best-kaldi")
    assert result.stdout == "u1 a, b\nu2 c\n"
    assert "the first hypothesis of each list alone: 1 others are lost" in result.stderr


def test_the_name_of_the_output_gives_its_format(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text(CSV)
    for name in ("out.moses", "out.TSV.gz", "out.jsonl", "out.1best-kaldi"):
        run("convert", "in.csv", "-o", name)
    assert Path("out.moses").read_text().startswith("u1 ||| a, b ||| ")
    assert attlm.read_nbest("out.TSV.gz", format="tsv")[0].references == ("a b",)
    assert Path("out.1best-kaldi").read_text() == "u1 a, b\nu2 c\n"
    for name in ("out", "out.txt", "kaldi/"):
        assert "does not end in the name of a format: say --to with one of moses, " in run("convert", "in.csv", "-o", name, code=2).stderr
    assert "the output '-' does not end" in run("convert", "in.csv", code=2).stderr


def test_rounded_renamed_and_sparse_scores_are_said(tmp_path):
    (tmp_path / "in").write_text(BY_ID)
    lists = attlm.read_nbest(tmp_path / "in")
    lists[0].hypotheses[0].scores["my_lm"] = -1 / 3
    lists[0].hypotheses[1].scores["my_lm"] = -0.25
    found = attlm.convert([lists[0]], tmp_path / "out", "moses")
    assert found.lost == (
        "has 6 decimals: the scores my_lm are rounded",
        "has other names for scores: my_lm -> myLm",
        "leaves out tokens",
    )
    (tmp_path / "moses").write_text(MOSES.replace("LM0= -3 ", ""))
    assert any("does not name is 0" in line for line in attlm.convert(tmp_path / "moses", tmp_path / "out.csv", "csv").lost)


def test_rescoring_into_another_format_says_what_converting_says(tmp_path):
    (tmp_path / "in").write_text(BY_ID)
    lists = attlm.read_nbest(tmp_path / "in")[:1]
    for hypothesis in lists[0].hypotheses:
        hypothesis.scores["my_lm"] = -1 / 3
    expected = attlm.convert(lists, tmp_path / "converted", "moses").lost
    with collected() as told:
        attlm.rescore(lists, weights={"my_lm": 1.0}, output=attlm.RescoreOutput(tmp_path / "rescored", "moses"))
    assert {f"note: moses {line}" for line in expected if "leaves out" not in line and "no place" not in line} <= set(told)
    assert sum("other names for scores: my_lm -> myLm" in line for line in told) == 1


def test_rounding_is_that_of_the_written_unit(tmp_path):
    """SRILM's numbers are log10: what has few decimals as a natural log is rounded, and what SRILM wrote is not."""
    exact, rounded = ([attlm.NbestList("u", [attlm.Hypothesis("a", {"am": score})])] for score in (-1.5 * math.log(10), -1.5))
    assert attlm.convert(exact, tmp_path / "exact", "srilm").lost == ("has other names for scores: am -> acoustic",)
    assert "has 6 decimals: the scores am are rounded" in attlm.convert(rounded, tmp_path / "rounded", "srilm").lost


def test_the_names_of_the_decoders_score_and_lm_scores_are_said(tmp_path):
    rescored = attlm.NbestList("7", [attlm.Hypothesis("a b", {"am": -1.25}, lm_scores={"lm": -2.5}), attlm.Hypothesis("a", {"am": -2.0})])
    rescored.hypotheses[1].lm_scores["lm"] = -3.0
    lists = [rescored, attlm.NbestList("3", [attlm.Hypothesis("b", {"am": -1.0}, lm_scores={"lm": -1.0})])]
    assert attlm.convert(lists, tmp_path / "plain", "plain").lost == ("has no scores: am, lm are lost",)
    assert "has other names for scores: am -> score" in attlm.convert(lists, tmp_path / "mlm", "mlm").lost
    assert attlm.convert(lists, tmp_path / "folder", "srilm").lost == (
        "sorts the lists by id: their order is lost",
        "has 6 decimals: the scores am, lm are rounded",  # as log10
        "has other names for scores: am -> acoustic",
    )
    lists[1].hypotheses[0].scores = {"logprob": -1.0}
    for to in ("mlm", "nemo:1", "srilm"):
        one = f"puts the scores am, logprob under one name, {'acoustic' if to == 'srilm' else 'score'}: they are of different hypotheses"
        alone = [attlm.NbestList(nbest.id, nbest.hypotheses[:1]) for nbest in lists]
        assert one in attlm.convert(alone, tmp_path / f"one-{to}", to).lost
    two = [[("a", {"decoder": -1.0, "score": -2.0})]]
    attlm.convert(two, tmp_path / "two", "mlm")
    assert attlm.read_nbest(tmp_path / "two")[0].hypotheses[0].scores == {"score": -1.0, "score2": -2.0}


def test_a_score_called_total_comes_back(tmp_path):
    lists = [[("a b", {"am": -1.0, "total": -3.0}), ("a", {"am": -2.0, "total": -4.0})]]
    for to in ("csv", "tsv", "json", "jsonl"):
        attlm.convert(lists, tmp_path / to, to)
        back = attlm.read_nbest(tmp_path / to)[0].hypotheses[1].scores
        assert sorted(back.values()) == [-4.0, -2.0], (to, back)


def test_a_list_that_a_format_cannot_hold_is_one_line(tmp_path):
    with pytest.raises(InputError, match="list 0, hypothesis 1: it has no score, such as decoder or score or total"):
        attlm.convert([["a b", "a"]], tmp_path / "out", "mlm")
    with pytest.raises(InputError, match="fairseq cannot hold lists from another format: expected one of moses"):
        attlm.convert([["a b", "a"]], tmp_path / "out", "fairseq")
    with pytest.raises(InputError, match="table needs the same"):
        attlm.convert([[("a", {"am": 1.0})], [("a", {"lm": 1.0})]], tmp_path / "out", "csv")
    assert not (tmp_path / "out").exists()


OTHER_FIELDS = """\
{"id": "u", "ref": "a", "source": "s", "speaker": ["x"], "hyps": [{"text": "a", "scores": {"am": -1}, "times": [[0, 1]], "rank": 1}]}
{"id": "v", "hyps": [{"text": "a", "am": -1, "lang": "en", "tokens": [1, 2], "total": 3}]}
"""


def test_other_fields_of_jsonl_are_named(tmp_path):
    (tmp_path / "in").write_text(OTHER_FIELDS)
    assert attlm.convert(tmp_path / "in", tmp_path / "csv", "csv").lost == ("leaves out lang, speaker, times, tokens",)
    assert attlm.convert(tmp_path / "in", tmp_path / "same", "jsonl").lost == ()
    assert (tmp_path / "same").read_text() == OTHER_FIELDS


@pytest.mark.parametrize(
    ("form", "text", "extras"),
    [
        ("hyporadise", HYPORADISE, "extra, input1"),
        ("mlm", MLM, "tokens"),
        ("moses", MARIAN, "WordScores, alignments"),
        ("moses", "0 ||| a ||| am= -1 ||| -2 ||| 0-0 ||| x\n", "alignments, the field 6"),
        ("fairseq", FAIRSEQ, "D, P"),
    ],
)
def test_other_fields_of_every_format_are_named(form, text, extras, tmp_path):
    (tmp_path / "in").write_text(text)
    assert attlm.read_nbest(tmp_path / "in")[0].verbatim.file.format == form
    assert f"leaves out {extras}" in attlm.convert(tmp_path / "in", tmp_path / "out", "plain").lost
    assert attlm.convert(tmp_path / "in", tmp_path / "same", form).lost == ()


def test_other_files_of_folders_are_named(tmp_path):
    tables = {"text": "u-1 a\n", "ac_cost": "u-1 1\n", "total_cost": "u-1 1\n", "ids": "u-1 4\n"}
    espnet = {"text": "u a\n", "score": "u -1\n", "score_total": "u -1\n", "token": "u a\n"}
    for name, files in (("kaldi", tables), ("espnet/1best_recog", espnet)):
        (tmp_path / name).mkdir(parents=True)
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    assert attlm.convert(tmp_path / "kaldi", tmp_path / "a", "jsonl").lost == ("leaves out ids",)
    assert attlm.convert(tmp_path / "espnet", tmp_path / "b", "jsonl").lost == ("leaves out token",)


def test_several_inputs_become_one_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("call1", "call2"):
        Path(f"{name}.json").write_text(f'{{"text": " {name}", "segments": [{{"text": " a", "avg_logprob": -0.25, "tokens": [1, 2]}}]}}')
    Path("more.csv").write_text("id,hyp,score\nu1,a b,-1.5\nu1,a,-2.5\nu2,c,-3.5\n")
    result = run("convert", "call1.json", "more.csv", "call2.json", "-o", "all.jsonl")
    assert result.output == "note: jsonl leaves out segments\n4 lists, 5 hypotheses\n"
    assert [(nbest.id, [(one.text, one.scores) for one in nbest.hypotheses]) for nbest in attlm.read_nbest("all.jsonl")] == [
        ("call1", [(" call1", {"logprob": -0.75})]),
        ("u1", [("a b", {"score": -1.5}), ("a", {"score": -2.5})]),
        ("u2", [("c", {"score": -3.5})]),
        ("call2", [(" call2", {"logprob": -0.75})]),
    ]
    Path("talk.1.json").write_text('{"text": "a"}')
    Path("talk.2.json").write_text('{"text": "b"}')
    Path("own.jsonl").write_text('{"id": "0", "hyps": [{"text": "c"}]}\n')
    run("convert", "talk.1.json", "talk.2.json", "own.jsonl", "-o", "talks.jsonl")
    assert [nbest.id for nbest in attlm.read_nbest("talks.jsonl")] == ["talk.1", "talk.2", "0"]
    result = run("convert", "more.csv", "more.csv", "-o", "twice.jsonl", code=2)
    assert "more.csv:2: an earlier list has the id 'u1', too: expected another id for each list of these files" in result.output
    assert "(--prefix-ids puts the name of its file before each)" in result.output
    assert not Path("twice.jsonl").exists()


GENERATED = "S-1\tzwei\nT-1\tb b\nH-1\t-0.1\tba@@ b b\nP-1\t-0.1 -0.1 -0.1 -0.1\n"
GENERATED += "S-0\teins\nT-0\ta a .\nH-0\t-0.1\ta a .\nP-0\t-0.1 -0.1 -0.1 -0.1\n"


def test_text_steps_change_hypotheses_and_references(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("generated").write_text(GENERATED)
    result = run("convert", "generated", "--to", "jsonl", "--text", "join-subwords:bpe,detokenize:en", "-o", "words.jsonl")
    assert "jsonl leaves out P" in result.stderr
    words, read = attlm.read_nbest("words.jsonl"), attlm.read_nbest("generated")
    assert [(nbest.id, nbest.hypotheses[0].text, nbest.references, nbest.source) for nbest in words] == [
        ("1", "bab b", ("b b",), "zwei"),
        ("0", "a a.", ("a a.",), "eins"),
    ]
    assert [nbest.hypotheses[0].scores for nbest in words] == [nbest.hypotheses[0].scores for nbest in read]
    assert run("convert", "generated", "--to", "1best", "--text", "join-subwords:bpe").stdout == "bab b\na a .\n"
    one_by_one = [replace(nbest, hypotheses=[replace(nbest.hypotheses[0], times=((0.0, 1.0),) * 3)]) for nbest in read]
    attlm.convert(one_by_one, "times.jsonl", "jsonl", text="join-subwords:bpe")
    assert [len(nbest.hypotheses[0].times) for nbest in attlm.read_nbest("times.jsonl")] == [0, 3]  # of words that are still there


SCORED = {
    "jsonl": '{"id": "1", "speaker": "s", "hyps": [{"text": "a b", "scores": {"am": -1}}, {"text": "a c", "scores": {"am": -2}}]}\n',
    "csv": "id,hyp,am,note\n1,a b,-1,x\n1,a c,-2,y\n",
    "moses": "1 ||| a b ||| am= -1 ||| -1\n1 ||| a c ||| am= -2 ||| -2\n",
    "fairseq": "S-1\tx\nH-1\t-0.5\ta b\nP-1\t-0.5 -0.5 -0.5\nH-1\t-0.6\ta c\nP-1\t-0.6 -0.6 -0.6\n",
    "json": '{"1": [{"text": "a b", "score": -1}, {"text": "a c", "score": -2}]}',
    "hyporadise": '[{"input": ["a b", "a c"], "output": "a b", "am_score": [-1, -2]}]',
    "nemo": "a b\t-1\na c\t-2\n",
}


@pytest.mark.parametrize("form", SCORED)
def test_scores_of_a_file_join_the_lists(form, tmp_path, monkeypatch):
    """In the lists' own format all else stays; they are read back as a score, and so they are from another format."""
    monkeypatch.chdir(tmp_path)
    Path("lists").write_text(SCORED[form])
    Path("numbers").write_text("0.25\n0.75\n")
    options = ["--format", "nemo:2"] if form == "nemo" else []
    [before] = attlm.read_nbest("lists", format=options[1] if options else None)
    for to in dict.fromkeys((form, "jsonl", "csv", "moses", *([] if form == "fairseq" else ["mlm"]))):
        run("convert", "lists", *options, "--to", to, "-o", f"out.{to}", "--scores", "qe=numbers")
        [found] = attlm.read_nbest(f"out.{to}", format="nemo:2" if to == "nemo" else None)
        assert [hypothesis.text for hypothesis in found.hypotheses] == ["a b", "a c"]
        own = before.hypotheses[0].scores
        for hypothesis, score in zip(found.hypotheses, (0.25, 0.75), strict=True):
            [name] = [name for name in hypothesis.scores if name in ("qe", "qe_score")]
            assert hypothesis.scores[name] == score
            assert len(hypothesis.scores) == len(own) + 1
    assert ("speaker" in Path(f"out.{form}").read_text()) == (form == "jsonl")


def test_scores_that_do_not_fit_the_lists_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("lists").write_text(SCORED["jsonl"] * 2)

    def told(text: str, *options: str) -> str:
        Path("numbers").write_text(text)
        found = refused("convert", "lists", "--to", "jsonl", "-o", "out", "--scores", "qe=numbers", *options)
        assert not Path("out").exists()
        return found

    assert "numbers: 3 numbers of qe are fewer than there are hypotheses: none is left for list '1'" in told("1\n2\n3\n")
    assert "numbers:5: more numbers of qe than the 4 hypotheses" in told("1\n2\n3\n4\n5\n")
    assert "numbers:3: a blank line: expected one number of qe for each hypothesis" in told("1\n2\n\n3\n4\n")
    assert "numbers:2: qe is 'x': expected a number" in told("1\nx\n3\n4\n")
    assert "numbers:2: qe is nan: expected a finite number" in told("1\nnan\n3\n4\n")
    assert "numbers:4: qe of list '1' is 1e+41" in told("1\n2\n3\n1e41\n")
    assert "two scores have the same name" in told("1\n2\n3\n4\n", "--scores", "qe=lists")
    assert "'words' cannot be the name" in told("1\n2\n3\n4\n", "--scores", "words=numbers")
    assert "has a score 'am' of its own: give the new one another name" in told("1\n2\n3\n4\n", "--scores", "am=numbers")
    assert "nowhere: cannot be read" in told("1\n2\n3\n4\n", "--scores", "more=nowhere")
    for to in ("plain", "1best"):
        assert f"{to} has no place for scores" in refused("convert", "lists", "--to", to, "--scores", "qe=numbers")
    numbers = {"a": [1.0, 2.0, 3.0, 4.0], "b": "numbers"}
    attlm.convert("lists", "out.jsonl", "jsonl", scores=numbers)
    assert [hyp.scores for nbest in attlm.read_nbest("out.jsonl") for hyp in nbest.hypotheses][3] == {"am": -2.0, "a": 4.0, "b": 4.0}
    for wrong, told in ((["x", 2], "number 1 is 'x'"), ([1.0, None], "number 2 is None"), (3, "found 3, expected a file or numbers")):
        with pytest.raises(InputError, match=told):
            attlm.convert("lists", "wrong.jsonl", "jsonl", scores={"a": wrong})
    with pytest.raises(InputError, match="files or numbers by name"):
        attlm.convert("lists", "wrong.jsonl", "jsonl", scores=["a"])
    with pytest.raises(InputError, match="2 numbers of a are fewer"):
        attlm.convert("lists", "other.jsonl", "jsonl", scores={"a": [1.0, 2.0]})


def test_a_score_that_gets_another_name_in_the_lists_own_format_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("lists").write_text(SCORED["csv"])
    Path("numbers").write_text("0.25\n0.75\n")
    assert (
        "csv has other names for scores: comet -> comet_score"
        in run(*("convert", "lists", "--to", "csv", "-o", "out.csv", "--scores", "comet=numbers")).stderr
    )
    assert [hyp.scores["comet_score"] for hyp in attlm.read_nbest("out.csv")[0].hypotheses] == [0.25, 0.75]


@pytest.mark.parametrize("to", ["fairseq", "moses", "kaldi/", "espnet/"])
def test_small_scores_keep_their_digits(to, tmp_path, monkeypatch):
    """Such as probabilities, of which 6 decimals would leave nothing."""
    monkeypatch.chdir(tmp_path)
    Path("lists").write_text(SCORED["fairseq"])
    Path("numbers").write_text("1.25e-09\n-0.012345678\n")
    told = run("convert", "lists", "--to", to.rstrip("/"), "-o", f"out{'/' if '/' in to else ''}", "--scores", "qe=numbers").stderr
    assert "qe are rounded" in told or to == "fairseq"
    [found] = attlm.read_nbest("out", format=to.rstrip("/"))
    name = next(name for name in found.hypotheses[0].scores if "qe" in name)
    assert [hypothesis.scores[name] for hypothesis in found.hypotheses] == pytest.approx([1.25e-09, -0.012345678], rel=1e-6)


def test_tables_hold_source_sentences(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = json.loads(SCORED["jsonl"])
    lists = [line | {"id": "1", "source": "the source"}, line | {"id": "2"}]
    Path("lists").write_text("".join(json.dumps(nbest) + "\n" for nbest in lists))
    for to in ("csv", "tsv"):
        run("convert", "lists", "-o", f"out.{to}")
        assert [nbest.source for nbest in attlm.read_nbest(f"out.{to}")] == ["the source", None]
    Path("lists").write_text("".join(json.dumps(nbest) + "\n" for nbest in lists[::-1]))
    told = run("convert", "lists", "-o", "other.csv").stderr
    assert "csv has source sentences only if the first list has one: those of 1 lists are lost" in told
    assert [nbest.source for nbest in attlm.read_nbest("other.csv")] == [None, None]


def test_texts_in_another_order_than_their_numbers_are_told(tmp_path):
    (tmp_path / "generated").write_text(GENERATED)
    assert "not in the order of their numbers" in run("convert", tmp_path / "generated", "--to", "1best").stderr
    assert "not in the order of their numbers" in run("rescore", tmp_path / "generated", "--weight", "fairseq=1", "--to", "1best").stderr
    assert "order of their numbers" not in run("convert", tmp_path / "generated", "--to", "1best-kaldi").stderr


def test_texts_in_the_order_of_the_numbers_are_compared_with_generated_lists(tmp_path):
    (tmp_path / "generated").write_text(GENERATED)
    (tmp_path / "texts").write_text("a a .\nb b\n")
    files = (tmp_path / "generated", tmp_path / "texts")
    assert "say --refs-by number" in run("eval", *files, code=2).stderr
    by_number, by_order = (
        run("eval", *files, "--metric", "wer", "--refs-by", by).stdout.splitlines()[2].split() for by in ("number", "order")
    )
    assert (by_number[1], by_order[1] != "0.00") == ("0.00", True)


def test_files_that_share_ids_are_joined_with_their_names_before_the_ids(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("dev1.jsonl", "dev2.v3.jsonl"):
        Path(name).write_text('{"id": "u1", "hyps": [{"text": "a"}]}\n{"id": "u2", "hyps": [{"text": "b"}]}\n')
    run("convert", "dev1.jsonl", "dev2.v3.jsonl", "-o", "all.jsonl", "--prefix-ids")
    assert [nbest.id for nbest in attlm.read_nbest("all.jsonl")] == ["dev1-u1", "dev1-u2", "dev2.v3-u1", "dev2.v3-u2"]
    run("convert", "dev1.jsonl", "-o", "one.jsonl", "--prefix-ids")
    assert [nbest.id for nbest in attlm.read_nbest("one.jsonl")] == ["dev1-u1", "dev1-u2"]
    told = run("convert", "dev1.jsonl", "dev1.jsonl", "-o", "twice.jsonl", "--prefix-ids", code=2).output
    assert "an earlier list has the id 'dev1-u1', too: expected another id for each list of these files\n" in told


def test_files_without_ids_and_folders_are_called_by_their_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in (("u1.txt", "a\nb\n"), ("u2.txt", "c\nd\n")):
        Path(name).write_text(text)
    run("convert", "u1.txt", "u2.txt", "--format", "plain:2", "-o", "steps.jsonl")
    assert [nbest.id for nbest in attlm.read_nbest("steps.jsonl")] == ["u1", "u2"]
    run("convert", "u1.txt", "u2.txt", "--format", "plain", "-o", "blank.jsonl")
    assert [nbest.id for nbest in attlm.read_nbest("blank.jsonl")] == ["u1", "u2"]
    for name in ("nbest.en", "nbest.de"):  # the ending tells them apart
        Path(name).write_text('{"id": "u1", "hyps": [{"text": "a"}]}\n')
    run("convert", "nbest.en", "nbest.de", "-o", "endings.jsonl", "--prefix-ids")
    assert [nbest.id for nbest in attlm.read_nbest("endings.jsonl")] == ["nbest.en-u1", "nbest.de-u1"]
    run("convert", "nbest.en", "nbest.de", "steps.jsonl", "-o", "three.jsonl", "--prefix-ids")
    names = ["nbest.en-u1", "nbest.de-u1", "steps-u1", "steps-u2"]
    assert [nbest.id for nbest in attlm.read_nbest("three.jsonl")] == names
    for number in "12":  # as ESPnet calls them
        folder = Path(f"output.{number}/1best_recog")
        folder.mkdir(parents=True)
        (folder / "text").write_text("u1 a\n")
        (folder / "score").write_text("u1 -1.0\n")
    run("convert", "output.1", "output.2", "-o", "folders.jsonl", "--prefix-ids")
    assert [nbest.id for nbest in attlm.read_nbest("folders.jsonl")] == ["output.1-u1", "output.2-u1"]


def test_lists_that_were_read_lose_what_their_file_loses(tmp_path):
    text = '[{"id": "u1", "foo": [1], "hyps": [{"text": "a", "score": -1.0, "spk": "x"}, {"text": "b", "score": -2.0, "spk": "y"}]}]\n'
    (tmp_path / "z.json").write_text(text)
    found = attlm.convert(attlm.read_nbest(tmp_path / "z.json"), tmp_path / "z2.json", "json")
    assert (found.lost, (tmp_path / "z2.json").read_text()) == ((), text)
    (tmp_path / "generated").write_text(GENERATED)
    attlm.convert(attlm.read_nbest(tmp_path / "generated"), tmp_path / "again", "fairseq")
    assert (tmp_path / "again").read_text() == GENERATED
    changed = attlm.read_nbest(tmp_path / "generated")
    changed[0].id = "other"
    with pytest.raises(InputError, match="fairseq cannot hold lists from another format"):
        attlm.convert(changed, tmp_path / "third", "fairseq")


def test_lists_of_two_files_lose_what_their_headers_do_not_share(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"id,hyp,score,{name}1\n{name},x,-1.5,k\n{name},y,-2.5,l\n")
    lists = [*attlm.read_nbest(tmp_path / "a.csv"), *attlm.read_nbest(tmp_path / "b.csv")]
    assert attlm.convert(lists, tmp_path / "o.csv", "csv").lost == ("leaves out a1, b1",)


def test_blank_sources_of_the_first_lists_are_none(tmp_path):
    rows = "".join(f"{n},a,-1.5,{'' if n < 12 else 'das'}\n{n},b,-2.5,{'' if n < 12 else 'das'}\n" for n in range(14))
    (tmp_path / "lists.csv").write_text(f"id,hyp,score,source\n{rows}")
    assert [nbest.source or None for nbest in attlm.read_nbest(tmp_path / "lists.csv")] == [None] * 12 + ["das"] * 2


@pytest.mark.parametrize("first", ["das ist", "1984", "nan"])
def test_sources_may_be_numbers(first, tmp_path):
    lists = [
        attlm.NbestList(str(i), [attlm.Hypothesis("a", {"s": -1.0}, 1)], source=text)
        for i, text in enumerate((first, "1984", "noch", "und"))
    ]
    for to in ("csv", "tsv"):
        assert attlm.convert(lists, tmp_path / f"out.{to}", to).lost == ()
        assert [nbest.source for nbest in attlm.read_nbest(tmp_path / f"out.{to}")] == [first, "1984", "noch", "und"]


def test_a_long_list_alone_in_its_file_is_one_list(tmp_path):
    for count in (20, 5000):
        (tmp_path / "lists").write_text(json.dumps([[f"text {n}", -float(n)] for n in range(count)]))
        [nbest] = attlm.read_nbest(tmp_path / "lists")
        assert len(nbest.hypotheses) == count
    (tmp_path / "lists").write_text(json.dumps([[f"text {n}", "b"] for n in range(5000)]))
    assert len(attlm.read_nbest(tmp_path / "lists")) == 5000


@pytest.mark.parametrize("to", ["hyporadise", "json"])
def test_a_score_of_some_hypotheses_is_no_column(to, tmp_path):
    texts = {"hyporadise": HYPORADISE, "json": '[{"id": "a", "texts": ["x", "y"]}]'}
    (tmp_path / "lists").write_text(texts[to])
    lists = attlm.read_nbest(tmp_path / "lists", format=to)
    for place in (0, 1):
        for hypothesis in lists[0].hypotheses:
            hypothesis.lm_scores, hypothesis.total = {}, None
        lists[0].hypotheses[place].lm_scores = {"lm": -2.0}
        with pytest.raises(InputError, match=r"1 of \d+ hypotheses have the score lm: this format holds one for each or none"):
            attlm.write_nbest(lists, tmp_path / "out", to)
    assert not (tmp_path / "out").exists()
