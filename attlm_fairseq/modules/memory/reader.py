"""The Reader contract: the one part in which the papers' language models differ.

Shapes: B sentences in the batch, T positions, H size of an LSTM state, F size of the features, M memory slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.state import Memory


class Read(NamedTuple):
    """What a reader has read for each prediction.

    ``weights`` (B, T, M) are of the slots of the memory given (one for a running sum), then of the states. ``tokens`` (B, T, M), from
    readers whose memory is words: which token each column stands for.
    """

    weights: Tensor
    tokens: Tensor | None = None

    def at(self, places: Tensor) -> Read:
        """Return what was read for the N predictions of ``places`` (B, T) bool: weights and tokens (N, M)."""
        return Read(self.weights[places], None if self.tokens is None else self.tokens[places])


class Columns(NamedTuple):
    """Which states the columns of a reader's weights are, for a sequence that was read from an empty memory.

    Position t has the states after the inputs t - ``oldest`` (None: from the first on) to t - ``newest`` in memory. ``initial``: column 0
    is the state before the first input, ``h_0``, and column i + 1 the one after input i; otherwise that is column i.
    """

    newest: int
    oldest: int | None = None
    initial: bool = False


class Reader(Protocol):
    """Turns the states of a recurrence into the features of the output layer, reading the memory of earlier states.

    Strictly causal: the features at position t depend on ``h_1 .. h_t`` and on the tokens up to t alone. Nothing is kept on the module. A
    sequence may be read in pieces of any length, down to single states: reading ``states`` and then ``more`` with the memory that
    ``advance(states, tokens, memory)`` returns gives the features of both in one call, to rounding.

    Parameters with "bias" in their name start at 0, the others uniformly random. Under bfloat16 scoring the products of all linear layers
    are rounded, however deep these lie; what a reader multiplies itself is not.
    """

    defaults: ClassVar[Mapping[str, Any]]  # its own options, named as on fairseq-train's command line
    feature_size: int  # F
    starts_with_state: ClassVar[bool]  # whether the first features are h_t itself: an output layer of h_t then fits the first columns

    @classmethod
    def from_config(cls, hidden_size: int, config: Mapping[str, Any]) -> Reader:
        """Build the reader for states of ``hidden_size`` from the options of its model, which include all defaults."""
        ...

    @property
    def columns(self) -> Columns | None:
        """What the columns of its weights are; None if it has no weights."""
        ...

    def modules(self) -> Iterator[nn.Module]:
        """As of ``nn.Module``, which every reader is."""
        ...

    def __call__(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """States (B, T, H), the tokens (B, T) they were reached with -> features (B, T, F) and, only on request, what was read.

        ``memory`` is of the states before these; without one it is empty.
        """
        ...

    def empty_memory(self, state: Tensor) -> Memory:
        """The memory before the first position, for a batch like ``state`` (B, H)."""
        ...

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        """States (B, T, H), their tokens (B, T) and the memory before -> the memory after; the one given stays as it is."""
        ...


def masked_softmax(scores: Tensor, visible: Tensor) -> Tensor:
    """Softmax over the last dimension where ``visible``; 0 elsewhere, also where nothing is visible."""
    return torch.softmax(scores.masked_fill(~visible, -torch.inf), dim=-1).masked_fill(~visible, 0.0)


def with_memory(present: Tensor, visible: Tensor) -> Tensor:
    """Which slots of the memory there are (B, M), which states each position sees (T, K) -> what it sees of both (B, T, M + K)."""
    rows, length = len(present), len(visible)
    return torch.cat((present.unsqueeze(1).expand(rows, length, -1), visible.expand(rows, -1, -1)), dim=2)


def append_slots(memory: Memory, *parts: Tensor) -> Memory:
    """A memory of slots with those of new states (B, T, ..) behind its own."""
    present = parts[0].new_ones(parts[0].shape[:2], dtype=torch.bool)
    return tuple(torch.cat(pair, dim=1) for pair in zip(memory, (*parts, present), strict=True))
