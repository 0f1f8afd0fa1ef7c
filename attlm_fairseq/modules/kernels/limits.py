"""Sizes of the pieces in which kernels compute: small enough for a CPU's cache, or large enough to keep a GPU busy.

The sizes were the fastest of those tried with ``benchmarks/training_speed.py`` and ``benchmarks/rescoring.py``. They do not
change results, except for rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Widths(NamedTuple):
    """Sizes of the pieces of a softmax: rows and words in one product, and words whose logits are summed at once."""

    rows: int
    words: int
    summed: int


class Limits(NamedTuple):
    """The sizes for one kind of device."""

    logits: int
    """Logits that a loss holds at once."""
    rounded_logits: int
    """``logits`` for products in lower precision. On a CPU, adding up gradients then costs more than the products."""
    loss_rows: int
    """Predictions that a loss computes at once at least, however large the vocabulary."""
    loss_numbers: int
    """Numbers in one piece of the element-wise part of a loss. On a GPU one piece has all rows."""
    softmax: Widths
    rounded_softmax: Widths
    """``softmax`` for products in lower precision. The float32 sums are over few enough words for the cache."""
    event_numbers: int
    """Numbers gathered at once for the logits of single events."""
    step_rows: int
    """Rows of one matrix product when prefix trees are scored."""
    step_numbers: int
    """Numbers in one piece of the element-wise part of a bfloat16 step, or of an LSTM's gradients. On a GPU one piece has all rows."""
    queries: int
    """Queries in one piece of additive attention. Few queries waste little work on masked keys; many need fewer calls."""
    pairs: int
    """Numbers in one piece of the vectors of all pairs in additive attention."""


NO_LIMIT = 1 << 62
LIMITS = {
    "cpu": Limits(
        logits=1 << 22,
        rounded_logits=1 << 24,
        loss_rows=128,
        loss_numbers=1 << 18,
        softmax=Widths(1024, 2048, 2048),
        rounded_softmax=Widths(512, 5000, 256),
        event_numbers=1 << 21,
        step_rows=768,
        step_numbers=1 << 17,
        queries=8,
        pairs=1 << 20,
    ),
    "cuda": Limits(
        logits=1 << 26,
        rounded_logits=1 << 26,
        loss_rows=128,
        loss_numbers=NO_LIMIT,
        softmax=Widths(1024, 4096, 4096),
        rounded_softmax=Widths(1024, 4096, 4096),
        event_numbers=1 << 22,
        step_rows=16_384,
        step_numbers=NO_LIMIT,
        queries=32,
        pairs=1 << 26,
    ),
}


def limits_of(device: torch.device) -> Limits:
    """Return the sizes for a device; any but a CPU is taken for a GPU."""
    return LIMITS["cpu" if device.type == "cpu" else "cuda"]
