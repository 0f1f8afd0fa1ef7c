"""Weights of the translation model: those of another dictionary are refused, and each trained one has a gradient."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from omegaconf import OmegaConf

from attlm_fairseq.checkpoints.reading import FINGERPRINT
from attlm_fairseq.checkpoints.weight_checks import check_finite
from attlm_fairseq.errors import InputError
from attlm_fairseq.models.attentive_lstm import AttentiveLSTMTranslationConfig, AttentiveLSTMTranslationModel
from attlm_fairseq.modules.families import FAMILIES

WORDS = [f"w{number}" for number in range(12)]


def make_model(words: list[str] = WORDS, **options) -> AttentiveLSTMTranslationModel:
    source, target = Dictionary(), Dictionary()
    for dictionary, added in ((source, WORDS), (target, words)):
        for word in added:
            dictionary.add_symbol(word)
    sizes = {"encoder_embed_dim": 6, "encoder_hidden_size": 5, "decoder_embed_dim": 6, "decoder_hidden_size": 12}
    config = OmegaConf.structured(AttentiveLSTMTranslationConfig(**sizes, output_layer="untied", dropout=0.0, **options))
    return AttentiveLSTMTranslationModel.build_model(config, SimpleNamespace(source_dictionary=source, target_dictionary=target))


def test_another_target_dictionary_is_refused():
    weights = make_model().state_dict()
    make_model().load_state_dict(weights)
    with pytest.raises(InputError, match=r"other words than the dict\.txt"):
        make_model(WORDS[::-1]).load_state_dict(weights)
    with pytest.raises(InputError, match=r"the checkpoint's embedding.weight is 16x6, this model's is 15x6"):
        make_model(WORDS[:-1]).load_state_dict(weights)
    del weights[FINGERPRINT]
    make_model(WORDS[::-1]).load_state_dict(weights)  # an older checkpoint does not say


def test_weights_that_are_no_numbers_are_refused():
    weights = make_model().state_dict()
    weights["encoder.embed_tokens.weight"][5] = torch.nan
    with pytest.raises(InputError, match=r"no finite numbers \(encoder.embed_tokens.weight\)"):
        make_model().load_state_dict(weights)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], r"the checkpoint's `model` is \[1, 2\] \(list\): expected a dictionary of weights"),
        (
            {"encoder.embed_tokens.weight": {"a": 1}},
            r"the checkpoint's encoder.embed_tokens.weight is \{'a': 1\} \(dict\): expected a tensor",
        ),
    ],
)
def test_what_is_no_weights_is_refused(weights, message):
    with pytest.raises(InputError, match=message):
        make_model().load_state_dict(weights)


def test_a_sum_of_half_precision_may_be_large():
    model = torch.nn.Linear(1, 7000).half()
    torch.nn.init.constant_(model.bias, -20.0)
    assert not model.bias.sum().isfinite()
    check_finite(model, None)
    model.bias.data[3] = torch.inf
    with pytest.raises(InputError, match=r"no finite numbers \(bias\)"):
        check_finite(model, None)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_trained_weight_has_a_gradient(family):
    """Without one, DistributedDataParallel stops."""
    model = make_model(decoder_family=family)
    source, target = torch.tensor([[5, 9, 4, 7, 2], [8, 6, 9, 9, 2]]), torch.tensor([[2, 4, 10, 10, 6, 5], [2, 11, 7, 4, 12, 9]])
    model(source, torch.tensor([5, 5]), target)[0].square().sum().backward()
    assert [name for name, weights in model.named_parameters() if weights.requires_grad and weights.grad is None] == []
