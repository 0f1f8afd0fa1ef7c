"""A language model whose steps compute products fast for few rows, or in lower precision. Its states are the original model's.

Shapes: N rows, H hidden size, E embedding.
"""

from __future__ import annotations

import copy
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.kernels.int8_linear import Int8Linear
from attlm_fairseq.modules.kernels.low_precision import Bfloat16Linear, MakeLinear
from attlm_fairseq.modules.kernels.lstm_cell import lstm_cell
from attlm_fairseq.modules.kernels.products import FixedLinear
from attlm_fairseq.modules.language_model import LanguageModel
from attlm_fairseq.modules.recurrence import LSTM
from attlm_fairseq.modules.recurrence.recurrence import with_layers_below
from attlm_fairseq.modules.recurrence.torch_layers import weights_of
from attlm_fairseq.modules.state import State

AnyModule = TypeVar("AnyModule", bound=nn.Module)
PRECISIONS: dict[str, MakeLinear] = {"float32": FixedLinear, "bfloat16": Bfloat16Linear, "int8": Int8Linear}


class LSTMSteps(nn.Module):
    """The steps of an LSTM. One product per layer combines the input projection and the recurrent projection."""

    def __init__(self, lstm: LSTM, make: MakeLinear) -> None:
        super().__init__()
        self.hidden_size, self.below = lstm.hidden_size, lstm.below
        weight, recurrent, bias = weights_of(lstm, 0)
        self.first = make(weight, bias)
        others = (weights_of(lstm, layer) for layer in range(1, lstm.num_layers))
        self.products = nn.ModuleList([make(recurrent, None), *(make(torch.cat(pair, dim=1), bias) for *pair, bias in others)])

    def inputs(self, embedded: Tensor) -> Tensor:
        """Return the input projections (N, 4 H) of the first layer's gates for embeddings (N, E)."""
        return self.first(embedded)

    def step(self, inputs: Tensor, before: State) -> tuple[Tensor, State]:
        """Return the output (N, H) and the new state. ``inputs`` (N, 4 H) are overwritten."""
        hidden: list[Tensor] = []
        cell: list[Tensor] = []
        for product, h, c in zip(self.products, before[0].unbind(1), before[1].unbind(1), strict=True):
            gates = product(torch.cat((hidden[-1], h), dim=1)) if hidden else inputs.add_(product(h))
            for values, new in zip((hidden, cell), lstm_cell(gates, c), strict=True):
                values.append(new)
        return with_layers_below(hidden, self.below), (torch.stack(hidden, 1), torch.stack(cell, 1))


def stepping_model(model: LanguageModel, precision: str) -> LanguageModel:
    """Return a model for steps with weights of ``float32``, ``bfloat16`` or ``int8``. It shares all unchanged parts.

    The weights of the LSTM, of all linear layers in other recurrences and in readers, and of full softmaxes are rounded, or
    for float32 copied in the layout that is fastest for few rows.
    Embeddings, the plain RNN and the adaptive softmax stay in float32. All states stay in float32 too, so either model can continue
    from a state of the other.

    Raises:
        ValueError: an unknown precision, or int8 on a device that is not an x86 CPU.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision {precision!r} is not one of: {', '.join(PRECISIONS)}")
    if precision == "float32" and model.embedding.weight.device.type != "cpu":
        return model
    make = PRECISIONS[precision]
    if precision == "int8" and (
        model.embedding.weight.device.type != "cpu" or not {"fbgemm", "x86"} & {*torch.backends.quantized.supported_engines}
    ):
        raise ValueError("precision int8 needs a model on an x86 CPU; leave it out, or take bfloat16")
    stepping = with_changed_children(model, make)
    stepping._modules["output"] = cast(nn.Module, model.output.steps(make))
    return stepping


def with_linear(module: nn.Module, make: MakeLinear) -> nn.Module:
    """Return a module whose linear layers are made by ``make``. It shares all other parts."""
    if isinstance(module, LSTM):
        return LSTMSteps(module, make)
    if isinstance(module, nn.Linear):
        return make(module.weight, module.bias)
    return with_changed_children(module, make)


def with_changed_children(module: AnyModule, make: MakeLinear) -> AnyModule:
    """Return a copy of a module with ``with_linear`` applied to its children. It shares all other parts."""
    changed = copy.copy(module)
    changed._modules = {name: child and with_linear(child, make) for name, child in module._modules.items()}
    return changed
