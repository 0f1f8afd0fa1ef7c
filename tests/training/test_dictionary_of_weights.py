"""The dictionary among the weights: data of another one is refused wherever a model is loaded, and impossible words are not left out."""

from __future__ import annotations

import pytest
import torch
from fairseq_runs import LOGGING, ROOT, expect_one_line, fairseq

from attlm_fairseq.checkpoints.reading import FINGERPRINT, load_model
from attlm_fairseq.checkpoints.vocabulary import Vocabulary, fingerprint_numbers
from attlm_fairseq.errors import InputError

USER_DIR = ["--user-dir", str(ROOT / "attlm_fairseq")]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def checkpoint(data, tmp_path_factory):
    """A model that was trained with a moving average of its weights, as --store-ema keeps it."""
    folder = tmp_path_factory.mktemp("checkpoint")
    fairseq(
        "train", data / "bin", *USER_DIR, "--task", "sentence_reset_lm", "--arch", "plain_lstm_lm", "--criterion", "lm_cross_entropy",
        "--decoder-embed-dim", 8, "--decoder-hidden-size", 8, "--batch-size", 16, "--optimizer", "sgd", "--lr", 0.1, "--cpu", *LOGGING,
        "--max-update", 2, "--save-dir", folder, "--store-ema",
    )  # fmt: skip
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def shuffled(data):
    """The same text with another dict.txt."""
    lines = (data / "bin" / "dict.txt").read_text().splitlines(keepends=True)
    (data / "shuffled.txt").write_text("".join(lines[::-1]))
    fairseq(
        "preprocess", "--only-source", "--srcdict", data / "shuffled.txt", "--testpref", data / "train.txt", "--destdir", data / "other"
    )
    return data / "other"


def changed(checkpoint, path, change):
    content = torch.load(checkpoint, weights_only=True)
    change(content)
    torch.save(content, path)
    return path


def evaluated(data, path, *options, check=False):
    return fairseq("eval-lm", data, *USER_DIR, "--path", path, "--cpu", *options, check=check)


def test_data_of_another_dictionary_is_refused_without_a_task_too(checkpoint, shuffled):
    expect_one_line(evaluated(shuffled, checkpoint), "trained with other words than the dict.txt in the data folder")


def test_a_checkpoint_of_before_is_taken(checkpoint, data, tmp_path):
    def older(content):
        del content["model"][FINGERPRINT]

    path = changed(checkpoint, tmp_path / "older.pt", older)
    evaluated(data / "bin", path, "--gen-subset", "valid", check=True)
    assert load_model(path, data / "bin" / "dict.txt").model


def test_numbers_of_another_dictionary_are_refused(checkpoint, shuffled, tmp_path):
    assert torch.load(checkpoint, weights_only=True)["model"][FINGERPRINT].dtype == torch.int64
    path = changed(checkpoint, tmp_path / "lm.pt", lambda content: content.pop("task_state", None))
    with pytest.raises(InputError, match="has other words than the model, or in another order"):
        load_model(path, shuffled / "dict.txt")


def test_averaged_numbers_are_the_same():
    numbers = torch.tensor(fingerprint_numbers(Vocabulary(["<s>", "<pad>", "</s>", "<unk>", "a"]).symbols))
    assert torch.equal(sum([numbers] * 7) // 7, numbers)


@pytest.mark.parametrize("value", [float("-inf"), float("nan")])
def test_weights_that_are_no_numbers_are_refused(checkpoint, data, tmp_path, value):
    def broken(content):
        content["model"]["decoder.model.output.bias"][5] = value

    path = changed(checkpoint, tmp_path / "broken.pt", broken)
    expect_one_line(evaluated(data / "bin", path, "--gen-subset", "valid"), "its weights are no finite numbers")


def test_an_impossible_word_is_not_left_out(checkpoint, data, tmp_path):
    """float32 ends before ln p of this word."""

    def extreme(content):
        bias = content["model"]["decoder.model.output.bias"]
        bias[5], bias[6] = -3e38, 3e38

    path = changed(checkpoint, tmp_path / "extreme.pt", extreme)
    expect_one_line(
        evaluated(data / "bin", path, "--gen-subset", "valid", "--task", "sentence_reset_lm"), "the probability 0: a perplexity"
    )
