"""The Reader contract: the one part in which the papers' language models differ.

Shapes: B sentences in the batch, T positions, H hidden size, F size of the features, M memory slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.attention import Columns
from attlm_fairseq.modules.state import Memory


class Read(NamedTuple):
    """What a reader has read from the memory for each prediction.

    Attributes:
        weights: attention weights (B, T, M). The first columns belong to the slots of the memory that was passed in (one
            column if it is a running sum), the others to the new states.
        tokens: the token of each column (B, T, M), only from readers whose memory holds words.
        log_gate: the logarithm of the weight that is left for the softmax (B, T), only from readers with a sentinel.
    """

    weights: Tensor
    tokens: Tensor | None = None
    log_gate: Tensor | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> Read:
        """Return it with ``change`` applied to every tensor."""
        return Read(change(self.weights), *(None if part is None else change(part) for part in self[1:]))

    def at(self, places: Tensor) -> Read:
        """Return the weights and tokens (N, M) of the N predictions for which ``places`` (B, T) is True."""
        return self.map(lambda part: part[places])

    @staticmethod
    def cat(reads: Sequence[Read]) -> Read:
        """Return the predictions of several, (N, M) each. Shorter memories are padded on the left with weights of 0."""
        slots = max(read.weights.size(1) for read in reads)
        padded = [read.map(lambda part: nn.functional.pad(part, (slots - part.size(1), 0)) if part.dim() > 1 else part) for read in reads]
        others = (None if parts[0] is None else torch.cat(parts) for parts in zip(*(read[1:] for read in padded), strict=True))
        return Read(torch.cat([read.weights for read in padded]), *others)


class Reader(Protocol):
    """Computes the features of the output layer from the states of a recurrence and the memory of earlier states.

    A reader is causal: the features at position t depend only on ``h_1 .. h_t`` and the tokens up to t. The module stores
    no memory. A sequence may be read in pieces of any length, down to single states. For the next piece, pass the memory
    that ``advance`` returned for this one. The features equal those of one call for the whole sequence, except for rounding.

    Parameters with "bias" in their name are initialised to 0, all others uniformly at random. bfloat16 scoring rounds the
    products of all ``nn.Linear`` layers, nested ones included. It does not round a reader's other products.
    """

    defaults: ClassVar[Mapping[str, Any]]  # its own options, named as on fairseq-train's command line
    feature_size: int  # F

    @classmethod
    def from_config(cls, hidden_size: int, vocabulary_size: int, config: Mapping[str, Any]) -> Reader:
        """Build the reader for states of ``hidden_size`` from the options of its model, defaults included.

        ``vocabulary_size`` is for readers with tables of words. Raises ValueError for an invalid option.
        """

    @property
    def starts_with_state(self) -> bool:
        """Whether features 0 .. H - 1 are ``h_t``, so that a plain LSTM's output layer fits them."""

    @property
    def columns(self) -> Columns | None:
        """The meaning of the columns of its weights; None if it has no weights."""

    def initialise_biases(self) -> None:
        """Set the biases that start at another value than 0, and the parameters that are not to be drawn. See ``BiasesStartAtZero``."""

    def modules(self) -> Iterator[nn.Module]:
        """See ``nn.Module.modules``; every reader is an ``nn.Module``."""

    def __call__(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Compute the features.

        Args:
            states: (B, T, H).
            tokens: (B, T), the tokens that led to the states.
            memory: the memory of the states before these; None is an empty memory.
            need_read: return what was read too.

        Returns:
            Features (B, T, F), and what was read if requested, else None.
        """

    def empty_memory(self, state: Tensor) -> Memory:
        """Return the memory before the first position, with the batch size, dtype and device of ``state`` (B, H)."""

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        """Return the memory after states (B, T, H) with tokens (B, T). ``memory``, the one before, does not change."""

    def read_on(self, states: Tensor, tokens: Tensor, memory: Memory, need_read: bool = False) -> tuple[Tensor, Read | None, Memory]:
        """Return what a call and ``advance`` with these arguments return."""

    def updated_memory(self, memory: Memory) -> Memory:
        """Return the memory after the reader's weights have changed: products with them that it keeps for speed are computed again."""


class MemoryReader(nn.Module):
    """Base of the readers. A reader whose features and memory share computation overrides ``read_on``."""

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        raise NotImplementedError

    def read_on(self, states: Tensor, tokens: Tensor, memory: Memory, need_read: bool = False) -> tuple[Tensor, Read | None, Memory]:
        return *self(states, tokens, memory, need_read), self.advance(states, tokens, memory)

    def updated_memory(self, memory: Memory) -> Memory:
        return memory


def visible_columns(present: Tensor, length: int, before: int, nearest: int, oldest: int | None = None) -> Tensor:
    """Return which columns each of T = ``length`` positions sees, (B, T, K) bool.

    Args:
        present: which columns each row has, (B, K) bool: the slots of the memory and the new states.
        length: T.
        before: the number of columns before the first new state.
        nearest: a position sees the states of at least so many positions ago.
        oldest: a position sees the states of at most so many positions ago; None is no limit.
    """
    places = torch.arange(present.size(1), device=present.device)
    back = before + torch.arange(length, device=present.device).unsqueeze(1) - places
    return present.unsqueeze(1) & (back >= nearest if oldest is None else (back >= nearest) & (back <= oldest))


def skip_of(config: Mapping[str, Any]) -> int:
    """Return ``--attention-skip``. Raises ValueError if it is not a whole number of states."""
    skip = config["attention_skip"]
    if not isinstance(skip, int) or skip < 0:
        raise ValueError(f"--attention-skip must be a whole number of newest states that are not attended to, not {skip}")
    return skip
