"""Averages of the weights over training. The average is validated and saved; training continues with the latest weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

logger = logging.getLogger(__name__)

AVERAGES = ("none", "nt-asgd", "asgd", "ema")


class WeightAverage:
    """The average of a model's weights, in float32 at least.

    - ``ema``: after update t ``a = d a + (1 - d) w``, where d is ``decay``, at most (1 + t) / (10 + t). The bound lets the average
      of a short run forget the first weights.
    - ``asgd``: the mean of the weights after each update. AWD-LSTM is fine-tuned so.
    - ``nt-asgd`` (Merity, Keskar and Socher 2018): the mean of the weights after each update since the trigger. The trigger
      is the first validation whose perplexity is above the best of all validations except the ``window`` before it. With SGD
      this is averaged SGD.
    """

    def __init__(self, kind: str, decay: float, window: int) -> None:
        self.kind, self.decay, self.window = kind, decay, window
        self.average: list[Tensor] = []
        self.own: list[Tensor] = []  # the latest weights, while the model holds the average
        self.updates = 0  # number of updates in the average
        self.perplexities: list[float] = []
        self.triggered = kind in ("asgd", "ema")

    def add(self, model: nn.Module) -> None:
        """Add the model's weights to the average, after an update."""
        if not self.triggered:
            return
        self.updates += 1
        share = 1 / self.updates if self.kind != "ema" else max(1 - self.decay, 9 / (10 + self.updates))
        with torch.no_grad():
            if self.updates == 1:
                self.average = [wide(weights).clone() for weights in trained(model)]
            else:
                for average, weights in zip(self.average, trained(model), strict=True):
                    average.lerp_(weights.to(average.dtype), share)

    def put_in(self, model: nn.Module) -> None:
        """Put the average into the model, if there is one."""
        if self.average and not self.own:
            self.own = [weights.detach().clone() for weights in trained(model)]
            replace(model, self.average)

    def take_out(self, model: nn.Module) -> None:
        """Put the latest weights back into the model."""
        if self.own:
            replace(model, self.own)
            self.own = []
            # strict=False: a run that was resumed with another kind has no average yet
            self.average = [wide(average.to(weights.device)) for average, weights in zip(self.average, trained(model), strict=False)]

    def judge(self, perplexity: float) -> bool:
        """Return whether the average starts after a validation with this perplexity."""
        begins = not self.triggered and len(self.perplexities) > self.window and perplexity > min(self.perplexities[: -self.window])
        self.triggered |= begins
        self.perplexities.append(perplexity)
        return begins

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs, on the CPU."""
        tensors = {"average": self.average, "own": self.own}
        return {
            **{name: [part.cpu().contiguous() for part in parts] for name, parts in tensors.items()},
            "kind": self.kind,
            "updates": self.updates,
            "perplexities": self.perplexities,
            "triggered": self.triggered,
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue with the latest weights of the saved run, and with its average if that is of the same kind."""
        self.own = [part.clone() for part in saved["own"]]
        kind = saved.get("kind", self.kind)  # older checkpoints lack it
        if kind == self.kind != "none":
            self.average = [part.clone() for part in saved["average"]]
            self.updates, self.perplexities = saved["updates"], list(saved["perplexities"])
            self.triggered = saved["triggered"] or self.triggered
        elif self.own:
            logger.info(
                f"the average in the checkpoint is not of --average {self.kind}: training goes on from the latest weights, without it"
            )


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [weights for weights in model.parameters() if weights.requires_grad]


@torch.no_grad()
def replace(model: nn.Module, values: Sequence[Tensor]) -> None:
    for weights, value in zip(trained(model), values, strict=True):
        weights.copy_(value)


@torch.no_grad()
def copy_to_masters(optimizer: Any) -> None:
    """Copy the model's weights to the float32 copies that fairseq's optimizer has with ``--fp16`` and ``--bf16``."""
    masters = getattr(optimizer, "fp32_params", None)
    if masters is None:
        return
    renewed = optimizer.build_fp32_params(None, optimizer.fp16_params, flatten=optimizer.has_flat_params)
    both = (masters, renewed) if isinstance(masters, list) else (masters.values(), renewed.values())
    for master, weights in zip(*both, strict=True):
        master.copy_(weights)


def wide(weights: Tensor) -> Tensor:
    return weights.detach().to(torch.promote_types(weights.dtype, torch.float32))
