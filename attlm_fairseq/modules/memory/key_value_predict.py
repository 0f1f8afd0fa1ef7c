"""Attention over a short window with separate keys, values and predictions: Daniluk et al. (2017), "Frustratingly Short Attention Spans".

Shapes: B sentences in the batch, T positions, H hidden size, D size of one part of a state, L length of the window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.attention import Columns, masked_softmax
from attlm_fairseq.modules.initialisation import BiasesStartAtZero
from attlm_fairseq.modules.memory.reader import MemoryReader, Read, skip_of
from attlm_fairseq.modules.state import Memory, append_slots

PARTS = {"attention": 1, "key-value": 2, "key-value-predict": 3}


class KeyValuePredictReader(BiasesStartAtZero, MemoryReader):
    r"""Features ``h* = tanh(W_r r + W_x x_t)`` of size D = H / parts, with ``r`` read from the previous L outputs.

    ``M = tanh(W_Y [k_{t-L} .. k_{t-1}] + W_h k_t)``, ``alpha = softmax(w . M)``, ``r = sum alpha v``. An output h is divided into
    keys k, values v and predictions x:

    - ``attention``: ``k = v = x = h``, not divided;
    - ``key-value``: ``h = [k; v]`` and ``x = v``;
    - ``key-value-predict``: ``h = [k; v; p]`` and ``x = p``.

    With a skip S, the window ends S positions earlier: ``[k_{t-L-S} .. k_{t-1-S}]``. Near the start of the sequence the window has
    fewer than L outputs. While it is empty, as at the first position, r is 0. There are no biases. Column i of the weights (B, T, T)
    belongs to position i; weights outside the window are 0.
    """

    defaults: ClassVar[Mapping[str, Any]] = {"kvp_mode": "key-value-predict", "attention_window": 5, "attention_skip": 0}
    starts_with_state: ClassVar[bool] = False

    def __init__(self, hidden_size: int, mode: str, window: int, skip: int = 0) -> None:
        super().__init__()
        if mode not in PARTS:
            raise ValueError(f"mode {mode!r} is not one of: {', '.join(PARTS)}")
        if hidden_size % PARTS[mode]:
            raise ValueError(f"the state size {hidden_size} is not divisible into the {PARTS[mode]} parts of {mode}")
        if not isinstance(window, int) or window < 1:
            raise ValueError(f"the window must hold a whole number of outputs, at least 1, not {window}")
        self.mode = mode
        self.window, self.skip = window, skip
        self.columns = Columns(newest=1 + skip, oldest=window + skip)
        self.feature_size = size = hidden_size // PARTS[mode]
        self.memory_keys = nn.Linear(size, size, bias=False)  # W_Y
        self.current_key = nn.Linear(size, size, bias=False)  # W_h
        self.score_vector = nn.Parameter(torch.empty(size).uniform_(-0.1, 0.1))  # w
        self.read_value = nn.Linear(size, size, bias=False)  # W_r
        self.current_prediction = nn.Linear(size, size, bias=False)  # W_x

    @classmethod
    def from_config(cls, hidden_size: int, vocabulary_size: int, config: Mapping[str, Any]) -> KeyValuePredictReader:
        return cls(hidden_size, str(config["kvp_mode"]), config["attention_window"], skip_of(config))

    def parts(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        pieces = states.chunk(PARTS[self.mode], dim=-1)
        return pieces[0], pieces[min(1, len(pieces) - 1)], pieces[-1]

    def forward(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Return features (B, T, D) and, if requested, weights (B, T, T), preceded by the weights of the memory's slots."""
        keys, values, predictions = self.parts(states)
        past_keys, past_values, present = self.empty_memory(states[:, 0]) if memory is None else memory
        length, before = states.size(1), present.size(1)
        reached = max(0, before + length - self.skip)  # the newest outputs are skipped by all positions
        window = min(self.window, max(0, reached - 1))
        memory_keys = torch.cat((self.memory_keys(past_keys), self.memory_keys(keys)), dim=1)
        present = torch.cat((present, present.new_ones(len(states), length)), dim=1)[:, :reached]
        visible = windows(present.unsqueeze(2), window, length).squeeze(3)  # (B, T, L)
        scores = self.scores(windows(memory_keys[:, :reached], window, length), self.current_key(keys))
        weights = masked_softmax(scores, visible).to(values.dtype)
        read = (weights.unsqueeze(2) @ windows(torch.cat((past_values, values), dim=1)[:, :reached], window, length)).squeeze(2)
        features = torch.tanh(self.read_value(read) + self.current_prediction(predictions))
        if not need_read:
            return features, None
        first = torch.arange(length, device=states.device).unsqueeze(1) + before - self.skip - window
        columns = first + torch.arange(window, device=states.device)
        full = weights.new_zeros(len(states), length, before + length)
        return features, Read(full.scatter_add(2, columns.clamp(min=0).expand_as(weights), weights))

    def scores(self, memory_keys: Tensor, queries: Tensor) -> Tensor:
        """Return ``w . M`` (B, T, L), computed at least in float32.

        The gradients of a window's scores sum to almost 0, and W_h's gradient comes from this sum. In bfloat16 it would be mostly
        rounding error.

        Args:
            memory_keys: W_Y k of each window, (B, T, L, D).
            queries: W_h k_t, (B, T, D).
        """
        dtype = torch.promote_types(self.score_vector.dtype, torch.float32)
        with torch.autocast(queries.device.type, enabled=False):
            hidden = torch.tanh(memory_keys.to(dtype) + queries.to(dtype).unsqueeze(2))
            return hidden @ self.score_vector.to(dtype)

    def empty_memory(self, state: Tensor) -> Memory:
        """Return the empty memory: keys and values (B, M, D) of the last M outputs, with M = 0 at the start and at most L + S."""
        empty = state.new_zeros(state.size(0), 0, self.feature_size)
        return empty, empty, empty.new_zeros(empty.shape[:2], dtype=torch.bool)

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        keys, values, _ = self.parts(states)
        return tuple(part[:, -self.window - self.skip :] for part in append_slots(memory, keys, values))


def windows(sequence: Tensor, window: int, length: int) -> Tensor:
    """Return, for each of the last T positions of (B, K, D), the L positions before it: (B, T, L, D), oldest first.

    Positions before the beginning are zeros.
    """
    missing = window + length - sequence.size(1)
    padded = nn.functional.pad(sequence, (0, 0, missing, 0))[:, :-1]
    return padded.unfold(1, window, 1).transpose(2, 3)  # also for L = 0, so that every weight gets a gradient (of zeros)
