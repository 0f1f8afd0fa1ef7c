"""Terms of the loss that a model cannot have are refused when the criterion is built, before the data are read."""

from __future__ import annotations

import pytest
import torch
from fairseq import options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_runs import ROOT

from attlm_fairseq.errors import InputError
from attlm_fairseq.plugin import register

register()


def build_criterion(folder, *given: str) -> torch.nn.Module:
    (folder / "dict.txt").write_text("".join(f"w{number} 1\n" for number in range(20)))
    words = [
        str(folder), "--user-dir", str(ROOT / "attlm_fairseq"), "--task", "sentence_reset_lm", "--criterion", "lm_cross_entropy",
        "--decoder-embed-dim", "8", "--decoder-hidden-size", "8", "--output-bias", "zero", "--optimizer", "sgd", "--cpu",
    ]  # fmt: skip
    args = options.parse_args_and_arch(options.get_training_parser(), [*words, *given])
    config = convert_namespace_to_omegaconf(args)
    task = tasks.setup_task(config.task)
    task.build_model(config.model)
    before = torch.get_rng_state()
    criterion = task.build_criterion(config.criterion)
    assert torch.equal(torch.get_rng_state(), before), "the training draws the same as without the trial"
    return criterion


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--arch", "plain_lstm_lm", "--mixture-balance", "0.1"], "--mixture-balance"),
        (["--arch", "plain_lstm_lm", "--softmaxes", "3", "--self-normalisation", "0.1"], "--self-normalisation"),
        (
            ["--arch", "plain_lstm_lm", "--output-layer", "adaptive", "--adaptive-cutoffs", "9", "--adversarial-softmax", "0.1"],
            "AdvSoft and self-normalisation are terms of a full softmax",
        ),
        (["--arch", "plain_lstm_lm", "--attention-entropy", "0.1"], "--attention-entropy needs a memory reader with attention weights"),
        (["--arch", "averaging_lstm_lm", "--attention-entropy", "0.1"], "--attention-entropy has no effect on this model"),
    ],
)
def test_terms_that_the_model_cannot_have(tmp_path, given, message):
    with pytest.raises(InputError, match=message):
        build_criterion(tmp_path, *given)


@pytest.mark.parametrize(
    "given",
    [
        ["--arch", "attentive_lstm_lm", "--attention-entropy", "0.1", "--activation-reg", "2", "--temporal-activation-reg", "1"],
        ["--arch", "attentive_lstm_lm", "--attention-score", "combined", "--attention-skip", "3", "--attention-entropy", "0.1"],
        ["--arch", "plain_lstm_lm", "--adversarial-softmax", "0.1", "--self-normalisation", "0.1"],
        ["--arch", "plain_lstm_lm", "--softmaxes", "3", "--mixture-balance", "0.1"],
        ["--arch", "pointer_lstm_lm", "--output-layer", "untied", "--attention-entropy", "0.1"],
        ["--arch", "plain_lstm_lm", "--init-layers", "torch", "--criterion", "cross_entropy"],
    ],
)
def test_terms_that_it_can_have(tmp_path, given):
    assert build_criterion(tmp_path, *given)
