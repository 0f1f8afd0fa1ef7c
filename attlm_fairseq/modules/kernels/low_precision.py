"""Factors of matrix products in lower precision, as processors and GPUs want them: with sizes that their instructions divide."""

from __future__ import annotations

import torch
from torch import Tensor

COLUMNS = 32  # the inner dimension of a product is a multiple, as AMX takes them (GPUs want 8): 650 columns take twice as long as 672
ROWS = 128  # the number of rows best is one, too: the first product of a size takes several times as long, while it is compiled


def rounded(factor: Tensor, dtype: torch.dtype, *, rows: bool = False) -> Tensor:
    """The factor (.., N, K) in a lower precision, with columns of zeros up to the next multiple, and with ``rows`` rows of zeros, too."""
    *others, height, columns = factor.shape
    padded = [-(-size // COLUMNS) * COLUMNS for size in (height, columns)]
    low = torch.empty(*others, padded[0] if rows else height, padded[1], dtype=dtype, device=factor.device)
    low[..., :height, :columns] = factor
    low[..., :height, columns:] = 0
    low[..., height:, :] = 0
    return low
