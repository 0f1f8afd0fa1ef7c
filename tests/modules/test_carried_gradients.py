"""Gradients of a segment whose memory is carried from the segment before: truncated backpropagation against a loop."""

from __future__ import annotations

import pytest
import reference
import torch

from attlm_fairseq.modules.memory.attentive import AttentiveReader


def test_carried_states_are_constants_and_the_weights_that_read_them_are_not():
    """``combined``: W_s and v_s get their gradient from the carried states, too, and read them as they are after an update."""
    torch.manual_seed(2)
    reader = AttentiveReader(5, "combined", current=False).double()
    states = torch.randn(3, 9, 5, dtype=torch.float64)
    memory = tuple(part.detach() for part in reader.advance(states[:, :6], torch.zeros(3, 6), reader.empty_memory(states[:, 0])))
    with torch.no_grad():  # an update between the segments
        for parameter in reader.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    weights = torch.randn(3, 3, 5, dtype=torch.float64)
    features, _ = reader(states[:, 6:], torch.zeros(3, 3), memory)
    found = torch.autograd.grad((features * weights).sum(), list(reader.parameters()))
    names = [name for name, _ in reader.named_parameters()]

    copies = {name: parameter.detach().clone().requires_grad_() for name, parameter in reader.named_parameters()}
    total = torch.zeros((), dtype=torch.float64)
    for row in range(3):
        h = list(states[row])
        weights_of_paper = {"W_s": "state_scores.weight", "v_s": "score_vector", "W_q": "query.weight"}
        weights_of_paper |= {"W_c": "merge.weight", "b_c": "merge.bias"}
        expected, _ = reference.attentive_features(h, {short: copies[name] for short, name in weights_of_paper.items()})
        torch.testing.assert_close(features[row], torch.stack(expected[6:]))
        total = total + (torch.stack(expected[6:]) * weights[row]).sum()
    of_loop = torch.autograd.grad(total, [copies[name] for name in names])
    for name, gradient, loop in zip(names, found, of_loop, strict=True):
        torch.testing.assert_close(gradient, loop, msg=name)


@pytest.mark.parametrize("score", ["single", "combined"])
def test_without_gradients_the_memory_is_read_as_it_was_stored(score):
    torch.manual_seed(3)
    reader = AttentiveReader(4, score, current=False)
    states = torch.randn(2, 8, 4)
    with torch.no_grad():
        whole, _ = reader(states, torch.zeros(2, 8))
        memory = reader.advance(states[:, :5], torch.zeros(2, 5), reader.empty_memory(states[:, 0]))
        part, _ = reader(states[:, 5:], torch.zeros(2, 3), memory)
    torch.testing.assert_close(part, whole[:, 5:])
