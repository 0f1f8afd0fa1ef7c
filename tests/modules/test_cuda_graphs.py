"""Recordings of functions of tensors: when they are made, and that what they give outlives the memory that is written again.

A CPU has no CUDA graphs. ``Graphed`` stands for one: as there, arguments are copied to fixed memory, and all results and gradients lie in
fixed memory. ``test_cuda.py`` has the tests with real ones.
"""

from __future__ import annotations

import gc
import importlib
from pathlib import Path

import pytest
import torch

from attlm_fairseq.modules.kernels.cuda_graphs import MAX_RECORDINGS, Recordings

ROOT = Path(__file__).parents[2]


class Graphed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, graph, *values):
        for held, value in zip(graph["values"], values, strict=True):
            with torch.no_grad():
                held.copy_(value)
        ctx.graph = graph
        for held, result in zip(graph["results"], graph["function"](*graph["values"]), strict=True):
            held.copy_(result.detach())
        return tuple(held.detach() for held in graph["results"])

    @staticmethod
    def backward(ctx, *gradients):
        graph = ctx.graph
        with torch.enable_grad():
            results = zip(graph["function"](*graph["values"]), gradients, strict=True)
            results, gradients = zip(*[(result, gradient) for result, gradient in results if result.requires_grad], strict=True)
            wanted = [value for value in graph["values"] if value.requires_grad]
            found = iter(torch.autograd.grad(results, wanted, gradients, allow_unused=True))
        for value, held in zip(graph["values"], graph["gradients"], strict=True):
            if value.requires_grad:
                held.copy_(next(found))
        return None, *(
            held.detach() if value.requires_grad else None for value, held in zip(graph["values"], graph["gradients"], strict=True)
        )


@pytest.fixture
def made(monkeypatch) -> list:
    """The arguments for which a graph was made."""
    found = []

    def make_graphed_callables(function, samples, allow_unused_input):
        found.append([tuple(value.shape) for value in samples])
        assert not torch.is_autocast_enabled("cpu")
        graph = {"function": function, "values": samples, "gradients": [torch.zeros_like(value) for value in samples]}
        graph["results"] = [torch.zeros_like(result).detach() for result in function(*samples)]
        return lambda *values: Graphed.apply(graph, *values)

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", make_graphed_callables)
    return found


def function(inputs, weight):
    return torch.tanh(inputs @ weight), (inputs * 2)[:, 0]


def read(recordings, weight, inputs):
    return recordings.call(weight, function, inputs, weight)


def test_values_and_gradients_are_the_functions(made):
    torch.manual_seed(1)
    recordings, weight = Recordings(), torch.randn(3, 3, requires_grad=True)
    for _ in range(4):
        inputs = torch.randn(2, 3, requires_grad=True)
        found, wanted = read(recordings, weight, inputs), function(inputs, weight)
        torch.testing.assert_close(found, wanted)
        gradients = [torch.autograd.grad(outputs[0].square().sum() + outputs[1].sum(), [inputs, weight]) for outputs in (found, wanted)]
        torch.testing.assert_close(*gradients)
        with torch.no_grad():
            weight += 0.1
    assert made == [[(2, 3), (3, 3)]]


def test_other_settings_are_recorded_by_themselves(made):
    def scaled(inputs, weight, factor):
        return (inputs @ weight * factor,)

    recordings, weight, inputs = Recordings(), torch.randn(3, 3, requires_grad=True), torch.randn(2, 3)
    for factor in (2, 3, 2, 3, 2, 3):
        torch.testing.assert_close(recordings.call(weight, scaled, inputs, weight, factor=factor), scaled(inputs, weight, factor))
    assert len(made) == 2


def test_gradients_add_up_over_calls(made):
    recordings, weight = Recordings(), torch.randn(3, 3, requires_grad=True)
    texts = [torch.randn(2, 3) for _ in range(5)]
    for inputs in texts:
        read(recordings, weight, inputs)[0].sum().backward()
    found, weight.grad = weight.grad, None
    sum(function(inputs, weight)[0].sum() for inputs in texts).backward()
    torch.testing.assert_close(found, weight.grad)


def test_shapes_that_come_once_and_more_shapes_than_are_kept_are_not_recorded(made):
    recordings, weight = Recordings(), torch.randn(3, 3, requires_grad=True)
    for rows in range(1, MAX_RECORDINGS + 3):
        read(recordings, weight, torch.randn(rows, 3))
    assert made == []
    for _ in range(3):
        for rows in range(1, MAX_RECORDINGS + 3):
            inputs = torch.randn(rows, 3)
            torch.testing.assert_close(read(recordings, weight, inputs), function(inputs, weight))
    assert made == [[(rows, 3), (3, 3)] for rows in range(1, MAX_RECORDINGS + 1)]


def test_gradients_of_what_was_written_over_are_refused(made):
    recordings, weight = Recordings(), torch.randn(3, 3, requires_grad=True)
    first, second, third = (read(recordings, weight, torch.randn(2, 3))[0].sum() for _ in range(3))
    third.backward()
    first.backward()  # was not recorded
    with pytest.raises(RuntimeError, match="called again before the gradients of its last call were computed"):
        second.backward()


def test_a_recording_goes_with_its_weight(made):
    recordings = Recordings()
    for _ in range(2):
        weight = torch.randn(3, 3, requires_grad=True)
        for _ in range(2):
            read(recordings, weight, torch.randn(2, 3))
        del weight
        gc.collect()
    assert len(made) == 2
    assert len(recordings._of) == 0


@pytest.mark.parametrize("wrong", [False, True])
def test_the_benchmark_at_toy_size(made, monkeypatch, capsys, wrong):
    """Its errors of recordings are those of what is replayed."""
    graphed = torch.cuda.make_graphed_callables
    if wrong:
        monkeypatch.setattr(
            torch.cuda,
            "make_graphed_callables",
            lambda function, *rest, **named: graphed(lambda *v: [2 * r for r in function(*v)], *rest, **named),
        )
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("gpu_recurrences")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "none")
    monkeypatch.setattr(module, "random_values", lambda *shapes: [torch.randn(shape) / 4 for shape in shapes])
    monkeypatch.setattr("sys.argv", ["gpu_recurrences.py", "--sizes", "2x3x8", "--steps", "1"])
    module.main()
    errors = [line.split() for line in capsys.readouterr().out.splitlines() if " ms " in line]
    assert len(errors) == 2 * 6
    assert len(made) == 3
    for words in errors:
        is_wrong = float(words[-3].rstrip(",")) > (0.1 if "bfloat16" in words else 1e-5)
        assert is_wrong == (wrong and words[0] == "CUDA")
