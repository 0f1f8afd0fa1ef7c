"""Additive attention scores in pieces against the plain formula, values and gradients."""

from __future__ import annotations

import pytest
import torch
from small_models import set_limits

from attlm_fairseq.modules.kernels.limits import LIMITS
from attlm_fairseq.modules.memory.additive_scores import additive_scores


def inputs(sentences: int, queries: int, keys: int, size: int = 5, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = [(sentences, keys, size), (sentences, queries, size), (size,)]
    return [torch.randn(*shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize(("queries", "keys", "before"), [(9, 9, 0), (9, 8, 0), (1, 4, 3), (7, 11, 4), (1, 0, 0), (3, 12, 20)])
@pytest.mark.parametrize("pairs", [1, 60, 10_000])
def test_values_and_gradients_where_a_query_can_see(monkeypatch, queries, keys, before, pairs):
    set_limits(monkeypatch, queries=2, pairs=pairs)
    k, q, v = inputs(3, queries, keys)
    visible = torch.arange(keys) <= before + torch.arange(queries).unsqueeze(1)
    weights = torch.randn(3, queries, keys, dtype=torch.float64) * visible
    own = additive_scores(k, q, v, before)
    plain = torch.tanh(k.unsqueeze(1) + q.unsqueeze(2)) @ v
    torch.testing.assert_close(own * visible, plain * visible, rtol=0, atol=1e-12)
    expected = torch.autograd.grad((plain * weights).sum(), (k, q, v))
    for got, gradient in zip(torch.autograd.grad((own * weights).sum(), (k, q, v)), expected, strict=True):
        torch.testing.assert_close(got, gradient, rtol=0, atol=1e-12)


def test_gradients_by_finite_differences():
    assert torch.autograd.gradcheck(lambda k, q, v: additive_scores(k, q, v, 1).tril(1), inputs(2, 4, 5, 3))


def test_what_no_query_of_a_piece_can_see_is_left_out():
    k, q, v = inputs(1, 2 * LIMITS["cpu"].queries, 2 * LIMITS["cpu"].queries)
    scores = additive_scores(k, q, v)
    assert not scores[0, : LIMITS["cpu"].queries, LIMITS["cpu"].queries :].any()
    assert scores[0].tril().count_nonzero() == len(scores[0]) * (len(scores[0]) + 1) / 2


def test_under_autocast_the_scores_are_float32():
    k, q, v = inputs(2, 6, 6, dtype=torch.float32)
    exact = additive_scores(k, q, v)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = additive_scores(k.bfloat16(), q.bfloat16(), v)
        near.sum().backward()
    assert near.dtype == torch.float32
    assert (near - exact).abs().max() < 0.05
    assert all(part.grad.dtype == torch.float32 for part in (k, q, v))


def test_the_vectors_of_the_pairs_are_not_kept():
    """What autograd holds on to between forward and backward grows with B (K + T) H, not with B K T H."""
    k, q, v = inputs(2, 60, 60, 32)
    held = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: held.append(tensor.numel()) or tensor, lambda tensor: tensor):
        additive_scores(k, q, v)
    assert 0 < sum(held) <= k.numel() + q.numel() + v.numel()
