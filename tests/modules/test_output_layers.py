"""The contract of output layers, for every ``--output-layer``: all ways to score words give one distribution."""

from __future__ import annotations

import pytest
import torch
from small_models import SIZE, V, make_model
from torch import Tensor, nn
from torch.nn.functional import normalize

from attlm_fairseq.modules.kernels.linear_nll import PLAIN_LOSS, LossTerms
from attlm_fairseq.modules.kernels.low_precision import Bfloat16Linear, with_bfloat16_products
from attlm_fairseq.modules.kernels.low_precision_steps import with_changed_children
from attlm_fairseq.modules.output import OUTPUT_LAYERS, OutputKind, TransformedSoftmax
from attlm_fairseq.modules.output.softmax import Softmax


class Cosine(TransformedSoftmax):
    """Of another package: ``softmax(s cos(W, f) + b)`` with a learned s."""

    def __init__(self, feature_size: int, vocabulary_size: int, start: float) -> None:
        super().__init__(feature_size, vocabulary_size)
        self.start, self.scale = start, nn.Parameter(torch.tensor([start]))

    def initialise_biases(self) -> None:
        self.scale.fill_(self.start)

    def vectors(self, features):
        return self.scale * normalize(features, dim=-1)

    def matrix(self):
        return normalize(self.weight, dim=-1, eps=1e-3), self.bias


class Bottleneck(TransformedSoftmax):
    """Of another package: ``softmax(W tanh(P f) + b)`` with small words' vectors."""

    def __init__(self, feature_size: int, vocabulary_size: int) -> None:
        super().__init__(4, vocabulary_size)
        self.projection = nn.Linear(feature_size, 4, bias=False)

    def vectors(self, features):
        return torch.tanh(self.projection(features))


OWN = {
    "test cosine": OutputKind(
        lambda size, words, options: Cosine(size, words, options.of_model["cosine_scale"]), True, defaults={"cosine_scale": 8.0}
    ),
    "test bottleneck": OutputKind(lambda size, words, options: Bottleneck(size, words)),
}
OF_REGISTRY = tuple({**OUTPUT_LAYERS, **OWN})  # with those of packages that were imported before
KINDS = {
    **{kind: {"output_layer": kind, "adaptive_cutoffs": "5"} for kind in OF_REGISTRY},
    "mixture": {"output_layer": "tied", "softmaxes": "3"},
}


@pytest.fixture(autouse=True)
def of_other_packages(monkeypatch):
    for kind, built in OWN.items():
        monkeypatch.setitem(OUTPUT_LAYERS, kind, built)


class FixedLinear(nn.Module):
    """What ``steps`` gets in place of a layer of lower precision."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, features: Tensor) -> Tensor:
        return nn.functional.linear(features, self.weight, self.bias)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_all_ways_to_score_words_agree(kind):
    output = make_model("plain", **KINDS[kind]).output.eval()
    features, words = torch.randn(4, SIZE, dtype=torch.float64), torch.tensor([3, 18, 7, 7])
    expected = torch.log_softmax(output(features), dim=-1)
    of_words = expected.gather(1, words.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(expected.exp().sum(dim=1), torch.ones(4, dtype=torch.float64))
    for found, wanted in (
        (output.log_probs(features), expected),
        (output.log_probs_of(features, words), of_words),
        (output.nll(features, words), -of_words.sum()),
        (output.loss(features, words, None, PLAIN_LOSS).total, -of_words.sum()),
        (output.events()(features, torch.arange(4), words), of_words),
        (output.steps(FixedLinear).log_probs(features), expected),
    ):
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_events_can_be_stopped(kind):
    def stop() -> None:
        raise InterruptedError

    output = make_model("plain", **KINDS[kind]).output.eval()
    with pytest.raises(InterruptedError):
        output.events()(torch.randn(4, SIZE, dtype=torch.float64), torch.arange(4), torch.tensor([3, 18, 7, 7]), stop)


@pytest.mark.parametrize("kind", OF_REGISTRY)
@torch.no_grad()
def test_a_temperature_divides_the_logits(kind):
    """Those of each softmax. An adaptive one has several, so its words are compared within one of them."""
    output, features = make_model("plain", **KINDS[kind]).output.eval(), torch.randn(4, SIZE, dtype=torch.float64)
    before = {name: value.clone() for name, value in output.state_dict().items()}
    cooled, logits = output.with_temperature(2.0), output(features)[:, :5]
    torch.testing.assert_close(
        torch.log_softmax(cooled.log_probs(features)[:, :5], dim=1), torch.log_softmax(logits / 2.0, dim=1), rtol=0, atol=1e-6
    )
    for name, value in output.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_features_of_zero_predict_the_distribution_of_the_biases(kind):
    model = make_model("plain", **KINDS[kind])
    counts = torch.arange(1.0, V + 1)
    for layers_too in (True, False):
        model.initialise(0.1, layers_too=layers_too)
        model.init_output_bias(counts)
        found = model.output.log_probs(torch.zeros(1, SIZE, dtype=torch.float64)).exp()[0]
        if kind != "adaptive":  # its small clusters have no biases
            torch.testing.assert_close(found, counts.double() / counts.sum(), rtol=1e-5, atol=0)
        torch.testing.assert_close(found.sum(), torch.ones((), dtype=torch.float64))


@torch.no_grad()
def test_a_layer_of_another_package_sets_its_own_parameters():
    for options, expected in (({}, 8.0), ({"cosine_scale": 3.0}, 3.0)):
        model = make_model("plain", output_layer="test cosine", **options)
        for layers_too in (True, False):
            model.initialise(0.1, layers_too=layers_too)
            assert model.output.scale == expected
        assert model.output.weight is model.embedding.weight


def test_gradients_of_a_layer_of_another_package():
    """Of all of its parameters and the features, as from logits that are all there at once, and with the terms of the loss."""
    for kind in OWN:
        output = make_model("plain", output_layer=kind).output
        features = torch.randn(5, SIZE, dtype=torch.float64, requires_grad=True)
        words = torch.tensor([1, 2, 0, 5, 5])
        logits = output(features)
        norms = logits.logsumexp(1)
        expected = (norms - logits.gather(1, words.unsqueeze(1)).squeeze(1)).sum() + 0.3 * norms.square().sum()
        found = output.loss(features, words, None, LossTerms(self_normalisation=0.3)).total
        parameters = [features, *output.parameters()]
        for one, other in zip(torch.autograd.grad(found, parameters), torch.autograd.grad(expected, parameters), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", OF_REGISTRY)
def test_gradients_at_the_first_update_are_moderate(kind):
    """The tied row of the padding word is 0 then."""
    model = make_model("plain", **KINDS[kind])
    model.initialise(0.1, layers_too=True)
    features = torch.randn(5, SIZE, dtype=torch.float64)
    model.output.nll(features, torch.arange(5)).backward()
    for parameter in model.output.parameters():
        assert parameter.grad.abs().max() < 1e4


@pytest.mark.parametrize("kind", OWN)
def test_what_a_layer_of_another_package_does_not_say_it_can_is_refused(kind):
    with pytest.raises(ValueError, match=f"a mixture of {kind} output layers is not supported"):
        make_model("plain", output_layer=kind, softmaxes="2")
    with pytest.raises(ValueError, match="a pointer needs one full softmax"):
        make_model("pointer", output_layer=kind)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda layer: layer.register_buffer("table", torch.zeros(3, dtype=torch.long)), r"output\.table: checkpoints .* persistent=False"),
        (lambda layer: layer.register_buffer("table", torch.tensor(2.0)), r"output\.table: checkpoints hold parameters alone"),
        (lambda layer: layer.register_parameter("again", layer.weight), r"output\.again is a parameter that has another name, too"),
        (lambda layer: layer.register_buffer("table", torch.zeros(3), persistent=False), None),
    ],
)
def test_what_exported_folders_would_not_hold_is_refused_before_training(monkeypatch, change, message):
    monkeypatch.setattr(Softmax, "__init__", with_changes(Softmax.__init__, change))
    if message is None:
        assert make_model("plain", output_layer="untied") is not None
        return
    with pytest.raises(ValueError, match=message):
        make_model("plain", output_layer="untied")


def test_a_layer_with_two_names_keeps_both_in_rounded_copies():
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = self.other = torch.nn.Linear(3, 3)

    rounded = with_bfloat16_products(Twice())
    assert {type(rounded.one), type(rounded.other)} == {Bfloat16Linear}
    changed = with_changed_children(Twice(), lambda weight, bias: torch.nn.Identity())
    assert (type(changed.one), type(changed.other)) == (torch.nn.Identity, torch.nn.Identity)


def with_changes(build, change):
    def built(self, feature_size: int, vocabulary_size: int) -> None:
        build(self, feature_size, vocabulary_size)
        change(self)

    return built


def test_weight_drop_keeps_the_biases_of_recurrent_products():
    from attlm_fairseq.modules.recurrence.stepped_layers import recurrent_product
    from attlm_fairseq.modules.regularisation import Regularisation

    layer, states = nn.Linear(4, 4), torch.randn(2, 4)
    found = recurrent_product(layer, Regularisation(weight_drop=1e-9), training=True)(states)
    torch.testing.assert_close(found, layer(states))
