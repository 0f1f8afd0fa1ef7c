"""Attention with memory selection: Liu, Chuang and Lee (2016), "Attention-based Memory Selection Recurrent Network".

Shapes: B sentences in the batch, T positions, H size of an LSTM state, M memory slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.attention import Columns, masked_softmax
from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.memory.reader import MemoryReader, Read, skip_of, visible_columns
from attlm_fairseq.modules.state import Memory, append_slots

SELECTIONS = ("none", "independent", "tied", "complementary")


class SelectionReader(BiasesStartAtZero, MemoryReader):
    r"""Features ``[h_t; r_t]``, over which the output layer computes ``softmax(W_ph h_t + W_pr r_t + b_p)``.

    ``k_t = W_kh h_t + b_k``; ``e_ti = (h_i * w_h1) . k_t``; ``alpha = softmax_i(e_ti)``; ``r_t = sum_i alpha_ti (h_i * w_h2)``. The memory
    holds ``h_0 .. h_{t-1}``; ``h_0`` is the LSTM's initial state, zeros. The current state is not in it. With a skip S, its newest S
    states are left out; if nothing is left, ``r_t = 0``. The gates select dimensions:

    - ``none``: both all ones;
    - ``independent``: ``w_h1 = sigmoid(W_hh1 h_t + b_h1)``, ``w_h2 = sigmoid(W_hh2 h_t + b_h2)``;
    - ``tied``: ``w_h1 = w_h2``;
    - ``complementary``: ``w_h1 = 1 - w_h2``.

    The gates do not depend on i, so ``e_ti = h_i . (w_h1 * k_t)`` and ``r_t = w_h2 * sum_i alpha_ti h_i``. The code computes this
    form: dot-product attention with a gated query and a gated result. Column i of the weights (B, T, T) belongs to ``h_i``,
    with i from 0. Position t (from 1) has its last weight in column t - 1.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"selection": "tied", "attention_skip": 0}
    starts_with_state: ClassVar[bool] = True

    def __init__(self, hidden_size: int, selection: str, skip: int = 0) -> None:
        super().__init__()
        if selection not in SELECTIONS:
            raise ValueError(f"selection {selection!r} is not one of: {', '.join(SELECTIONS)}")
        self.feature_size = 2 * hidden_size
        self.selection = selection
        self.nearest = 1 + skip  # a position attends to states of at least so many positions ago
        self.columns: Columns | None = Columns(newest=self.nearest, initial=True)
        self.query = nn.Linear(hidden_size, hidden_size)  # W_kh, b_k
        self.value_gate = nn.Linear(hidden_size, hidden_size) if selection != "none" else None  # W_hh2, b_h2
        self.key_gate = nn.Linear(hidden_size, hidden_size) if selection == "independent" else None  # W_hh1, b_h1

    @classmethod
    def from_config(cls, hidden_size: int, vocabulary_size: int, config: Mapping[str, Any]) -> SelectionReader:
        return cls(hidden_size, str(config["selection"]), skip_of(config))

    def gated(self, states: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return queries ``w_h1 * k_t`` (.., H) and result gates ``w_h2`` (.., H) for states (.., H). None stands for gates of 1."""
        queries = self.query(states)
        if self.value_gate is None:
            return queries, None
        value_gates = torch.sigmoid(self.value_gate(states))
        if self.key_gate is not None:
            return queries * torch.sigmoid(self.key_gate(states)), value_gates
        return queries * (value_gates if self.selection == "tied" else 1 - value_gates), value_gates

    def forward(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Return features (B, T, 2 H) and, if requested, weights.

        The weights are (B, T, T). With a memory they are (B, T, M + T - 1), the memory's slots first.
        """
        queries, gates = self.gated(states)
        past, present = self.empty_memory(states[:, 0]) if memory is None else memory
        values = torch.cat((past, states[:, :-1]), dim=1)
        if memory is None and not need_read and self.nearest == 1:  # h_0 .. h_{T-1}: slot i is visible from position i + 1 on
            weights = None
            read = nn.functional.scaled_dot_product_attention(queries, values, values, is_causal=True, scale=1.0)
        else:
            known = torch.cat((present, present.new_ones(len(states), states.size(1) - 1)), dim=1)
            visible = visible_columns(known, states.size(1), present.size(1), self.nearest)
            weights = masked_softmax(queries @ values.transpose(1, 2), visible)
            read = weights @ values
        features = torch.cat((states, read if gates is None else read * gates), dim=-1)
        return features, None if weights is None or not need_read else Read(weights)

    def empty_memory(self, state: Tensor) -> Memory:
        """Return the states so far (B, M, H); at the start this is ``h_0`` alone."""
        first = torch.zeros_like(state).unsqueeze(1)
        return first, first.new_ones(first.shape[:2], dtype=torch.bool)

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        return append_slots(memory, states)
