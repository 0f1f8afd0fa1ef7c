"""Scoring with products in bfloat16: what is rounded, and that padding and pieces change nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_models import VARIANTS, make_model, set_limits
from torch import Tensor

from attlm_fairseq.modules.kernels import low_precision
from attlm_fairseq.modules.kernels.limits import Widths
from attlm_fairseq.modules.kernels.low_precision import piece_sizes, round_up_rows
from attlm_fairseq.modules.memory import Read
from attlm_fairseq.modules.recurrence import Recurrence, TwoSizes
from attlm_fairseq.modules.state import LanguageModelState, State
from attlm_fairseq.scoring.neural.scoring_models import Bfloat16Model, Float32Model, ScoringModel, Stepped

WORDS = torch.tensor([[2, 5, 9], [7, 5, 2], [4, 4, 18], [11, 3, 6]])  # two steps of 4 rows, each row after another
PARENTS = torch.tensor([[0, 0, 0, 0], [3, 0, 1, 1], [2, 2, 0, 3]])


@pytest.fixture
def float32_for_bfloat16(monkeypatch):
    """Nothing is rounded."""
    monkeypatch.setattr(low_precision, "DTYPE", torch.float32)


@pytest.fixture
def nan_for_uninitialised():
    """What is read before it is written shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.empty(1).isnan()
    yield
    torch.use_deterministic_algorithms(False)


def steps(model: ScoringModel) -> tuple[list[Tensor], LanguageModelState]:
    """Features of every step and the state after the last."""
    found = stepped(model)
    return [step.features for step in found], found[-1].state


def stepped(model: ScoringModel) -> list[Stepped]:
    words, state, found = model.inputs(torch.arange(19)), model.initial_state(1), []
    for places, parents in zip(WORDS.t(), PARENTS, strict=True):
        found.append(model.step_rows(words, places, state, parents))
        state = found[-1].state
    return found


def unpadded(state: State, recurrence: Recurrence, layers: int) -> State:
    """The recurrent state with the LSTM's layers (B, L, H), after seeing that the padding is zero; others have none."""
    if isinstance(recurrence, TwoSizes):
        of_lower, of_top = recurrence.split(state)
        return *unpadded(of_lower, recurrence.lower, layers - 1), *unpadded(of_top, recurrence.top, 1)
    if state[0].dim() != 2 or state[-1].dtype == torch.bool:
        return state
    hidden, size = state[0].unflatten(1, (layers, 32)), recurrence.hidden_size
    assert not hidden[:, :, size:].any()
    return hidden[:, :, :size], *state[1:]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_unrounded_it_is_the_model(variant, layers, monkeypatch, float32_for_bfloat16, nan_for_uninitialised):
    """Layouts, padding and pieces: with float32 in place of bfloat16 the steps and normalisers are the model's own."""
    if layers == 1 and VARIANTS[variant][1].get("decoder_top_size"):
        pytest.skip("one layer has one size")
    model = make_model(variant, torch.float32, decoder_layers=layers)
    set_limits(monkeypatch, step_numbers=3 * 24, rounded_softmax=Widths(3, 7, 2))  # three rows at once, then one
    low = Bfloat16Model(model)
    (found, state), (expected, exact) = steps(low), steps(Float32Model(model))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(unpadded(state.recurrent, model.recurrence, layers), exact.recurrent)
    torch.testing.assert_close(state.memory, exact.memory)
    features = torch.cat(found)
    reads = [step.read for step in stepped(Float32Model(model)) if step.read is not None]
    read = Read.cat(reads) if reads else None
    log_probs = model.output.log_probs(features, read)
    contexts, words = torch.arange(len(features)).repeat_interleave(19), torch.arange(19).repeat(len(features))
    torch.testing.assert_close(low.events(features, contexts, words, read=read), log_probs.flatten(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
@torch.inference_mode()
def test_products_alone_are_rounded(variant):
    model = make_model(variant, torch.float32)
    low = Bfloat16Model(model)
    (found, state), (expected, exact) = steps(low), steps(Float32Model(model))
    cell, exact_cell = ([part for part in one.recurrent if part.dtype == torch.float32][-1] for one in (state, exact))
    assert {part.dtype for part in (*found, cell, *state.memory)} <= {torch.float32, torch.bool, torch.int64}
    for part in (found[-1], cell):
        assert not torch.equal(part, part.bfloat16().float())
    for near, value in zip((*found, cell), (*expected, exact_cell), strict=True):
        assert not value.any() or 1e-6 < (near - value).abs().mean() < 0.03  # 0: an empty memory, which alone is read


@torch.inference_mode()
def test_values_that_bfloat16_holds_stay_exact():
    """Logits of eighths, biases of any digits."""
    model = make_model("plain", torch.float32, vocabulary=3000)
    random_ = torch.Generator().manual_seed(1)
    model.output.weight.copy_(torch.randint(-8, 9, model.output.weight.shape, generator=random_) / 8)
    features = torch.randint(-1, 2, (700, 6), generator=random_).float()
    expected = torch.logsumexp(features.double() @ model.output.weight.double().t() + model.output.bias.double(), dim=1)
    found = Bfloat16Model(model).events.normalisers(features)
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=2e-6)


@torch.inference_mode()
def test_sums_that_float32_cannot_hold_are_taken_again(monkeypatch):
    set_limits(monkeypatch, rounded_softmax=Widths(3, 7, 2))
    model = make_model("plain", torch.float32)
    features = torch.randn(20, 6)
    features[::2] *= 1000
    weight, bias = model.output.weight, model.output.bias
    found = Bfloat16Model(model).events.normalisers(features)
    expected = torch.logsumexp(features @ weight.t() + bias, dim=1)
    torch.testing.assert_close(found[::2], expected[::2])
    torch.testing.assert_close(found[1::2], expected[1::2], rtol=0, atol=0.02)
    assert (found[1::2] - expected[1::2]).abs().mean() > 1e-5, "rounded"


@torch.inference_mode()
def test_a_step_leaves_its_state_as_it_is():
    low = Bfloat16Model(make_model("single", torch.float32))
    _, state = steps(low)
    before = state.map(torch.clone)
    words = low.inputs(torch.arange(19))
    first = words.values.clone()
    low.step_rows(words, torch.tensor([3, 4]), state, torch.tensor([0, 2]))
    assert torch.equal(words.values, first)
    assert all(map(torch.equal, (*state.recurrent, *state.memory), (*before.recurrent, *before.memory)))


def test_the_model_stays_as_it_is():
    model = make_model("combined", torch.float32)
    modules, weights = list(model.modules()), {name: value.clone() for name, value in model.state_dict().items()}
    with torch.inference_mode():
        steps(Bfloat16Model(model))
    assert list(model.modules()) == modules
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


@given(st.integers(1, 10_000), st.integers(1, 3000))
def test_few_shapes(length, most):
    sizes = piece_sizes(length, most)
    assert sum(sizes) == length
    assert max(sizes) <= most
    assert all(size <= round_up_rows(size) < max(17, 2 * size) for size in sizes)
    assert all(size in (most, round_up_rows(size)) for size in sizes[:-1])
    assert {round_up_rows(rows) for rows in range(1, 769)} == {16, 32, 64, *range(128, 769, 128)}
