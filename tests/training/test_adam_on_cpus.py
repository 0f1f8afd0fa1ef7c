"""The fused update of Adam is that of fairseq's Adam."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.adam import Adam, FairseqAdam
from fairseq.optim.sgd import SGD

from attlm_fairseq.tasks._adam_on_cpus import fused_update, has_fused_update


def weights() -> list[torch.nn.Parameter]:
    torch.manual_seed(1)
    return [torch.nn.Parameter(torch.randn(size)) for size in ((30, 7), (5,), (3, 4, 2))]


def groups(own: list[torch.nn.Parameter]) -> list[dict]:
    return [{"params": own[:2]}, {"params": own[2:], "lr": 0.3, "weight_decay": 0.0}]


def set_gradients(own: list[torch.nn.Parameter], number: int) -> None:
    """Those of an update. The second weight has none at times, and the first one's lie in memory by columns."""
    generator = torch.Generator().manual_seed(number)
    for place, weight in enumerate(own):
        grad = torch.randn(weight.shape, generator=generator) * 10.0 ** (-place)
        weight.grad = None if place == 1 and number % 3 == 0 else grad.t().contiguous().t() if place == 0 else grad


@pytest.mark.parametrize("eps", [1e-8, 1e-2])
@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.0, 0.5)])
def test_updates_are_those_of_fairseq(eps, betas):
    ours, theirs = weights(), weights()
    fused, plain = (Adam(groups(own), lr=0.1, betas=betas, eps=eps, weight_decay=0.02) for own in (ours, theirs))
    for number in range(12):
        if number == 6:  # either goes on from the other's state
            states = copy.deepcopy(fused.state_dict()), copy.deepcopy(plain.state_dict())
            fused.load_state_dict(states[1])
            plain.load_state_dict(states[0])
        for own in (ours, theirs):
            set_gradients(own, number)
        fused_update(fused)
        plain.step()
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert fused.state_dict()["state"].keys() == plain.state_dict()["state"].keys()
    for place, state in fused.state_dict()["state"].items():
        torch.testing.assert_close(state, plain.state_dict()["state"][place], rtol=1e-5, atol=1e-6)


def test_other_optimizers_and_weights_keep_their_own():
    config = SimpleNamespace(lr=[0.1], adam_betas="(0.9, 0.999)", adam_eps=1e-8, weight_decay=0.0, fp16_adam_stats=False)
    own = weights()
    assert has_fused_update(FairseqAdam(config, own))
    assert not has_fused_update(SGD(SimpleNamespace(lr=[0.1], momentum=0.0, weight_decay=0.0), own))
    for other in (own[0].double(), own[0].detach().t(), own[0].detach().to("meta")):
        assert not has_fused_update(FairseqAdam(config, [*own, torch.nn.Parameter(other)]))
    with_maximum = FairseqAdam(config, own)
    with_maximum.optimizer.param_groups[0]["amsgrad"] = True
    assert not has_fused_update(with_maximum)
