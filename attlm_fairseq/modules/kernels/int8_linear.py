"""Matrix products with 8-bit weights on CPUs, for steps of few rows, whose time is spent on reading the weights.

Shapes: N rows, K columns of the weight, M outputs.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

MAX_INT8 = 127  # the largest signed 8-bit value; -128 is not used
TINY = torch.finfo(torch.float32).tiny


class Int8Linear(nn.Module):
    """A linear layer ``y = W x + b`` whose weight has 8 bits and one scale per output; inputs and outputs are float32.

    Each input row is divided by its largest absolute value and rounded to 8 bits between -1 and 1. So the result of a row
    does not depend on the other rows. Sums are exact 32-bit integers, computed by FBGEMM. On CPUs with VNNI, FBGEMM took half
    to two thirds of oneDNN's time for up to 5 rows, and twice its time for 100 rows (2 cores, 2026-11-22;
    ``benchmarks/decoder_steps.py`` measures the whole step).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Round a weight (M, K) to 8 bits."""
        super().__init__()
        weight = weight.detach().float()
        self.scales = weight.abs().amax(dim=1).clamp(min=TINY) / MAX_INT8
        self.rounded = nn.functional.pad((weight / self.scales.unsqueeze(1)).round(), (0, 2)).to(torch.int8)
        self.bias = None if bias is None else bias.detach().float()
        # CPUs without VNNI add two products in 16 bits. Inputs of 7 bits keep these sums from overflowing.
        self.seven_bits = not torch.cpu._is_vnni_supported()
        self._pack()

    def _pack(self) -> None:
        """Pack the weight in the layout that the CPU's instructions need."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"torch\.quantize_per_tensor.* deprecated")
            zeros = torch.zeros(len(self.scales), dtype=torch.long)
            matrix = torch._make_per_channel_quantized_tensor(self.rounded, self.scales.double(), zeros, 0)
            self._packed = torch.ops.quantized.linear_prepack(matrix, None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_packed"}  # the packed layout is only valid on this CPU

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._pack()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (.., M) for inputs (.., K)."""
        rows = inputs.flatten(0, -2)
        scales = rows.abs().amax(dim=1, keepdim=True).clamp_(min=TINY)
        between = rows.new_empty(len(rows), rows.size(1) + 2)
        torch.div(rows, scales, out=between[:, :-2])
        # FBGEMM derives one scale for all rows from the smallest and the largest value. Two added columns with weight 0
        # make these -1 and 1.
        between[:, -2] = -1
        between[:, -1] = 1
        outputs = torch.ops.quantized.linear_dynamic(between, self._packed, self.seven_bits).mul_(scales)
        return (outputs if self.bias is None else outputs.add_(self.bias)).unflatten(0, inputs.shape[:-1])
