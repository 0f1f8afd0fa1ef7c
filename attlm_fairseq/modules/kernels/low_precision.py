"""Factors of matrix products in lower precision, padded to the sizes with which CPUs and GPUs are fastest.

Shapes: N rows, K columns.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.kernels.products import FEW_ROWS, FixedProduct
from attlm_fairseq.numeric import ceil_div

DTYPE = torch.bfloat16  # dtype of products if a model scores in lower precision
COLUMNS = 32  # inner dimensions are multiples of this, for AMX (GPUs need 8): 650 columns take twice as long as 672
ROWS = 128  # row counts are multiples of this: few distinct sizes, since the first product of each size compiles a kernel


MakeLinear = Callable[[Tensor, Tensor | None], nn.Module]
"""Makes a layer from float32 (.., K) to float32 (.., M), given a weight (M, K) and a bias (M,) or None."""


class HasModules(Protocol):
    """An ``nn.Module``, or a contract whose implementations are modules."""

    def modules(self) -> Iterator[nn.Module]:
        """See ``nn.Module.modules``."""


AnyModule = TypeVar("AnyModule", bound=HasModules)


def rounded(factor: Tensor, dtype: torch.dtype, *, rows: bool = False) -> Tensor:
    """Round a factor (.., N, K) to ``dtype`` and pad its columns with zeros to a multiple; with ``rows``, its rows too.

    If there is nothing to round or pad, it is returned as it is.
    """
    height, columns = factor.shape[-2:]
    whole = round_up_columns(height) if rows else height, round_up_columns(columns)
    if factor.dtype == dtype and factor.is_contiguous() and (height, columns) == whole:
        return factor
    return side_by_side((factor,), dtype, rows=rows)


def side_by_side(factors: Sequence[Tensor], dtype: torch.dtype, *, rows: bool = False) -> Tensor:
    """Return factors (.., N, K_i) as one, (.., N, sum of K_i), rounded and padded as by ``rounded``."""
    *others, height, _ = factors[0].shape
    columns = [0, *accumulate(factor.size(-1) for factor in factors)]
    whole = round_up_columns(height) if rows else height, round_up_columns(columns[-1])
    low = torch.empty(*others, *whole, dtype=dtype, device=factors[0].device)
    for factor, (begin, end) in zip(factors, pairwise(columns), strict=True):
        low[..., :height, begin:end] = factor
    if columns[-1] < whole[1]:
        low[..., :height, columns[-1] :] = 0
    if height < whole[0]:
        low[..., height:, :] = 0
    return low


def round_up_columns(count: int) -> int:
    """Round up an inner dimension to a multiple of ``COLUMNS``."""
    return ceil_div(count, COLUMNS) * COLUMNS


class Bfloat16Linear(nn.Module):
    """A linear layer with float32 inputs and outputs and a bfloat16 product. Its weight (M, K) is rounded once."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        low = rounded(weight.detach(), DTYPE)
        self._product, self._columns, self.bias = FixedProduct(low, FEW_ROWS), low.size(1), bias

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.flatten(0, -2)
        few = self._product.fast and len(rows) <= ROWS // 2  # there are few such sizes
        low = rows.new_empty(len(rows) if few else round_up_rows(len(rows)), self._columns, dtype=DTYPE)
        low[:, rows.size(1) :] = 0
        low[: len(rows), : rows.size(1)] = rows
        outputs = self._product(low)[: len(rows)].to(inputs.dtype)
        return (outputs if self.bias is None else outputs.add_(self.bias)).unflatten(0, inputs.shape[:-1])


def with_bfloat16_products(module: AnyModule) -> AnyModule:
    """Return a copy whose linear layers, nested ones included, compute their products in bfloat16."""
    changed = copy.deepcopy(module)
    for parent in list(changed.modules()):
        for name, layer in list(parent._modules.items()):
            if isinstance(layer, nn.Linear):
                setattr(parent, name, Bfloat16Linear(layer.weight, layer.bias))
    return changed


def select_rows(matrix: Tensor, rows: Tensor) -> Tensor:
    """Return the given rows (N,) of a matrix, followed by uninitialised rows up to ``round_up_rows(N)``."""
    chosen = matrix.new_empty(round_up_rows(len(rows)), matrix.size(1))
    torch.index_select(matrix, 0, rows, out=chosen[: len(rows)])
    return chosen


def round_up_rows(count: int) -> int:
    """Round up to a multiple of ``ROWS``, or below that to a power of two. So kernels are compiled for few sizes."""
    return ceil_div(count, ROWS) * ROWS if count > ROWS // 2 else max(16, 1 << (count - 1).bit_length())


def piece_sizes(length: int, most: int) -> list[int]:
    """Divide ``length`` rows into as few pieces as possible of at most ``most`` rows each, and return their sizes.

    All sizes except the last are multiples of ``ROWS``, unless ``most`` is smaller than that.
    """
    size = min(round_up_rows(ceil_div(length, ceil_div(length, most))), most)
    return [min(size, length - begin) for begin in range(0, length, size)]
