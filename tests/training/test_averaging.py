"""Averages of the weights: their equations, when they begin, what is validated and saved, and resuming."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.fp16_optimizer import FP16Optimizer
from fairseq_runs import LOGGING, ROOT, fairseq, logged
from torch import nn

from attlm_fairseq.tasks import _averaging
from attlm_fairseq.tasks._averaging import WeightAverage, copy_to_masters

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
    average = WeightAverage("asgd", 0.9, 5)
    model, history = trained_steps(average, 4)
    average.put_in(model)
    torch.testing.assert_close(model.weight.double(), sum(history) / 4, rtol=1e-6, atol=1e-7)
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
    average = WeightAverage("nt-asgd", 0.9, 3)
    assert not any(average.judge(1.0) for _ in range(9)), "not above the best"


@pytest.mark.parametrize("kind", ["ema", "asgd", "nt-asgd"])
def test_a_state_that_is_saved_and_loaded_goes_on(kind):
    average = WeightAverage(kind, 0.9, 5)
    average.triggered = True
    model, _ = trained_steps(average, 3)
    last = model.weight.detach().clone()
    average.put_in(model)
    resumed, other = WeightAverage(kind, 0.9, 5), nn.Linear(3, 2)
    resumed.load_state_dict(average.state_dict())
    other.load_state_dict(model.state_dict())
    resumed.take_out(other)
    assert torch.equal(other.weight, last)
    average.take_out(model)
    for each, of in ((average, model), (resumed, other)):
        each.add(of)
        each.put_in(of)
    assert torch.equal(model.weight, other.weight)


@pytest.mark.parametrize(("before", "after"), [("ema", "nt-asgd"), ("nt-asgd", "ema"), ("ema", "none"), ("nt-asgd", "asgd")])
def test_another_kind_goes_on_from_the_latest_weights_without_the_average(before, after, caplog):
    average = WeightAverage(before, 0.9, 5)
    average.triggered = True
    model, history = trained_steps(average, 3)
    average.put_in(model)
    resumed = WeightAverage(after, 0.9, 5)
    with caplog.at_level(logging.INFO, logger=_averaging.logger.name):
        resumed.load_state_dict(average.state_dict())
    assert f"not of --average {after}: training goes on from the latest weights" in caplog.text
    resumed.put_in(model)  # there is nothing to put in
    resumed.take_out(model)
    assert torch.equal(model.weight.double(), history[-1])
    assert resumed.triggered == (after in ("ema", "asgd")), "NT-ASGD waits for its trigger"
    resumed.add(model)
    assert resumed.updates == resumed.triggered
    resumed.put_in(model)
    assert torch.equal(model.weight.double(), history[-1])


def test_a_state_of_before_is_of_the_kind_that_is_given():
    average = WeightAverage("ema", 0.9, 5)
    trained_steps(average, 3)
    saved = average.state_dict()
    del saved["kind"]
    resumed, without = WeightAverage("ema", 0.9, 5), WeightAverage("none", 0.9, 5)
    for each in (resumed, without):
        each.load_state_dict(saved)
    assert resumed.updates == 3
    assert not without.average
    assert not without.triggered
    later = WeightAverage("asgd", 0.9, 5)
    later.load_state_dict({**saved, "triggered": False})
    assert later.triggered, "though the run of before waited for its trigger"


@pytest.mark.parametrize("flat", [False, True])
def test_fairseqs_float32_copies_begin_with_the_latest_weights(flat, monkeypatch):
    """With --bf16, as fairseq resumes: the copies are made of the loaded weights, which are the average."""
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)  # where there is none
    average = WeightAverage("ema", 0.9, 5)
    model, _ = trained_steps(average, 3)
    latest = model.weight.detach().clone()
    average.put_in(model)
    weights = list(model.to(torch.bfloat16).parameters())
    masters = FP16Optimizer.build_fp32_params(None, weights, flatten=flat)
    copies = list(masters.values()) if flat else masters
    options = SimpleNamespace(optimizer=None, common=SimpleNamespace(bf16=True, fp16_scale_window=1))
    optimizer = FP16Optimizer(options, weights, torch.optim.SGD(copies, lr=1.0), masters)
    resumed = WeightAverage("ema", 0.9, 5)
    resumed.load_state_dict(average.state_dict())
    resumed.take_out(model)
    copy_to_masters(optimizer)
    assert torch.equal(copies[0].flatten()[: latest.numel()], latest.to(torch.bfloat16).float().flatten())
    copy_to_masters(optimizer.fp32_optimizer)  # an optimizer without copies


def test_a_run_that_is_resumed_without_average_goes_on_from_its_latest_weights(data, tmp_path):
    """As the run that never averaged, which is the same but for the weights that it saves. Then with another kind."""
    none = (part for place in ("in", "between", "out", "words") for part in (f"--dropout-{place}", 0))
    one = [data / "bin", *COMMON, *none, "--weight-drop", 0]
    for name, options in {"never": [], "once": ["--average", "ema"]}.items():
        for end, given in ((2, options), (4, [])):
            fairseq("train", *one, *given, "--max-epoch", end, "--save-dir", tmp_path / name)
    saved = [torch.load(tmp_path / name / "checkpoint_last.pt", weights_only=False)["model"] for name in ("never", "once")]
    for name, weights in saved[0].items():
        assert torch.equal(weights, saved[1][name]), name


def test_a_run_goes_on_with_the_other_task(data, tmp_path):
    """From its latest weights, and with its average: at a rate of 0 the latest weights stay as they were."""
    folder = tmp_path / "both"
    of_documents = {"--task", "document_reset_lm", "--bptt", 6, "--random-bptt", "--document-order", "rotated"}
    sentences = ["--task", "sentence_reset_lm", *(part for part in COMMON if part not in of_documents)]
    for number, options in enumerate((COMMON, sentences, COMMON), 1):
        rate = [] if number == 1 else ["--lr", 0]
        fairseq("train", data / "bin", *options, *rate, "--average", "ema", "--max-epoch", number, "--save-dir", folder)
        extra = torch.load(folder / "checkpoint_last.pt", weights_only=False)["extra_state"]
        entry = extra["SentenceResetLMTask" if number == 2 else "DocumentResetLMTask"]["average"]
        if number == 1:
            first = entry
        else:
            assert entry["updates"] > first["updates"]
            torch.testing.assert_close(entry["own"], first["own"], rtol=0, atol=0)


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


def test_an_average_goes_on_without_the_state_of_the_data(data, tmp_path):
    """``--reset-dataloader``: from the latest weights, which stay as they were at a rate of 0, and with the average."""
    for number, options in enumerate(([], ["--reset-dataloader", "--lr", 0]), 1):
        fairseq("train", data / "bin", *COMMON, *options, "--average", "ema", "--max-epoch", 2, "--save-dir", tmp_path)
        saved = torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)["extra_state"]["DocumentResetLMTask"]["average"]
        if number == 1:
            first = saved
    assert saved["updates"] > first["updates"]
    torch.testing.assert_close(saved["own"], first["own"], rtol=0, atol=0)
