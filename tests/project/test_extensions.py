"""What another package adds by an entry point: families, output layers and list formats. Without the package they are refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ENTRY_POINTS = """
[attlm_fairseq.models]
own = own_models
[attlm_fairseq.formats]
own = own_formats:OwnFormat
"""
MODELS = """
import torch
from attlm_fairseq.modules.families import FAMILIES, Family
from attlm_fairseq.modules.memory import PlainReader
from attlm_fairseq.modules.output import OUTPUT_LAYERS, OutputKind, TransformedSoftmax
from attlm_fairseq.modules.recurrence import RNN


class Scaled(TransformedSoftmax):
    def __init__(self, features, words, scale):
        super().__init__(features, words)
        self.scale = scale

    def vectors(self, features):
        return self.scale * torch.tanh(features)


print("a module that prints")
FAMILIES["own_lm"] = Family(RNN, PlainReader)
OUTPUT_LAYERS["scaled"] = OutputKind(
    lambda features, words, options: Scaled(features, words, options.of_model["output_scale"]), tied=True, defaults={"output_scale": 2.0}
)
"""
USER_DIR = """
from attlm_fairseq.plugin import register

register()

from dataclasses import dataclass, field
from fairseq.models import register_model
from attlm_fairseq.models.config import LanguageModelConfig
from attlm_fairseq.models.language_model import MemoryLanguageModel


@dataclass
class OwnConfig(LanguageModelConfig):
    output_scale: float = field(default=2.0, metadata={"help": "factor of the features"})


@register_model("own_lm", dataclass=OwnConfig)
class OwnLanguageModel(MemoryLanguageModel):
    family = "own_lm"
"""
FORMATS = """
from attlm_fairseq.nbest.formats.lines import grouped, one_line, split_end, write_lines
from attlm_fairseq.nbest.formats.number_texts import number, written
from attlm_fairseq.nbest.formats.own_text import text_of
from attlm_fairseq.nbest.formats.protocol import Holds, NbestFormat
from attlm_fairseq.nbest.nbest_list import Hypothesis


class OwnFormat(NbestFormat):
    name = "own"
    holds = Holds(scores=True, main_score="score", decimals=6)

    def matches(self, head):
        return head.startswith("own-score ")

    def parse(self, source):
        def parse(line, place, _):
            body, _ = split_end(line)
            _, name, score, text = body.split(" ", 3)
            return name, Hypothesis(text, {"score": number(score, "the score", source.name, place)})

        return grouped(source, self.name, parse)

    def put(self, lists, out):
        write_lines(lists, out, self.name, self.lines)

    def lines(self, nbest):
        for one in nbest.hypotheses:
            score = one.total if one.total is not None else one.scores.get("score", 0.0)
            yield f"own-score {nbest.id} {written(score, 'score', nbest)} {one_line(one.text)}\\n"
"""
WRITE = """
from pathlib import Path
import own_models
from lm_files import write_checkpoint
write_checkpoint(Path("lm.pt"), ["a", "b"], _name="own_lm_small")
write_checkpoint(Path("scaled.pt"), ["a", "b"], _name="plain_lstm_lm", output_layer="scaled")
"""
ATTLM = """
import sys
from attlm_cli.main import main
main(sys.argv[1:])
"""
RESCORE = ("rescore", "lists.txt", "--lm", "lm=lm.pt", "--weight", "lm=1")
OWN_LISTS = "own-score 0 -2.000000 a b\nown-score 0 -1.000000 b\nown-score 1 -1.000000 b a\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with checkpoints and lists, and in ``site`` the package as pip installs it."""
    folder = tmp_path_factory.mktemp("made")
    info = folder / "site" / "own_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "site" / "own_models.py").write_text(MODELS)
    (folder / "site" / "own_formats.py").write_text(FORMATS)
    (folder / "lists.txt").write_text("0 ||| a b ||| d= -1\n0 ||| b ||| d= -2\n1 ||| b a ||| d= -1\n")
    (folder / "lists.own").write_text(OWN_LISTS)
    (folder / "text.txt").write_text("a b\n")
    run(WRITE, folder / "site", TESTS, within=folder)
    shutil.rmtree(folder / "site" / "__pycache__", ignore_errors=True)  # a file that a test changes may have the time of the first
    return folder


@pytest.fixture
def installed(made, tmp_path, monkeypatch) -> Path:
    """The folder ``site`` of a copy of ``made``, which is the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "site"


def run(
    program: str, *folders: Path, arguments: tuple[str, ...] = (), code: int = 0, within: Path | None = None
) -> subprocess.CompletedProcess:
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    found = subprocess.run([sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, cwd=within)
    assert found.returncode == code, found.stderr
    return found


def attlm(*arguments: str, site: Path | None = None, code: int = 0) -> subprocess.CompletedProcess:
    return run(ATTLM, *([site] if site else []), arguments=arguments, code=code)


def test_families(installed):
    found = attlm(*RESCORE, site=installed).stdout
    assert found.count("lm=") == 3
    assert attlm(*RESCORE, "--devices", "cpu:2", site=installed).stdout == found


def test_fairseqs_own_models_load_beside_it(installed):
    """An unknown architecture imports the package, and then fairseq's plugin registers the families of this package alone."""
    program = """
import own_models, attlm_fairseq.plugin
attlm_fairseq.plugin.register()
from fairseq.models import MODEL_REGISTRY
assert "attentive_lstm" in MODEL_REGISTRY and "own_lm" not in MODEL_REGISTRY
"""
    run(program, installed)


def test_an_output_layer(installed):
    """Its matrix is that of the embeddings, as the kind says; an exported folder holds it once."""
    found = attlm("ppl", "text.txt", "--lm", "scaled.pt", site=installed).stdout
    attlm("export", "scaled.pt", "folder", site=installed)
    assert attlm("ppl", "text.txt", "--lm", "folder", site=installed).stdout == found
    program = """
from pathlib import Path
from attlm_fairseq.checkpoints.reading import load_model
for path in ("scaled.pt", "folder"):
    model = load_model(Path(path)).model
    assert model.output.scale == 2.0 and model.output.weight is model.embedding.weight
"""
    run(program, installed)


@pytest.mark.slow
def test_both_are_trained_by_fairseq(installed):
    """As docs/adding-a-model.md has it: an own folder for the family and its options, none for the output layer of other models."""
    Path("own_fairseq").mkdir()
    Path("own_fairseq/__init__.py").write_text(USER_DIR)
    Path("train.txt").write_text("a b\nb a a\n" * 8)
    path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), os.environ["PYTHONPATH"]])}

    def fairseq(*arguments: object) -> str:
        found = subprocess.run(
            [str(Path(sys.executable).with_name(f"fairseq-{arguments[0]}")), *map(str, arguments[1:])],
            env=path,
            capture_output=True,
            text=True,
        )
        assert found.returncode == 0, found.stderr
        return found.stdout + found.stderr

    fairseq("preprocess", "--only-source", "--trainpref", "train.txt", "--validpref", "train.txt", "--destdir", "bin")
    sizes = ("--decoder-embed-dim", 8, "--decoder-hidden-size", 8, "--output-layer", "scaled", "--cpu", "--max-epoch", 1, "--batch-size", 4)
    common = ("bin", "--task", "sentence_reset_lm", "--criterion", "lm_cross_entropy", "--optimizer", "sgd", "--lr", 0.1, *sizes)
    fairseq("train", *common, "--user-dir", "own_fairseq", "--arch", "own_lm", "--output-scale", 5, "--save-dir", "own")
    told = fairseq("train", *common, "--user-dir", TESTS.parent / "attlm_fairseq", "--arch", "averaging_lstm_lm", "--save-dir", "other")
    assert "| valid |" in told
    read = """
from pathlib import Path
from attlm_fairseq.checkpoints.reading import load_model
assert [load_model(Path(each) / "checkpoint_last.pt").model.output.scale for each in ("own", "other")] == [5.0, 2.0]
"""
    run(read, installed)


def test_a_list_format(installed):
    assert attlm("convert", "lists.own", "--to", "own", site=installed).stdout == OWN_LISTS
    json_lines = attlm("convert", "lists.own", "--to", "jsonl", site=installed).stdout
    assert json_lines.count("\n") == 2
    Path("lists.jsonl").write_text(json_lines)
    attlm("convert", "lists.jsonl", "-o", "again.own", site=installed)
    assert Path("again.own").read_text() == OWN_LISTS
    assert attlm("rescore", "lists.own", "--weight", "score=1", site=installed).stdout.splitlines()[0] == "own-score 0 -1.000000 b"
    assert attlm("rescore", "lists.jsonl", "--weight", "score=1", "--to", "own", site=installed).stdout.startswith("own-score 0 -1.0")
    told = attlm("convert", "lists.txt", "--to", "nothing", site=installed, code=2).stderr
    assert "'own'" in told


@pytest.mark.parametrize(
    ("file", "group", "mistake"),
    [
        ("own_models", "models", "raise RuntimeError('boom')"),
        ("own_models", "models", "import sys; sys.exit(0)"),
        ("own_formats", "formats", "import sys; sys.exit(0)"),
        ("own_formats", "formats", "import no_such_module"),
    ],
)
def test_a_package_that_cannot_be_loaded_is_named(installed, mistake, file, group):
    (installed / f"{file}.py").write_text(mistake)
    told = attlm(*RESCORE, site=installed, code=2).stderr
    assert f"attlm: error: own-package has the entry point own = {file}" in told
    assert f"(attlm_fairseq.{group}), which cannot be loaded: " in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("OwnFormat = 5", "an entry point of attlm_fairseq.formats names 5 (int): expected a subclass of NbestFormat"),
        (FORMATS.replace('name = "own"', 'name = "srilm"'), "two n-best formats or outputs are called srilm: rename that of own_formats"),
        (FORMATS.replace('name = "own"', 'name = "1best"'), "two n-best formats or outputs are called 1best: rename that of own_formats"),
        (
            FORMATS.replace('name = "own"', 'name = "own:5"'),
            "OwnFormat of own_formats has the name 'own:5': expected a name",
        ),
        (FORMATS.replace('name = "own"', 'title = "own"'), "OwnFormat of own_formats has the name None: expected a name"),
        (FORMATS.replace("def put", "def other"), "own-package has the entry point own = own_formats:OwnFormat"),
    ],
)
def test_what_is_no_format_of_its_own_is_refused(installed, mistake, message):
    (installed / "own_formats.py").write_text(mistake)
    told = attlm("convert", "lists.txt", "--to", "jsonl", site=installed, code=2).stderr
    assert message in told
    assert "Traceback" not in told


def test_a_format_that_fails_to_recognise_lists_is_named(installed):
    (installed / "own_formats.py").write_text(FORMATS.replace('return head.startswith("own-score ")', "return head[10**6]"))
    told = attlm("convert", "lists.txt", "--to", "jsonl", site=installed, code=2).stderr
    assert "attlm: error: 'own' of the package own_formats fails to recognise lists (IndexError: string index out of range in " in told
    assert f"{installed / 'own_formats.py'}, line 14): name the format of the lists with --format" in told
    assert attlm("convert", "lists.txt", "--format", "moses", "--to", "jsonl", site=installed).stdout.count("\n") == 2


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("", "", "(ValueError: not enough values to unpack (expected 4, got 3) in {file}, line 19)"),
        ("source.name, place)", "place)", "(TypeError: number() missing 1 required positional argument: 'line' in {file}, line 20)"),
        (
            "def parse(line, place, _):",
            "def parse(line, place, _, missing=[][0]):",
            "(IndexError: list index out of range in {file}, line 17)",
        ),
    ],
)
def test_a_format_that_fails_to_read_is_named(installed, right, wrong, message):
    (installed / "own_formats.py").write_text(FORMATS.replace(right, wrong, 1) if right else FORMATS)
    Path("lists.own").write_text(OWN_LISTS + "own-score 0 -2\n")
    told = attlm("convert", "lists.own", "--to", "jsonl", "-o", "out.jsonl", site=installed, code=2).stderr
    assert "attlm: error: 'own' of the package own_formats fails to read lists " in told
    assert message.format(file=installed / "own_formats.py") in told
    assert not Path("out.jsonl").exists()


def test_without_the_package_its_models_are_refused(installed):
    told = attlm(*RESCORE, code=2).stderr
    assert "lm.pt: architecture 'own_lm_small' is none of this package's: attentive_lstm_lm, " in told
    assert "a package with the entry point attlm_fairseq.models (docs/adding-a-model.md)" in told
    told = attlm("ppl", "text.txt", "--lm", "scaled.pt", code=2).stderr
    assert "scaled.pt: output layer 'scaled' is not one of: tied, untied, adaptive; install the version of attlm that has it, or" in told


def test_its_modules_are_imported_by_their_own_names(installed):
    """They import modules of this package, which must not import them in turn."""
    for name in ("own_formats", "own_models"):
        run(f"import {name}", installed)
    run(
        "import own_formats; from attlm_fairseq.nbest.formats import FORMATS; assert type(FORMATS['own']) is own_formats.OwnFormat",
        installed,
    )


def test_a_broken_format_stops_no_command_without_lists(installed):
    (installed / "own_formats.py").write_text("raise RuntimeError('boom')")
    attlm("ppl", "text.txt", "--lm", "scaled.pt", site=installed)
    attlm("sample", "--help", site=installed)


@pytest.mark.parametrize("mistake", ["OUTPUT_LAYERS['tied'] = OutputKind(Scaled)", "FAMILIES['rnn_lm'] = Family(RNN, PlainReader)"])
def test_what_there_is_is_not_replaced(installed, mistake):
    (installed / "own_models.py").write_text(MODELS + mistake)
    told = attlm(*RESCORE, site=installed, code=2).stderr
    assert "which cannot be loaded: ValueError: the name '" in told
    assert "' is taken: choose another one; mend or uninstall it" in told
