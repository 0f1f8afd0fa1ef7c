"""Pointers to recent words with a sentinel: Merity, Xiong, Bradbury and Socher (2017), "Pointer Sentinel Mixture Models".

Shapes: B sentences in the batch, T positions, H size of an LSTM state, M memory slots, L length of the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.attention import Columns
from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.memory.reader import MemoryReader, Read, visible_columns
from attlm_fairseq.modules.state import Memory, append_slots


class PointerReader(BiasesStartAtZero, MemoryReader):
    r"""Features ``h_t``, and a pointer ``a = softmax([q . h_{t-L+1}, .., q . h_t, q . s])`` with ``q = tanh(W h_t + b)``.

    ``a_i`` is probability for the word that led to ``h_i``. The last element, that of the sentinel vector ``s``, is the gate
    ``g``: the share of the softmax over ``h_t``. Both reach the output layer in a ``Read``, see ``PointerSoftmax``. The
    window crosses sentence ends if the task carries the memory across them. Near the start it is shorter.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"pointer_window": 100, "pointer_loss": 1.0}
    starts_with_state: ClassVar[bool] = True

    def __init__(self, hidden_size: int, window: int) -> None:
        super().__init__()
        if not isinstance(window, int) or window < 1:
            raise ValueError(f"the window must hold a whole number of words, at least 1, not {window}")
        self.window = window
        self.columns: Columns | None = Columns(newest=0, oldest=window - 1, of="word")
        self.feature_size = hidden_size
        self.query = nn.Linear(hidden_size, hidden_size)  # W, b
        self.sentinel = nn.Parameter(torch.empty(hidden_size).uniform_(-0.05, 0.05))  # s

    @classmethod
    def from_config(cls, hidden_size: int, vocabulary_size: int, config: Mapping[str, Any]) -> PointerReader:
        return cls(hidden_size, config["pointer_window"])

    def forward(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Return the states (B, T, H) and, if requested, the pointer over the memory's slots and the T states."""
        if not need_read:
            return states, None
        past, words, present = self.empty_memory(states[:, 0]) if memory is None else memory
        dtype = torch.promote_types(states.dtype, torch.float32)
        queries = torch.tanh(self.query(states)).to(dtype)
        with torch.autocast(states.device.type, enabled=False):
            scores = queries @ torch.cat((past, states), dim=1).to(dtype).transpose(1, 2)  # (B, T, M + T)
            of_sentinel = queries @ self.sentinel.to(dtype)
        known = torch.cat((present, present.new_ones(tokens.shape)), dim=1)
        visible = visible_columns(known, states.size(1), past.size(1), nearest=0, oldest=self.window - 1)
        parts = torch.log_softmax(torch.cat((scores.masked_fill(~visible, -torch.inf), of_sentinel.unsqueeze(2)), dim=2), dim=2)
        weights = parts[:, :, :-1].exp()
        return states, Read(weights, torch.cat((words.squeeze(2), tokens), dim=1).unsqueeze(1).expand_as(weights), parts[:, :, -1])

    def empty_memory(self, state: Tensor) -> Memory:
        """Return the empty memory: the last M states (B, M, H) and their words (B, M, 1), with M = 0 at the start and at most L - 1."""
        empty = state.new_zeros(state.size(0), 0, state.size(1))
        return empty, empty.new_zeros(*empty.shape[:2], 1, dtype=torch.int64), empty.new_zeros(empty.shape[:2], dtype=torch.bool)

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        slots = append_slots(memory, states, tokens.unsqueeze(2))
        return tuple(part[:, max(0, part.size(1) - self.window + 1) :] for part in slots)
