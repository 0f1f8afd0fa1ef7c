"""The folder of ``attlm export``: the same scores, the same bytes, everything in it, and one line for what is not one."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import stat
import struct
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from limits import limited
from lm_files import VARIANTS, write_arpa, write_checkpoint, write_dictionary
from safetensors.torch import load_file, save_file

from attlm_cli.main import main
from attlm_fairseq.checkpoints.folder import read_model_folder
from attlm_fairseq.checkpoints.reading import load_model
from attlm_fairseq.decoding.decoder_lm import DecoderLM
from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import sha256
from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.modules.state import Carried
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer
from attlm_fairseq.verbs.export import export_model

WORDS = ["the", "cat", "sat", "naïve", "“", "mat"]
TEXT = ["the cat sat", "", "the naïve mat", "“ unheard-of words"]


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "test.txt"
    path.write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path, text) -> Path:
    checkpoint = write_checkpoint(tmp_path / "lm.pt", WORDS)
    export_model(checkpoint, tmp_path / "exported", texts=[str(text)], card_text="Made for a test.")
    return tmp_path / "exported"


@pytest.mark.parametrize("architecture", [*FAMILIES, "attentive_lstm_lm_ptb", *VARIANTS])
def test_every_family_scores_bit_for_bit_as_its_checkpoint(tmp_path, architecture):
    options = VARIANTS.get(architecture, {"_name": architecture})
    checkpoint = write_checkpoint(tmp_path / "lm.pt", WORDS, **options)
    export_model(checkpoint, tmp_path / "exported")
    before, after = load_model(checkpoint), load_model(tmp_path / "exported")
    assert after.architecture == options["_name"]
    assert after.vocabulary == before.vocabulary
    for name, weight in before.model.state_dict().items():
        assert torch.equal(weight, after.model.state_dict()[name]), name
    assert after.model.parameter_count() == before.model.parameter_count()
    sentences = [line.split() for line in TEXT]
    scores = [NeuralScorer([model]).score(sentences) for model in (before, after)]
    assert scores[0] == scores[1]


def test_half_precision_becomes_float32_as_in_loading(tmp_path):
    checkpoint = write_checkpoint(tmp_path / "lm.pt", WORDS)
    content = torch.load(checkpoint)
    content["model"] = {name: value.half() for name, value in content["model"].items()}
    torch.save(content, checkpoint)
    export_model(checkpoint, tmp_path / "exported")
    sentences = [line.split() for line in TEXT]
    scores = [NeuralScorer.load([path]).score(sentences) for path in (checkpoint, tmp_path / "exported")]
    assert scores[0] == scores[1]


def test_the_same_bytes_again_and_nothing_of_this_machine(tmp_path, folder, text):
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "lm.pt", tmp_path / "other" / "lm.pt")
    shutil.copy(tmp_path / "dict.txt", tmp_path / "other" / "dict.txt")
    again = tmp_path / "other" / "exported"
    export_model(tmp_path / "other" / "lm.pt", again, texts=[str(text)], card_text="Made for a test.")
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["README.md", "config.json", "model.safetensors", "vocabulary.json"]
    for name in names:
        content = (folder / name).read_bytes()
        assert content == (again / name).read_bytes(), name
        assert str(tmp_path).encode() not in content


def test_the_card_states_perplexity_and_training(tmp_path, folder, text):
    card = (folder / "README.md").read_text(encoding="utf-8")
    result = CliRunner().invoke(main, ["ppl", str(text), "--lm", str(folder)])
    ppl = result.stdout.splitlines()[1].split("\t")[1:-1]  # without ppl_as_read, which is ppl for an LM of the words as they stand
    assert f"| test.txt | {' | '.join(ppl)} |" in card
    assert "Made for a test." in card
    model = load_model(tmp_path / "lm.pt").model
    counts = model.parameter_count(), model.parameter_count() - model.embedding.weight.numel()
    assert "{:,} parameters ({:,} without the word vectors), ".format(*counts) in card
    assert "| model: decoder_hidden_size | 12 |" in card
    assert "| task: _name | sentence_reset_lm |" in card


def test_the_training_record_of_a_real_checkpoint(tmp_path):
    """What fairseq-train saves besides the weights; test_fairseq_commands trains for real."""
    checkpoint = write_checkpoint(tmp_path / "lm.pt", WORDS)
    content = torch.load(checkpoint)
    content["cfg"]["optimizer"] = {"_name": "adam", "lr": [0.002], "object": object}
    content["cfg"]["common"] = {"seed": 7, "user_dir": "/home/someone/attlm_fairseq"}
    content["cfg"]["criterion"] = {"_name": "lm_cross_entropy", "teacher": "/home/someone/teacher.pt", "teacher_weight": 0.7}
    content["cfg"]["model"]["init_from"] = "/home/someone/first.pt"
    content["optimizer_history"] = [{"num_updates": 3}, {"num_updates": 716}]
    meter = {"val": 1.0, "sum": torch.tensor(20.0), "count": 10.0}  # the mean of all validations of the run, which says nothing
    content["extra_state"] = {
        "train_iterator": {"epoch": 3, "iterations_in_epoch": 0},
        "metrics": {"valid": [(10, "_nll", "AverageMeter", meter), (10, "loss", "AverageMeter", meter)]},
        "SentenceResetLMTask": {"validation": {"ppl": 7.38905609893065}},
    }
    content["cfg"]["optimizer"].pop("object")
    torch.save(content, checkpoint)
    export_model(checkpoint, tmp_path / "exported")
    training = json.loads((tmp_path / "exported" / "config.json").read_text())["training"]
    assert training["optimizer"] == {"_name": "adam", "lr": [0.002]}
    assert training["common"] == {"seed": 7}
    assert training["criterion"] == {"_name": "lm_cross_entropy", "teacher_weight": 0.7}
    assert (training["updates"], training["epochs"], training["validation"]) == (716, 2, {"ppl": 7.3891})
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "716 updates, 2 epochs" in card
    assert "on its validation text: ppl 7.3891" in card
    assert "/home/someone" not in card + (tmp_path / "exported" / "config.json").read_text()


@pytest.mark.parametrize(
    ("reset", "every", "state"),
    [
        ("document", 0, ": state and memory carried from line to line until a document ends."),
        ("document", 3, ": state and memory carried from line to line until a document ends, or for at most 3 lines."),
        ("segment", 0, ": state and memory reset every 20 tokens."),
        ("memory", 0, ": state carried from line to line until a document ends, memory reset every 20 tokens."),
    ],
)
def test_the_card_tells_how_documents_were_read(tmp_path, reset, every, state):
    checkpoint = write_checkpoint(tmp_path / "lm.pt", WORDS)
    content = torch.load(checkpoint)
    options = {"bptt": 20, "reset": reset, "reset_every": every, "memory_slots": 4 * every, "document_marker": ""}
    options |= {"document_order": "shuffled", "average": "ema"}
    content["cfg"]["task"] = {"_name": "document_reset_lm", "data": "/home/someone/bin", **options}
    torch.save(content, checkpoint)
    export_model(checkpoint, tmp_path / "exported")
    training = json.loads((tmp_path / "exported" / "config.json").read_text())["training"]
    assert training["task"] == {"_name": "document_reset_lm", **options}
    card = (tmp_path / "exported" / "README.md").read_text()
    for option, value in (options | {"document_marker": "(empty)"}).items():
        assert f"| task: {option} | {value} |" in card
    [told] = [line for line in card.splitlines() if state in line]
    assert "attlm's commands reset both at each line" in told
    carried = load_model(tmp_path / "exported").carried
    assert carried == load_model(checkpoint).carried == Carried(4 * every, memory=reset != "memory")
    assert carried.options == ({"memory_slots": 12} if every else {"reset": "memory"} if reset == "memory" else {})


@pytest.mark.parametrize(
    "record",
    [
        {"optimizer_history": ["text"]},
        {"optimizer_history": 5},
        {"extra_state": [5]},
        {"extra_state": {"SentenceResetLMTask": 5}},
        {"extra_state": {"DocumentResetLMTask": {"validation": {"ppl": 10**400}}}},
    ],
)
def test_a_malformed_record_of_the_training_is_one_line(tmp_path, record):
    checkpoint = write_checkpoint(tmp_path / "lm.pt", WORDS)
    torch.save(torch.load(checkpoint) | record, checkpoint)
    with pytest.raises(InputError, match=r"lm.pt: its record of the training is not as fairseq-train writes it: "):
        export_model(checkpoint, tmp_path / "exported")


def test_names_of_files_need_not_be_utf8(tmp_path):
    checkpoint = write_checkpoint(tmp_path / os.fsdecode(b"\xff.pt"), WORDS, init_from=os.fsdecode(b"\xfe.pt"))
    export_model(checkpoint, tmp_path / "exported")
    assert r"`\udcff.pt`" in (tmp_path / "exported" / "README.md").read_text(encoding="utf-8")
    assert "init_from" not in read_model_folder(tmp_path / "exported").options


def test_every_command_takes_the_folder_for_a_checkpoint(tmp_path, folder, text):
    runner = CliRunner()
    for command in (["score", str(text)], ["score", "--words", str(text)], ["ppl", str(text)]):
        outputs = [
            runner.invoke(main, [*command, "--lm", f"lm={tmp_path / name}"])
            for name in ("lm.pt", "exported", f"exported:{tmp_path / 'lm.pt'}")
        ]
        assert [result.exit_code for result in outputs] == [0, 0, 0], outputs
        assert outputs[0].stdout == outputs[1].stdout
    lists = tmp_path / "list.txt"
    lists.write_text("0 ||| the cat ||| am=-1 ||| -1\n0 ||| the mat ||| am=-1.1 ||| -1.1\n")
    results = [
        runner.invoke(main, ["rescore", str(lists), "--lm", str(tmp_path / name), "--weight", "am=1", "--weight", "lm=1"])
        for name in ("lm.pt", "exported")
    ]
    assert results[0].exit_code == 0, results[0].output
    assert results[0].stdout == results[1].stdout
    assert DecoderLM.load(folder).vocabulary == load_model(tmp_path / "lm.pt").vocabulary


def test_an_existing_folder_is_not_touched_and_an_error_leaves_none(tmp_path, folder, text):
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    result = CliRunner().invoke(main, ["export", str(tmp_path / "lm.pt"), str(folder)])
    assert result.exit_code == 2
    assert "already exists" in result.stderr
    result = CliRunner().invoke(main, ["export", str(tmp_path / "lm.pt"), str(folder), "--ppl", str(tmp_path / "nosuch")])
    assert "already exists" in result.stderr  # before a text is scored
    (tmp_path / "lists").write_text('{"id": "u", "hyps": [{"text": "the cat", "scores": {}}]}\n')
    with pytest.raises(InputError, match="holds n-best lists"):
        export_model(tmp_path / "lm.pt", tmp_path / "new", texts=[tmp_path / "lists"])
    (tmp_path / "lists").unlink()
    with pytest.raises(InputError, match="expected a list of files"):
        export_model(tmp_path / "lm.pt", tmp_path / "new", texts=str(tmp_path / "lists"))
    assert before == {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    for arguments in ([str(tmp_path / "nosuch.pt")], [str(tmp_path / "lm.pt"), "--ppl", "nosuch.txt"], [str(folder)]):
        result = CliRunner().invoke(main, ["export", arguments[0], str(tmp_path / "new"), *arguments[1:]])
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1
        assert result.stderr.startswith("attlm: error: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dict.txt", "exported", "lm.pt", "test.txt"]


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path):
    """A limit on the size of files stands for it: to the program it is the same, but for the number of the error."""
    checkpoint = write_checkpoint(tmp_path / "lm.pt", WORDS)
    with limited(resource.RLIMIT_FSIZE, 4000):
        result = CliRunner().invoke(main, ["export", str(checkpoint), str(tmp_path / "exported")])
    assert result.exit_code == 2, result.exception
    assert result.stderr == f"attlm: error: {tmp_path / 'exported'}: cannot be written: File too large\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dict.txt", "lm.pt"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_others_may_read_the_files_as_far_as_the_umask_lets_them(tmp_path, umask):
    checkpoint = write_checkpoint(tmp_path / "lm.pt", WORDS)
    before = os.umask(umask)
    try:
        export_model(checkpoint, tmp_path / "exported")
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "exported").iterdir()} == {0o666 & ~umask}


def refuse_to_open(monkeypatch, name: str) -> None:
    """As a file of somebody else's; permissions themselves would not stop root, as whom tests may run."""
    really_open = Path.open

    def guarded(path: Path, *arguments, **options):
        if path.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return really_open(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", guarded)


def test_a_symbol_twice_is_refused(tmp_path, folder):
    path = folder / "vocabulary.json"
    symbols = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps([*symbols[:-1], symbols[4]]), encoding="utf-8")
    rehash(folder)
    with pytest.raises(InputError, match=rf"has the symbol {symbols[4]!r} twice, as id 4 and {len(symbols) - 1}"):
        DecoderLM.load(folder)
    checkpoint = write_checkpoint(tmp_path / "twice" / "lm.pt", ["a", "b", "c"])
    checkpoint.with_name("dict.txt").write_text("a 1\nb 1\na 1 #fairseq:overwrite\n", encoding="utf-8")
    with pytest.raises(InputError, match="has the symbol 'a' twice, as id 4 and 6"):
        export_model(checkpoint, tmp_path / "written")
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "vocabulary.json", "config.json", "lm.pt", "dict.txt"])
def test_an_unreadable_file_is_one_line(tmp_path, folder, monkeypatch, name):
    refuse_to_open(monkeypatch, name)
    lm = folder if (folder / name).exists() else tmp_path / "lm.pt"
    with pytest.raises(InputError, match=rf"{name}: cannot be read: Permission denied"):
        load_model(lm)


def test_a_folder_closed_to_the_user_is_one_line(tmp_path, folder, text, monkeypatch):
    def closed(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "is_dir", closed)
    result = CliRunner().invoke(main, ["sample", "--lm", str(folder)])
    assert result.exit_code == 2
    assert result.stderr.startswith(f"attlm: error: {folder}: cannot be read or written: Permission denied; ")
    assert result.stderr.count("\n") == 1


def edit_config(change):
    def edit(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        change(config)
        (folder / "config.json").write_text(json.dumps(config))

    return edit


def flip_a_bit(folder: Path) -> None:
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-10] ^= 1
    (folder / "model.safetensors").write_bytes(content)


def swap_two_words(folder: Path) -> None:
    path = folder / "vocabulary.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"cat"', '"tac"'), encoding="utf-8")


def not_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    rehash(folder)


def rehash(folder: Path) -> None:

    edit_config(lambda config: config["files"].update({name: sha256(folder / name) for name in config["files"]}))(folder)


def complex_weights(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"embedding.weight": weights["embedding.weight"].to(torch.complex64)}, folder / "model.safetensors")
    rehash(folder)


def half_a_surrogate_pair(folder: Path) -> None:
    path = folder / "vocabulary.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"cat"', '"c\\ud800t"'), encoding="utf-8")
    rehash(folder)


def line_break(folder: Path) -> None:
    path = folder / "vocabulary.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"cat"', '"c\\nat"'), encoding="utf-8")
    rehash(folder)


def no_list(folder: Path) -> None:
    (folder / "vocabulary.json").write_text('{"the": 4}')
    rehash(folder)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip_a_bit, r"model.safetensors: has changed since it was exported"),
        (swap_two_words, r"vocabulary.json: has changed since it was exported"),
        (not_safetensors, r"model.safetensors: is not a safetensors file"),
        (no_list, r"vocabulary.json: is not a list of symbols"),
        (half_a_surrogate_pair, r"vocabulary.json: holds a symbol that is not Unicode text: found '\\ud800', half of a surrogate pair; "),
        (line_break, r"vocabulary.json: holds the symbol 'c\\nat': no word has a line break"),
        (lambda folder: (folder / "model.safetensors").unlink(), r"exported: there is no model.safetensors"),
        (lambda folder: (folder / "config.json").unlink(), r"config.json: cannot be read: No such file.* attlm export"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config.json: is not JSON"),
        (lambda folder: (folder / "config.json").write_text("[" * 100_000), r"config.json: is not JSON"),
        (lambda folder: (folder / "config.json").write_bytes(b"\xff"), r"config.json: is not JSON"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "gpt2"}'), r"is not the config.json of a folder written by"),
        (edit_config(lambda config: config.update(version=9)), r"version 9 of the format, this program reads version 1"),
        (edit_config(lambda config: config.update(architecture="gpt2")), r"architecture 'gpt2' is none of this package's"),
        (edit_config(lambda config: config.pop("options")), r"config.json: has no usable `options`"),
        (edit_config(lambda config: config["options"].update(decoder_hidden_size=24, decoder_embed_dim=24)), r"the weights do not fit"),
        (edit_config(lambda config: config["options"].update(decoder_layers="two")), r"the weights do not fit"),
        (edit_config(lambda config: config["options"].pop("dropout")), r"the weights do not fit"),
        (edit_config(lambda config: config["options"].update(decoder_layers=10_000_000)), "decoder_layers is 10000000 by its options"),
        (edit_config(lambda config: config["options"].update(adaptive_cutoffs=5)), r"--adaptive-cutoffs 5: expected whole numbers"),
        (edit_config(lambda config: config["options"].update(attention_memory="newer")), r"attention memory 'newer' is not one of"),
        (complex_weights, r"its weights embedding.weight are torch.complex64, expected floating-point numbers"),
    ],
)
def test_a_damaged_or_foreign_folder_is_one_line(folder, damage, message):
    damage(folder)
    with pytest.raises(InputError, match=message) as error:
        load_model(folder)
    assert "\n" not in str(error.value)


def test_an_empty_folder_and_another_dictionary(tmp_path, folder):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"config.json: cannot be read"):
        load_model(tmp_path / "empty")
    assert load_model(folder, tmp_path / "dict.txt").vocabulary == load_model(folder).vocabulary
    with pytest.raises(InputError, match="a vocabulary of its own, which is not that of"):
        load_model(folder, write_dictionary(tmp_path / "other.txt", WORDS[::-1]))


def test_reading_it_runs_no_code(tmp_path, folder):
    """A pickle under the name of the weights, its hash entered: still no code."""
    ran = tmp_path / "ran"

    class Hidden:
        def __reduce__(self):
            return (os.mkdir, (str(ran),))

    torch.save({"embedding.weight": Hidden()}, folder / "model.safetensors")
    rehash(folder)
    with pytest.raises(InputError, match="not a safetensors file"):
        load_model(folder)
    assert not ran.exists()


def test_kenlm_files_are_not_taken_for_neural_models(tmp_path):
    arpa = write_arpa(tmp_path / "lm.arpa", WORDS)
    with pytest.raises(InputError, match=r"lm.arpa: "):
        load_model(arpa)
