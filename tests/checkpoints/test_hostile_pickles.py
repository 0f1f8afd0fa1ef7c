"""Checkpoints made by an attacker: refused in one line by fairseq's commands, and never a crash of the process."""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import numpy as np
import omegaconf
import pickle_programs as pickles
import pytest
import torch
from lm_files import write_checkpoint

import attlm_fairseq.plugin
from attlm_fairseq.checkpoints.fairseq_loading import option_values, refuse_unusable, runs
from attlm_fairseq.checkpoints.plain_data import allowed_globals, read_plain_data
from attlm_fairseq.errors import InputError
from attlm_fairseq.plugin import FILE_GLOBALS

PROGRAMS = 600
LOADING = """
import sys, warnings, torch
from pathlib import Path
from pickle_programs import Programs, write_checkpoint_file
from attlm_fairseq import plugin

plugin.register()
warnings.simplefilter("ignore")
path, taken = Path(sys.argv[1]), 0
for seed in range(int(sys.argv[2]), int(sys.argv[3])):
    write_checkpoint_file(path, Programs(seed).program())
    print(seed, flush=True)
    try:
        torch.load(path, weights_only=True)
    except Exception:
        continue
    taken += 1
print("taken", taken)
"""


def as_fairseq_loads(path: Path) -> object:
    """What fairseq's commands get of a file with this plugin."""

    def load(path: Path) -> object:
        with allowed_globals(FILE_GLOBALS):
            return torch.load(path, weights_only=True)

    return refuse_unusable(load)(path)


def test_an_array_is_filled_once(tmp_path):
    """A tensor of its memory would be left with memory that was freed."""
    filled = pickles.build(pickles.empty_array(), pickles.array_state(b"A" * 8000)) + b"q\x01"
    alias = pickles.call(
        pickles.global_("torch._utils", "_rebuild_device_tensor_from_numpy"),
        b"h\x01", pickles.global_("torch", "int64"), pickles.text("cpu"), pickles.FALSE,
    )  # fmt: skip
    again = pickles.build(b"h\x01", pickles.array_state(b"B" * 8))
    path = pickles.write_checkpoint_file(tmp_path / "evil.pt", b"\x80\x02" + pickles.tuple_(filled, alias, again) + b".")
    with pytest.raises(InputError, match=r"evil.pt: refused: .*filled twice"):
        as_fairseq_loads(path)


def test_no_object_of_a_file_becomes_a_number_type(tmp_path):
    """BUILD sets any attribute of a Namespace, its class too."""
    number = pickles.global_("numpy", "dtype")
    attributes = b"}(" + pickles.text("code") + pickles.text("O") + pickles.text("__class__") + number + b"u"
    disguised = pickles.build(pickles.global_("argparse", "Namespace") + b")\x81", pickles.tuple_(pickles.NONE, attributes))
    program = b"\x80\x02" + pickles.build(pickles.empty_array(), pickles.array_state(b"A" * 8, disguised)) + b"."
    with pytest.raises(InputError, match=r"evil.pt: .*layout differs"):
        as_fairseq_loads(pickles.write_checkpoint_file(tmp_path / "evil.pt", program))


def test_random_programs_never_end_the_process(tmp_path):
    command = [sys.executable, "-c", LOADING, str(tmp_path / "program.pt"), "0", str(PROGRAMS)]
    environment = {"PYTHONPATH": f"{Path(__file__).parents[1]}:{Path(__file__).parents[2]}", "PATH": "/usr/bin:/bin"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    lines = result.stdout.splitlines()
    assert result.returncode == 0, f"the program of seed {lines[-1]} ended it: {result.returncode}\n{result.stderr[-2000:]}"
    assert lines[-1].startswith("taken ")
    assert int(lines[-1].split()[1]) > PROGRAMS // 50  # some of them are whole


@pytest.mark.parametrize("load", [as_fairseq_loads, read_plain_data])
@pytest.mark.parametrize("compressed", [False, True])
def test_sparse_tensors_with_indices_outside_their_shape_are_refused(tmp_path, load, compressed):
    """Made dense, such a tensor ends the process."""
    one, outside = torch.ones(1), torch.tensor([2**40])
    tensor = (
        torch.sparse_csr_tensor(torch.tensor([0, 1]), outside, one, (1, 4), check_invariants=False)
        if compressed
        else torch.sparse_coo_tensor(outside.repeat(2, 1), one, (1, 4), check_invariants=False)
    )
    torch.save({"cfg": {}, "model": {"weight": tensor}}, tmp_path / "evil.pt")
    with pytest.raises(InputError, match=r"evil.pt: is not a checkpoint .*(inconsistent with indices|is not satisfied)"):
        load(tmp_path / "evil.pt")


EVALUATED = "__import__('os').system('true')"


@pytest.mark.parametrize(
    "options",
    [
        {"cfg": {"model": {"_name": "fconv_lm", "decoder_layers": EVALUATED}}},
        {"cfg": omegaconf.OmegaConf.create({"model": {"decoder_layers": " \t" + EVALUATED}})},
        {"cfg": {"model": {"decoder_layers": EVALUATED.encode()}}},
        {"cfg": {"model": {"decoder_layers": "${model.a}${model.b}", "a": "__import__(", "b": "'os').system('true')"}}},
        {"args": argparse.Namespace(arch="fconv", more=[{"encoder_layers": (EVALUATED,)}])},
        {"args": argparse.Namespace(arch="fconv", encoder_layers=f"[{EVALUATED} for _ in (1,)]")},
        # no call, and no bracket: the loop assigns a function to what an index calls
        {"cfg": {"model": {"decoder_layers": '[F["true"] for F.__class_getitem__ in [utils.os.system]]'}}},
        {"cfg": {"model": {"decoder_layers": 'utils.torch.ctypes.cdll["/tmp/a.so"]'}}},
        {"cfg": {"model": {"decoder_layers": 'f"{utils.os!r}"'}}},
        {"cfg": {"model": {"decoder_layers": "'%(./a.so)s' % utils.torch.ctypes.cdll"}}},  # calls __getitem__, which loads a library
        {"cfg": {"model": {"decoder_layers": "9**9**9**9"}}},
    ],
)
def test_options_that_fairseq_would_run_are_refused(options):
    with pytest.raises(InputError, match=r"evil.pt: refused: its option (decoder_layers|encoder_layers) is .* run as Python code"):
        refuse_unusable(lambda path: options)("evil.pt")


def test_options_that_are_hidden_or_no_plain_values_are_refused():
    """In attributes of an object that torch allows, or as numbers whose bytes are a text."""
    hidden = OrderedDict()
    hidden.decoder_layers = EVALUATED
    numbers = np.frombuffer(EVALUATED.ljust(-8 * (-len(EVALUATED) // 8)).encode(), "<i8")
    for model in (hidden, {"encoder": hidden}, argparse.Namespace(decoder_layers=numbers), {"layers": [torch.ones(1)]}):
        for cfg in ({"model": model}, omegaconf.OmegaConf.create({"model": model}, flags={"allow_objects": True})):
            with pytest.raises(InputError, match=r"evil.pt: refused: its option \w+ is a \w+, expected a number, a text"):
                refuse_unusable(lambda path, cfg=cfg: {"cfg": cfg})("evil.pt")


@pytest.mark.parametrize(
    "option", [{"save_predictions": "/a"}, {"dataset_impl": "fasta"}, {"gpt2_encoder_json": "https://a/b"}, {"bpe_codes": b"http://a/b"}]
)
def test_options_that_write_fetch_or_start_something_are_refused(option):
    with pytest.raises(InputError, match=r"evil.pt: refused: .* which lets fairseq write, fetch or start something"):
        refuse_unusable(lambda path: {"cfg": {"criterion": option}})("evil.pt")


def test_fairseq_evaluates_plain_values_alone(tmp_path):
    import fairseq.models.fconv_lm
    import fairseq.utils

    attlm_fairseq.plugin.register()
    for module in (fairseq.models.fconv_lm, fairseq.utils):
        for text in (EVALUATED, "utils.os", "[1 for _ in (1,)]", "'%s' % 1", "[0] * 10**9", "9**9", "[0] * 100_000", "x"):
            with pytest.raises(InputError, match="no plain value"):
                module.eval(text)
        assert module.eval("[(512, 3)] * 2 + [(1024, -3.5)]") == [(512, 3), (512, 3), (1024, -3.5)]
        assert module.eval(" {'a': None, 'b': [True, 1e-3]}") == {"a": None, "b": [True, 1e-3]}
        with pytest.raises(TypeError):  # on which fairseq relies
            module.eval(np.zeros(2))
    assert fairseq.utils.eval_bool("True") is True
    assert fairseq.utils.eval_bool(True, default="given") == "given"
    assert fairseq.utils.eval_str_list("0.9,0.5", type=float) == [0.9, 0.5]


def test_options_of_real_models_are_none_that_run():
    ordinary = ["[(512, 3)] * 20 + [(1024, 3)]", "(0.9, 0.98)", '{"beam": 4}', "/data/x(1)", "a.b", "[True, False]", "bin/a.b", "*"]
    assert not any(map(runs, [*ordinary, *map(str.encode, ordinary)]))
    options = {"cfg": {"task": {"data": "data-bin/wmt (en-de)"}}}
    assert refuse_unusable(lambda path: options)("a.pt") is options
    holding_itself = argparse.Namespace(name="x")
    holding_itself.again = [holding_itself]
    assert list(option_values(holding_itself)) == [("name", "x")]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more", b"a text"])
def test_files_that_are_no_checkpoint_are_one_line(tmp_path, content):
    (tmp_path / "broken.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"broken.pt: (refused: it is not a checkpoint|is not a checkpoint)"):
        as_fairseq_loads(tmp_path / "broken.pt")


def test_a_pickle_of_another_protocol_is_refused_in_one_line(tmp_path, recwarn):
    """torch warns of the protocol, and advises something, before it refuses what the pickle holds."""
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        path = tmp_path / f"{protocol}.pt"
        path.write_bytes(pickle.dumps(print, protocol))
        with pytest.raises(InputError, match=r"\.pt: refused: "):
            read_plain_data(path)
    assert not recwarn.list


def test_a_whole_checkpoint_is_loaded(tmp_path):
    assert "model" in as_fairseq_loads(write_checkpoint(tmp_path / "lm.pt", ["a", "b"]))
