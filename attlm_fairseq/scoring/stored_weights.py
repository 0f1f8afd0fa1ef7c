"""Keep the matrices of a causal LM of Hugging Face in the half precision in which they are stored, for products in bfloat16.

In float32, a model of 7 billion weights needs 28 GB, and torch's autocast adds a copy of its matrices in bfloat16. Here linear layers
and embeddings keep their weights as stored and convert them when they are used. All other weights become float32. The results are
exactly those of the model in float32, with and without autocast, because every half-precision number is a float32 number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

_HALF = {"BF16": torch.bfloat16, "F16": torch.float16}


class Stored(NamedTuple):
    """The weights of a folder's safetensors, all of one type.

    Attributes:
        dtype: ``bfloat16`` or ``float16``.
        names: their names.
    """

    dtype: torch.dtype
    names: frozenset[str]

    def has(self, name: str) -> bool:
        """Return whether a weight is stored. Its name may be longer or shorter there, by the names of the modules around the model."""
        return any(ending in self.names for ending in _endings(name)) or any(name in _endings(other) for other in self.names)


def stored_in_half(folder: Path) -> Stored | None:
    """Return the weights stored in a folder; None if some are not in half precision, or cannot be read."""
    from safetensors import SafetensorError, safe_open

    types, names = set(), set()
    try:
        for path in folder.glob("*.safetensors"):
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a dictionary
                    types.add(file.get_slice(name).get_dtype())
                    names.add(name)
    except (SafetensorError, OSError):  # who loads them says what is wrong
        return None
    dtype = _HALF.get(types.pop()) if len(types) == 1 else None
    return None if dtype is None else Stored(dtype, frozenset(names))


def compute_in_float32(model: nn.Module, stored: Stored) -> bool:
    """Let an LM that was loaded in half precision compute as one loaded in float32. Its linear layers and embeddings keep their weights.

    Returns:
        Whether it does. If not, the LM must be loaded in float32: it has computed a constant in half precision, or uses the weights of a
        layer without calling the layer.
    """
    modules = list(model.modules())
    of_others = {id(weight) for module in modules if type(module) not in (nn.Linear, nn.Embedding) for weight in module.parameters(False)}
    kept = [module for module in modules if type(module) in (nn.Linear, nn.Embedding) and id(module.weight) not in of_others]
    matrices = {id(layer.weight) for layer in kept}
    for name, values in (*model.named_parameters(), *model.named_buffers()):
        if values.dtype == stored.dtype and id(values) not in matrices:
            if not stored.has(name):
                return False
            values.data = values.data.float()
    for layer in kept:
        if type(layer) is nn.Linear:
            layer.forward = MethodType(_linear, layer)  # type: ignore[method-assign]
        else:
            layer.register_forward_hook(_in_float32)
    return _computes(model)


def _endings(name: str) -> Iterator[str]:
    """Yield the name of a weight, and what is left of it without the outer modules."""
    parts = name.split(".")
    return (".".join(parts[place:]) for place in range(len(parts)))


def _linear(layer: nn.Linear, inputs: Tensor) -> Tensor:
    if torch.is_autocast_enabled(inputs.device.type):
        return functional.linear(inputs, layer.weight, layer.bias)
    return functional.linear(inputs, layer.weight.to(inputs.dtype), layer.bias)


def _in_float32(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output.float()


@torch.inference_mode()
def _computes(model: nn.Module) -> bool:
    tokens = torch.zeros(1, 2, dtype=torch.long)
    try:
        exact = model(input_ids=tokens).logits.dtype == torch.float32
        with torch.autocast("cpu", torch.bfloat16):
            model(input_ids=tokens)
    except RuntimeError:  # factors of different types
        return False
    return exact
