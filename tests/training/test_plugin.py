"""What the plugin changes in fairseq: gradients are clipped on their own device, and warnings that no user can act on are left out."""

from __future__ import annotations

import sys
import warnings

import fairseq.utils
import pytest
import torch
from fairseq.optim import fairseq_optimizer
from pretend_device import NAME

from attlm_fairseq import plugin

plugin.register()


def parameters() -> list[torch.nn.Parameter | None]:
    torch.manual_seed(1)
    made = [torch.nn.Parameter(torch.randn(size)) for size in (3, 5, 2, 4)]
    for parameter in made[:-1]:
        parameter.grad = 3 * torch.randn(len(parameter))
    made[2].expert = True  # scaled, but not counted in the norm
    return [*made, None]


@pytest.mark.parametrize("max_norm", [0.0, 0.5, 100.0])
@pytest.mark.parametrize("aggregate", [None, lambda norm: 2 * norm])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_clipping_is_that_of_fairseq(max_norm, aggregate, count):
    ours, theirs = parameters()[:count], parameters()[:count]
    norm = fairseq_optimizer.utils.clip_grad_norm_(iter(ours), max_norm, aggregate)
    assert torch.equal(norm, plugin._clip_grad_norm(theirs, max_norm, aggregate))
    for one, other in zip(ours, theirs, strict=True):
        assert one is None or one.grad is None or torch.equal(one.grad, other.grad)
    one, other = parameters()[3], parameters()[0]
    assert fairseq.utils.clip_grad_norm_(one, 0.1) == 0  # without a gradient
    assert fairseq.utils.clip_grad_norm_(other, 0.1) == pytest.approx(parameters()[0].grad.norm().item())


@pytest.mark.usefixtures("pretended_device")
@pytest.mark.filterwarnings("ignore:amp_C fused kernels unavailable")
def test_gradients_on_the_cpu_are_clipped_there_on_a_machine_with_another_device(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: torch.device(NAME))
    with pytest.raises(RuntimeError, match=f"on {NAME} and on the CPU"):
        plugin._clip_grad_norm(parameters()[:2], 0.5)
    found = parameters()[:2]
    norm = fairseq.utils.clip_grad_norm_(found, 0.5)
    assert norm.device.type == "cpu"
    assert torch.cat([each.grad for each in found]).norm().item() == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(
    "message",
    [
        "amp_C fused kernels unavailable, disabling multi_tensor_l2norm; you may get better performance by installing NVIDIA's apex "
        "library",
        "RNN module weights are not part of single contiguous chunk of memory. This means they need to be compacted at every call, "
        "possibly greatly increasing memory usage. To compact weights again call flatten_parameters().",
        "The torch.cuda.*DtypeTensor constructors are no longer recommended. It's best to use methods such as torch.tensor(data, dtype=*, "
        "device='cuda') to create tensors.",
    ],
)
def test_warnings_of_gpus_are_left_out_in_commands(message, monkeypatch):
    monkeypatch.setattr(plugin, "is_command", lambda: True)
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    with warnings.catch_warnings(record=True) as found:
        plugin.register()
        warnings.warn(message, stacklevel=1)
    assert found == []
