"""The benchmarks at toy size: that they run, and that they tell the parts of a step apart."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from lm_files import write_arpa
from torch.profiler import ProfilerActivity, profile

from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.scoring.lm_files import load_lm_files

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name: str):
        module = importlib.import_module(name)
        for constant, value in {"SIZE": 12, "VOCABULARY": 50, "SENTENCES": 2, "WORDS_PER_MEASUREMENT": 16}.items():
            monkeypatch.setattr(module, constant, value, raising=False)
        monkeypatch.setattr(module, "MODELS", {model: (family, 12, own) for model, (family, _, own) in module.MODELS.items()})
        return module

    return load


def test_cost_by_length(benchmark, monkeypatch, capsys, tmp_path):
    module = benchmark("length_cost")
    monkeypatch.setattr(sys, "argv", ["length_cost.py", "--lengths", "2,5", "--plot", str(tmp_path / "cost.png")])
    module.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if "%" in line]
    assert [line[:20].strip() for line in lines] == list(module.MODELS)
    assert lines[0].count("( 0%)") == 2  # plain: no reader
    assert all(line.count("( 0%)") == 0 for line in lines[1:])
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")


def test_model_families(benchmark, monkeypatch, capsys):
    module = benchmark("model_families")
    monkeypatch.setattr(sys, "argv", ["model_families.py", "--rounds", "1"])
    module.main()
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row[:16].strip() for row in rows] == list(module.MODELS)
    assert rows[0].split()[2::2] == ["1.00", "1.00"]


@pytest.mark.parametrize("bf16", [False, True])
def test_lstm_and_output_layer_are_found_in_a_profile(benchmark, bf16):
    """Their operations change names from one torch to the next; then the share of the rest would be wrong without a word."""
    speed, cost = benchmark("training_speed"), benchmark("length_cost")
    model = cost.make_model("single", "cpu")
    tokens = torch.randint(4, cost.VOCABULARY, (2, 30))

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            features, _ = model.extract_features(tokens)
            model.output.nll(features.flatten(0, 1), tokens.flatten()).backward()

    step()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        step()
    events = profiled.key_averages()
    assert 0 < speed.share_outside(events, "cpu") < 1
    assert sum(event.key in speed.LSTM_OPERATIONS for event in events) == 2  # forward and backward
    assert speed.share_outside([event for event in events if event.key not in speed.LSTM_OPERATIONS], "cpu") is None


def test_batches_have_the_lengths_of_a_text(benchmark, tmp_path):
    speed = benchmark("training_speed")
    text = tmp_path / "text"
    text.write_text("a b c\na\n" + "a " * 50 + "\n\na b\n")
    assert speed.lengths_of(text) == [[4, 2], [35, 1]]  # of two sentences; the fifth fills no batch
    batch = speed.batch_of([4, 2])
    source, target = batch["net_input"]["src_tokens"], batch["target"]
    assert batch["ntokens"] == 6 == int((target != 1).sum())
    assert torch.equal(source == 1, target == 1)
    assert (source != 1).sum(1).tolist() == [4, 2]


def test_every_model_is_one_of_fairseqs_command_line(benchmark, tmp_path):
    from fairseq import options, tasks
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    from attlm_fairseq.plugin import register

    register()
    speed = benchmark("training_speed")
    (tmp_path / "dict.txt").write_text("a 1\n")
    for model in (speed.BASELINE, *speed.MODELS):
        for dtype in ("float32", "bf16"):
            args = options.parse_args_and_arch(options.get_training_parser(), speed.arguments(model, dtype, tmp_path, "cpu"))
            assert args.cpu
            assert getattr(args, "compute_dtype", "float32") == ("float32" if model == speed.BASELINE else dtype)
        config = convert_namespace_to_omegaconf(args)
        assert tasks.setup_task(config.task).build_model(config.model), "without a training text"


def test_output_layers(benchmark, monkeypatch, capsys):
    module = benchmark("output_layers")
    monkeypatch.setattr(sys, "argv", ["output_layers.py", "--vocabularies", "60,90", "--mixtures", "60", "--sentences", "4", "--runs", "1"])
    module.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if "words/s" in line]
    layers = [*(f"{module.FULL}, {normaliser}" for normaliser in module.NORMALISERS), *list(module.MODELS)[1:]]
    assert [line[:28].strip() for line in lines] == [*layers, *layers[:3]]
    assert [float(line.split()[-1]) for line in lines if "exact" in line] == [1.0, 1.0]


def test_shrinkage_compares_three_ways(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("shrinkage")
    monkeypatch.setattr(module, "TEST_LISTS", 60)
    monkeypatch.setattr(sys, "argv", ["shrinkage.py", "--slopes", "2", "--lists", "60", "--trials", "1"])
    module.main()
    [_, _, row] = capsys.readouterr().out.splitlines()
    slope, lists, before, *changes = (cell.strip() for cell in row.strip("|").split("|"))
    assert (slope, lists) == ("2", "60")
    assert 0 < float(before) < 30
    assert len(changes) == len(module.WAYS)
    assert all(float(change.split()[0]) < 0 for change in changes)  # an LM that knows the errors helps in every way


def test_yardstick_tunes_every_combination_of_lms(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("yardstick")
    assert [len(chosen) for chosen in module.combinations(["a", "b", "c"])] == [0, 1, 1, 1, 2, 2, 2, 3]
    made = importlib.import_module("shrinkage").make_lists(40, 0.0, np.random.default_rng(1))
    errors = [hypothesis.text.split().count("wrong") for nbest in made for hypothesis in nbest.hypotheses]
    knows = module.Measured([-float(count) for count in errors], [0] * len(errors), 1.0, 1)
    found = module.cross_validated(made, {"kenlm": knows})
    row = [cell.strip() for cell in module.row("KenLM", found).strip("|").split("|")]
    assert row[0] == "KenLM"
    assert float(row[3].split(",")[0]) < 0  # fewer errors than in input order
    assert module.cross_validated(made, {}).interval.score > found.interval.score


def test_yardstick_keeps_to_the_options_of_what_is_trained(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("yardstick")
    ran = []

    def logged(program, _):
        ran.append(program[0])
        if program[0] == "fairseq-preprocess":
            assert not (tmp_path / "data.part").exists()
            (tmp_path / "data.part").mkdir()
        else:
            (tmp_path / "attentive" / "checkpoint_best.pt").touch()

    monkeypatch.setattr(module, "logged", logged)
    (tmp_path / "data.part").mkdir()  # of a killed run
    words = ["--train", "train.txt", "--valid", "valid.txt", "--lists", "lists.json", "--work", str(tmp_path)]
    for _ in range(2):
        module.trained("attentive", module.parser("", updates=3).parse_args(words))
    assert ran == ["fairseq-preprocess", "fairseq-train"]
    for other in (["--updates", "4"], ["--size", "8"], ["--train", "other.txt"]):
        with pytest.raises(SystemExit, match="was made with other options"):
            module.trained("attentive", module.parser("", updates=3).parse_args([*words, *other]))


def test_lms_of_other_packages(monkeypatch, capsys, tmp_path):
    found = importlib.util.spec_from_file_location("benchmark_of_foreign_lms", BENCHMARKS / "foreign_lms.py")  # not tests/foreign_lms.py
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    monkeypatch.setattr(module, "SIZE", 8)
    lists = [{"id": f"u{n}", "hyps": ["a b c", "a b", "b c a"]} for n in range(3)]
    (tmp_path / "lists").write_text("".join(json.dumps(line) + "\n" for line in lists))
    monkeypatch.setattr(sys, "argv", ["foreign_lms.py", "--nbest", str(tmp_path / "lists"), "--lists", "2", "--vocabulary", "30"])
    module.main()
    _, *tables = capsys.readouterr().out.split("\n\n")
    assert [table.split("\t")[0] for table in tables] == ["GPT-2", "fairseq transformer_lm"]
    for table in tables:
        assert [float(line.split("\t")[-1]) < 1e-5 for line in table.splitlines()[1:]] == [True] * 3


def test_better_lms_are_trained_with_the_options_of_fairseq_and_measured(monkeypatch, tmp_path):
    from fairseq import options

    from attlm_fairseq.plugin import register

    register()
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("better_lms")
    words = [str(tmp_path), *module.COMMON.format(size=8).split(), "--max-update", "100"]
    for techniques in module.STEPS.values():
        words += techniques.split()
        args = options.parse_args_and_arch(options.get_training_parser(), words)
    assert (args.arch, args.output_layer, args.dropout, args.average) == ("attentive_lstm_lm", "tied", 0.5, "ema")
    lists = []
    for count in range(1, 31):
        first = "a " * (count - 1)
        lists.append(NbestList(str(count), [Hypothesis(first + "b", {}, 1), Hypothesis(first + "a", {}, 2)], (first + "a",)))
    arpa = write_arpa(tmp_path / "lm.arpa", ["a", "b"])
    found = module.measured("KenLM |", lists, [arpa])
    scores = load_lm_files([arpa], "lm").score([["a"] * count for count in range(1, 31)])
    assert found.ppl == pytest.approx(math.exp(-sum(score.total for score in scores) / sum(range(2, 32))))
    assert found.text.startswith(f"| KenLM | | {found.ppl:.2f} | {found.wer:.2f} |")
