"""What training leaves out and adds to the loss, against the reference loops with the same masks."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import reference
import torch
from small_models import (
    SIZE,
    VARIANTS,
    WITHOUT_MEMORY,
    V,
    layers_of,
    make_model,
    reference_features,
    reference_outputs,
    sentences,
    set_limits,
)
from torch import Tensor

from attlm_fairseq.criterions.lm_cross_entropy import activation, temporal_activation
from attlm_fairseq.modules import regularisation
from attlm_fairseq.modules.families import FAMILIES
from attlm_fairseq.modules.kernels.linear_nll import PLAIN_LOSS, LossTerms, linear_loss
from attlm_fairseq.modules.output.adaptive import AdaptiveOutput
from attlm_fairseq.modules.regularisation import NOTHING_LEFT_OUT, Regularisation

AWD = {
    "dropout_in": 0.4,
    "dropout_between": 0.25,
    "dropout_out": 0.4,
    "dropout_words": 0.2,
    "weight_drop": 0.5,
    "locked_dropout": True,
}


@pytest.fixture
def masks(monkeypatch) -> list[Tensor]:
    """The factors of all dropouts, in their order."""
    drawn: list[Tensor] = []

    def dropout(values: Tensor, probability: float, training: bool) -> Tensor:
        if not training or not probability:
            return values
        drawn.append((torch.rand(values.shape, dtype=values.dtype) >= probability) / (1 - probability))
        return values * drawn[-1]

    monkeypatch.setattr(regularisation, "dropout", dropout)
    return drawn


def masked_layers(cells: torch.nn.Module, drawn: list[Tensor], row: int) -> list[dict[str, Tensor]]:
    """The weights of each layer for the reference loops, multiplied by the masks, which are taken from the front of ``drawn``."""
    layers = []
    for number, weights in enumerate(layers_of(cells)):
        mask = {"mask": drawn.pop(0)[row, 0]} if number else {}
        recurrent = [name for kind in ("from_states", "gate_states") for name in weights if name.startswith(kind)] or ["W_h"]
        layers.append({**weights, **{name: weights[name] * drawn.pop(0) for name in recurrent}, **mask})
    return layers


def masked_reader(reader: torch.nn.Module, drawn: list[Tensor]) -> torch.nn.Module | SimpleNamespace:
    """The reader for the reference loops; a second LSTM's recurrent matrix is multiplied by the mask that is left in ``drawn``."""
    parts = dict(reader.named_children())
    if "second" not in parts:
        return reader
    second = parts["second"]
    recurrent = SimpleNamespace(weight=second.from_state.weight * drawn.pop(0))
    return SimpleNamespace(**{**parts, "second": SimpleNamespace(from_input=second.from_input, from_state=recurrent)})


ONE_OF_EACH_RECURRENCE: dict[type, str] = {}
for variant, (family, _) in VARIANTS.items():
    if family in WITHOUT_MEMORY:
        ONE_OF_EACH_RECURRENCE.setdefault(FAMILIES[family].recurrence, variant)


@pytest.mark.parametrize(
    "variant",
    [*ONE_OF_EACH_RECURRENCE.values(), "HORNN gated", "single", "averaging", "2-gram", "RM gated", "RMR"],
)
def test_the_equations_with_the_masks_that_were_drawn(variant, masks):
    """Whole words, the three places, recurrent matrices: values of all positions and gradients of all parameters."""
    model, tokens = make_model(variant, **AWD).train(), sentences(2, 7)
    loss = model.output.nll(model.extract_features(tokens)[0].flatten(0, 1), tokens.flatten())
    expected = torch.zeros((), dtype=torch.float64)
    for row, of_row in enumerate(tokens.tolist()):
        drawn = list(masks)
        of_words, of_inputs, of_features = drawn.pop(0), drawn.pop(0)[row, 0], drawn.pop()[row, 0]
        embedded = [model.embedding.weight[token] * of_words[token] * of_inputs for token in of_row]
        cells = model.recurrence
        layers = masked_layers(cells, drawn, row)
        reader = masked_reader(model.reader, drawn)
        assert not drawn
        h, _ = reference_outputs(cells, embedded, layers)
        features, _ = reference_features(h, of_row, reader, *VARIANTS[variant])
        log_probs = reference.next_token_log_probs([f * of_features for f in features], model.output.weight, model.output.bias)
        expected = expected - sum(log_probs[t][token] for t, token in enumerate(of_row))
    torch.testing.assert_close(loss, expected, rtol=0, atol=1e-10)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for found, wanted in zip(torch.autograd.grad(loss, trained), torch.autograd.grad(expected, trained), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("variant", ["plain", "rnn", "HORNN gated", "combined"])
def test_evaluation_leaves_out_nothing(variant):
    model, tokens = make_model(variant, **AWD), sentences()
    assert torch.equal(model(tokens)[0], make_model(variant)(tokens)[0])
    assert not torch.equal(model.train()(tokens)[0], model.eval()(tokens)[0])


@pytest.mark.parametrize("variant", ["plain", "rnn", "HORNN fofe"])
def test_reading_layer_by_layer_is_reading_all(variant):
    """What leaves out nothing and yet takes the way of a locked dropout: values, the state after, gradients."""
    results = []
    for options in ({}, {"locked_dropout": True}):
        model, tokens = make_model(variant, **options).train(), sentences(3, 9)
        outputs, _, _, after = model.outputs(tokens, model.initial_state(3))
        trained = [parameter for parameter in model.recurrence.parameters() if parameter.requires_grad]
        results.append([outputs, *after.recurrent, *torch.autograd.grad(outputs.square().sum() + after.recurrent[0].sum(), trained)])
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-12)


@torch.no_grad()
def test_a_mask_is_drawn_where_it_belongs():
    torch.manual_seed(2)
    values = torch.ones(4, 50, 30)
    locked = Regularisation(dropout_out=0.5, locked=True).drop(values, 0.5, True)
    assert torch.equal(locked, locked[:, :1].expand_as(locked)), "one mask for all positions"
    assert len({str(row[0].tolist()) for row in locked}) == 4, "a mask for each row"
    free = NOTHING_LEFT_OUT.drop(values, 0.5, True)
    assert not torch.equal(free, free[:, :1].expand_as(free))
    tokens = torch.arange(200).remainder(50).view(2, 100)
    embedded = Regularisation(dropout_words=0.5).drop_words(torch.ones(2, 100, 3), tokens, 50, True)
    for word in range(50):
        assert len(embedded[tokens == word].unique()) == 1, "all of a word or nothing"
    assert len(embedded.unique()) == 2


@torch.no_grad()
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_the_mean_over_masks_is_the_value(p):
    torch.manual_seed(1)
    one = Regularisation(dropout_words=p, weight_drop=p, locked=True)
    values, tokens = torch.rand(2, 3, 5) + 1, torch.tensor([[0, 1, 2], [2, 3, 4]])
    draws = 4000
    ways = [lambda: one.drop(values, p, True), lambda: one.drop_words(values, tokens, 5, True), lambda: one.drop_weights(values, True)]
    for leave_out in ways:
        mean = sum(leave_out() for _ in range(draws)) / draws
        error = (p / (1 - p) / draws) ** 0.5  # of the mean of a factor
        assert ((mean / values - 1).abs() < 5.5 * error).all()


def test_options_of_earlier_checkpoints_and_bad_ones():
    options = {"dropout": 0.3, "dropout_in": None, "dropout_between": 0.1, "dropout_out": None}
    assert Regularisation.from_config(options) == Regularisation(0.3, 0.1, 0.3, dropout_latent=0.3)
    for name, probability in (("weight_drop", 1.5), ("dropout_words", -0.1), ("dropout", 1.0), ("dropout_in", math.nan)):
        with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} {probability}: expected a probability below 1"):
            Regularisation.from_config({**options, name: probability})


def problem(count: int = 40) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(5)
    features, weight, bias = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((count, SIZE), (V, SIZE), (V,)))
    return features, weight, bias, torch.randint(V, (count,))


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@pytest.mark.parametrize("alpha", [0.0, 0.3])
def test_terms_of_the_softmax(monkeypatch, epsilon, alpha):
    """Loss and gradients, in several pieces; what is logged is free of the terms."""
    set_limits(monkeypatch, logits=7 * V)
    features, weight, bias, targets = problem()
    terms = LossTerms(epsilon, alpha)
    found = linear_loss(features, weight, bias, targets, terms)
    losses = []
    for h, target in zip(features, targets.tolist(), strict=True):
        nll = reference.adversarial_softmax_nll(h, weight, bias, target, epsilon)
        move = -epsilon * weight[target].norm() * h.norm() * (weight[target] @ h > 0)  # its value: the gradient takes delta for a constant
        delta = (-epsilon * weight[target].norm() * h / h.norm() * (weight[target] @ h > 0)).detach()
        moved = nll + weight[target] @ h + delta @ h + bias[target]  # ln Z
        torch.testing.assert_close(delta @ h, move)
        losses.append(nll + alpha * moved**2)
    torch.testing.assert_close(found.total, sum(losses), rtol=1e-12, atol=0)
    leaves = (features, weight, bias)
    for own, wanted in zip(torch.autograd.grad(found.total, leaves), torch.autograd.grad(sum(losses), leaves), strict=True):
        torch.testing.assert_close(own, wanted, rtol=0, atol=1e-11)
    norms = torch.logsumexp(features @ weight.t() + bias, dim=1)
    torch.testing.assert_close(found.nll, linear_loss(*problem(), PLAIN_LOSS).total, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.log_normaliser, norms.sum(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.squared_log_normaliser, norms.square().sum(), rtol=1e-12, atol=0)
    assert not any(each.requires_grad for each in found[1:])


def test_terms_of_the_softmax_in_bfloat16():
    features, weight, bias, targets = (part.detach().float() if part.is_floating_point() else part for part in problem(300))
    leaves = [part.requires_grad_() for part in (features, weight, bias)]
    exact = linear_loss(*leaves, targets, LossTerms(0.2, 0.3))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = linear_loss(*leaves, targets, LossTerms(0.2, 0.3))
    torch.testing.assert_close(near.total, exact.total, rtol=5e-3, atol=0)
    for own, wanted in zip(torch.autograd.grad(near.total, leaves), torch.autograd.grad(exact.total, leaves), strict=True):
        assert (own - wanted).norm() < 0.02 * wanted.norm()


def test_the_adaptive_softmax_has_no_such_terms():
    output = AdaptiveOutput(8, 20, [10])
    features, targets = torch.randn(5, 8), torch.arange(5)
    torch.testing.assert_close(output.loss(features, targets, None, PLAIN_LOSS).total, output.nll(features, targets))
    with pytest.raises(ValueError, match="not of the adaptive one"):
        output.loss(features, targets, None, LossTerms(self_normalisation=0.1))


def test_activation_terms():
    """Two rows of 5 and 3 positions; gradients too. They are N times the paper's terms, since the loss is a sum."""
    torch.manual_seed(4)
    features, states = (torch.randn(2, 5, 6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    counted = torch.arange(5) < torch.tensor([[5], [3]])
    found = 2.0 * activation(features, counted) + 1.5 * temporal_activation(states, counted)
    squares = [f for row, length in ((0, 5), (1, 3)) for f in features[row, :length]]
    changes = [pair for row, length in ((0, 5), (1, 3)) for pair in zip(states[row, : length - 1], states[row, 1:length], strict=True)]
    ar = sum((f * f).mean() for f in squares) / 8
    tar = sum(((after - before) ** 2).mean() for before, after in changes) / 6
    torch.testing.assert_close(found, (8 * (2.0 * ar + 1.5 * tar)).float(), rtol=1e-6, atol=0)
    one = activation(features[:1], counted[:1]) * 2.0 + temporal_activation(states[:1], counted[:1]) * 1.5
    expected = 5 * reference.activation_terms(list(features[0]), list(states[0]), 2.0, 1.5)
    torch.testing.assert_close(one, expected.float(), rtol=1e-6, atol=0)
    leaves = (features, states)
    for own, wanted in zip(torch.autograd.grad(one, leaves), torch.autograd.grad(expected, leaves), strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-5, atol=1e-8)
    alone = torch.ones(1, 1, dtype=torch.bool)
    assert temporal_activation(states[:1, :1], alone) == 0, "one position has no neighbour"
