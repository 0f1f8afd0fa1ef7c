"""Every reader over every recurrence, and what a Recurrence promises."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from small_models import LAYERS, VARIANTS, V, layers_of, reference_outputs, sentences

from attlm_fairseq.checkpoints.vocabulary import PAD
from attlm_fairseq.modules.families import FAMILIES, Family, build_language_model
from attlm_fairseq.modules.kernels.low_precision import Bfloat16Linear, with_bfloat16_products
from attlm_fairseq.modules.kernels.low_precision_steps import stepping_model
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.recurrence import LSTM
from attlm_fairseq.modules.state import LanguageModelState, row_bytes, slot_bytes
from attlm_fairseq.scoring.neural.scoring_models import Bfloat16Model, Float32Model

RECURRENCES = {parts.recurrence.name: parts.recurrence for parts in FAMILIES.values()}
READERS = {name: (FAMILIES[family].reader, options) for name, (family, options) in VARIANTS.items()}
CUTS = [0, 1, 4, 9, 12]


def over(recurrence: str, reader: str, dtype: torch.dtype = torch.float64, **options: object) -> LanguageModel:
    kind, own = READERS[reader]
    family = Family(RECURRENCES[recurrence], kind)
    sizes = {"decoder_embed_dim": 5, "decoder_hidden_size": 6, "decoder_layers": LAYERS}
    dropout = {"dropout": 0.0, "dropout_in": None, "dropout_between": None, "dropout_out": None}
    torch.manual_seed(3)
    config = {**sizes, **dropout, **own, "output_layer": "untied", **options}
    model = build_language_model(family, config, V, PAD).to(dtype)
    model.initialise(0.8)
    return model.eval()


def expect_steps_and_pieces(model: LanguageModel, tokens: torch.Tensor, full: torch.Tensor) -> None:
    """Pieces and steps give the features of the full pass, and the same state in the end."""
    state, pieces = model.initial_state(3), []
    for begin, end in pairwise(CUTS):
        features, _, state = model.read(tokens[:, begin:end], state)
        pieces.append(features)
    torch.testing.assert_close(torch.cat(pieces, dim=1), full, rtol=0, atol=1e-12)
    stepped = model.initial_state(3)
    for t, token in enumerate(tokens.unbind(1)):
        features, _, stepped = model.step_features(model.inputs(token), stepped)
        torch.testing.assert_close(features, full[:, t], rtol=0, atol=1e-12)
    torch.testing.assert_close(tuple(stepped), tuple(state), rtol=0, atol=1e-12)


@pytest.mark.parametrize("recurrence", RECURRENCES)
@pytest.mark.parametrize("reader", READERS)
@torch.no_grad()
def test_steps_and_pieces_are_the_full_pass(recurrence, reader):
    model, tokens = over(recurrence, reader), sentences(count=3, longest=CUTS[-1])
    full, _ = model.extract_features(tokens)
    expect_steps_and_pieces(model, tokens, full)


@pytest.mark.parametrize("recurrence", RECURRENCES)
@torch.no_grad()
def test_states_move_by_rows(recurrence):
    model, tokens = over(recurrence, "combined"), sentences(count=3, longest=5)
    state = model.state_after(tokens, model.initial_state(3))
    rows = LanguageModelState.cat([state.row(row) for row in (2, 0, 0)])
    torch.testing.assert_close(tuple(rows), tuple(state.select(torch.tensor([2, 0, 0]))))
    assert state.bytes == sum(part.numel() * part.element_size() for part in (*state.recurrent, *state.memory)) // 3
    later = model.state_after(tokens, state)
    for part, grown in zip(state, later, strict=True):
        assert row_bytes(*grown) - row_bytes(*part) == 5 * slot_bytes(part)
    with pytest.raises(ValueError, match="unlike numbers of words"):
        LanguageModelState.cat([state, later])


@pytest.mark.parametrize("options", [{}, {"decoder_top_size": 4}], ids=["one size", "two sizes"])
@pytest.mark.parametrize("recurrence", RECURRENCES)
@torch.no_grad()
def test_a_state_after_a_change_of_weights(recurrence, options):
    """With the same weights it is the same; with others, products that it keeps are those of the new weights, and the rest stays."""
    model, tokens = over(recurrence, "combined", **options), sentences(count=3, longest=5)
    state = model.state_after(tokens, model.initial_state(3))
    torch.testing.assert_close(tuple(model.updated_state(state)), tuple(state), rtol=0, atol=1e-12)
    model.initialise(0.5)
    changed = model.updated_state(state)
    kept = [torch.equal(part, before) for part, before in zip(changed.recurrent, state.recurrent, strict=True)]
    if recurrence != "lstmn":
        assert all(kept)
        return
    assert kept == [True, False, True, True] * (1 + len(options))
    parts = [model.recurrence.lower, model.recurrence.top] if options else [model.recurrence]
    for number, of_part in enumerate(parts):
        _, keys, values, _ = changed.recurrent[4 * number : 4 * number + 4]
        for depth, layer in enumerate(of_part.layers):
            expected = values[:, :, depth, : of_part.hidden_size] @ layer.state_keys.weight.t()
            torch.testing.assert_close(keys[:, :, depth], expected, rtol=0, atol=1e-12)


def exact_and_rounded(model: LanguageModel) -> list[torch.Tensor]:
    """The features after two steps, with products in float32 and in bfloat16."""
    found = []
    for kind in (Float32Model, Bfloat16Model):
        scoring = kind(model)
        words, state = scoring.inputs(torch.arange(V)), scoring.initial_state(1)
        for places, rows in (([4, 7, 9], [0, 0, 0]), ([5, 5, 6], [2, 0, 1])):
            features, _, state = scoring.step_rows(words, torch.tensor(places), state, torch.tensor(rows))
        found.append(features)
    return found


@pytest.mark.parametrize("recurrence", RECURRENCES)
@torch.inference_mode()
def test_bfloat16_steps_round_products_alone(recurrence):
    model = over(recurrence, "plain", torch.float32)
    exact, low = exact_and_rounded(model)
    assert low.dtype == torch.float32
    assert not torch.equal(low, low.bfloat16().float())
    assert 1e-5 < (exact - low).abs().mean() < 0.03


TWO_SIZES = {"decoder_layers": 3, "decoder_top_size": 4, "softmaxes": "2,1,1"}


@pytest.mark.parametrize("recurrence", RECURRENCES)
@torch.no_grad()
def test_a_top_layer_of_another_size_reads_as_the_loop_does(recurrence):
    """With outputs of both lower layers for the output layer, in full passes, pieces and steps; also its attention weights."""
    model, tokens = over(recurrence, "plain", **TWO_SIZES), sentences(count=3, longest=CUTS[-1])
    assert model.recurrence.below == (1, 0)
    assert model.feature_size == 4 + 6 + 6
    full, _ = model.extract_features(tokens)
    embedded = model.embedding(tokens)
    layers = layers_of(model.recurrence)
    for row in range(3):
        found = [torch.stack(reference_outputs(model.recurrence, list(embedded[row]), layers[:depth])[0]) for depth in (3, 2, 1)]
        torch.testing.assert_close(torch.cat(found, dim=1), full[row], rtol=0, atol=1e-12)
    expect_steps_and_pieces(model, tokens, full)
    weights = model.recurrence.weights(embedded, model.initial_state(3).recurrent)
    assert (weights is None) == (model.recurrence.columns is None)
    if weights is not None:
        _, expected = reference_outputs(model.recurrence, list(embedded[1]), layers)
        for t, of_step in enumerate(expected):
            torch.testing.assert_close(weights[1, t, : len(of_step)], torch.stack(of_step), rtol=0, atol=1e-12)


@pytest.mark.parametrize("recurrence", RECURRENCES)
@torch.inference_mode()
def test_a_top_layer_of_another_size_in_lower_precision(recurrence):
    model = over(recurrence, "plain", torch.float32, **TWO_SIZES)
    exact, low = exact_and_rounded(model)
    assert 1e-5 < (exact - low).abs().mean() < 0.03
    for precision, error in (("float32", 1e-5), ("bfloat16", 0.03), ("int8", 0.1)):
        steps, state = stepping_model(model, precision), model.initial_state(3)
        for places in ([4, 7, 9], [5, 5, 6]):
            features, _, state = steps.step_features(steps.inputs(torch.tensor(places)), state)
        plain = model.initial_state(3)
        for places in ([4, 7, 9], [5, 5, 6]):
            expected, _, plain = model.step_features(model.inputs(torch.tensor(places)), plain)
        assert (features - expected).abs().mean() < error, precision


def test_dropout_is_between_layers_of_two_sizes_too():
    model, tokens = over("lstm", "plain", **TWO_SIZES, dropout_between=0.5, locked_dropout=True).train(), sentences(count=3, longest=7)
    features, _ = model.extract_features(tokens)
    for lower in (features[..., 4:10], features[..., 10:]):
        dropped = lower == 0
        assert 0.1 < dropped.double().mean() < 0.9
        assert torch.equal(dropped.all(1), dropped.any(1))  # one mask for all positions of a row


def test_one_layer_has_one_size():
    with pytest.raises(ValueError, match="--decoder-top-size 4 is for 2 layers or more"):
        over("lstm", "plain", decoder_layers=1, decoder_top_size=4)
    assert type(over("lstm", "plain", decoder_top_size=6).recurrence) is LSTM


class Nested(torch.nn.Module):
    """Linear layers at two depths."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList([torch.nn.Linear(6, 6), torch.nn.Sequential(torch.nn.Linear(6, 6))])


def test_nested_linear_layers_are_rounded():

    nested = Nested()
    changed = with_bfloat16_products(nested)
    assert [type(layer) for layer in (changed.parts[0], changed.parts[1][0])] == [Bfloat16Linear] * 2
    assert type(nested.parts[0]) is torch.nn.Linear
