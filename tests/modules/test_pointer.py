"""The pointer sentinel mixture: its losses, its events in prefix trees, documents and refusals."""

from __future__ import annotations

import math

import pytest
import torch
from lm_files import write_checkpoint
from small_models import SIZE, V, make_model, nll_of, reference_pointer, sentences, set_limits

from attlm_fairseq.checkpoints.vocabulary import EOS
from attlm_fairseq.modules.kernels.linear_nll import PLAIN_LOSS, LossTerms
from attlm_fairseq.modules.kernels.low_precision_steps import stepping_model
from attlm_fairseq.modules.memory import Read
from attlm_fairseq.modules.output.pointer import PointerSoftmax
from attlm_fairseq.scoring.neural.neural_scorer import NeuralScorer

WORDS = [f"w{number}" for number in range(12)]


def gradients_of(model: torch.nn.Module, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize("auxiliary", [0.0, 1.0, 0.3])
def test_the_loss_in_training_has_the_auxiliary_term(auxiliary, monkeypatch):
    """Against the loop, values and gradients, in pieces of two predictions; in evaluation and ``nll`` the term is left out."""
    set_limits(monkeypatch, logits=2 * V)
    model, tokens = make_model("pointer", pointer_loss=auxiliary), sentences(count=1, longest=11)
    targets = tokens.roll(-2, dims=1)  # some of them in the window
    targets[0, :4] = tokens[0, :4]
    log_probs, alpha, gates = reference_pointer(model, tokens[0].tolist())
    plain = -log_probs.gather(1, targets.t()).sum()
    total = plain
    for t, (a, g) in enumerate(zip(alpha, gates, strict=True)):
        words = tokens[0, t + 1 - len(a) : t + 1].tolist()
        pointed = [weight for weight, word in zip(a, words, strict=True) if word == targets[0, t]]
        total = total - auxiliary * torch.log(g + sum(pointed))
    wanted = gradients_of(model, total)
    for training, expected in ((True, total), (False, plain)):
        model.train(training)
        features, read = model.extract_features(tokens)
        found = model.output.loss(features[0], targets[0], read.at(tokens > 0), PLAIN_LOSS)
        torch.testing.assert_close(found.total, expected, rtol=0, atol=1e-10)
        torch.testing.assert_close(found.nll, plain.detach(), rtol=0, atol=1e-10)
        torch.testing.assert_close(nll_of(model, features, read, targets, tokens > 0), plain, rtol=0, atol=1e-10)
        if training:
            for name, gradient in gradients_of(model, found.total).items():
                torch.testing.assert_close(gradient, wanted[name], rtol=1e-7, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


def test_self_normalisation_is_of_the_softmax():
    model, tokens = make_model("pointer"), sentences(count=1, longest=6)
    features, read = model.extract_features(tokens)
    read = read.at(tokens > 0)
    found = model.output.loss(features[0], tokens[0], read, LossTerms(self_normalisation=0.2))
    norms = (features[0] @ model.output.weight.t() + model.output.bias).logsumexp(1)
    expected = model.output.nll(features[0], tokens[0], read) + 0.2 * norms.square().sum()
    torch.testing.assert_close(found.total, expected)
    pair = [torch.autograd.grad(total, model.output.weight, retain_graph=True)[0] for total in (found.total, expected)]
    torch.testing.assert_close(*pair)
    torch.testing.assert_close(found.log_normaliser, norms.sum().detach())


def test_it_is_a_distribution_over_the_softmax_and_the_words_of_the_window():
    model, tokens = make_model("pointer", pointer_window=3), sentences(count=2, longest=9)
    log_probs, _ = model(tokens)
    torch.testing.assert_close(log_probs.exp().sum(2), torch.ones(2, 9, dtype=torch.float64))
    features, read = model.extract_features(tokens)
    softmax = torch.log_softmax(features @ model.output.weight.t() + model.output.bias, dim=2) + read.log_gate.unsqueeze(2)
    pointed = (log_probs - softmax).abs() > 1e-12
    for row in range(2):
        for t in range(9):
            assert set(pointed[row, t].nonzero().flatten().tolist()) == set(tokens[row, max(0, t - 2) : t + 1].tolist())


def test_a_gate_that_is_almost_shut_and_words_that_nothing_points_at():
    """Probabilities below float32's smallest number have finite logarithms and gradients."""
    output = PointerSoftmax(SIZE, V, 1.0).train()
    features = torch.randn(2, SIZE, requires_grad=True)
    weights = torch.tensor([[1.0, 0.0], [0.0, 0.0]], requires_grad=True)
    log_gate = torch.tensor([-200.0, 0.0], requires_grad=True)
    read = Read(weights, torch.tensor([[5, 6], [5, 6]]), log_gate)
    log_probs = output.log_probs(features, read)
    assert log_probs[0, 5] == 0
    assert -220 < log_probs[0, 7] < -195
    loss = output.loss(features, torch.tensor([7, 5]), read, PLAIN_LOSS).total
    (loss - log_probs.sum()).backward()
    assert all(part.grad.isfinite().all() for part in (features, weights, log_gate, *output.parameters()))


@torch.inference_mode()
def test_steps_of_lower_precision_point_too():
    model, tokens = make_model("pointer", torch.float32), sentences()
    exact, _ = model(tokens)
    for precision, most in (("bfloat16", 0.05), ("int8", 0.3)):
        stepping, state = stepping_model(model, precision), model.initial_state(len(tokens))
        for token in tokens[:, :6].unbind(1):
            features, read, state = stepping.step_features(stepping.inputs(token), state)
        log_probs = stepping.output.log_probs(features, read)
        torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(len(tokens)), rtol=0, atol=1e-5)
        assert 1e-6 < (log_probs - exact[:, 5]).abs().mean() < most


@torch.inference_mode()
def test_after_a_history_it_points_at_words_of_earlier_sentences(tmp_path):
    """In a prefix tree, whose nodes have windows of unlike lengths, as in one sequence."""
    scorer = NeuralScorer.load([write_checkpoint(tmp_path / "lm.pt", WORDS, _name="pointer_lstm_lm", pointer_window=4)])
    history = [["w7", "w3"], ["w5"]]
    texts = [[], ["w7"], ["w7", "w5", "w5", "w1", "w2"], ["w3", "unheard-of"], ["w3", "w5"]]
    before = [token for words in history for token in (EOS, *scorer.vocabulary.ids(words))]
    for scores, first in ((scorer.after(history).score(texts), before), (scorer.score(texts), [])):
        for words, score in zip(texts, scores, strict=True):
            ids = [*first, EOS, *scorer.vocabulary.ids(words)]
            log_probs = scorer.models[0].model(torch.tensor([ids]))[0][0, len(first) :]
            expected = log_probs[range(len(words) + 1), [*ids[len(first) + 1 :], EOS]].tolist()
            assert score.log_probs == pytest.approx(expected, abs=1e-5)
    assert scorer.tree_memory.node > 4 * (2 * 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pointer_window": 0}, "at least 1, not 0"),
        ({"pointer_window": 2.5}, "at least 1, not 2.5"),
        ({"pointer_loss": -1.0}, "expected a number, 0 or above"),
        ({"pointer_loss": math.nan}, "expected a number, 0 or above"),
        ({"softmaxes": "2"}, "a pointer needs one full softmax"),
        ({"output_layer": "adaptive", "adaptive_cutoffs": "5"}, "a pointer needs one full softmax"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(ValueError, match=message):
        make_model("pointer", **options)


def test_without_a_read_there_is_nothing_to_point_at():
    with pytest.raises(ValueError, match="what its reader has read"):
        PointerSoftmax(SIZE, V, 1.0).log_probs(torch.zeros(1, SIZE))
