"""Matrix products by oneDNN's kernels. On CPUs they are faster than ``torch.mm`` for few rows, and on AMD's with AVX-512 for many.

Shapes: N rows, K columns of both factors, M outputs.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from attlm_fairseq.numeric import ceil_div

ROUNDING_MODES = ("BF16", "F16", "TF32", "ANY")  # of oneDNN's environment variable: its float32 products are then rounded
COPIED_ROWS = 128  # of a matrix that is transposed, at once
FEW_ROWS = 16  # rows of a product in a decoder, about: oneDNN's layouts for 8 to 64 rows hardly differ in speed


def round_up_to_few(count: int) -> int:
    """Round up a number of rows to one of 16 sizes between two powers of two, and to a multiple of 4.

    oneDNN keeps a kernel of 0.7 MB for each size, which it compiles when the size first occurs.
    """
    step = max(4, 1 << max(0, (count - 1).bit_length() - 5))
    return ceil_div(count, step) * step


class FixedProduct:
    """Multiplies rows (N, K) by a matrix (M, K) that stays the same, as in the steps of a recurrence: ``x W^T``.

    On a CPU, oneDNN stores the matrix once in the layout that its kernels read. Otherwise each product rearranges it, which
    for 16 rows takes as long as the product itself.
    """

    def __init__(self, weight: Tensor, rows: int) -> None:
        """Store the matrix. ``rows``: how many a product has, about."""
        self.fast, self._rows, self._dtype = _has_kernels(weight), rows, weight.dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(in_rows(weight), rows) if self.fast else _computable(weight)

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the product (N, M)."""
        return _linear(rows, self._weight) if self.fast else (rows.to(self._weight.dtype) @ self._weight.t()).to(rows.dtype)

    def __reduce__(self) -> tuple[Any, ...]:  # the layout is only valid on this CPU, and cannot be copied
        return FixedProduct, (self._weight.to_dense() if self.fast else self._weight.to(self._dtype), self._rows)


class FixedLinear(nn.Module):
    """A linear layer ``y = W x + b`` for decoders, whose steps have few rows."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Store a weight (M, K) and a bias (M,)."""
        super().__init__()
        self._product, self._dtype = FixedProduct(weight.detach(), FEW_ROWS), weight.dtype
        self.bias = None if bias is None else bias.detach()

    def forward(self, inputs: Tensor) -> Tensor:
        """Return outputs (.., M) for inputs (.., K)."""
        rows = inputs.flatten(0, -2).to(self._dtype)  # under autocast it may be another
        more = round_up_to_few(len(rows)) - len(rows) if len(rows) > 2 * FEW_ROWS else 0  # below that, 4 rows cost more than 1
        outputs = self._product(nn.functional.pad(rows, (0, 0, 0, more)) if more else rows)[: len(rows)]
        return (outputs if self.bias is None else outputs.add_(self.bias)).unflatten(0, inputs.shape[:-1])


def product(left: Tensor, right: Tensor) -> Tensor:
    """Return ``left right`` (N, M), given (N, K) and (K, M), without gradients."""
    if left.numel() and _prefers_kernels(left):
        return _linear(left, right.t())
    return (_computable(left) @ _computable(right)).to(left.dtype)


def product_into(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """Write ``left right`` (N, M), given (N, K) and (K, M), without gradients, over ``out``, and return it."""
    factors = _computable(left), _computable(right)
    return torch.mm(left, right, out=out) if factors[0] is left else out.copy_(torch.mm(*factors))


def left_factor(values: Tensor) -> Tensor:
    """Return values (N, K) in the layout in which products with them are fastest: their rows one after another for oneDNN.

    With AMX, storing a transposed bfloat16 matrix in that layout and multiplying takes half as long as multiplying alone.
    """
    rounded = values.dtype == torch.bfloat16 and _has_kernels(values)
    return in_rows(values) if rounded or _prefers_kernels(values) else values


def in_rows(values: Tensor) -> Tensor:
    """Return a matrix (N, K) with its rows one after another, as ``contiguous`` does, but large transposed ones up to 4 times as fast."""
    if values.is_contiguous() or values.stride(0) != 1 or values.device.type != "cpu":
        return values.contiguous()
    copied = torch.empty(values.shape, dtype=values.dtype)
    for begin in range(0, values.size(1), COPIED_ROWS):
        some = slice(begin, begin + COPIED_ROWS)
        copied[:, some] = values[:, some]
    return copied


def _linear(rows: Tensor, weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(rows, weight, None, "none", [], "")


def _has_kernels(factor: Tensor) -> bool:
    return factor.device.type == "cpu" and _kernels_for(factor.dtype)


def _computable(factor: Tensor) -> Tensor:
    """Return the factor in float32 where torch has no fast products in its dtype: bfloat16 on a CPU without AVX-512.

    There float32 is 30 times as fast, and the product of two bfloat16 numbers is exact in it.
    """
    slow = factor.dtype == torch.bfloat16 and factor.device.type == "cpu" and not _has_kernels(factor)
    return factor.float() if slow else factor


def _prefers_kernels(factor: Tensor) -> bool:
    """Return whether oneDNN is the faster one for many rows.

    torch's float32 products are MKL's, which does not use all of AVX-512 on AMD's CPUs. On Intel's it is the faster one, and with AVX2.
    torch's bfloat16 products are oneDNN's already.
    """
    return factor.dtype == torch.float32 and _has_kernels(factor) and _mkl_lacks_avx512()


@cache
def _mkl_lacks_avx512() -> bool:
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.10 may lack it
    intel = str(capabilities.get("cpu_name", "")).startswith("Intel")
    return not intel and "AVX512" in torch.backends.cpu.get_cpu_capability()


def has_bfloat16_instructions() -> bool:
    """Return whether this CPU has instructions for bfloat16. Without them products take longer than in float32."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@cache
def slower_in_bfloat16() -> bool:
    """Return whether a large product takes longer in bfloat16 than in float32 on this CPU.

    It is measured, the best of ten of each: CPUs with instructions for bfloat16 take 0.2 (AMX), 0.5 (AMD) or 1.8 times as long (Intel
    without AMX).
    """
    factors = {dtype: (torch.ones(512, 640, dtype=dtype), torch.ones(640, 640, dtype=dtype)) for dtype in (torch.bfloat16, torch.float32)}
    best = dict.fromkeys(factors, math.inf)
    for turn in range(11):
        for dtype, (rows, weight) in factors.items():  # by turns, because other work on the machine comes and goes
            begun = time.perf_counter()
            rows @ weight
            if turn:  # the first one compiles the kernel
                best[dtype] = min(best[dtype], time.perf_counter() - begun)
    return best[torch.bfloat16] > 1.2 * best[torch.float32]


@cache
def _kernels_for(dtype: torch.dtype) -> bool:
    """Return whether this CPU and this torch, whose operations have no public names, have kernels for a dtype."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    if dtype == torch.float32:
        return not any(os.environ.get(f"{name}_DEFAULT_FPMATH_MODE", "STRICT").upper() in ROUNDING_MODES for name in ("ONEDNN", "DNNL"))
    return dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
