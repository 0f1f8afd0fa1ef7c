"""fairseq's own commands with the plugin: training, resuming, validating, scoring, generating, and bad input."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import torch
from fairseq_runs import LOGGING, ROOT, expect_one_line, fairseq, logged, measured

from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer

PLUGIN = ["--user-dir", str(ROOT / "attlm_fairseq"), "--task", "sentence_reset_lm"]
TINY = ["--arch", "attentive_lstm_lm", "--decoder-embed-dim", "16", "--decoder-hidden-size", "16", "--attention-score", "combined"]
TRAINING = ["--optimizer", "sgd", "--lr", "1.0", "--clip-norm", "5", "--sentence-avg", "--batch-size", "7", "--seed", "3", "--cpu"]
ONE_EPOCH = ["--optimizer", "sgd", "--cpu", "--max-epoch", "1", "--num-workers", "0", "--batch-size", "4"]


@pytest.fixture(scope="module")
def trained(data) -> tuple[Path, subprocess.CompletedProcess]:
    """Two epochs, with checkpoints in the middle of epochs too."""
    result = fairseq(
        "train", data / "bin", *PLUGIN, *TINY, *TRAINING, *LOGGING, "--max-epoch", 2,
        "--save-dir", data / "whole", "--save-interval-updates", 5,
    )  # fmt: skip
    return data / "whole", result


def test_validation_sees_every_sentence_and_logs_both_perplexities(data, trained):
    """61 and 43 lines are no multiple of 8 or 7: fairseq's own tasks would drop some."""
    folder, result = trained
    own = measured(data, folder / "checkpoint2.pt")
    last = logged(result, "valid")[-1]
    assert float(last["valid_ppl"]) == pytest.approx(own.ppl, rel=1e-4)
    assert float(last["valid_ppl_salton2017"]) == pytest.approx(own.ppl_salton2017, rel=1e-4)
    assert own.ppl_salton2017 < own.ppl
    updates = [line for line in logged(result, "train_inner") if line["epoch"] == 1]
    assert len(updates) == 9  # 61 sentences in batches of 7


def test_validate_command_gives_the_same(data, trained):
    folder, _ = trained
    own = measured(data, folder / "checkpoint2.pt")
    # fairseq-validate cannot be told a log format that prints the numbers in full, but its simple one holds them
    result = fairseq(
        "validate", data / "bin", *PLUGIN, "--path", folder / "checkpoint2.pt", "--batch-size", 8, "--cpu", "--log-format", "simple"
    )
    printed = dict(re.findall(r"(ppl|ppl_salton2017) ([\d.]+)", result.stdout.replace("|", "\n")))
    assert float(printed["ppl"]) == pytest.approx(own.ppl, rel=1e-3)
    assert float(printed["ppl_salton2017"]) == pytest.approx(own.ppl_salton2017, rel=1e-3)


def test_eval_lm_command_scores_every_token(data, trained):
    folder, _ = trained
    own = measured(data, folder / "checkpoint2.pt")
    result = fairseq("eval-lm", data / "bin", *PLUGIN, "--path", folder / "checkpoint2.pt", "--gen-subset", "valid", "--cpu")
    assert f"Evaluated {own.events:,} tokens" in result.stdout
    assert float(re.search(r"Perplexity: ([\d.]+)", result.stdout)[1]) == pytest.approx(own.ppl, abs=0.006)


def test_evaluating_the_training_split_never_cuts(data, trained):
    folder, _ = trained
    result = fairseq(
        "eval-lm", data / "bin", *PLUGIN, "--path", folder / "checkpoint2.pt", "--gen-subset", "train", "--cpu", "--cut-sentences", 2
    )  # fmt: skip
    words = (data / "train.txt").read_text().split()
    assert f"Evaluated {len(words) + 61} tokens" in result.stdout


def test_evaluating_the_training_split_of_documents_reads_it_in_its_order(data, trained):
    folder, _ = trained
    evaluate = ["eval-lm", data / "bin", *PLUGIN, "--task", "document_reset_lm", "--path", folder / "checkpoint2.pt", "--cpu", "--bptt", 5]
    orders = [[], ["--document-order", "rotated"]]
    found = {re.search(r"Perplexity: [\d.]+", fairseq(*evaluate, "--gen-subset", "train", *order).stdout)[0] for order in orders}
    assert len(found) == 1
    task = fairseq("train", data / "bin", *PLUGIN, "--task", "document_reset_lm", *TINY, *TRAINING, "--valid-subset", "train", check=False)
    expect_one_line(task, "split 'train' is read in another order for training")


def test_resume_in_the_middle_of_an_epoch_is_exact(data, trained):
    whole, _ = trained
    resumed = data / "resumed"
    for updates in (13, 18):  # 9 updates an epoch: stops in the second epoch, with shuffled batches
        fairseq(
            "train", data / "bin", *PLUGIN, *TINY, *TRAINING, *LOGGING, "--max-update", updates,
            "--save-dir", resumed, "--save-interval-updates", 13,
        )  # fmt: skip
    expected = torch.load(whole / "checkpoint_last.pt", weights_only=False)
    got = torch.load(resumed / "checkpoint_last.pt", weights_only=False)
    assert got["optimizer_history"][-1]["num_updates"] == expected["optimizer_history"][-1]["num_updates"] == 18
    assert expected["model"].keys() == got["model"].keys()
    for name, weight in expected["model"].items():
        assert torch.equal(weight, got["model"][name]), name


def test_generate_continues_a_prefix_as_scoring_says(data, trained):
    """Incremental decoding with beams that move, against the sums of full passes."""
    folder, _ = trained
    result = fairseq(
        "interactive", data / "bin", *PLUGIN, "--path", folder / "checkpoint2.pt", "--beam", 3, "--nbest", 3, "--max-len-b", 12, "--cpu",
        stdin="the old dog\nthe\n",
    )  # fmt: skip
    found = re.findall(r"^H-(\d)\t(\S+)\t(.*)\n.*\nP-\d\t(.*)$", result.stdout, re.MULTILINE)
    assert [(number, text.startswith(prefix)) for number, _, text, _ in found for prefix in [["the old dog", "the"][int(number)]]] == [
        ("0", True)
    ] * 3 + [("1", True)] * 3
    scores = NeuralScorer.load([folder / "checkpoint2.pt"]).score([text.split() for _, _, text, _ in found])
    for (_, _, text, steps), score in zip(found, scores, strict=True):
        base2 = [value / torch.log(torch.tensor(2.0)).item() for value in score.log_probs]
        steps = [float(step) for step in steps.split()]
        assert steps == pytest.approx(base2[: len(steps)], abs=2e-3), text  # cut at the longest length, an end may be missing


def test_a_line_too_long_for_max_tokens_is_named(data):
    result = fairseq("train", data / "bin", *PLUGIN, *TINY, *ONE_EPOCH, "--max-tokens", 30, "--save-dir", data / "no", check=False)
    expect_one_line(result, "train:16:", "41 tokens", "--max-tokens 30")


def test_sizes_that_do_not_fit_are_named(data):
    result = fairseq(
        "train", data / "bin", *PLUGIN, *TINY, *ONE_EPOCH, "--decoder-embed-dim", 12, "--save-dir", data / "no", check=False
    )  # fmt: skip
    expect_one_line(result, "the embeddings have 12, the features 16", "--output-layer untied")


PRESETS = {"amsrn_lm": "amsrn_lm_tied", "ngram_rnn_lm": "ngram_rnn_lm_4gram"}  # in place of some families
ARCHITECTURES = [PRESETS.get(name, name) for name in FAMILIES if name != "attentive_lstm_lm"]
DOC = ["averaging_lstm_lm", "--softmaxes", "2,2", "--criterion", "lm_cross_entropy", "--mixture-balance", 0.001]


@pytest.mark.parametrize("architecture", [*([name] for name in ARCHITECTURES), DOC], ids=[*ARCHITECTURES, "DOC"])
def test_every_family_trains_and_scores_as_it_validates(data, tmp_path, architecture):
    sizes = ["--decoder-embed-dim", 24, "--decoder-hidden-size", 24]
    folder = tmp_path / "model"
    result = fairseq(
        "train", data / "bin", *PLUGIN, "--arch", *architecture, *sizes, *TRAINING, *LOGGING, "--max-epoch", 1, "--save-dir", folder
    )
    assert float(logged(result, "valid")[-1]["valid_ppl"]) == pytest.approx(measured(data, folder / "checkpoint1.pt").ppl, rel=1e-4)


def test_missing_dictionary_and_empty_split(data, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    result = fairseq("train", tmp_path, *PLUGIN, *TINY, *ONE_EPOCH, "--save-dir", tmp_path / "no", check=False)
    expect_one_line(result, "no dict.txt", "fairseq-preprocess")
    result = fairseq(
        "train", data / "bin", *PLUGIN, *TINY, *ONE_EPOCH, "--save-dir", tmp_path / "no", "--train-subset", "nosuch",
        check=False,
    )  # fmt: skip
    expect_one_line(result, "'nosuch'")
    fairseq(
        "preprocess",
        "--only-source",
        "--trainpref",
        tmp_path / "empty.txt",
        "--srcdict",
        data / "bin" / "dict.txt",
        "--destdir",
        tmp_path / "bin",
    )
    for suffix in ("bin", "idx"):
        (tmp_path / "bin" / f"valid.{suffix}").write_bytes((data / "bin" / f"valid.{suffix}").read_bytes())
    result = fairseq(
        "train",
        tmp_path / "bin",
        *PLUGIN,
        *TINY,
        "--optimizer",
        "sgd",
        "--cpu",
        "--batch-size",
        4,
        "--save-dir",
        tmp_path / "no",
        check=False,
    )
    expect_one_line(result, "train", "the split is empty")


def test_plateaus_and_patience_outlast_an_interruption(data, tmp_path):
    """The perplexity falls, and the highest is taken for the best: no validation is better than the first, so both counters count."""
    plateaus = ["--lr-scheduler", "reduce_lr_on_plateau", "--lr-patience", 1, "--lr-shrink", 0.5, "--patience", 6]
    options = [*TRAINING, *LOGGING, *plateaus, "--maximize-best-checkpoint-metric"]  # whose metrics may be of any kind, for all we know
    options += ["--criterion", "label_smoothed_cross_entropy"]
    for name, ends in {"whole": [9], "parts": [2, 3, 5, 9]}.items():
        for end in ends:
            result = fairseq("train", data / "bin", *PLUGIN, *TINY, *options, "--max-epoch", end, "--save-dir", tmp_path / name)
        assert "early stop since valid performance hasn't improved for last 6 runs" in result.stdout
    whole, parts = (torch.load(tmp_path / name / "checkpoint_last.pt", weights_only=False) for name in ("whole", "parts"))
    assert whole["optimizer_history"][-1]["lr_scheduler_state"] == parts["optimizer_history"][-1]["lr_scheduler_state"]
    assert whole["last_optimizer_state"]["param_groups"][0]["lr"] == parts["last_optimizer_state"]["param_groups"][0]["lr"] == 0.25
    for name, weight in whole["model"].items():
        assert torch.equal(weight, parts["model"][name]), name
