"""Every reader over every recurrence, and what a Recurrence promises."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from small_models import LAYERS, VARIANTS, V, sentences

from attlm_fairseq.checkpoints.vocabulary import PAD
from attlm_fairseq.modules.families import FAMILIES, Family, build_language_model
from attlm_fairseq.modules.kernels.low_precision import Bfloat16Linear, with_bfloat16_products
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.state import LanguageModelState
from attlm_fairseq.scoring.scoring_models import Bfloat16Model, Float32Model

RECURRENCES = {parts.recurrence.name: parts.recurrence for parts in FAMILIES.values()}
READERS = {name: (FAMILIES[family].reader, options) for name, (family, options) in VARIANTS.items()}
CUTS = [0, 1, 4, 9, 12]


def over(recurrence: str, reader: str, dtype: torch.dtype = torch.float64) -> LanguageModel:
    kind, own = READERS[reader]
    family = Family(RECURRENCES[recurrence], kind)
    sizes = {"decoder_embed_dim": 5, "decoder_hidden_size": 6, "decoder_layers": LAYERS}
    dropout = {"dropout": 0.0, "dropout_in": None, "dropout_between": None, "dropout_out": None}
    torch.manual_seed(3)
    model = build_language_model(family, {**sizes, **dropout, **own, "output_layer": "untied"}, V, PAD).to(dtype)
    model.initialise(0.8)
    return model.eval()


@pytest.mark.parametrize("recurrence", RECURRENCES)
@pytest.mark.parametrize("reader", READERS)
@torch.no_grad()
def test_steps_and_pieces_are_the_full_pass(recurrence, reader):
    model, tokens = over(recurrence, reader), sentences(count=3, longest=CUTS[-1])
    full, _ = model.extract_features(tokens)
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
@torch.no_grad()
def test_states_move_by_rows(recurrence):
    model, tokens = over(recurrence, "combined"), sentences(count=3, longest=5)
    state = model.state_after(tokens, model.initial_state(3))
    rows = LanguageModelState.cat([state.row(row) for row in (2, 0, 0)])
    torch.testing.assert_close(tuple(rows), tuple(state.select(torch.tensor([2, 0, 0]))))
    assert state.bytes == sum(part.numel() * part.element_size() for part in (*state.recurrent, *state.memory)) // 3
    with pytest.raises(ValueError, match="unlike numbers of words"):
        LanguageModelState.cat([state, model.state_after(tokens, state)])


@pytest.mark.parametrize("recurrence", RECURRENCES)
@torch.inference_mode()
def test_bfloat16_steps_round_products_alone(recurrence):
    model = over(recurrence, "plain", torch.float32)
    found = []
    for kind in (Float32Model, Bfloat16Model):
        scoring = kind(model)
        words, state = scoring.inputs(torch.arange(V)), scoring.initial_state(1)
        for places, rows in (([4, 7, 9], [0, 0, 0]), ([5, 5, 6], [2, 0, 1])):
            features, _, state = scoring.step_rows(words, torch.tensor(places), state, torch.tensor(rows))
        found.append(features)
    exact, low = found
    assert low.dtype == torch.float32
    assert not torch.equal(low, low.bfloat16().float())
    assert 1e-5 < (exact - low).abs().mean() < 0.03


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
