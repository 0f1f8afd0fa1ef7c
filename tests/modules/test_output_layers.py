"""The contract of output layers, for every ``--output-layer``: all ways to score words give one distribution."""

from __future__ import annotations

import pytest
import torch
from small_models import SIZE, V, make_model
from torch import Tensor, nn

from attlm_fairseq.modules.kernels.linear_nll import PLAIN_LOSS
from attlm_fairseq.modules.output import OUTPUT_LAYERS
from attlm_fairseq.modules.output.softmax import Softmax

KINDS = {
    **{kind: {"output_layer": kind, "adaptive_cutoffs": "5"} for kind in OUTPUT_LAYERS},
    "mixture": {"output_layer": "tied", "softmaxes": "3"},
}


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


@pytest.mark.parametrize("kind", OUTPUT_LAYERS)
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


class Learned(Softmax):
    """A layer of the user's own: logits are multiplied by a learned number that starts at 3."""

    def __init__(self, feature_size: int, vocabulary_size: int) -> None:
        super().__init__(feature_size, vocabulary_size)
        self.scale = nn.Parameter(torch.tensor(3.0))

    def initialise_biases(self) -> None:
        self.scale.fill_(3.0)

    def log_probs(self, features, read=None):
        return torch.log_softmax(nn.functional.linear(features, self.weight, self.bias) * self.scale, dim=-1)


@torch.no_grad()
def test_a_layer_of_the_users_own_sets_its_own_parameters():
    model = make_model("plain", output_layer="untied")
    model.output = Learned(SIZE, V).double()
    features = torch.randn(2, SIZE, dtype=torch.float64)
    for layers_too in (True, False):
        model.initialise(0.1, layers_too=layers_too)
        assert model.output.scale == 3.0
    logits = nn.functional.linear(features, model.output.weight, model.output.bias) * 3.0 / 2.0
    torch.testing.assert_close(model.output.with_temperature(2.0).log_probs(features), torch.log_softmax(logits, dim=-1))


def test_whole_numbers_are_refused_before_training(monkeypatch):
    monkeypatch.setattr(Softmax, "__init__", with_classes(Softmax.__init__))
    with pytest.raises(ValueError, match=r"output\.class_of: checkpoints hold floating-point numbers alone: .* persistent=False"):
        make_model("plain", output_layer="untied")


def with_classes(build):
    def built(self, feature_size: int, vocabulary_size: int) -> None:
        build(self, feature_size, vocabulary_size)
        self.register_buffer("class_of", torch.zeros(vocabulary_size, dtype=torch.long))

    return built


def test_weight_drop_keeps_the_biases_of_recurrent_products():
    from attlm_fairseq.modules.recurrence.stepped_layers import recurrent_product
    from attlm_fairseq.modules.regularisation import Regularisation

    layer, states = nn.Linear(4, 4), torch.randn(2, 4)
    found = recurrent_product(layer, Regularisation(weight_drop=1e-9), training=True)(states)
    torch.testing.assert_close(found, layer(states))
