"""Mixtures of softmaxes (MoS) and direct output connections (DOC): equations, scoring, decoding and refusals."""

from __future__ import annotations

import pytest
import reference
import torch
from small_models import POINTERS, SIZE, VARIANTS, V, make_model, reference_log_probs, sentences, set_limits

from attlm_fairseq.checkpoints.vocabulary import PAD
from attlm_fairseq.modules.kernels import low_precision
from attlm_fairseq.modules.kernels.limits import Widths
from attlm_fairseq.modules.kernels.linear_nll import PLAIN_LOSS, LossTerms, linear_loss
from attlm_fairseq.modules.kernels.low_precision_steps import stepping_model
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.output import AdaptiveOutput, Mixture, Softmax, parse_softmaxes
from attlm_fairseq.scoring.neural.scoring_models import Bfloat16Model, Float32Model

MIXTURES = {
    **{f"{variant}, MoS": (variant, {"softmaxes": "3", "output_layer": "tied"}) for variant in VARIANTS if variant not in POINTERS},
    "plain, two softmaxes": ("plain", {"softmaxes": "2", "output_layer": "tied"}),
    "plain, DOC of three layers": ("plain", {"softmaxes": "2,1,3", "output_layer": "untied", "decoder_layers": 3}),
    **{
        f"{variant}, DOC": (variant, {"softmaxes": "2,3", "output_layer": "untied"})
        for variant in (
            "plain",
            "rnn",
            "HORNN fofe",
            "LSTMN",
            "Mogrifier",
            "RWA",
            "single",
            "averaging",
            "selection tied",
            "key-value-predict",
            "3-gram",
        )
    },
}
DOC = ("plain", {"softmaxes": "2,0,1,1", "decoder_layers": 4})


@pytest.fixture(params=MIXTURES)
def mixture(request) -> tuple[str, dict]:
    return MIXTURES[request.param]


def gradients_of(model: LanguageModel, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.requires_grad}


def assert_gradients(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-7, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


def test_values_and_gradients_are_those_of_the_equations(mixture, monkeypatch):
    """The loss in pieces of two predictions, the distributions, and the loop."""
    variant, options = mixture
    set_limits(monkeypatch, logits=2 * 5 * V)
    model, tokens = make_model(variant, **options), sentences(count=2, longest=9)
    targets = tokens.roll(-1, dims=1)
    expected = torch.stack([reference_log_probs(model, sentence.tolist(), variant)[0] for sentence in tokens])
    of_targets = expected.gather(2, targets.unsqueeze(2))
    wanted = gradients_of(model, -of_targets.sum())
    log_probs = model(tokens)[0]
    torch.testing.assert_close(log_probs, expected, rtol=0, atol=1e-10)
    assert_gradients(gradients_of(model, -log_probs.gather(2, targets.unsqueeze(2)).sum()), wanted)
    loss = model.output.nll(model.extract_features(tokens)[0].flatten(0, 1), targets.flatten())
    torch.testing.assert_close(loss, -of_targets.sum(), rtol=0, atol=1e-10)
    assert_gradients(gradients_of(model, loss), wanted)
    torch.testing.assert_close(model.output.log_probs_of(model.extract_features(tokens)[0][0], targets[0]), of_targets[0, :, 0])


def test_the_matrix_can_be_tied_whatever_the_size_of_the_features(mixture):
    variant, options = mixture
    model = make_model(variant, **{**options, "output_layer": "tied"})
    assert model.tied
    assert model.output.weight is model.embedding.weight


@torch.no_grad()
def test_steps_and_pieces_are_the_full_pass(mixture):
    variant, options = mixture
    model, tokens = make_model(variant, **options), sentences(count=3, longest=8)
    full, _ = model(tokens)
    state = model.initial_state(3)
    features, _, state = model.read(tokens[:, :3], state)
    torch.testing.assert_close(model.output(features), full[:, :3], rtol=0, atol=1e-10)
    for t in range(3, 8):
        logits, state = model.step(tokens[:, t], state)
        torch.testing.assert_close(logits, full[:, t], rtol=0, atol=1e-10)


@pytest.mark.parametrize("precision", ["float32", "bfloat16 that rounds nothing"])
@torch.inference_mode()
def test_events_are_the_log_probabilities(mixture, precision, monkeypatch):
    """Few contexts and words at a time; features of rows of a prefix tree as of whole sentences."""
    variant, options = mixture
    monkeypatch.setattr(low_precision, "DTYPE", torch.float32)
    set_limits(monkeypatch, softmax=Widths(3, 7, 7), rounded_softmax=Widths(3, 7, 2), event_numbers=60)
    model, tokens = make_model(variant, torch.float32, **options), sentences(count=2, longest=4)
    scoring = (Float32Model if precision == "float32" else Bfloat16Model)(model)
    expected, _ = model(tokens)
    words, state, found = scoring.inputs(torch.arange(V)), scoring.initial_state(1), []
    rows = torch.tensor([0, 0])
    for places in tokens.unbind(1):
        features, _, state = scoring.step_rows(words, places, state, rows)
        found.append(features)
        rows = torch.tensor([0, 1])
    features = torch.cat(found)
    assert features.size(1) == model.feature_size
    contexts, everything = torch.arange(8).repeat_interleave(V).flip(0), torch.arange(V).repeat(8).flip(0)
    values = scoring.events(features, contexts, everything)
    torch.testing.assert_close(values.flip(0).view(4, 2, V), expected.transpose(0, 1), rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_lower_precisions_stay_near():
    model, tokens = make_model(DOC[0], torch.float32, **DOC[1]), sentences()
    exact, _ = model(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        near = model(tokens)[0].float()
    assert 1e-6 < (exact - near).abs().mean() < 0.05
    for precision, most in (("bfloat16", 0.05), ("int8", 0.3)):
        stepping, state = stepping_model(model, precision), model.initial_state(len(tokens))
        for token in tokens[:, :4].unbind(1):
            features, read, state = stepping.step_features(stepping.inputs(token), state)
        log_probs = stepping.output.log_probs(features, read)
        torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(len(tokens)), rtol=0, atol=1e-5)
        assert 1e-6 < (log_probs - exact[:, 3]).abs().mean() < most


def test_the_loss_in_bfloat16_is_near():
    """Values, and the directions of the gradients."""
    model, tokens = make_model(DOC[0], torch.float32, **DOC[1]), sentences()
    outcomes = []
    for low in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            loss = model.output.nll(model.extract_features(tokens)[0].flatten(0, 1), tokens.roll(-1, 1).flatten())
        outcomes.append((loss.item(), gradients_of(model, loss)))
    assert outcomes[0][0] == pytest.approx(outcomes[1][0], rel=0.02)
    for name, gradient in outcomes[0][1].items():
        assert torch.cosine_similarity(gradient.flatten(), outcomes[1][1][name].flatten(), dim=0) > 0.97, name


def test_the_balance_of_the_softmaxes():
    model, tokens = make_model(DOC[0], **DOC[1]), sentences(count=2, longest=9)
    features = model.extract_features(tokens)[0].flatten(0, 1).detach()
    targets, output = tokens.flatten(), model.output
    found = output.loss(features, targets, None, LossTerms(balance=0.3))
    plain = output.loss(features, targets, None, PLAIN_LOSS)
    priors = torch.softmax(features[:, :SIZE] @ output.prior.weight.t(), dim=1)
    expected = plain.total + 0.3 * len(targets) * reference.squared_variation(priors)
    torch.testing.assert_close(found.total, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.nll, plain.total, rtol=0, atol=1e-10)
    pair = [torch.autograd.grad(total, output.prior.weight, retain_graph=True)[0] for total in (found.total, expected)]
    torch.testing.assert_close(*pair, rtol=0, atol=1e-10)
    empty = output.loss(features[:0], targets[:0], None, LossTerms(balance=0.3)).total
    assert empty.item() == 0


def test_advsoft_moves_the_target_in_every_softmax(monkeypatch):
    set_limits(monkeypatch, logits=4 * V)
    model, tokens = make_model("plain", softmaxes="3"), sentences(count=1, longest=7)
    features = model.extract_features(tokens)[0][0].detach()
    output, targets = model.output, tokens[0]
    found = output.loss(features, targets, None, LossTerms(adversarial=0.2))
    latents, log_priors = output.components(features)
    expected = 0
    for n, target in enumerate(targets.tolist()):
        of_parts = [reference.adversarial_softmax_nll(latents[n, k], output.weight, output.bias, target, 0.2) for k in range(3)]
        expected = expected - torch.stack([log_priors[n, k] - part for k, part in enumerate(of_parts)]).logsumexp(0)
    torch.testing.assert_close(found.total, expected, rtol=0, atol=1e-10)
    names = ["weight", "bias", "prior.weight", "latents.0.weight"]
    parameters = [dict(output.named_parameters())[name] for name in names]
    pairs = zip(names, *(torch.autograd.grad(total, parameters, retain_graph=True) for total in (found.total, expected)), strict=True)
    for name, own, loop in pairs:
        torch.testing.assert_close(own, loop, rtol=0, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")


def test_every_parameter_has_a_gradient_even_without_predictions():
    model, tokens = make_model(DOC[0], **DOC[1]), sentences(count=1, longest=3)
    features = model.extract_features(tokens)[0]
    found = gradients_of(model, model.output.nll(features[tokens == PAD], tokens[tokens == PAD]))
    assert all(gradient is not None and not gradient.any() for gradient in found.values())


def test_dropout_is_within_the_mixture_and_of_the_lower_layers_in_training_alone():
    options = {"softmaxes": "2,2", "dropout_latent": 0.5}
    model, tokens = make_model("plain", **options).train(), sentences()
    features = model.extract_features(tokens)[0].flatten(0, 1)
    losses = {model.output.nll(features, tokens.flatten()).item() for _ in range(3)}
    assert len(losses) == 3
    exact = make_model("plain", softmaxes="2,2")
    model.eval()
    assert torch.equal(model(tokens)[0], exact(tokens)[0])
    between = make_model("plain", softmaxes="2,2", dropout_between=0.5).train()
    lower = between.extract_features(tokens)[0][..., SIZE:]
    assert 0.4 < (lower == 0).double().mean() < 0.6


@pytest.mark.parametrize("locked", [False, True])
def test_locked_dropout_has_one_mask_for_all_positions_of_a_row(locked, monkeypatch):
    """Also in the loss, which gets the predictions that count without their places."""
    model, tokens = make_model("plain", softmaxes="2", dropout_latent=0.5, locked_dropout=locked).train(), sentences(3, 7)
    output, features = model.output, model.extract_features(tokens)[0]
    exact, _ = output.components(features)
    counted = torch.ones_like(tokens, dtype=torch.bool)
    counted[0, 4:] = counted[1] = counted[2, :2] = False
    given = []
    monkeypatch.setattr(f"{Mixture.__module__}.linear_loss", lambda z, *others: given.append(z) or linear_loss(z, *others))
    output.loss(features[counted], tokens[counted], None, PLAIN_LOSS, counted)
    in_loss, in_forward = (given[0].unflatten(0, (-1, 2)) / exact[counted]).round(), (output._dropped(exact) / exact).round()
    for first, second in ((in_loss[:4], in_loss[4:]), (in_forward[0], in_forward[1])):
        assert {*first.unique().tolist(), *second.unique().tolist()} == {0.0, 2.0}
        assert (len(first.unique(dim=0)) == len(second.unique(dim=0)) == 1) is locked
        assert not torch.equal(first[0], second[0])


def test_dropout_within_the_mixture_is_for_every_criterion():
    """fairseq's own criteria get the log-probabilities, not the loss."""
    model, tokens = make_model("plain", softmaxes="2", dropout_latent=0.5).train(), sentences(3, 7)
    assert not torch.equal(model(tokens)[0], model(tokens)[0])
    model.eval()
    assert torch.equal(model(tokens)[0], model(tokens)[0])


def test_temperature_divides_the_logits_of_every_softmax():
    model, tokens = make_model("plain", softmaxes="3"), sentences(count=1, longest=5)
    features = model.extract_features(tokens)[0]
    before = model.output(features)
    cooled = model.output.with_temperature(0.5).log_probs(features)
    latents, log_priors = model.output.components(features)
    of_parts = torch.log_softmax((latents @ model.output.weight.t() + model.output.bias) / 0.5, dim=-1)
    torch.testing.assert_close(cooled, (of_parts + log_priors.unsqueeze(-1)).logsumexp(-2))
    assert torch.equal(model.output(features), before)


def test_biases_begin_with_the_frequencies():
    model = make_model("single", softmaxes="2,1")
    model.initialise(0.05)
    counts = torch.arange(V) ** 2
    model.init_output_bias(counts)
    expected = counts.double().clamp(min=0.5) / counts.double().clamp(min=0.5).sum()
    torch.testing.assert_close(model.output.log_probs(torch.zeros(1, 2 * SIZE, dtype=torch.float64))[0].exp(), expected)


def test_which_numbers_make_which_layer():
    assert type(make_model("plain", softmaxes="1").output) is Softmax
    assert type(make_model("plain", softmaxes="1,0").output) is Softmax
    model = make_model(DOC[0], **DOC[1])
    assert type(model.output) is Mixture
    assert model.recurrence.below == (1, 0)
    assert model.feature_size == 3 * SIZE
    assert model.output.prior.weight.shape == (4, SIZE)
    assert parse_softmaxes("15, 5", 3) == (15, 5)


@pytest.mark.parametrize(
    ("variant", "options", "message"),
    [
        ("plain", {"softmaxes": "x"}, "expected a whole number"),
        ("plain", {"softmaxes": "0"}, "at least 1"),
        ("plain", {"softmaxes": "-1"}, "expected a whole number"),
        ("plain", {"softmaxes": ""}, "expected a whole number"),
        ("plain", {"softmaxes": "1,1,1"}, "is for 3 layers, the model has 2"),
        ("plain", {"softmaxes": "2", "output_layer": "adaptive", "adaptive_cutoffs": "5"}, "mixture of adaptive output layers"),
        ("plain", {"softmaxes": "2", "dropout_latent": 2.0}, "expected a probability"),
    ],
)
def test_refusals(variant, options, message):
    with pytest.raises(ValueError, match=message):
        make_model(variant, **options)


def test_terms_of_other_layers_are_refused():
    features, targets = torch.zeros(2, SIZE), torch.zeros(2, dtype=torch.int64)
    mixture = Mixture([SIZE], [2], SIZE, V)
    with pytest.raises(ValueError, match="term of a single softmax"):
        mixture.loss(features, targets, None, LossTerms(self_normalisation=0.1))
    for layer in (Softmax(SIZE, V), AdaptiveOutput(SIZE, V, [5])):
        with pytest.raises(ValueError, match="mixtures of softmaxes"):
            layer.loss(features, targets, None, LossTerms(balance=0.1))
