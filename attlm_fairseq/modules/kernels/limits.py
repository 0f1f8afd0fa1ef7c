"""How much is computed at once: on a CPU what stays in its cache, on a GPU what fills it.

The sizes were the fastest of those tried with ``benchmarks/training_speed.py`` and ``benchmarks/rescoring.py``; results do not depend on
them beyond rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Widths(NamedTuple):
    """How much of a softmax: rows of features and words of the vocabulary in a product, words whose logits are summed."""

    rows: int
    words: int
    summed: int


class Limits(NamedTuple):
    """The sizes that suit a kind of device."""

    logits: int
    """Logits held by a loss."""
    rounded_logits: int
    """The same if products are in lower precision: on a CPU, adding up gradients then costs more than the products."""
    softmax: Widths
    rounded_softmax: Widths
    """The same if products are in lower precision: sums, in float32, of few enough words for the cache."""
    event_numbers: int
    """Numbers gathered for single events."""
    step_rows: int
    """Rows of a step's matrix products while prefix trees are scored."""
    step_numbers: int
    """Numbers of the element-wise part of a step in bfloat16; a GPU takes all rows."""
    queries: int
    """Queries of additive attention: few waste little on what is masked, many are few calls."""
    pairs: int
    """Numbers of the pairs of queries and keys of additive attention."""


ALL = 1 << 62
LIMITS = {
    "cpu": Limits(
        logits=1 << 21,
        rounded_logits=3 << 21,
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
        softmax=Widths(1024, 4096, 4096),
        rounded_softmax=Widths(1024, 4096, 4096),
        event_numbers=1 << 22,
        step_rows=16_384,
        step_numbers=ALL,
        queries=32,
        pairs=1 << 26,
    ),
}


def limits_of(device: torch.device) -> Limits:
    """Return the sizes for a device; any but a CPU is taken for a GPU."""
    return LIMITS["cpu" if device.type == "cpu" else "cuda"]
