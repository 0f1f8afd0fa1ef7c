"""What another package adds by an entry point: families, output layers and list formats. Without the package they are refused."""

from __future__ import annotations

import os
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
from torch import nn
from attlm_fairseq.modules.families import FAMILIES, Family
from attlm_fairseq.modules.memory import PlainReader
from attlm_fairseq.modules.output import OUTPUT_LAYERS, OutputKind, Softmax
from attlm_fairseq.modules.recurrence import RNN


class NamedSoftmax(Softmax):
    def __init__(self, feature_size, vocabulary_size, options):
        super().__init__(feature_size, vocabulary_size)
        self.named = options.of_model["decoder_embed_dim"]


FAMILIES["own_lm"] = Family(RNN, PlainReader)
OUTPUT_LAYERS["named"] = OutputKind(NamedSoftmax, tied=True)
"""
FORMATS = """
from attlm_fairseq.nbest.formats.lines import grouped, number, one_line, split_end, text_of, write_lines, written
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
write_checkpoint(Path("named.pt"), ["a", "b"], _name="plain_lstm_lm", output_layer="named")
"""
ATTLM = """
import sys
from attlm_cli.main import main
main(sys.argv[1:])
"""
RESCORE = ("rescore", "lists.txt", "--lm", "lm=lm.pt", "--weight", "lm=1")
OWN_LISTS = "own-score 0 -2.000000 a b\nown-score 0 -1.000000 b\nown-score 1 -1.000000 b a\n"


@pytest.fixture
def installed(tmp_path, monkeypatch) -> Path:
    """A folder with the package as pip installs it, and next to it checkpoints and lists."""
    monkeypatch.chdir(tmp_path)
    info = tmp_path / "site" / "own_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "site" / "own_models.py").write_text(MODELS)
    (tmp_path / "site" / "own_formats.py").write_text(FORMATS)
    (tmp_path / "lists.txt").write_text("0 ||| a b ||| d= -1\n0 ||| b ||| d= -2\n1 ||| b a ||| d= -1\n")
    (tmp_path / "lists.own").write_text(OWN_LISTS)
    (tmp_path / "text.txt").write_text("a b\n")
    run(WRITE, tmp_path / "site", TESTS)
    return tmp_path / "site"


def run(program: str, *folders: Path, arguments: tuple[str, ...] = (), code: int = 0) -> subprocess.CompletedProcess:
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    found = subprocess.run(
        [sys.executable, "-c", program, *arguments], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
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
    found = attlm("ppl", "text.txt", "--lm", "named.pt", site=installed).stdout
    attlm("export", "named.pt", "folder", site=installed)
    assert attlm("ppl", "text.txt", "--lm", "folder", site=installed).stdout == found
    program = """
from pathlib import Path
from attlm_fairseq.checkpoints.reading import load_model
for path in ("named.pt", "folder"):
    model = load_model(Path(path)).model
    assert model.tied and model.output.named == model.embedding.embedding_dim
    assert type(model.output).__name__ == "NamedSoftmax" and model.output.weight is model.embedding.weight
"""
    run(program, installed)


def test_fairseq_train_takes_the_output_layer(installed):
    """The package is not named: its entry point is enough."""
    program = """
import attlm_fairseq.plugin
attlm_fairseq.plugin.register()
from fairseq import options
arguments = ["data", "--task", "sentence_reset_lm", "--arch", "averaging_lstm_lm", "--output-layer", "named"]
assert str(options.parse_args_and_arch(options.get_training_parser(), arguments).output_layer) == "named"
"""
    run(program, installed)


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


@pytest.mark.parametrize("mistake", ["raise RuntimeError('boom')", "import sys; sys.exit(0)", "import no_such_module"])
@pytest.mark.parametrize(("file", "group"), [("own_models", "models"), ("own_formats", "formats")])
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
        (FORMATS.replace('name = "own"', 'name = "srilm"'), "two n-best formats are called srilm: rename that of own_formats"),
        (FORMATS.replace("def put", "def other"), "own-package has the entry point own = own_formats:OwnFormat"),
    ],
)
def test_what_is_no_format_of_its_own_is_refused(installed, mistake, message):
    (installed / "own_formats.py").write_text(mistake)
    told = attlm("convert", "lists.txt", "--to", "jsonl", site=installed, code=2).stderr
    assert message in told
    assert "Traceback" not in told


def test_without_the_package_its_models_are_refused(installed):
    told = attlm(*RESCORE, code=2).stderr
    assert "lm.pt: architecture 'own_lm_small' is none of this package's: attentive_lstm_lm, " in told
    assert "a package with the entry point attlm_fairseq.models (docs/adding-a-model.md)" in told
    told = attlm("ppl", "text.txt", "--lm", "named.pt", code=2).stderr
    assert "output layer 'named' is not one of: tied, untied, adaptive" in told
