"""The dropout of the models against what torch's does."""

import pytest
import torch

from attlm_fairseq.modules.kernels.dropout import BITS, dropout


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.65])
def test_values_and_gradients(probability):
    torch.manual_seed(3)
    values = torch.randn(40, 51, 63, dtype=torch.float64).transpose(0, 1).requires_grad_()
    dropped = dropout(values, probability, training=True)
    gone = dropped == 0
    share = probability  # of 128,520 values: its standard error is 0.0014
    assert abs(gone.double().mean() - share) < 0.006
    for dim in range(3):  # of each row, column and layer: no place is spared
        rest = [other for other in range(3) if other != dim]
        assert (gone.double().mean(rest) - share).abs().max() < 0.1
    torch.testing.assert_close(dropped[~gone], values[~gone] / (1 - probability), rtol=2.0**-BITS * 4, atol=0)
    numbers = 1 << BITS  # that are drawn, and kept from this one on
    torch.testing.assert_close(dropped[~gone], values[~gone] * numbers / (numbers - round(probability * numbers)))
    [grad] = torch.autograd.grad(dropped.sum(), values)
    torch.testing.assert_close(grad, torch.where(gone, 0.0, dropped / values))


def test_neighbours_are_dropped_independently():
    torch.manual_seed(1)
    gone = (dropout(torch.ones(1 << 18), 0.5, training=True) == 0).double() - 0.5
    for distance in range(1, 9):  # four values come of one random number
        assert abs((gone[:-distance] * gone[distance:]).mean()) < 0.25 * 0.01  # five standard errors


def test_the_same_seed_drops_the_same():
    values = torch.ones(5, 7, 11)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(dropout(values, 0.3, training=True))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_ends_of_the_range():
    values = torch.randn(1000)
    assert torch.equal(dropout(values, 0.0, training=True), values)
    assert torch.equal(dropout(values, 0.5, training=False), values)
    assert not dropout(values, 1.0, training=True).any()
    assert (dropout(values, 1 - 1e-9, training=True) == 0).float().mean() > 0.99
    assert (dropout(torch.ones(1 << 19), 1e-9, training=True) == 1).all(), "the lowest number that is drawn is kept, too"
    assert dropout(torch.empty(0, 3), 0.5, training=True).shape == (0, 3)
    with pytest.raises(ValueError, match="between 0 and 1"):
        dropout(values, 1.5, training=True)
