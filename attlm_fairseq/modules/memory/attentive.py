"""Attention over the earlier states of the sentence: Salton, Ross and Kelleher (2017), "Attentive Language Models".

Shapes: B sentences in the batch, T positions, H size of an LSTM state, M memory slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.attention import Columns, masked_softmax
from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.memory.additive_scores import additive_scores
from attlm_fairseq.modules.memory.reader import MemoryReader, Read, skip_of, visible_columns
from attlm_fairseq.modules.state import Memory, append_slots, of_sums

SCORES = ("single", "combined", "dot")  # Eq. 9, Eq. 10
MEMORIES = ("previous", "current")
MERGES = ("concat", "feedforward", "product", "context", "sum")  # Eq. 7; three that note 3 of the paper names; ours


class Attended(NamedTuple):
    """What a position can attend to: K columns."""

    scores: Tensor  # (B, T, K), or (B, 1, K) if they are the same at all positions
    values: Tensor  # (B, K, H)
    visible: Tensor  # (B, T, K) bool, or (1, T, K)


class AttentiveReader(BiasesStartAtZero, MemoryReader):
    r"""Features ``h'_t = tanh(W_c [h_t; c_t] + b_c)`` (Eq. 7) with the context ``c_t = sum_{i<t} a_i h_i`` (Eq. 3).

    ``a = softmax_i score(h_i, h_t)`` (Eq. 4) with one of three scores:

    - ``single``: ``v_s . tanh(W_s h_i)`` (Eq. 9). A state's score never changes, so the memory consists of running sums.
      In training, a memory carried over from the previous segment is a constant. ``W_s`` and ``v_s`` get gradients from
      the states of the current segment only.
    - ``combined``: ``v_s . tanh(W_s h_i + W_q h_t)`` (Eq. 10).
    - ``dot``: ``h_i . h_t``.

    The current state is stored after its prediction; at the first position the memory is empty and ``c_1 = 0``. With
    ``current`` it is stored before its prediction, which is not in the paper. With a skip S, the newest S of the states
    that could be attended to are left out. Column i of the weights (B, T, T) holds ``a_i``; it is 0 if ``h_i`` is not in
    the memory.

    Note 3 of the paper names three other merges in place of Eq. 7. It has no equations; these are read as: ``feedforward``,
    a second layer, ``tanh(W_f h'_t + b_f)``; ``product``, ``h_t * c_t``; ``context``, ``c_t`` alone. ``sum`` is not in the paper:
    ``h_t + W_a c_t``.
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "attention_score": "single",
        "attention_memory": "previous",
        "attention_merge": "concat",
        "attention_skip": 0,
    }
    starts_with_state: ClassVar[bool] = False

    def __init__(self, hidden_size: int, score: str, current: bool, merge: str = "concat", skip: int = 0) -> None:
        super().__init__()
        if score not in SCORES:
            raise ValueError(f"attention score {score!r} is not one of: {', '.join(SCORES)}")
        if merge not in MERGES:
            raise ValueError(f"attention merge {merge!r} is not one of: {', '.join(MERGES)}")
        self.score, self.merging = score, merge
        self.nearest = skip + (0 if current else 1)  # a position attends to states of at least so many positions ago
        self.columns = Columns(newest=self.nearest)
        self.feature_size = hidden_size
        if score != "dot":
            self.state_scores = nn.Linear(hidden_size, hidden_size, bias=False)  # W_s
            self.score_vector = nn.Parameter(torch.empty(hidden_size).uniform_(-0.05, 0.05))  # v_s
        self.query = nn.Linear(hidden_size, hidden_size, bias=False) if score == "combined" else None  # W_q
        self.merge = nn.Linear(2 * hidden_size, hidden_size) if merge in ("concat", "feedforward") else None  # W_c, b_c
        self.of_context = nn.Linear(hidden_size, hidden_size, bias=False) if merge == "sum" else None  # W_a
        self.second_merge = nn.Linear(hidden_size, hidden_size) if merge == "feedforward" else None  # W_f, b_f

    @classmethod
    def from_config(cls, hidden_size: int, vocabulary_size: int, config: Mapping[str, Any]) -> AttentiveReader:
        memory = str(config["attention_memory"])
        if memory not in MEMORIES:
            raise ValueError(f"attention memory {memory!r} is not one of: {', '.join(MEMORIES)}")
        return cls(hidden_size, str(config["attention_score"]), memory == "current", str(config["attention_merge"]), skip_of(config))

    def features(self, states: Tensor, contexts: Tensor) -> Tensor:
        if self.of_context is not None:
            return states + self.of_context(contexts)
        if self.merge is None:
            return contexts if self.merging == "context" else states * contexts
        merged = torch.tanh(self.merge(torch.cat((states, contexts), dim=-1)))
        return merged if self.second_merge is None else torch.tanh(self.second_merge(merged))

    def forward(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Return features (B, T, H) and, if requested, weights (B, T, T), preceded by the weights of the memory's slots."""
        own = states[:, :-1] if self.nearest else states  # the last state is never attended to
        attended = self.by_sums(states, own, memory) if self.score == "single" else self.by_slots(states, own, memory)
        weights = masked_softmax(attended.scores, attended.visible)
        weights = weights.to(states.dtype)  # Eq. 10's scores are float32 even in a half-precision model
        features = self.features(states, weights @ attended.values.to(states.dtype))
        if not need_read:
            return features, None
        return features, Read(nn.functional.pad(weights, (0, states.size(1) - own.size(1))))

    def by_sums(self, states: Tensor, own: Tensor, memory: Memory | None) -> Attended:
        """Return what is attended to by scores that never change. Running sums act as one more state."""
        length = states.size(1)
        if memory is None:
            present = own.new_ones(1, own.size(1), dtype=torch.bool)
            return Attended(self.scores(own).unsqueeze(1), own, visible_columns(present, length, 0, self.nearest))
        largest, norm, total, *skipped = memory
        values, present = own, own.new_ones(own.shape[:2], dtype=torch.bool)
        if skipped:
            values, present = torch.cat((skipped[0], own), dim=1), torch.cat((skipped[1] > 0, present), dim=1)
        visible = visible_columns(present, length, values.size(1) - own.size(1), self.nearest)
        scores = torch.cat((largest + norm.log(), self.scores(values)), dim=1).unsqueeze(1)
        mean = torch.where(norm > 0, total / norm, 0.0).unsqueeze(1)
        summed = (norm > 0).unsqueeze(1).expand(-1, length, -1)
        return Attended(scores, torch.cat((mean, values), dim=1), torch.cat((summed, visible), dim=2))

    def by_slots(self, states: Tensor, own: Tensor, memory: Memory | None) -> Attended:
        """Return what is attended to by scores that depend on the current state."""
        past, *past_keys, present = self.empty_memory(states[:, 0]) if memory is None else memory
        before = past.size(1)
        values = torch.cat((past, own), dim=1)
        visible = visible_columns(torch.cat((present, present.new_ones(own.shape[:2])), dim=1), states.size(1), before, self.nearest)
        if self.query is None:
            return Attended(states @ values.transpose(1, 2), values, visible)
        if torch.is_grad_enabled():  # apply the current W_s to the carried states, so that it gets gradients from them too
            keys = self.state_scores(values)
        else:
            keys = torch.cat((past_keys[0], self.state_scores(own)), dim=1)
        return Attended(additive_scores(keys, self.query(states), self.score_vector, before), values, visible)  # Eq. 10

    def scores(self, states: Tensor) -> Tensor:
        """Return the scores of Eq. 9 (B, T) for states (B, T, H)."""
        return torch.tanh(self.state_scores(states)) @ self.score_vector

    def empty_memory(self, state: Tensor) -> Memory:
        """Return the empty memory.

        For ``single``, at least float32: the largest score, the sum of exp(score - largest), and the sum of exp(score - largest) * state.
        They lag behind by the states that the next position skips; these follow, (B, S, H), with 1 for each that there is, (B, S).
        Otherwise: the states (B, M, H), for ``combined`` ``W_s`` applied to them, and a mask.
        """
        if self.score == "single":
            total = torch.zeros_like(state, dtype=of_sums(state))
            sums = total.new_full((len(state), 1), -torch.inf), total.new_zeros(len(state), 1), total
            skipped = state.new_zeros(state.size(0), max(0, self.nearest - 1), state.size(1))
            return (*sums, skipped, skipped[:, :, 0]) if skipped.size(1) else sums
        empty = state.new_zeros(state.size(0), 0, state.size(1))
        return *([empty, empty] if self.query is not None else [empty]), empty.new_zeros(empty.shape[:2], dtype=torch.bool)

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        if self.score != "single":
            return append_slots(memory, *([states] if self.query is None else [states, self.state_scores(states)]))
        largest, norm, total, *skipped = memory
        if not skipped:
            return self.added((largest, norm, total), states, self.scores(states))
        entering, known = torch.cat((skipped[0], states), dim=1), torch.cat((skipped[1], states.new_ones(states.shape[:2])), dim=1)
        later = entering[:, states.size(1) :], known[:, states.size(1) :]
        entering, known = entering[:, : states.size(1)], known[:, : states.size(1)]
        return *self.added((largest, norm, total), entering, self.scores(entering).masked_fill(known == 0, -torch.inf)), *later

    def updated_memory(self, memory: Memory) -> Memory:
        if self.query is None:
            return memory
        past, _, present = memory
        return past, self.state_scores(past), present

    @staticmethod
    def added(sums: Memory, states: Tensor, scores: Tensor) -> Memory:
        """Return the running sums with states (B, T, H) of the given scores (B, T) added."""
        largest, norm, total = sums
        scores, states = scores.to(total.dtype), states.to(total.dtype)
        # finite, so that a difference of two of them is never nan
        new_largest = torch.maximum(largest, scores.amax(dim=1, keepdim=True)).clamp(min=torch.finfo(largest.dtype).min)
        kept, added = torch.exp(largest - new_largest), torch.exp(scores - new_largest)
        return (
            new_largest,
            norm * kept + added.sum(dim=1, keepdim=True),
            total * kept + (added.unsqueeze(1) @ states).squeeze(1),
        )
