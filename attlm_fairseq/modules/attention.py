"""What all kinds of attention share: the softmax over a memory, and what the columns of the weights are."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Columns(NamedTuple):
    """Which state each column of attention weights belongs to, if the sequence was read from an empty memory.

    If the memory holds words, read "input i" for "the state after input i".

    Attributes:
        newest: position t sees the states after inputs up to t - ``newest``.
        oldest: position t sees the states after inputs from t - ``oldest`` on; None: from the first input on.
        initial: True if column 0 is the initial state ``h_0`` and column i + 1 the state after input i. False if column i
            is the state after input i.
    """

    newest: int
    oldest: int | None = None
    initial: bool = False
    of: str = "state"  # or "word": what the memory holds


def masked_softmax(scores: Tensor, visible: Tensor) -> Tensor:
    """Compute the softmax over the visible elements of the last dimension. All other elements are 0; so are all if none is visible."""
    return torch.softmax(scores.masked_fill(~visible, -torch.inf), dim=-1).masked_fill(~visible, 0.0)
