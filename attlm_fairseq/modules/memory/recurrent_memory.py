"""Attention over the last words: Tran, Bisazza and Monz (2016), "Recurrent Memory Networks for Language Modeling".

Shapes: B sentences in the batch, T positions, H hidden size, N words in the window, P slots before the first position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from attlm_fairseq.modules.attention import Columns, masked_softmax
from attlm_fairseq.modules.memory.reader import MemoryReader, Read, skip_of
from attlm_fairseq.modules.recurrence.lstm import LSTM
from attlm_fairseq.modules.recurrence.lstm_layer import LSTMLayer
from attlm_fairseq.modules.regularisation import NOTHING_LEFT_OUT, Regularisation
from attlm_fairseq.modules.state import Memory

COMPOSITIONS = ("gated", "linear")
POSITIONS = ("learned", "none")
NO_WORD = -1  # in the memory, before the first word


@dataclass(frozen=True)
class WordMemory:
    """The options of a ``RecurrentMemoryReader``. Raises ValueError for an unknown choice or a window below 1."""

    window: int  # N
    composition: str
    positions: str
    skip: int = 0  # S

    def __post_init__(self) -> None:
        if self.composition not in COMPOSITIONS:
            raise ValueError(f"composition {self.composition!r} is not one of: {', '.join(COMPOSITIONS)}")
        if self.positions not in POSITIONS:
            raise ValueError(f"positions {self.positions!r} is not one of: {', '.join(POSITIONS)}")
        if not isinstance(self.window, int) or self.window < 1:
            raise ValueError(f"the window must hold a whole number of words, at least 1, not {self.window}")


class GatedComposition(nn.Module):
    """``m = (1 - z) * h + z * tanh(W_5 s + b_5 + W_6 (r * h) + b_6)`` with the gates z and r.

    ``z = sigmoid(W_1 s + b_1 + W_2 h + b_2)`` and ``r = sigmoid(W_3 s + b_3 + W_4 h + b_4)``.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.from_read = nn.Linear(size, 3 * size)  # W_1, W_3, W_5 and b_1, b_3, b_5
        self.gates = nn.Linear(size, 2 * size)  # W_2, W_4 and b_2, b_4
        self.candidate = nn.Linear(size, size)  # W_6, b_6

    def forward(self, states: Tensor, read: Tensor) -> Tensor:
        """Return m (B, T, H) for h and s (B, T, H)."""
        read_z, read_r, read_c = self.from_read(read).chunk(3, dim=-1)
        state_z, state_r = self.gates(states).chunk(2, dim=-1)
        z, r = torch.sigmoid(read_z + state_z), torch.sigmoid(read_r + state_r)
        return (1 - z) * states + z * torch.tanh(read_c + self.candidate(r * states))


class LinearComposition(nn.Module):
    """``m = C h + s``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.from_state = nn.Linear(size, size, bias=False)  # C

    def forward(self, states: Tensor, read: Tensor) -> Tensor:
        """Return m (B, T, H) for h and s (B, T, H)."""
        return self.from_state(states) + read


class RecurrentMemoryReader(MemoryReader):
    r"""Features ``m_t``, composed of ``h_t`` and ``s_t = sum_i p_i b_i``, which is read from the last N words.

    The words ``w_i`` are the inputs ``w_{t-N+1} .. w_t``, the current one included; near the start there are fewer. They have keys
    ``a_i = A w_i + A_T tau_i`` and values ``b_i = B w_i + B_T tau_i``, from tables of their own. The position ``tau_i = N - (t - i)``
    is N for the newest word. ``p = softmax_i(a_i . h_t)``. ``GatedComposition`` and ``LinearComposition`` have the equations of
    ``m_t``. Without positions, ``A_T`` and ``B_T`` are left out.

    With a skip S, the newest S words are left out: ``w_{t-S}`` has position N, and ``s_t`` is 0 at the first S positions.

    With a second LSTM (the paper's RMR), the features are its outputs; it reads ``m_1 .. m_t``. Of ``regularisation``, the dropout of
    recurrent weights is applied to it.

    The memory holds the last P = N + S - 1 words (B, P), ``NO_WORD`` before the first, and ``h`` and ``c`` (B, H) of a second LSTM.
    Column i of the weights (B, T, T) belongs to word i. With a memory they are (B, T, P + T).
    """

    defaults: ClassVar[Mapping[str, Any]] = {
        "rm_window": 15,
        "rm_composition": "gated",
        "rm_positions": "learned",
        "rm_second_lstm": False,
        "attention_skip": 0,
        "forget_bias": LSTM.defaults["forget_bias"],
    }
    starts_with_state: ClassVar[bool] = False

    def __init__(
        self,
        hidden_size: int,
        vocabulary_size: int,
        options: WordMemory,
        second: LSTMLayer | None = None,
        regularisation: Regularisation = NOTHING_LEFT_OUT,
    ) -> None:
        super().__init__()
        self.window, self.skip = options.window, options.skip
        self.columns: Columns | None = Columns(newest=self.skip, oldest=self.window - 1 + self.skip, of="word")
        self.feature_size = hidden_size
        self.word_keys = nn.Embedding(vocabulary_size, hidden_size)  # A
        self.word_values = nn.Embedding(vocabulary_size, hidden_size)  # B
        learned = options.positions == "learned"
        self.position_keys = nn.Linear(hidden_size, self.window, bias=False) if learned else None  # A_T, oldest first
        self.position_values = nn.Linear(self.window, hidden_size, bias=False) if learned else None  # B_T
        self.composition = GatedComposition(hidden_size) if options.composition == "gated" else LinearComposition(hidden_size)
        self.second = second
        self.regularisation = regularisation

    @classmethod
    def from_config(cls, hidden_size: int, vocabulary_size: int, config: Mapping[str, Any]) -> RecurrentMemoryReader:
        second = LSTMLayer(hidden_size, hidden_size, config["forget_bias"]) if config["rm_second_lstm"] else None
        options = WordMemory(config["rm_window"], str(config["rm_composition"]), str(config["rm_positions"]), skip_of(config))
        return cls(hidden_size, vocabulary_size, options, second, Regularisation.from_config(config))

    def initialise_biases(self) -> None:
        """Set the forget bias of the second LSTM."""
        if self.second is not None:
            self.second.initialise_biases()

    def forward(self, states: Tensor, tokens: Tensor, memory: Memory | None = None, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Return features (B, T, H) and, if requested, the weights and words that were read."""
        past = self.empty_memory(states[:, 0]) if memory is None else memory
        features, read, _ = self.read_on(states, tokens, past, need_read)
        if read is not None and memory is None:
            read = read.map(lambda part: part[:, :, past[0].size(1) :])
        return features, read

    def read_on(self, states: Tensor, tokens: Tensor, memory: Memory, need_read: bool = False) -> tuple[Tensor, Read | None, Memory]:
        composed, read = self.composed(states, tokens, memory[0], need_read)
        if self.second is None:
            return composed, read, self.words_after(tokens, memory)
        features, *after = self.second.read(composed, *memory[1:], regularisation=self.regularisation)
        return features, read, (*self.words_after(tokens, memory), *after)

    def composed(self, states: Tensor, tokens: Tensor, past: Tensor, need_read: bool = False) -> tuple[Tensor, Read | None]:
        """Return m (B, T, H) and, if requested, what was read, given the words ``past`` (B, P) before ``tokens`` (B, T)."""
        words = torch.cat((past, tokens), dim=1)
        length = tokens.size(1)
        seen = torch.arange(length, device=tokens.device).unsqueeze(1) + torch.arange(self.window, device=tokens.device)  # (T, N)
        places = seen.expand(len(tokens), -1, -1)
        known = words.clamp(min=0)
        scores = (states @ self.word_keys(known).transpose(1, 2)).gather(2, places)  # (B, T, N), oldest first
        if self.position_keys is not None:
            scores = scores + self.position_keys(states)
        weights = masked_softmax(scores, (words != NO_WORD)[:, seen]).to(states.dtype)
        of_words = weights.new_zeros(*tokens.shape, words.size(1)).scatter(2, places, weights)
        read = of_words @ self.word_values(known)
        if self.position_values is not None:
            read = read + self.position_values(weights)
        composed = self.composition(states, read)
        return composed, Read(of_words, known.unsqueeze(1).expand_as(of_words)) if need_read else None

    def empty_memory(self, state: Tensor) -> Memory:
        words = state.new_full((len(state), self.window + self.skip - 1), NO_WORD, dtype=torch.int64)
        return (words,) if self.second is None else (words, torch.zeros_like(state), torch.zeros_like(state))

    def advance(self, states: Tensor, tokens: Tensor, memory: Memory) -> Memory:
        """Return the last words and, with a second LSTM, its state, for which the words are composed."""
        return self.words_after(tokens, memory) if self.second is None else self.read_on(states, tokens, memory)[2]

    @staticmethod
    def words_after(tokens: Tensor, memory: Memory) -> Memory:
        """Return the last words (B, P) after tokens (B, T)."""
        return (torch.cat((memory[0], tokens.to(memory[0].dtype)), dim=1)[:, tokens.size(1) :],)
