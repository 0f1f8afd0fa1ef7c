"""Factors of matrix products in lower precision, as CPUs and GPUs want them: with sizes that their instructions divide.

Shapes: N rows, K columns.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from attlm_fairseq.numeric import ceil_div

DTYPE = torch.bfloat16  # of the products of a model that scores in lower precision
COLUMNS = 32  # the inner dimension of a product is a multiple, as AMX takes them (GPUs want 8): 650 columns take twice as long as 672
ROWS = 128  # the number of rows best is one, too: the first product of a size takes several times as long, while it is compiled


class HasModules(Protocol):
    """A module, or the contract of one."""

    def modules(self) -> Iterator[nn.Module]:
        """As of ``nn.Module``."""
        ...


AnyModule = TypeVar("AnyModule", bound=HasModules)


def rounded(factor: Tensor, dtype: torch.dtype, *, rows: bool = False) -> Tensor:
    """The factor (.., N, K) in a lower precision, with columns of zeros up to the next multiple, and with ``rows`` rows of zeros, too."""
    *others, height, columns = factor.shape
    padded = [ceil_div(size, COLUMNS) * COLUMNS for size in (height, columns)]
    low = torch.empty(*others, padded[0] if rows else height, padded[1], dtype=dtype, device=factor.device)
    low[..., :height, :columns] = factor
    low[..., :height, columns:] = 0
    low[..., height:, :] = 0
    return low


class Bfloat16Linear(nn.Module):
    """A linear layer that takes and gives float32 and whose product is in bfloat16, its weight (M, K) rounded once."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = rounded(weight, DTYPE), bias

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.flatten(0, -2)
        low = self.weight.new_empty(round_up_rows(len(rows)), self.weight.size(1))
        low[:, rows.size(1) :] = 0
        low[: len(rows), : rows.size(1)] = rows
        outputs = (low @ self.weight.t())[: len(rows)].to(inputs.dtype)
        return (outputs if self.bias is None else outputs.add_(self.bias)).unflatten(0, inputs.shape[:-1])


def with_bfloat16_products(module: AnyModule) -> AnyModule:
    """Return a copy whose linear layers, however deep they lie, take their products in bfloat16."""
    changed = copy.deepcopy(module)
    for parent in list(changed.modules()):
        for name, layer in parent.named_children():
            if isinstance(layer, nn.Linear):
                setattr(parent, name, Bfloat16Linear(layer.weight, layer.bias))
    return changed


def select_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Return the rows (N,) of a matrix, then uninitialised ones up to ``round_up_rows``."""
    chosen = matrix.new_empty(round_up_rows(len(rows)), matrix.size(1))
    torch.index_select(matrix, 0, rows, out=chosen[: len(rows)])
    return chosen


def round_up_rows(count: int) -> int:
    """Round a number of rows up to a multiple of ``ROWS``; below that, to a power of two: few sizes have to be compiled."""
    return ceil_div(count, ROWS) * ROWS if count > ROWS // 2 else max(16, 1 << (count - 1).bit_length())


def piece_sizes(length: int, most: int) -> list[int]:
    """Return sizes of as few pieces as have at most so many rows each, all but the last multiples of ``ROWS`` if so many are allowed."""
    size = min(round_up_rows(ceil_div(length, ceil_div(length, most))), most)
    return [min(size, length - begin) for begin in range(0, length, size)]
