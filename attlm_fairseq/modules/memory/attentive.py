"""Attention over the earlier states of the sentence: Salton, Ross and Kelleher (2017), "Attentive Language Models".

Shapes: B sentences in the batch, T positions, H size of an LSTM state, M memory slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.attention import Columns, masked_softmax
from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.memory.additive_scores import additive_scores
from attlm_fairseq.modules.memory.reader import Read, with_memory
from attlm_fairseq.modules.state import Memory, append_slots

SCORES = ("single", "combined")  # Eq. 9, Eq. 10
MEMORIES = ("previous", "current")


class AttentiveReader(BiasesStartAtZero, nn.Module):
    r"""Features ``h'_t = tanh(W_c [h_t; c_t] + b_c)`` (Eq. 7) with the context ``c_t = sum_{i<t} a_i h_i`` (Eq. 3).

    ``a = softmax_i score(h_i, h_t)`` (Eq. 4) with one of two scores:

    - ``single``: ``v_s . tanh(W_s h_i)`` (Eq. 9). A state's score never changes, so the memory consists of running sums.
      In training, a memory carried over from the previous segment is a constant. ``W_s`` and ``v_s`` get gradients from
      the states of the current segment only.
    - ``combined``: ``v_s . tanh(W_s h_i + W_q h_t)`` (Eq. 10).

    The current state is stored after its prediction; at the first position the memory is empty and ``c_1 = 0``. With
    ``current`` it is stored before its prediction, which is not in the paper. Column i of the weights (B, T, T) holds
    ``a_i``; it is 0 if ``h_i`` is not in the memory.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"attention_score": "single", "attention_memory": "previous"}
    starts_with_state: ClassVar[bool] = False

    def __init__(self, hidden_size: int, score: str, current: bool) -> None:
        super().__init__()
        if score not in SCORES:
            raise ValueError(f"attention score {score!r} is not one of: {', '.join(SCORES)}")
        self.score = score
        self.current = current
        self.columns = Columns(newest=0 if current else 1)
        self.feature_size = hidden_size
        self.state_scores = nn.Linear(hidden_size, hidden_size, bias=False)  # W_s
        self.query = nn.Linear(hidden_size, hidden_size, bias=False) if score == "combined" else None  # W_q
        self.score_vector = nn.Parameter(torch.empty(hidden_size).uniform_(-0.05, 0.05))  # v_s
        self.merge = nn.Linear(2 * hidden_size, hidden_size)  # W_c, b_c

    @classmethod
    def from_config(cls, hidden_size: int, vocabulary_size: int, config: Mapping[str, Any]) -> AttentiveReader:
        memory = str(config["attention_memory"])
        if memory not in MEMORIES:
            raise ValueError(f"attention memory {memory!r} is not one of: {', '.join(MEMORIES)}")
        return cls(hidden_size, score=str(config["attention_score"]), current=memory == "current")

    def features(self, states: Tensor, contexts: Tensor) -> Tensor:
        """Return ``h'`` of Eq. 7 (.., H) for states and contexts (.., H)."""
        return torch.tanh(self.merge(torch.cat((states, contexts), dim=-1)))

    def forward(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Return features (B, T, H) and, if requested, weights (B, T, T), preceded by the weights of the memory's slots."""
        own = states if self.current else states[:, :-1]  # the last state is never attended to
        visible = torch.ones(states.size(1), own.size(1), dtype=torch.bool, device=states.device).tril(0 if self.current else -1)
        values = own
        if self.query is None:
            scores = self.scores(own).unsqueeze(1)  # (B, 1, T): the same for every query
            if memory is not None:  # its running sums act as one more state
                largest, norm, total = memory
                scores = torch.cat(((largest + norm.log()).unsqueeze(1), scores), dim=2)
                values = torch.cat((torch.where(norm > 0, total / norm, 0.0).unsqueeze(1), own), dim=1)
                visible = with_memory(norm > 0, visible)
        else:
            past, past_keys, present = self.empty_memory(states[:, 0]) if memory is None else memory
            values = torch.cat((past, own), dim=1)
            if torch.is_grad_enabled():  # apply the current W_s to the carried states, so that it gets gradients from them too
                keys = self.state_scores(values)
            else:
                keys = torch.cat((past_keys, self.state_scores(own)), dim=1)
            scores = additive_scores(keys, self.query(states), self.score_vector, past.size(1))  # Eq. 10
            visible = with_memory(present, visible)
        weights = masked_softmax(scores, visible).to(values.dtype)  # Eq. 10's scores are float32 even in a half-precision model
        features = self.features(states, weights @ values)
        if not need_read:
            return features, None
        return features, Read(weights if self.current else nn.functional.pad(weights, (0, 1)))

    def scores(self, states: Tensor) -> Tensor:
        """Return the scores of Eq. 9 (B, T) for states (B, T, H)."""
        return torch.tanh(self.state_scores(states)) @ self.score_vector

    def empty_memory(self, state: Tensor) -> Memory:
        if self.query is None:
            # the largest score, the sum of exp(score - largest), and the sum of exp(score - largest) * state
            return state.new_full((state.size(0), 1), -torch.inf), state.new_zeros(state.size(0), 1), torch.zeros_like(state)
        empty = state.new_zeros(state.size(0), 0, state.size(1))
        return empty, empty, empty.new_zeros(empty.shape[:2], dtype=torch.bool)  # the states (B, M, H) and W_s applied to them

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        if self.query is not None:
            return append_slots(memory, states, self.state_scores(states))
        largest, norm, total = memory
        scores = self.scores(states)  # (B, T)
        new_largest = torch.maximum(largest, scores.amax(dim=1, keepdim=True))
        kept, added = torch.exp(largest - new_largest), torch.exp(scores - new_largest)
        return (
            new_largest,
            norm * kept + added.sum(dim=1, keepdim=True),
            total * kept + (added.unsqueeze(1) @ states).squeeze(1),
        )
