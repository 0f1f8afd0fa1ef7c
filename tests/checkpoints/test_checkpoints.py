"""Loading checkpoints: the right model, never hidden code, one clear line for everything else."""

from __future__ import annotations

import argparse
import collections
import pickle
import zipfile
from pathlib import Path

import numpy as np
import omegaconf
import pytest
import torch
from fairseq import checkpoint_utils
from lm_files import write_checkpoint, write_dictionary

from attlm_fairseq.checkpoints.folder import read_model_folder, write_model_folder
from attlm_fairseq.checkpoints.plain_arrays import NumberType, PlainArray, reconstruct
from attlm_fairseq.checkpoints.plain_data import allowed_globals, read_plain_data
from attlm_fairseq.checkpoints.reading import load_model
from attlm_fairseq.checkpoints.vocabulary import Vocabulary
from attlm_fairseq.errors import InputError
from attlm_fairseq.plugin import FILE_GLOBALS, refuse_unsafe_loading, register
from attlm_fairseq.verbs.export import export_model

WORDS = ["the", "a", "naïve", "house"]


def test_a_preset_is_loaded_as_its_family(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, _name="attentive_lstm_lm_ptb")
    loaded = load_model(path)
    assert loaded.architecture == "attentive_lstm_lm_ptb"
    assert not loaded.model.training
    assert loaded.vocabulary.ids(["naïve", "the", "unheard-of", "</s>", "<pad>", "<s>", "<unk>"]) == [6, 4, 3, 3, 3, 3, 3]


def test_half_precision_checkpoints_become_float32(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    content = torch.load(path)
    content["model"] = {name: value.half() for name, value in content["model"].items()}
    torch.save(content, path)
    assert {parameter.dtype for parameter in load_model(path).model.parameters()} == {torch.float32}


def test_the_dictionary_is_found_in_the_data_folder_or_asked_for(tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path / "checkpoints" / "lm.pt", WORDS)
    (tmp_path / "data-bin").mkdir()
    (path.parent / "dict.txt").rename(tmp_path / "data-bin" / "dict.txt")
    monkeypatch.chdir(tmp_path)
    assert load_model(path).vocabulary.symbols[4:] == tuple(WORDS)
    (tmp_path / "data-bin" / "dict.txt").rename(tmp_path / "elsewhere.txt")
    with pytest.raises(InputError, match=r"no dict.txt found: looked at .*/dict.txt, data-bin/dict.txt \(from .* next to the checkpoint$"):
        load_model(path)
    assert len(load_model(path, tmp_path / "elsewhere.txt").vocabulary) == 8


def test_a_data_folder_that_cannot_be_looked_at_is_one_line(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    (tmp_path / "dict.txt").unlink()
    content = torch.load(path)
    content["cfg"]["task"]["data"] = "long" * 1000
    torch.save(content, path)
    with pytest.raises(InputError, match=r"lm.pt: no dict.txt found: cannot look at .*\(File name too long\); .* next to the checkpoint$"):
        load_model(path)


@pytest.mark.parametrize("checkpoint", ["lm.pt", "checkpoints/lm.pt", "runs/first/checkpoints/lm.pt"])
def test_a_relative_data_folder_is_found_from_anywhere(tmp_path, monkeypatch, checkpoint):
    """fairseq-train names the data folder as it was told to, relative to where it was started."""
    path = write_checkpoint(tmp_path / "project" / checkpoint, WORDS)
    (tmp_path / "project" / "data-bin").mkdir()
    path.with_name("dict.txt").rename(tmp_path / "project" / "data-bin" / "dict.txt")
    (tmp_path / "elsewhere" / "data-bin").mkdir(parents=True)
    write_dictionary(tmp_path / "elsewhere" / "data-bin" / "dict.txt", WORDS[::-1])  # of another project
    monkeypatch.chdir(tmp_path / "elsewhere")
    for given in (path, Path("../project") / checkpoint):
        assert load_model(given).vocabulary.symbols[4:] == tuple(WORDS)
    (tmp_path / "moved").mkdir()
    assert load_model(path.rename(tmp_path / "moved" / "lm.pt")).vocabulary.symbols[4:] == tuple(WORDS[::-1])  # from the current folder


def test_a_model_whose_texts_begin_with_bos_is_refused(tmp_path):
    """fairseq's language_modeling trained it on `<s> </s>` and the text, and it would be read after `</s>` alone."""
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    content = torch.load(path)
    for added in (False, True):
        content["cfg"]["task"] = {"_name": "language_modeling", "data": "data-bin", "add_bos_token": added}
        torch.save(content, path)
        if not added:
            export_model(path, tmp_path / "exported")
    assert load_model(tmp_path / "exported").vocabulary == load_model(path, any_start=True).vocabulary
    for refused in (lambda: load_model(path), lambda: export_model(path, tmp_path / "not exported")):
        with pytest.raises(InputError, match=r"lm.pt: was trained with --add-bos-token: .*expected </s> alone.*; train it without"):
            refused()


def test_a_dictionary_of_another_size_is_refused(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    write_dictionary(tmp_path / "dict.txt", WORDS[:-1])
    with pytest.raises(InputError, match="has 7 symbols, special ones included, the model 8"):
        load_model(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_of_a_training_that_diverged_are_refused(tmp_path, value):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    export_model(path, tmp_path / "folder")
    content = torch.load(path)
    content["model"]["decoder.model.lstm.weight_hh_l1"][3, 2] = value
    torch.save(content, path)
    with pytest.raises(InputError, match=r"lm.pt: its weights are no finite numbers \(lstm.weight_hh_l1\): training has diverged"):
        load_model(path)
    stored = read_model_folder(tmp_path / "folder")
    stored.weights["output.bias"][1] = value
    (tmp_path / "broken").mkdir()
    write_model_folder(tmp_path / "broken", stored, {}, "")
    with pytest.raises(InputError, match=r"broken: its weights are no finite numbers \(output.bias\)"):
        load_model(tmp_path / "broken")


class Hidden:
    ran = False

    def __reduce__(self):
        return (setattr, (Hidden, "ran", True))


@pytest.mark.parametrize("legacy", [False, True])
def test_hidden_code_is_refused_and_never_runs(tmp_path, legacy):
    path = tmp_path / "evil.pt"
    content = {"cfg": {"model": Hidden()}, "model": {}}
    if legacy:
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path)
    with pytest.raises(InputError, match=r"evil.pt: refused: .*code"):
        load_model(path)
    assert not Hidden.ran


class Forged:
    """Pickled as a call with these arguments, and what is then set."""

    def __init__(self, *reduced: object) -> None:
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


def loaded_as_fairseq_does(path: Path) -> object:
    """What ``torch.load`` gives a fairseq command with this plugin."""
    with allowed_globals(FILE_GLOBALS):
        return torch.load(path, weights_only=True)


def test_of_numpy_only_arrays_of_numbers_are_taken(tmp_path):
    """The plugin allows them, since fairseq's metrics hold some: what the file says of a type must not make numbers into pointers."""
    path = tmp_path / "arrays.pt"
    reconstruct, arguments, _ = np.empty(0).__reduce__()
    pointer = b"A" * 8

    def taken(value: object) -> np.ndarray:
        torch.save(value, path)
        return loaded_as_fairseq_does(path)

    for array in (np.arange(4), np.array([0.5, 1.0]), np.asfortranarray(np.arange(6.0).reshape(2, 3))):
        found = taken(array)
        assert np.array_equal(found, array)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        assert np.array_equal(pickle.loads(pickle.dumps(found + 1)), array + 1)
        assert type(pickle.loads(pickle.dumps(found))) is np.ndarray  # saved again as anybody's array
    as_pointers = (3, "<", None, ("a",), {"a": (np.dtype("int64"), 0)}, -1, -1, 1)  # with fields, and the flag of objects
    forged = Forged(np.dtype, ("i8", False, True), as_pointers)
    array = taken(Forged(reconstruct, arguments, (1, (1,), forged, False, pointer)))
    assert (array.dtype.fields, array.dtype.hasobject) == (None, False)
    for objects, message in [
        (np.array([1, "a"], dtype=object), "an array of 'O8', expected integers"),
        (np.zeros(1, dtype=[("a", "O")]), "an array of 'V8', expected integers"),
        (np.zeros(2, np.float32), "an array of 'f4', expected integers"),
        (Forged(reconstruct, arguments, (1, (1,), np.dtype("O"), False, pointer)), "an array of 'O8', expected integers"),
        (Forged(reconstruct, (np.ndarray, (0,), "O"), (1, (1,), np.dtype("i8"), False, pointer)), "not saved in numpy's way"),
        (Forged(reconstruct, (np.ndarray, (1,), b"b")), "not saved in numpy's way"),
        (Forged(np.ndarray, ((1,), "O", pointer)), "a numpy.ndarray that is called"),
        (Forged(reconstruct, arguments, (1, (2,), np.dtype("i8"), False, pointer)), "in 8 bytes, expected 8 bytes a number"),
        (Forged(reconstruct, arguments, (1, (-1,), np.dtype("i8"), False, pointer)), r"not \(version, shape"),
        (Forged(reconstruct, arguments, (1, (1,), "O", False, pointer)), r"not \(version, shape"),
        (np.zeros(1, ">i8"), "not a plain little-endian number"),
    ]:
        with pytest.raises(pickle.UnpicklingError, match=message):
            taken(objects)


class LikeText:
    """Equal to a text without being one, as ``omegaconf.AnyNode("i8")`` is, with attributes that NumPy would ask for."""

    dtype = "O"

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return other == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def test_what_only_equals_the_name_of_a_type_is_no_type():
    with pytest.raises(pickle.UnpicklingError, match="an array of LikeText, expected integers"):
        NumberType(LikeText("i8"))
    with pytest.raises(pickle.UnpicklingError, match="not a plain little-endian number"):
        NumberType("i8").__setstate__((3, LikeText("<")))
    with pytest.raises(pickle.UnpicklingError, match="not saved in numpy's way"):
        reconstruct(PlainArray, (0,), LikeText("b"))
    array = reconstruct(PlainArray, (0,), b"b")
    for state in [
        (1, (1,), LikeText("i8"), False, b"A" * 8),
        (1, (1,), np.dtype("O"), False, b"A" * 8),
        (True, (1,), NumberType("i8"), False, b"A" * 8),
        (1, (True,), NumberType("i8"), False, b"A" * 8),
        [1, (1,), NumberType("i8"), False, b"A" * 8],
    ]:
        with pytest.raises(pickle.UnpicklingError, match="an array whose content"):
            array.__setstate__(state)


@pytest.mark.parametrize(
    "evil",
    [
        omegaconf.AnyNode("i8"),
        Forged(np.dtype, (omegaconf.AnyNode("i8"), False, True)),
        omegaconf.DictConfig({"a": 1}),
        collections.defaultdict(list),
        np.float64(1.0),
    ],
    ids=["AnyNode", "dtype of AnyNode", "DictConfig", "defaultdict", "scalar"],
)
def test_objects_that_change_while_they_are_made_are_in_no_file(tmp_path, evil):
    """omegaconf's classes deep-copy and compare what a file gives them: only processes of one training send each other some."""
    path = tmp_path / "evil.pt"
    torch.save(evil, path)
    with pytest.raises(pickle.UnpicklingError):
        loaded_as_fairseq_does(path)
    with allowed_globals(FILE_GLOBALS), pytest.raises(InputError, match="refused"):  # whatever else is allowed meanwhile
        read_plain_data(path)


def test_plain_reading_allows_tensors_and_containers_alone(tmp_path):
    path = tmp_path / "array.pt"
    torch.save({"cfg": argparse.Namespace(a=1), "array": np.arange(2)}, path)
    with allowed_globals(FILE_GLOBALS):
        before = set(torch.serialization.get_safe_globals())
        with pytest.raises(InputError, match=r"refused: .*numpy"):
            read_plain_data(path)
        assert set(torch.serialization.get_safe_globals()) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda patch: patch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1"), "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD is set: .* unset it"),
        (lambda patch: patch.setattr(torch, "__version__", "2.9.1+cpu"), r"torch 2.9.1\+cpu can run code .* install torch 2.10 or later"),
    ],
)
def test_a_torch_that_would_run_code_is_refused(monkeypatch, change, message):
    change(monkeypatch)
    with pytest.raises(InputError, match=message):
        refuse_unsafe_loading()


def test_attlm_reads_no_checkpoint_with_a_torch_that_would_run_code(tmp_path, monkeypatch):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    with pytest.raises(InputError, match=r"install torch 2\.10 or later"):
        load_model(path)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04" + b"\0" * 100])
def test_other_files_are_named(tmp_path, content):
    path = tmp_path / "broken.pt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"broken.pt: ") as error:
        load_model(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"\n\\data\\\nngram 1=3\n", b"mmap lm http://kheafield.com/code format version 5\n\0"])
def test_ngram_models_are_sent_to_their_option(tmp_path, content):
    (tmp_path / "lm.arpa").write_bytes(content)
    with pytest.raises(InputError, match=r"lm.arpa: is an n-gram model; expected a neural one"):
        load_model(tmp_path / "lm.arpa")


def test_a_truncated_checkpoint_is_named(tmp_path):
    register()  # fairseq's commands have the plugin
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    whole = path.read_bytes()
    for size in (10, 3000, 5000, len(whole) // 2, len(whole) - 10):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"lm.pt: .*cut short" if size > 10 else r"lm.pt: "):
            load_model(path)
        with pytest.raises(InputError, match=r"lm.pt: .*cut short"):  # in fairseq's commands
            checkpoint_utils.load_checkpoint_to_cpu(str(path))


def test_a_checkpoint_whose_bytes_have_changed_is_damaged(tmp_path):
    """torch reads other weights without a word."""
    register()
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    before = torch.load(path)["model"]
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda part: part.file_size)
    content = bytearray(path.read_bytes())
    content[largest.header_offset + 30 + len(largest.filename) + 200] ^= 1
    path.write_bytes(content)
    assert any(not torch.equal(value, before[name]) for name, value in torch.load(path)["model"].items())
    for load in (load_model, lambda path: checkpoint_utils.load_checkpoint_to_cpu(str(path))):  # the second in fairseq's commands
        with pytest.raises(InputError, match=r"lm.pt: is damaged: .*CRC-32"):
            load(path)


def test_a_checkpoint_without_checksums_is_read(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    content = torch.load(path)
    torch.serialization.set_crc32_options(compute_crc32=False)
    try:
        torch.save(content, path)
    finally:
        torch.serialization.set_crc32_options(compute_crc32=True)
    load_model(path)
    torch.save(content, path, _use_new_zipfile_serialization=False)  # as before torch 1.6
    load_model(path)


def test_other_architectures_and_unfitting_weights_are_named(tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS, _name="transformer_lm")
    with pytest.raises(
        InputError, match=r"architecture 'transformer_lm' is none of this package's: attentive_lstm_lm.* install the version"
    ):
        load_model(path)
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    content = torch.load(path)
    content["cfg"]["model"]["attention_score"] = "combined"
    torch.save(content, path)
    with pytest.raises(InputError, match=r"the weights do not fit .*reader.query.weight"):
        load_model(path)
    with pytest.raises(InputError, match="no such file"):
        load_model(tmp_path / "nosuch.pt")


def change_options(**changes: object):
    return lambda content: content["cfg"]["model"].update(changes)


def change_weight(change):
    name = "decoder.model.embedding.weight"
    return lambda content: content["model"].update({name: change(content["model"][name])})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content["cfg"]["model"].pop("_name"), "there is no '_name'"),
        (lambda content: content["cfg"]["model"].pop("dropout"), "there is no 'dropout'"),
        (lambda content: content.update(task_state=[1]), "the weights do not fit"),
        (lambda content: content["model"].update({5: torch.zeros(1)}), "the weights do not fit"),
        (
            lambda content: content["model"].pop("decoder.model.lstm.weight_ih_l0"),
            "lstm.weight_ih_l0 is missing in its weights, 48x12 by its options",
        ),
        (change_weight(lambda weight: torch.tensor(1.0)), "the weights do not fit"),
        (change_weight(lambda weight: weight.to_sparse()), "the weights do not fit"),
        (change_weight(lambda weight: weight.to("meta")), "the weights do not fit"),
        (change_weight(lambda weight: "text"), "embedding.weight are str, expected floating-point numbers"),
        (change_weight(lambda weight: weight.to(torch.complex64)), "embedding.weight are torch.complex64, expected floating"),
        (change_weight(lambda weight: weight.long()), "embedding.weight are torch.int64, expected floating"),
        (change_options(adaptive_cutoffs=True), "--adaptive-cutoffs True: expected whole numbers joined by commas"),
        (change_options(dropout=float("nan")), "--dropout nan: expected a probability below 1"),
        (change_options(dropout_out=1.5), "--dropout-out 1.5: expected a probability below 1"),
        (change_options(output_layer=-1), "output layer '-1' is not one of: tied, untied, adaptive"),
        (change_options(output_layer=None), "output layer 'None' is not one of"),
        (change_options(attention_score="newer"), "attention score 'newer' is not one of: single, combined"),
        (change_options(attention_memory="x\n"), r"attention memory 'x\\n' is not one of: previous, current"),
        (change_options(_name="amsrn_lm", selection="newer"), "selection 'newer' is not one of: none, independent, tied, complementary"),
        (change_options(_name="kvp_lstm_lm", kvp_mode="newer", attention_window=3), "mode 'newer' is not one of: attention, key-value"),
        (change_options(_name="kvp_lstm_lm", kvp_mode="attention", attention_window=2.5), "the window must hold a whole number"),
        # these would be built for ever, or until no memory is left
        (change_options(decoder_layers=10_000_000), "decoder_layers is 10000000 by its options, there are 15"),
        (change_options(decoder_hidden_size=1 << 40), "the weights do not fit"),
        (change_options(decoder_embed_dim=1 << 40), "the weights do not fit"),
        (
            change_options(attention_skip=10**30),
            "--attention-skip 1000000000000000000000000000000: expected a number of at most 2,147,483,647",
        ),
        (change_options(memory_slots=10**30), "memory_slots is 1000000000000000000000000000000, expected a whole number from 0 to"),
    ],
)
def test_malformed_checkpoints_and_unknown_choices_are_one_line(tmp_path, damage, message):
    path = write_checkpoint(tmp_path / "lm.pt", WORDS)
    content = torch.load(path)
    damage(content)
    torch.save(content, path)
    with pytest.raises(InputError, match=message) as error:
        load_model(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_the_vocabulary_is_fairseqs_own(tmp_path):
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for word in [*WORDS, "<unk>", "a", "non\u00a0breaking", "ⅷ"]:
        dictionary.add_symbol(word)
    dictionary.finalize(padding_factor=8)
    dictionary.save(str(tmp_path / "dict.txt"))
    vocabulary = Vocabulary.read(tmp_path / "dict.txt")
    assert vocabulary.symbols == tuple(dictionary.symbols)
    assert vocabulary.ids(["a", "ⅷ", "non\u00a0breaking"]) == [dictionary.index(word) for word in ("a", "ⅷ", "non\u00a0breaking")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("the 3\na\n", r"dict.txt:2: found 'a', expected `word count`"),
        ("the 3\na 2\nthe 1\n", r"dict.txt:3: the word 'the' stands in line 1 already"),
        ("the 3\n</s> 1\n", r"dict.txt:2: the word '</s>'"),
        (b"the 3\n\xff 1\n", r"not UTF-8"),
    ],
)
def test_a_broken_dictionary_is_named_by_line(tmp_path, content, message):
    path = tmp_path / "dict.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        Vocabulary.read(path)
