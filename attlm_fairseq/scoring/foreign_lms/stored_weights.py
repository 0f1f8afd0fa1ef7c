"""Keep the matrices of a causal LM of Hugging Face in bfloat16, in which they are stored, for products in bfloat16.

In float32, a model of 7 billion weights needs 28 GB, and torch's autocast adds a copy of its matrices in bfloat16. Here linear layers
and embeddings keep their weights as stored and convert them when they are used. All other weights become float32. The results are
exactly those of the model in float32, with and without autocast, because every number of bfloat16 is one of float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

STORED = torch.bfloat16


class StoredLinear(nn.Linear):
    """A linear layer whose weight has the type in which it is stored."""

    def forward(self, inputs: Tensor) -> Tensor:
        weight = self.weight if torch.is_autocast_enabled(inputs.device.type) else self.weight.to(inputs.dtype)
        return functional.linear(inputs, weight, self.bias)


class StoredEmbedding(nn.Embedding):
    """An embedding whose weight has the type in which it is stored."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs).float()


KEPT: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: StoredLinear, nn.Embedding: StoredEmbedding}


def names_in_bfloat16(folder: Path) -> frozenset[str]:
    """Return the names of the weights in a folder's safetensors; none if some are not in bfloat16, or cannot be read."""
    from safetensors import SafetensorError, safe_open

    names = set()
    try:
        for path in folder.glob("*.safetensors"):
            with safe_open(path, framework="pt") as file:
                of_file = list(file.keys())
                if any(file.get_slice(name).get_dtype() != "BF16" for name in of_file):
                    return frozenset()
                names.update(of_file)
    except (SafetensorError, OSError):  # who loads them says what is wrong
        return frozenset()
    return frozenset(names)


def compute_in_float32(model: nn.Module, stored: frozenset[str]) -> bool:
    """Let an LM that was loaded in bfloat16 compute as one loaded in float32. Its linear layers and embeddings keep their weights.

    Args:
        model: the LM as it was loaded, in bfloat16. It is changed.
        stored: the names of the weights in its files. Any other weight is a constant that the LM has computed.

    Returns:
        Whether it does. If not, the LM must be loaded in float32: it has computed a constant in bfloat16, or uses the weights of a layer
        without calling the layer.
    """
    modules = list(model.modules())
    of_others = {id(weight) for module in modules if type(module) not in KEPT for weight in module.parameters(recurse=False)}
    kept = [module for module in modules if type(module) in KEPT and id(module.weight) not in of_others]
    matrices = {id(layer.weight) for layer in kept}
    for name, values in (*model.named_parameters(), *model.named_buffers()):
        if values.dtype == STORED and id(values) not in matrices:
            if not _is_stored(name, stored):
                return False
            values.data = values.data.float()
    for layer in kept:
        layer.__class__ = KEPT[type(layer)]
    return _computes(model)


def _is_stored(name: str, stored: frozenset[str]) -> bool:
    """Return whether a weight is stored. Its name may be longer or shorter there, by the names of the modules around the model."""
    return any(ending in stored for ending in _endings(name)) or any(name in _endings(other) for other in stored)


def _endings(name: str) -> Iterator[str]:
    """Yield the name of a weight, and what is left of it without the outer modules."""
    parts = name.split(".")
    return (".".join(parts[place:]) for place in range(len(parts)))


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
