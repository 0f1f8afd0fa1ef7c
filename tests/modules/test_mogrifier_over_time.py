"""The Mogrifier LSTM over all positions, against its steps under autograd. tests/reference.py has its equations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attlm_fairseq.modules.recurrence.mogrifier import Mogrifier
from attlm_fairseq.modules.recurrence.stepped_layers import SteppedLayers
from attlm_fairseq.modules.regularisation import Regularisation

ROWS, POSITIONS, EMBEDDING, HIDDEN = 3, 6, 7, 5


def results(mogrifier: Mogrifier, inputs: Tensor, before: tuple[Tensor, ...], low: bool) -> list[Tensor]:
    """Outputs and states after, then the gradients of inputs, states before and all weights."""
    torch.manual_seed(3)  # of the dropout of weights
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        outputs, after = mogrifier.read(inputs, before)
    factors = torch.linspace(-1, 1, outputs.numel(), dtype=outputs.dtype).view_as(outputs)
    loss = (outputs * factors).sum() + (after[0] * 1.3).sum() + after[1].sin().sum()
    return [outputs, *after, *torch.autograd.grad(loss, [inputs, *before, *mogrifier.parameters()])]


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize(
    ("dtype", "low", "tolerance"), [(torch.float64, False, 1e-12), (torch.float32, False, 1e-5), (torch.float32, True, 0.05)]
)
def test_values_and_gradients_are_those_of_the_steps(monkeypatch, dtype, low, tolerance, rounds, rank, capped):
    torch.manual_seed(2)
    options = {"decoder_hidden_size": HIDDEN, "decoder_layers": 2, "lower_layers": (0,), "forget_bias": 1.0}
    options |= {"mogrifier_rounds": rounds, "mogrifier_rank": rank, "mogrifier_capped": capped, "cuda_graphs": False}
    mogrifier = Mogrifier(EMBEDDING, options, Regularisation(weight_drop=0.3)).to(dtype).train()
    for parameter in mogrifier.parameters():
        torch.nn.init.uniform_(parameter, -0.4, 0.4)
    inputs = torch.randn(ROWS, POSITIONS, EMBEDDING, dtype=dtype, requires_grad=True)
    before = tuple(torch.randn(ROWS, 2, HIDDEN, dtype=dtype, requires_grad=True) for _ in range(2))
    found = results(mogrifier, inputs, before, low)
    monkeypatch.setattr(Mogrifier, "read_layer", SteppedLayers.read_layer)
    expected = results(mogrifier, inputs, before, False)
    for values, wanted in zip(found, expected, strict=True):
        assert values.dtype == dtype  # in bfloat16 sums over positions would lose digits
        torch.testing.assert_close(values, wanted, rtol=0, atol=tolerance * max(1.0, float(wanted.detach().abs().max())))
        assert not low or (values - wanted).norm() > 1e-4 * wanted.norm()


def test_large_matrices_in_float32():
    """Their products are oneDNN's, those of small ones torch's."""
    torch.manual_seed(2)
    options = {"decoder_hidden_size": 544, "decoder_layers": 1, "lower_layers": (), "forget_bias": 1.0}
    mogrifier = Mogrifier(
        500, {**options, "mogrifier_rounds": 2, "mogrifier_rank": 0, "mogrifier_capped": False, "cuda_graphs": False}, Regularisation()
    ).train()
    inputs, before = torch.randn(4, 3, 500, requires_grad=True), tuple(torch.randn(4, 1, 544) for _ in range(2))
    for part in before:
        part.requires_grad_()
    exact, *exact_before = (part.detach().double().requires_grad_() for part in (inputs, *before))
    expected = results(mogrifier.double(), exact, tuple(exact_before), False)
    for values, wanted in zip(results(mogrifier.float(), inputs, before, False), expected, strict=True):
        torch.testing.assert_close(values.double(), wanted, rtol=1e-4, atol=1e-4)


def test_a_batch_of_no_rows():
    options = {"decoder_hidden_size": HIDDEN, "decoder_layers": 1, "lower_layers": (), "forget_bias": 1.0}
    options |= {"mogrifier_rounds": 2, "mogrifier_rank": 0, "mogrifier_capped": False, "cuda_graphs": False}
    mogrifier = Mogrifier(EMBEDDING, options, Regularisation()).train()
    outputs, _ = mogrifier.read(torch.randn(0, POSITIONS, EMBEDDING), mogrifier.initial(0))
    assert outputs.shape == (0, POSITIONS, HIDDEN)
    outputs.sum().backward()
    assert not any(parameter.grad.any() for parameter in mogrifier.parameters())


def test_without_gradients_values_are_the_same():
    options = {"decoder_hidden_size": HIDDEN, "decoder_layers": 2, "lower_layers": (), "forget_bias": 1.0}
    mogrifier = Mogrifier(
        EMBEDDING, {**options, "mogrifier_rounds": 5, "mogrifier_rank": 2, "mogrifier_capped": True, "cuda_graphs": False}, Regularisation()
    )
    inputs, before = torch.randn(ROWS, POSITIONS, EMBEDDING), mogrifier.initial(ROWS)
    outputs, after = mogrifier.read(inputs, before)
    with torch.inference_mode():
        found, state = mogrifier.read(inputs, before)
    torch.testing.assert_close((found, *state), (outputs, *after), rtol=0, atol=1e-6)
