"""Whether the weights in a file fit a model and are finite numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attlm_fairseq.checkpoints.folder import StoredModel
from attlm_fairseq.checkpoints.vocabulary import PAD
from attlm_fairseq.errors import InputError
from attlm_fairseq.modules.families import FAMILIES, build_language_model

# what it raises to take a file's content for a model's where parts are missing, of another kind or of another size
MISSHAPEN = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


def misshapen(error: Exception, path: Path) -> InputError:
    """Return the one-line message for a ``MISSHAPEN`` error."""
    found = f"there is no {error}" if isinstance(error, KeyError) else str(error)
    return InputError(
        f"the weights do not fit the model's options: {found}; give what fairseq-train or attlm export wrote with this version of attlm "
        "or an earlier one",
        path=path,
    )


class NoInitialValues(TorchFunctionMode):
    """Skip ``normal_``, which initialises embeddings: on the meta device it imports torch's compiler, 1.5 s and 75 MB."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return kwargs["tensor"] if function is nn.init.normal_ else function(*args, **(kwargs or {}))


def check_sizes(stored: StoredModel, family: str) -> None:
    """Compare the sizes in the options with those of the weights, before anything of these sizes is built.

    Raises:
        ValueError: they differ. Building a model of a wrong size could exhaust the memory or never end.
    """
    options = {**FAMILIES[family].defaults, **stored.options}
    for name in FAMILIES[family].recurrence.counts:
        if not isinstance(options[name], int) or options[name] > len(stored.weights):
            raise ValueError(f"{name} is {options[name]} by its options, there are {len(stored.weights)} tensors in its weights")
    with torch.device("meta"), NoInitialValues():  # sizes without memory
        expected = build_language_model(family, stored.options, len(stored.vocabulary), PAD).state_dict()
    for name in {**expected, **stored.weights}:
        by_options, found = (size_of(weights.get(name)) for weights in (expected, stored.weights))
        if by_options != found:
            raise ValueError(f"{name} is {found} in its weights, {by_options} by its options")


def size_of(weights: Tensor | None) -> str:
    """Return the shape as messages have it: 20x12."""
    return "missing" if weights is None else "x".join(map(str, weights.shape)) or "a number"


def check_numbers(weights: Mapping[str, Any], path: Path) -> None:
    """Raise InputError for weights that are not floating-point: torch would silently convert complex numbers and integers."""
    for name, value in weights.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            found = str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"its weights {name} are {found}, expected floating-point numbers; train or export the model again", path=path)


def check_finite(model: torch.nn.Module, path: Path | None) -> None:
    """Raise InputError for weights that are nan or infinite, with which every probability would be nan."""
    for name, weights in model.named_parameters():
        # as soon as one of them is not, and in a tenth of the time of looking at each; a sum in float16 could overflow
        if not weights.sum(dtype=torch.promote_types(weights.dtype, torch.float32)).isfinite():
            raise InputError(
                f"its weights are no finite numbers ({name}): training has diverged; take an earlier checkpoint, or train with a smaller "
                "--lr or --clip-norm",
                path=path,
            )
