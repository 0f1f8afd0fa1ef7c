"""Options that have no effect or cannot work, and checkpoints that do not fit, end fairseq's commands in one line."""

from __future__ import annotations

import math
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.dataclass.configs import CheckpointConfig
from fairseq.tasks import FairseqTask
from fairseq_runs import LOGGING, ROOT, expect_one_line, fairseq, logged
from omegaconf import OmegaConf

from attlm_fairseq import plugin
from attlm_fairseq.checkpoints.reading import FINGERPRINT, load_model
from attlm_fairseq.errors import InputError
from attlm_fairseq.tasks._beginning import checkpoint_to_resume
from attlm_fairseq.tasks._training_options import refuse_options
from attlm_fairseq.tasks.sentence_reset_lm import SentenceResetLMConfig, SentenceResetLMTask

plugin.register()  # the presets, which have defaults of their own

USER_DIR = ["--user-dir", str(ROOT / "attlm_fairseq")]
SENTENCES = [*USER_DIR, "--task", "sentence_reset_lm"]
STREAM = [*USER_DIR, "--task", "language_modeling", "--tokens-per-sample", "20"]  # a task of fairseq's
TINY = ["--decoder-embed-dim", "8", "--decoder-hidden-size", "8", "--batch-size", "16", "--optimizer", "sgd", "--lr", "0.1", "--cpu"]
SHORT = [*TINY, *LOGGING, "--max-update", "1", "--disable-validation"]
OURS = ["--criterion", "lm_cross_entropy"]
WITH_SLOTS = ["--arch", "kvp_lstm_lm", "--kvp-mode", "attention", "--output-layer", "tied", *OURS]
WITH_SLOTS += ["--task", "document_reset_lm", "--memory-slots", "3"]
TASK = {
    "amp": False, "fp16": False, "bf16": False, "cpu": True, "curriculum": 0, "grouped_shuffling": False, "update_epoch_batch_itr": False,
    "skip_remainder_batch": False, "finetune_from_model": None, "continue_once": None,
    "average": "none", "average_window": 5, "average_decay": 0.999, "disable_validation": False, "batch_size": None,
    "batch_size_valid": None, "best_checkpoint_metric": "ppl", "maximize_best_checkpoint_metric": False, "patience": -1,
}  # fmt: skip
ALL_PLACES = {"dropout_in": 0.4, "dropout_between": 0.25, "dropout_out": 0.4}
MODEL = {"output_layer": "tied", "adaptive_cutoffs": None, "init_from": None}


@pytest.mark.parametrize(
    ("task", "model", "message"),
    [
        ({"amp": True}, {}, "--amp .*--compute-dtype bf16"),
        ({"fp16": True}, {}, "--fp16 .*--compute-dtype bf16"),
        ({"bf16": True}, {}, "--bf16 .*--compute-dtype bf16"),
        ({"average": "ema", "average_decay": 1.0}, {}, "--average-decay 1.0: expected a number between 0 and 1"),
        ({"average": "nt-asgd", "average_window": 0}, {}, "--average-window 0: expected at least 1"),
        ({"average_decay": 0.9}, {}, "--average-decay has no effect .*give --average ema, or leave --average-decay out"),
        ({"average": "ema", "average_window": 3}, {}, "--average-window has no effect .*give --average nt-asgd"),
        ({"batch_size": 0}, {}, "--batch-size 0: expected at least 1"),
        ({"average": "nt-asgd", "disable_validation": True}, {}, "--average nt-asgd .*--average asgd or ema"),
        (
            {},
            {"_name": "awd_lstm_lm", "dropout": 0.5, "dropout_in": 0.4, "dropout_between": 0.25, "dropout_out": 0.4},
            "--dropout 0.5 has no",
        ),
        ({}, {"init_layers": "torch", "init_biases": "uniform"}, "--init-biases uniform has no effect with --init-layers torch"),
        *(({}, {"init_range": value}, f"--init-range {value}: expected a number, 0 or above") for value in (-1.0, math.nan, math.inf)),
        ({}, {"cuda_graphs": True}, "--cuda-graphs has no effect without a GPU"),
        ({}, {"forget_bias": math.nan}, "--forget-bias nan: expected a number"),
        ({}, {"_name": "plain_lstm_lm", "decoder_layers": 1, "dropout_between": 0.5}, "--dropout-between 0.5 has no effect with one layer"),
        ({}, {"_name": "plain_lstm_lm", "dropout_latent": 0.5, "softmaxes": "1"}, "--dropout-latent .*--softmaxes 2"),
        ({"curriculum": 2}, {}, "--curriculum .*--batch-order"),
        ({"grouped_shuffling": True}, {}, "--grouped-shuffling .*--batch-order"),
        ({"update_epoch_batch_itr": True}, {}, "--update-epoch-batch-itr .*--batch-order"),
        ({"skip_remainder_batch": True}, {}, "--skip-remainder-batch .*--batch-order"),
        ({}, {"adaptive_cutoffs": "3,7"}, "--adaptive-cutoffs .*--output-layer adaptive"),
        ({"finetune_from_model": "a.pt"}, {"init_from": "b.pt"}, "--init-from .*--finetune-from-model"),
        ({"continue_once": "a.pt"}, {"init_from": "b.pt"}, "--init-from .*--continue-once"),
    ],
)
def test_options_without_effect(task, model, message):
    with pytest.raises(InputError, match=message):
        refuse_options(OmegaConf.create(TASK | task), OmegaConf.create(MODEL | model))


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_weights_in_half_precision_are_not_averaged(monkeypatch, precision):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    task = {**TASK, precision: True, "cpu": False}
    refuse_options(OmegaConf.create(task), OmegaConf.create(MODEL))
    with pytest.raises(InputError, match=r"--average .*--compute-dtype bf16"):
        refuse_options(OmegaConf.create(task | {"average": "ema"}), OmegaConf.create(MODEL))


@pytest.mark.parametrize(("cpu", "gpu"), [(True, True), (True, False), (False, False), (False, True)])
def test_options_of_gpus_are_refused_without_one_and_on_the_cpu(monkeypatch, cpu, gpu):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    for task, model in (({"fp16": True}, {}), ({"bf16": True}, {}), ({}, {"cuda_graphs": True})):
        given = OmegaConf.create({**TASK, **task, "cpu": cpu}), OmegaConf.create(MODEL | model)
        if gpu and not cpu:
            refuse_options(*given)
            continue
        with pytest.raises(InputError, match="without a GPU"):
            refuse_options(*given)


def test_options_with_effect():
    for model in ({"output_layer": "adaptive", "adaptive_cutoffs": "3,7"}, {"init_from": "b.pt"}):
        refuse_options(OmegaConf.create(TASK), OmegaConf.create(MODEL | model))
    for model in (
        {"_name": "awd_mos", "softmaxes": "1", "dropout_latent": 0.29},
        {"dropout": 0.5, "dropout_in": 0.4, "dropout_between": 0.25},
    ):
        refuse_options(OmegaConf.create(TASK), OmegaConf.create(MODEL | model))
    latent = {"_name": "awd_lstm_lm", "softmaxes": "2", "dropout": 0.5, "dropout_latent": None, **ALL_PLACES}
    refuse_options(OmegaConf.create(TASK), OmegaConf.create(MODEL | latent))
    of_average = {"average": "ema", "average_decay": 0.9, "disable_validation": True}, {"average": "nt-asgd", "average_window": 1}
    for task in (*of_average, {"batch_size": 1}, {"cpu": False}):
        refuse_options(OmegaConf.create(TASK | task), OmegaConf.create(MODEL))
    refuse_options(OmegaConf.create(TASK | {"finetune_from_model": "a.pt"}), OmegaConf.create({}))  # a model of fairseq's own


ADAPTIVE = ["--output-layer", "adaptive", "--adaptive-cutoffs", "5,9", "--decoder-embed-dim", "18", "--decoder-hidden-size", "18"]


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--arch", "attentive_lstm_lm", *OURS, "--bf16"], ["--bf16"]),
        (["--arch", "lstm_lm", *OURS], ["lm_cross_entropy", "give --criterion cross_entropy"]),
        (
            ["--arch", "averaging_lstm_lm", *ADAPTIVE, "--criterion", "adaptive_loss"],
            ["adaptive_loss", "give --criterion lm_cross_entropy"],
        ),
        (["--arch", "averaging_lstm_lm", *OURS, "--attention-entropy", "0.1"], ["--attention-entropy", "constants"]),
        (
            ["--arch", "pointer_lstm_lm", "--criterion", "cross_entropy", "--pointer-loss", "0.5"],
            ["--pointer-loss 0.5 has no effect", "--criterion lm_cross_entropy"],
        ),
        (
            ["--arch", "pointer_lstm_lm", *OURS, "--pointer-loss", "0.5", "--teacher", "lm.pt", "--teacher-weight", "1"],
            ["--pointer-loss 0.5 has no effect with --teacher-weight 1"],
        ),
        (["--arch", "attentive_lstm_lm", *OURS, "--attention-entropy", "nan"], ["--attention-entropy nan: expected a number"]),
        (["--arch", "plain_lstm_lm", *OURS, "--decoder-layers", "0"], ["--decoder-layers 0: expected a whole number, at least 1"]),
        (["--arch", "plain_lstm_lm", *OURS, "--cut-sentences", "-3"], ["--cut-sentences -3"]),
        (["--arch", "plain_lstm_lm", *OURS, "--task", "document_reset_lm", "--max-tokens", "20"], ["--batch-size 16", "--max-tokens 20"]),
        (["--arch", "attentive_lstm_lm", *OURS, "--task", "document_reset_lm", "--memory-slots", "3"], ["--memory-slots 3 has no effect"]),
        *(([*WITH_SLOTS, "--reset", reset], [f"--memory-slots has no effect with --reset {reset}"]) for reset in ("memory", "segment")),
        (["--arch", "plain_lstm_lm", *OURS, "--patience", "2"], ["--patience counts validations"]),
        (["--arch", "plain_lstm_lm", *OURS, "--batch-size-valid", "0"], ["--batch-size-valid 0: expected at least 1"]),
        *(
            (["--arch", "plain_lstm_lm", *OURS, option, "gone.pt"], ["gone.pt: there is no such file", f"correct {option}"])
            for option in ("--restore-file", "--continue-once", "--finetune-from-model")
        ),
        (["--arch", "plain_lstm_lm", *OURS, "--max-target-positions", "7"], ["--max-target-positions 7 is for fairseq's own models"]),
        (
            ["--arch", "lstm_lm", "--criterion", "cross_entropy", "--task", "document_reset_lm"],
            ["--task document_reset_lm takes only models of this package", "found fairseq's LSTMLanguageModel", "--task sentence_reset_lm"],
        ),
    ],
)
def test_training_that_cannot_be_what_was_asked_for(data, options, parts):
    expect_one_line(fairseq("train", data / "bin", *SENTENCES, *SHORT, *options, "--save-dir", data / "no", check=False), *parts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--best-checkpoint-metric", "perplexity"], "--best-checkpoint-metric perplexity: expected loss, nll_loss, ppl or ppl_salton2017"),
        (["--best-checkpoint-metric", "attention_entropy"], "--best-checkpoint-metric attention_entropy: expected loss, nll_loss, ppl or"),
        (
            ["--criterion", "cross_entropy", "--best-checkpoint-metric", "nll_loss"],
            "nll_loss: expected loss, ppl or",
        ),
        (
            ["--task", "document_reset_lm", "--best-checkpoint-metric", "ppl_salton2017"],
            "--best-checkpoint-metric ppl_salton2017: expected loss, nll_loss or ppl",
        ),
        (["--maximize-best-checkpoint-metric"], "--maximize-best-checkpoint-metric: loss is the better the lower"),
    ],
)
def test_metrics_that_choose_no_best_checkpoint(data, options, message):
    arguments = [data / "bin", *SENTENCES, *TINY, *LOGGING, *OURS, "--arch", "plain_lstm_lm", *options, "--save-dir", data / "no"]
    expect_one_line(fairseq("train", *arguments, check=False), message)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--init-from", "gone.pt"], ["--init-from has no effect with fairseq's LanguageModelingTask", "--task sentence_reset_lm"]),
        (["--adaptive-cutoffs", "5,9"], ["--adaptive-cutoffs has no effect", "give --output-layer adaptive"]),
        (["--dropout-latent", "0.2"], ["--dropout-latent has no effect", "give --softmaxes 2 or more"]),
    ],
)
def test_options_of_models_without_effect_under_a_task_of_fairseqs(data, options, parts):
    arguments = [*STREAM, *SHORT, *OURS, "--arch", "plain_lstm_lm", *options, "--save-dir", data / "no"]
    expect_one_line(fairseq("train", data / "bin", *arguments, check=False), *parts)


def test_a_checkpoint_with_options_without_effect_is_evaluated(data, trained, tmp_path):
    """It has its weights: only a model to be trained is refused, whatever task evaluates it."""
    content = torch.load(trained, weights_only=False)
    content["cfg"]["model"] |= {"init_from": "gone.pt", "adaptive_cutoffs": "5,9", "dropout_latent": 0.2}
    torch.save(content, tmp_path / "lm.pt")
    evaluate = ["eval-lm", data / "bin", *USER_DIR, "--gen-subset", "valid", "--cpu", "--path", tmp_path / "lm.pt"]
    for task in ([], ["--task", "sentence_reset_lm"]):
        assert "Perplexity: " in fairseq(*evaluate, *task).stdout


def test_both_criterions_log_the_perplexity_under_a_task_of_fairseqs(data, tmp_path):
    found = []
    for criterion in ("lm_cross_entropy", "cross_entropy"):
        options = ["--max-epoch", 1, "--criterion", criterion, "--best-checkpoint-metric", "ppl", "--arch", "plain_lstm_lm"]
        result = fairseq("train", data / "bin", *STREAM, *TINY, *LOGGING, *options, "--dropout", 0, "--save-dir", tmp_path / criterion)
        found.append([float(logged(result, "valid")[-1][name]) for name in ("valid_ppl", "valid_loss")])
        assert (tmp_path / criterion / "checkpoint_best.pt").is_file()
    assert found[0] == pytest.approx(found[1], rel=1e-3)
    assert found[0][0] == pytest.approx(2 ** found[0][1], rel=1e-2)


def test_options_without_effect_that_are_noted_or_taken(data, tmp_path):
    documents = [data / "bin", *USER_DIR, "--task", "document_reset_lm", *SHORT, "--reset", "memory", "--save-dir"]
    note = "--reset memory is the same as --reset document"
    assert note in fairseq("train", *documents, tmp_path / "plain", *OURS, "--arch", "plain_lstm_lm").stdout
    assert note not in fairseq("train", *documents, tmp_path / "attentive", *OURS, "--arch", "attentive_lstm_lm").stdout
    pointer = ["--arch", "pointer_lstm_lm", "--criterion", "cross_entropy", "--save-dir"]
    fairseq("train", data / "bin", *SENTENCES, *SHORT, *pointer, tmp_path / "pointer")
    fairseq("train", data / "bin", *SENTENCES, *SHORT, *pointer, tmp_path / "no pointer loss", "--pointer-loss", "0")


def test_a_validation_line_that_is_too_long(data):
    options = ["--arch", "plain_lstm_lm", *OURS, "--max-tokens-valid", 20]
    refused = fairseq(
        "train", data / "bin", *SENTENCES, *TINY, *LOGGING, "--max-update", 1, *options, "--save-dir", data / "no", check=False
    )
    expect_one_line(refused, "valid:16: ", "41 tokens", "more than --max-tokens-valid 20", "raise --max-tokens-valid,")


def test_the_option_that_limits_a_batch_is_named():
    task = SentenceResetLMTask(SentenceResetLMConfig(max_tokens=20, max_tokens_valid=30), Dictionary())
    assert task.limit_of_tokens(training=False) == "--max-tokens", "of a program that evaluates alone"
    task.trains = True
    assert [task.limit_of_tokens(training) for training in (True, False)] == ["--max-tokens", "--max-tokens-valid"]
    task.cfg.max_tokens_valid = 20
    assert task.limit_of_tokens(training=False) == "--max-tokens"


@pytest.fixture(scope="module")
def trained(data) -> Path:
    fairseq("train", data / "bin", *SENTENCES, *SHORT, *OURS, "--arch", "attentive_lstm_lm", "--save-dir", data / "refused")
    return data / "refused" / "checkpoint_last.pt"


def test_a_context_window(data, trained):
    options = ["--path", trained, "--gen-subset", "valid", "--context-window", 2]
    expect_one_line(fairseq("eval-lm", data / "bin", *SENTENCES, *options, check=False), "--context-window does not fit")


def test_evaluation_with_a_task_of_fairseqs_is_warned_of(data, trained):
    """Without --task, fairseq-eval-lm takes language_modeling, which reads the text as one stream."""
    evaluate = ["eval-lm", data / "bin", *USER_DIR, "--gen-subset", "valid", "--cpu", "--path"]
    warning = "WARNING.*LanguageModelingTask reads the text as one stream.*give --task sentence_reset_lm"
    assert re.search(warning + "$", fairseq(*evaluate, trained).stdout, re.MULTILINE)
    assert "one stream" not in fairseq(*evaluate, trained, "--task", "sentence_reset_lm").stdout


def test_evaluation_with_another_task_or_other_resets_is_not_silent(data, trained, tmp_path):
    """fairseq-validate takes the task from the checkpoint, fairseq-eval-lm from the command line."""
    documents = [*USER_DIR, "--task", "document_reset_lm", "--bptt", 5]
    validate = ["validate", data / "bin", "--path", trained, "--batch-size", 8, "--cpu", "--valid-subset", "valid"]
    expect_one_line(
        fairseq(*validate, *documents, check=False),
        "was trained with --task sentence_reset_lm",
        "give --task sentence_reset_lm, not --task document_reset_lm",
        "fairseq-eval-lm",
    )
    fairseq(*validate, *SENTENCES)
    evaluate = ["eval-lm", data / "bin", "--gen-subset", "valid", "--cpu", "--path"]
    warning = "WARNING.*the model was trained with {}, and this run has {}:"
    assert re.search(
        warning.format("--task 'sentence_reset_lm'", "--task 'document_reset_lm'"), fairseq(*evaluate, trained, *documents).stdout
    )
    options = ["--arch", "plain_lstm_lm", "--reset-every", 2, "--save-dir", tmp_path / "two"]
    fairseq("train", data / "bin", *documents, *SHORT, *OURS, *options)
    made = tmp_path / "two" / "checkpoint_last.pt"
    assert re.search(warning.format("--reset-every 2", "--reset-every 0"), fairseq(*evaluate, made, *documents).stdout)
    assert "the model was trained with" not in fairseq(*evaluate, made, *documents, "--reset-every", 2).stdout
    slots = fairseq(*evaluate, made, *documents, "--reset-every", 2, "--memory-slots", 3).stdout
    assert re.search(warning.format("--memory-slots 0", "--memory-slots 3"), slots)
    old = torch.load(trained, weights_only=False)
    del old["task_state"]["resets"]
    torch.save(old, tmp_path / "old.pt")
    assert re.search(
        warning.format("--task 'sentence_reset_lm'", "--task 'document_reset_lm'"),
        fairseq(*evaluate, tmp_path / "old.pt", *documents).stdout,
    )


def test_an_unknown_architecture_is_one_line(data, trained, tmp_path):
    content = torch.load(trained, weights_only=False)
    content["cfg"]["model"]["_name"] = "later_lm"
    torch.save(content, tmp_path / "later.pt")
    evaluate = ["eval-lm", data / "bin", *SENTENCES, "--gen-subset", "valid", "--cpu", "--path", tmp_path / "later.pt"]
    expect_one_line(fairseq(*evaluate, check=False), "later.pt", "architecture 'later_lm' is neither fairseq's nor this package's")


def test_a_place_beyond_the_end_of_a_shorter_epoch_is_one_line(data, tmp_path):
    train = ["train", data / "bin", *SENTENCES, *OURS, "--arch", "plain_lstm_lm", "--save-dir", tmp_path, *SHORT]
    fairseq(*train, "--batch-size", 1, "--max-update", 9, "--save-interval-updates", 9)
    other = [*train, "--batch-size", 64, "--max-update", 20]
    expect_one_line(fairseq(*other, check=False), "in the midst of an epoch", "an epoch is shorter", "--reset-dataloader")


def other_dictionary(data: Path, folder: Path, lines: list[str]) -> Path:
    """The data with another ``dict.txt``."""
    shutil.copytree(data / "bin", folder)
    (folder / "dict.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder


def test_a_dictionary_in_another_order_or_of_another_size(data, trained, tmp_path):
    lines = (data / "bin" / "dict.txt").read_text().splitlines()
    turned = other_dictionary(data, tmp_path / "turned", lines[::-1])
    longer = other_dictionary(data, tmp_path / "longer", [*lines, "another 1"])
    validate = [*SENTENCES, "--path", trained, "--batch-size", 8, "--cpu"]
    for folder in (turned, longer):
        expect_one_line(fairseq("validate", folder, *validate, check=False), str(folder), "dict.txt", "another order")
    resumed = ["--arch", "attentive_lstm_lm", "--max-update", 2]
    for options in (["--save-dir", trained.parent], ["--save-dir", tmp_path / "no", "--finetune-from-model", trained]):
        expect_one_line(fairseq("train", turned, *SENTENCES, *SHORT, *OURS, *resumed, *options, check=False), "another order")
    suffixed = shutil.copy(trained, tmp_path / "checkpoint_last_x.pt").parent
    options = ["--save-dir", suffixed, "--checkpoint-suffix", "_x"]
    expect_one_line(fairseq("train", turned, *SENTENCES, *SHORT, *OURS, *resumed, *options, check=False), "another order")
    with pytest.raises(InputError, match="another order"):
        load_model(trained, turned / "dict.txt")

    old = torch.load(trained, weights_only=False)
    del old["task_state"], old["model"][FINGERPRINT]
    torch.save(old, tmp_path / "old.pt")
    assert load_model(tmp_path / "old.pt", turned / "dict.txt"), "a checkpoint that does not say is trusted"
    refused = fairseq("validate", longer, *validate, "--path", tmp_path / "old.pt", check=False)
    expect_one_line(refused, "embedding.weight is ", "dict.txt")


@pytest.mark.parametrize("suffix", ["", "_x"])
@pytest.mark.parametrize("restored", ["checkpoint_last.pt", "other.pt", "models.pt/other.pt"])
def test_the_checkpoint_to_resume_is_the_one_that_fairseq_loads(suffix, restored):
    options = {"save_dir": "saved", "restore_file": restored, "checkpoint_suffix": suffix}
    asked = []

    def load_checkpoint(path: str, *options: object, **others: object) -> None:
        asked.append(Path(path))

    trainer = SimpleNamespace(
        checkpoint_suffix=suffix, load_checkpoint=load_checkpoint, get_train_iterator=MagicMock(), lr_step=lambda epoch: None
    )
    checkpoint_utils.load_checkpoint(OmegaConf.structured(CheckpointConfig(**options)), trainer)
    assert asked == [checkpoint_to_resume(SentenceResetLMConfig(**options))]


def test_finetuning_another_model(data, trained, tmp_path):
    options = ["--arch", "attentive_lstm_lm", "--attention-score", "combined", "--finetune-from-model", trained]
    refused = fairseq("train", data / "bin", *SENTENCES, *SHORT, *OURS, *options, "--save-dir", tmp_path / "no", check=False)
    expect_one_line(refused, "reader.query.weight is missing, this model's is 8x8")
    same = [*options[:2], *options[4:]]
    fairseq("train", data / "bin", *SENTENCES, *SHORT, *OURS, *same, "--save-dir", tmp_path / "yes")


def load_another_model(rank: int) -> None:
    try:
        raise InputError("its weights are another's")
    except Exception:
        raise Exception("Cannot load model parameters")  # noqa: B904 - as fairseq has it


def test_one_line_of_several_processes(capsys, monkeypatch):
    with pytest.raises(torch.multiprocessing.ProcessRaisedException) as raised:
        torch.multiprocessing.start_processes(load_another_model, nprocs=1, start_method="fork")
    monkeypatch.setattr(plugin.os, "_exit", sys.exit)
    with pytest.raises(SystemExit):
        plugin.one_line_input_errors(type(raised.value), raised.value, None)
    assert capsys.readouterr().err == "attlm: error: its weights are another's\n"


def test_data_in_parts_of_two_dictionaries(data):
    other = data / "other"
    shutil.copytree(data / "bin", other)
    arguments = [f"{data / 'bin'}:{other}", *SENTENCES, *SHORT, *OURS, "--arch", "plain_lstm_lm", "--save-dir", data / "no"]
    lines = (other / "dict.txt").read_text().splitlines(keepends=True)
    (other / "dict.txt").write_text("".join(line.split()[0] + " 7\r\n" for line in lines))  # the same words
    fairseq("train", *arguments, "--save-dir", data / "parts", "--restore-file", data / "parts" / "checkpoint_last.pt")
    (other / "dict.txt").write_text("".join([*lines[1:], lines[0]]))
    expect_one_line(
        fairseq("train", *arguments, check=False), f"{other}/dict.txt: is another dictionary than {data}/bin/dict.txt", "--srcdict"
    )
    shutil.rmtree(other)
    expect_one_line(fairseq("train", *arguments, check=False), f"{other}: there is no such folder")


def test_damaged_data_are_one_line(data):
    folder = data / "damaged"
    arguments = [folder, *SENTENCES, *SHORT, *OURS, "--arch", "plain_lstm_lm", "--save-dir", data / "no"]
    for name, change, parts in (
        ("dict.txt", lambda text: b"".join(text.splitlines(keepends=True)[:3]), ["train: has the word number", "dict.txt has 7 symbols"]),
        ("dict.txt", lambda text: text.replace(b" ", b"_"), ["dict.txt: is no dictionary of fairseq-preprocess"]),
        ("dict.txt", lambda text: b"", ["dict.txt: has no words"]),
        ("train.bin", lambda content: content[:-7], ["train: has other words than the", "is the .bin cut short?"]),
        ("train.idx", lambda content: content[:60], ["train: cannot be read", "is it cut short?"]),
    ):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(data / "bin", folder)
        (folder / name).write_bytes(change((folder / name).read_bytes()))
        expect_one_line(fairseq("train", *arguments, check=False), *parts)


def test_another_optimizer_is_one_line(data, trained, tmp_path):
    shutil.copy(trained, tmp_path / "checkpoint_last.pt")
    arguments = [data / "bin", *SENTENCES, *SHORT, *OURS, "--arch", "attentive_lstm_lm", "--save-dir", tmp_path, "--optimizer", "adagrad"]
    expect_one_line(fairseq("train", *arguments, check=False), "was written with another optimizer or criterion", "--reset-optimizer")


def test_options_that_look_like_code_are_taken_again(data, tmp_path):
    """Their values are names, which nothing evaluates."""
    arguments = [data / "bin", *SENTENCES, *SHORT, *OURS, "--arch", "plain_lstm_lm", "--save-dir", tmp_path, "--wandb-project", "lm(v2)"]
    for updates in (1, 2):
        fairseq("train", *arguments, "--max-update", updates)


def test_a_language_model_that_fairseq_interactive_does_not_load(monkeypatch):
    task = SentenceResetLMTask(SentenceResetLMConfig(), Dictionary())
    with pytest.raises(InputError, match="--lm-path has no effect in fairseq-interactive with --task sentence_reset_lm"):
        task.build_generator([], SimpleNamespace(lm_path="lm.pt"))
    monkeypatch.setattr(FairseqTask, "build_generator", lambda task, models, args, kind, options: options)
    loaded = {"lm_model": "as fairseq-generate does", "lm_weight": 0.3}
    assert task.build_generator([], SimpleNamespace(lm_path="lm.pt"), None, loaded) == loaded
