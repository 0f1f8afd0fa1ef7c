"""Averages of the weights: their equations, when they begin, what is validated and saved, and resuming."""

from __future__ import annotations

import pytest
import torch
from fairseq_runs import LOGGING, ROOT, fairseq, logged
from torch import nn

from attlm_fairseq.tasks._averaging import WeightAverage

COMMON = ["--user-dir", ROOT / "attlm_fairseq", "--task", "document_reset_lm", "--arch", "awd_averaging", "--decoder-embed-dim", 8]
COMMON += ["--decoder-hidden-size", 8, "--bptt", 6, "--random-bptt", "--document-order", "rotated", "--criterion", "lm_cross_entropy"]
COMMON += ["--activation-reg", 2, "--temporal-activation-reg", 1, "--self-normalisation", 0.1, "--adversarial-softmax", 0.01]
COMMON += ["--optimizer", "sgd", "--lr", 1.0, "--clip-norm", 0.25, "--batch-size", 4, "--cpu", *LOGGING]


def trained_steps(average: WeightAverage, count: int) -> tuple[nn.Module, list[torch.Tensor]]:
    torch.manual_seed(0)
    model, history = nn.Linear(3, 2), []
    for _ in range(count):
        with torch.no_grad():
            model.weight.add_(torch.randn(2, 3))
        average.add(model)
        history.append(model.weight.detach().double().clone())
    return model, history


def test_the_mean_since_the_trigger_and_the_exponential_average():
    average = WeightAverage("nt-asgd", 0.9, 5)
    average.triggered = True
    model, history = trained_steps(average, 7)
    average.put_in(model)
    torch.testing.assert_close(model.weight.double(), sum(history) / 7, rtol=1e-6, atol=1e-7)
    average.put_in(model)  # again: nothing happens
    average.take_out(model)
    assert torch.equal(model.weight.double(), history[-1])
    average = WeightAverage("ema", 0.4, 5)
    model, history = trained_steps(average, 7)
    expected = history[0]
    for update, weights in enumerate(history[1:], 2):
        kept = min(0.4, (1 + update) / (10 + update))
        expected = kept * expected + (1 - kept) * weights
    average.put_in(model)
    torch.testing.assert_close(model.weight.double(), expected, rtol=1e-6, atol=1e-7)


def test_the_trigger_is_not_monotone():
    """Above the best of all but the last three, the newest not among these."""
    average = WeightAverage("nt-asgd", 0.9, 3)
    perplexities = [100, 90, 95, 94, 93, 92, 91, 89, 89.5, 89.4, 89.3, 89.2]
    begins = [
        len(perplexities[:number]) > 3 and perplexity > min(perplexities[: number - 3]) for number, perplexity in enumerate(perplexities)
    ]
    first = begins.index(True)
    assert [average.judge(perplexity) for perplexity in perplexities[: first + 1]] == [False] * first + [True]
    assert not average.judge(1000), "once"
    assert not any(WeightAverage("none", 0.9, 3).judge(1.0) for _ in range(9))


def test_a_state_that_is_saved_and_loaded_goes_on():
    average = WeightAverage("ema", 0.9, 5)
    model, _ = trained_steps(average, 3)
    last = model.weight.detach().clone()
    average.put_in(model)
    resumed, other = WeightAverage("ema", 0.9, 5), nn.Linear(3, 2)
    resumed.load_state_dict(average.state_dict())
    other.load_state_dict(model.state_dict())
    resumed.take_out(other)
    assert torch.equal(other.weight, last)
    average.take_out(model)
    for each, of in ((average, model), (resumed, other)):
        each.add(of)
        each.put_in(of)
    assert torch.equal(model.weight, other.weight)


@pytest.mark.parametrize("kind", ["ema", "nt-asgd"])
def test_training_validates_and_saves_the_average_and_resumes(data, kind):
    """With all techniques at once: a run that was interrupted is the run that was not."""
    options = [*COMMON, "--average", kind, *(["--average-decay", 0.8] if kind == "ema" else ["--average-window", 1])]
    whole, part = data / f"whole {kind}", data / f"part {kind}"
    result = fairseq("train", data / "bin", *options, "--max-epoch", 6, "--save-dir", whole)
    assert kind == "ema" or "the weights are averaged from now on" in result.stdout
    fairseq("train", data / "bin", *options, "--max-epoch", 4, "--save-dir", part)
    fairseq("train", data / "bin", *options, "--max-epoch", 6, "--save-dir", part)
    saved = [torch.load(folder / "checkpoint_last.pt", weights_only=False) for folder in (whole, part)]
    for name, weights in saved[0]["model"].items():
        assert torch.equal(weights, saved[1]["model"][name]), name
    state = saved[0]["extra_state"]["DocumentResetLMTask"]["average"]
    own = {tuple(part.shape): part for part in state["own"]}
    embedding = saved[0]["model"]["decoder.model.embedding.weight"]
    assert not torch.equal(own[tuple(embedding.shape)], embedding), "the model has the average, the state what it was made of"
    valid = fairseq(
        "validate", data / "bin", *COMMON[:4], "--bptt", 6, "--batch-size", 4, "--path", whole / "checkpoint_last.pt", "--cpu", *LOGGING
    )
    assert float(logged(valid, "valid")[-1]["valid_ppl"]) == pytest.approx(float(logged(result, "valid")[-1]["valid_ppl"]), rel=1e-3)
    assert "valid_log_normaliser_variance" in logged(result, "valid")[-1]
