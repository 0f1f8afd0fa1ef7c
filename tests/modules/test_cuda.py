"""On a GPU, with TF32 off: values, gradients, scores and training agree with the CPU. `make gpu` runs these tests."""

from __future__ import annotations

import copy

import pytest
import torch
from fairseq_runs import LOGGING, ROOT, fairseq, logged, measured
from lm_files import write_checkpoint
from small_models import VARIANTS, make_model, sentences

from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.modules.kernels.linear_nll import LossTerms
from attlm_fairseq.scoring.compute import DeviceConfig
from attlm_fairseq.scoring.neural.dynamic_evaluation import read_sentence
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use")]


@pytest.fixture(autouse=True)
def full_float32(monkeypatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)


def on_both(variant: str, **options: object) -> tuple[torch.nn.Module, torch.nn.Module]:
    model = make_model(variant, torch.float32, size=12, **options)
    return model, copy.deepcopy(model).cuda()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("terms", [LossTerms(), LossTerms(0.1, 0.1)])
def test_loss_and_gradients(variant, terms):
    found = []
    for model in on_both(variant):
        tokens = sentences().to(model.embedding.weight.device)
        features, read = model.train().extract_features(tokens, model.output.needs_read)
        whole = torch.ones_like(tokens, dtype=torch.bool)
        loss = model.output.loss(features[whole], tokens[whole], read and read.at(whole), terms).total
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        found.append([part.cpu() for part in (loss, *torch.autograd.grad(loss, trained))])
    # those of a plain RNN grow from position to position, and with them what each device rounds
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-4 * max(10.0, float(one.abs().max())))


@pytest.mark.parametrize("variant", ["plain", "rnn", "HORNN gated", "combined"])
def test_what_is_left_out_stays_in_evaluation(variant):
    options = {"dropout_in": 0.4, "dropout_out": 0.4, "dropout_words": 0.2, "weight_drop": 0.5, "locked_dropout": True}
    model, other = on_both(variant, **options)
    torch.testing.assert_close(other(sentences().cuda())[0].cpu(), model(sentences())[0], rtol=1e-4, atol=1e-4)
    logits = other.train()(sentences().cuda())[0]
    logits.square().sum().backward()
    assert all(bool(weights.grad.isfinite().all()) for weights in other.parameters() if weights.requires_grad)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_of_dynamic_evaluation(variant):
    """In evaluation, in which cuDNN has no gradients."""
    read = [read_sentence(model.eval(), [4, 9, 5], model.initial_state(1)) for model in on_both(variant)]
    for name, gradient in read[0].gradients.items():
        torch.testing.assert_close(read[1].gradients[name].cpu(), gradient, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("low", [False, True])
def test_cuda_graphs_train_as_the_loop_does(low):
    """Segments of one length, with the state carried, and weights that change: the first one is not replayed."""
    found = []
    for recorded in (False, True):
        torch.manual_seed(1)
        model = make_model("Mogrifier, low rank", torch.float32, size=12, weight_drop=0.3, cuda_graphs=recorded).cuda().train()
        texts, state, losses = torch.randint(4, 12, (6, 3, 7), device="cuda"), model.initial_state(3), []
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for tokens in texts:
            with torch.autocast("cuda", torch.bfloat16, enabled=low):
                features, _, state = model.read(tokens, state.detach())
                losses.append(model.output.loss(features.flatten(0, 1), tokens.flatten(), None, LossTerms()).total)
            losses[-1].backward()
            optimizer.step()
            optimizer.zero_grad()
        found.append(torch.stack(losses).detach())
    torch.testing.assert_close(found[1], found[0], rtol=1e-2 if low else 1e-5, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_scores(family, tmp_path):
    path = write_checkpoint(tmp_path / "lm.pt", ["a", "b"], _name=family)
    texts = [["a", "b"], ["a"], [], ["b", "a", "b", "a"]]
    for precision, tolerance in (("float32", 1e-4), ("bfloat16", 0.2)):
        own = NeuralScorer.load([path]).score(texts)
        found = NeuralScorer.load([path], compute=DeviceConfig(device="cuda", precision=precision)).score(texts)
        for one, other in zip(own, found, strict=True):
            assert one.log_probs == pytest.approx(other.log_probs, abs=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "bf16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_training_validates_as_it_scores(data, family, dtype):
    folder = data / f"{family} {dtype} cuda"
    result = fairseq(
        "train", data / "bin", "--user-dir", ROOT / "attlm_fairseq", "--task", "sentence_reset_lm", "--arch", family, "--criterion",
        "lm_cross_entropy", "--compute-dtype", dtype, "--decoder-embed-dim", 12, "--decoder-hidden-size", 12, "--output-layer", "untied",
        "--optimizer", "adam", "--lr", 0.01, "--batch-size", 8, "--max-epoch", 2, "--save-dir", folder, *LOGGING,
    )  # fmt: skip
    validated = float(logged(result, "valid")[-1]["valid_ppl"])
    assert measured(data, folder / "checkpoint_last.pt").ppl == pytest.approx(validated, rel=2e-3 if dtype == "float32" else 0.05)


def test_fairseq_trains_with_cuda_graphs(data):
    """Its thread that reads batches ahead uses the GPU while layers are recorded. Without dropout the losses are those without graphs."""
    found = []
    for name, own in (("loop", []), ("graphs", ["--cuda-graphs"])):
        result = fairseq(
            "train", data / "bin", "--user-dir", ROOT / "attlm_fairseq", "--task", "document_reset_lm", "--arch", "mogrifier_lstm_lm",
            "--criterion", "lm_cross_entropy", "--decoder-embed-dim", 12, "--decoder-hidden-size", 12, "--dropout", 0, "--bptt", 5,
            "--batch-size", 4, "--optimizer", "adam", "--lr", 0.01, "--max-epoch", 3, "--save-dir", data / name, *own, *LOGGING[:-2],
        )  # fmt: skip
        found.append([float(line["valid_loss"]) for line in logged(result, "valid")])
    assert found[1] == pytest.approx(found[0], rel=1e-3)


@pytest.mark.several_gpus
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two GPUs")
def test_two_gpus_have_the_loss_of_one(data):
    options = [
        "--user-dir", ROOT / "attlm_fairseq", "--task", "sentence_reset_lm", "--arch", "attentive_lstm_lm",
        "--criterion", "lm_cross_entropy", "--decoder-embed-dim", 12, "--decoder-hidden-size", 12, "--dropout", 0,
        "--optimizer", "sgd", "--lr", 0.1, "--max-epoch", 2, *LOGGING,
    ]  # fmt: skip
    found = []
    for name, own in (("one", ["--batch-size", 8, "--update-freq", 2]), ("two", ["--batch-size", 8, "--distributed-world-size", 2])):
        result = fairseq("train", data / "bin", *options, *own, "--save-dir", data / f"{name} GPUs")
        found.append([float(line["valid_loss"]) for line in logged(result, "valid")])
    assert found[0] == pytest.approx(found[1], rel=1e-3)
