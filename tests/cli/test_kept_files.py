"""Files of the user stay: no output replaces an input, or a file that may not be written, and modes are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cli_runs import folder, refused, run  # noqa: F401 - a fixture

import attlm_fairseq as attlm
from attlm_cli import printing
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.writing import whole_file
from attlm_fairseq.nbest.decision.decision import Decision
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.run.config_file import read_config
from attlm_fairseq.scoring.context.conversations import ContextSpec
from attlm_fairseq.scoring.lm_spec import LMSpec
from attlm_fairseq.text import text_pipeline
from attlm_fairseq.verbs.overwriting import files_of

TEXT, COST = "u-1 a b\nu-2 a\n", "u-1 2\nu-2 1\n"
RESCORED = ("--weight", "ac_cost=1")


@pytest.fixture
def kaldi(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("nbest").mkdir()
    Path("nbest/text").write_text(TEXT)
    Path("nbest/ac_cost").write_text(COST)
    Path("refs").write_text("a\n")
    return Path("nbest")


def test_a_file_of_an_input_folder_is_not_overwritten(kaldi):
    for target in ("nbest/text", "./nbest/ac_cost"):
        told = refused("rescore", "nbest/", *RESCORED, "--to", "1best", "-o", target)
        assert told.endswith(f"{target}: the output would overwrite a file of the input; name a new file")
    assert (kaldi / "text").read_text() == TEXT
    run("rescore", "nbest/", *RESCORED, "--to", "1best", "-o", "nbest/best")
    assert Path("nbest/best").read_text() == "a\n"
    for _ in range(2):  # its own configuration is no list
        run("tune", "nbest/", "--refs-by", "order", "--refs", "refs", "--folds", "0", "-o", "nbest/attlm.toml")


def test_all_files_of_a_configuration_are_inputs():
    spec = LMSpec("lm", checkpoints=(Path("lm.pt"),), adapt=Path("adaptation"))
    translation = LMSpec("mt", checkpoints=(Path("mt.pt"),), translation="forward", source_text=text_pipeline("truecase:source"))
    decision = Decision("mbr-wer", text=text_pipeline("truecase:compared"))
    names = {str(file) for _, files in files_of(RunConfig((spec, translation), decision=decision)) for file in files}
    assert {"adaptation", "source", "compared"} <= names
    context = RunConfig(context=ContextSpec("file", "conversations"))
    assert ("the context", [Path("conversations")]) in list(files_of(context))


def test_a_replaced_file_keeps_its_mode(tmp_path):
    target = tmp_path / "private"
    target.write_text("old")
    target.chmod(0o600)
    with whole_file(str(target)) as out:
        assert (tmp_path / ".private.part").stat().st_mode & 0o777 == 0o600
        out.write("new")
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_write_protected_file_is_not_replaced(tmp_path, monkeypatch):
    target = tmp_path / "kept"
    target.write_text("old")
    target.chmod(0o444)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write everywhere
    with pytest.raises(InputError, match="kept: is write-protected: name another file"), whole_file(str(target)):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("path", ["new/", "new"])
def test_lists_of_a_folder_are_written_as_one(path, kaldi):
    for lists in (attlm.read_nbest("nbest"), "nbest"):
        attlm.write_nbest(lists, path, "kaldi")
        assert {file.name: file.read_text() for file in Path("new").iterdir()} == {"text": TEXT, "ac_cost": COST}
        for file in Path("new").iterdir():
            file.unlink()
    run("rescore", "nbest", *RESCORED, "--to", "kaldi", "-o", path)
    assert Path("new/text").read_text() == "u-2 a\nu-1 a b\n"


def test_lists_of_programs_are_written_as_folders(tmp_path):
    lists = [[("a b", {"score": -1.0}), ("a", {"score": -2.0})]]
    for name in ("kaldi", "srilm"):
        attlm.write_nbest(lists, f"{tmp_path / name}/", name)
        assert len(attlm.read_nbest(tmp_path / name)[0].hypotheses[0].scores) == {"kaldi": 1, "srilm": 2}[name]
    with pytest.raises(InputError, match="a folder, but jsonl is a file: name one"):
        attlm.write_nbest(lists, f"{tmp_path / 'new'}/", "jsonl")


def test_texts_are_measured_on_a_terminal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(printing, "on_terminal", lambda: True)
    for name, text in (("one", "a b\nc\n"), ("two", "a b\nd\n"), ("refs", "a b\nd\n")):
        Path(name).write_text(text)
    run("eval", "one", "two", "--refs", "refs", "--report", "page.html")
    assert Path("page.html").exists()


def test_a_kaldi_file_becomes_a_folder(kaldi):
    Path("k.txt").write_text(TEXT)
    attlm.write_nbest(attlm.read_nbest("k.txt"), "new/", "kaldi")
    assert Path("new/text").read_text() == TEXT
    run("convert", "nbest/", "-o", "-", "--to", "kaldi")  # standard output is no folder: text lines


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        (["tune", "dev.json", "--kenlm", "lm.arpa", "--folds", "0", "--restarts", "1"], "input 1-best"),
        (["mix", "text", "--kenlm", "lm.arpa", "--lm", "lm.pt"], "iteration"),
        (["fit", "text", "--kenlm", "lm.arpa", "--find", "unigram-cache"], "setting"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_goes_to_standard_output_can_be_read_again(command, printed):
    result = run(*command, "-o", "-")
    Path("again.toml").write_text(result.stdout)
    assert read_config(Path("again.toml")).lms
    assert printed in result.stderr
    assert printed in run(*command, "-o", "other.toml").stdout


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("option", ["--errors", "--report"])
def test_what_eval_writes_to_standard_output_is_alone_there(option):
    result = run("eval", "dev.json", option, "-")
    assert "oracle" in result.stderr
    assert result.stdout.startswith(("id\tsystem", "<!DOCTYPE html>", "<!doctype html>"))
    assert "95 %" not in result.stdout or option == "--report"


@pytest.mark.usefixtures("folder")
def test_json_and_a_configuration_do_not_share_standard_output():
    assert "--json and the output both go to standard output" in refused("tune", "dev.json", "--kenlm", "lm.arpa", "--json", "-o", "-")


def test_settings_of_an_earlier_fit_do_not_go_unsaid(folder):  # noqa: F811
    """The same search may replace what it found; another one tells what it will remove."""
    (folder / "valid").write_text("the cat sat on the mat\na dog ran\n" * 20)
    lm = ("fit", "valid", "--lm", "lm=lm.pt")
    for _ in range(2):
        assert "holds what this run does not use" not in run(*lm, "--find", "neural-cache", "--find", "temperature").stderr
    assert "temperature" in Path("attlm.toml").read_text()
    assert (
        "WARNING: attlm.toml holds what this run does not use, and will be without it: [lm.lm]" in run(*lm, "--find", "neural-cache").stderr
    )
