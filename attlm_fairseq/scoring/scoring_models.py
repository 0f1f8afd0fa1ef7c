"""A language model as scoring runs it, in float32 or with its products in bfloat16.

Shapes: N rows, W distinct words, K what a word contributes, F features.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Protocol

import torch
from torch import Tensor

from attlm_fairseq.modules.kernels import low_precision
from attlm_fairseq.modules.kernels.low_precision import piece_sizes, rounded, with_bfloat16_products
from attlm_fairseq.modules.language_model import Inputs, LanguageModel
from attlm_fairseq.modules.output import EventLogProbs
from attlm_fairseq.modules.state import LanguageModelState, row_bytes
from attlm_fairseq.numeric import ceil_div

STEP_COPIES = 6  # a step holds its rows' states and inputs at most as many times while it computes
WORDS_AT_ONCE = 1024  # whose inputs are rounded together


class ScoringModel(Protocol):
    """Steps over rows that are taken from anywhere, and the events' probabilities."""

    feature_size: int
    device: torch.device
    events: EventLogProbs

    def initial_state(self, batch: int) -> LanguageModelState:
        """The state before the first token, ``batch`` rows of it."""
        ...

    def inputs(self, tokens: Tensor) -> Inputs:
        """What distinct words (W,) contribute, wherever they stand."""
        ...

    def step_rows(self, words: Inputs, places: Tensor, state: LanguageModelState, rows: Tensor) -> tuple[Tensor, LanguageModelState]:
        """Features (N, F) and the state after the words at ``places`` (N,), the state before them being ``state``'s ``rows`` (N,)."""
        ...

    def step_bytes(self, state: LanguageModelState, words: Inputs) -> int:
        """The memory that a step takes at most for each of its rows."""
        ...

    def piece_sizes(self, length: int, most: int) -> list[int]:
        """Sizes of the pieces in which to step ``length`` rows, ``most`` at once."""
        ...


class Float32Model:
    """The model as it is."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.feature_size = model.reader.feature_size
        self.device = model.embedding.weight.device
        self.events = model.output.events()
        self.initial_state, self.inputs = model.initial_state, model.inputs

    def step_rows(self, words: Inputs, places: Tensor, state: LanguageModelState, rows: Tensor) -> tuple[Tensor, LanguageModelState]:
        features, _, after = self.model.step_features(words.select(places), state.select(rows))
        return features, after

    def step_bytes(self, state: LanguageModelState, words: Inputs) -> int:
        return STEP_COPIES * (state.bytes + row_bytes(words.values))

    def piece_sizes(self, length: int, most: int) -> list[int]:
        """As few as possible, none much smaller than another."""
        pieces = ceil_div(length, most)
        return [length // pieces + (number < length % pieces) for number in range(pieces)]


class Bfloat16Model:
    """The model with matrix products in bfloat16, its weights rounded once.

    What enters a product is rounded to bfloat16, and so is what comes out of it; all else is float32: biases, gates, cells, what the
    reader reads and remembers, features, sums.
    """

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.feature_size = model.reader.feature_size
        self.device = model.embedding.weight.device
        self.recurrence = model.recurrence.bfloat16_steps()
        self.reader = with_bfloat16_products(model.reader)
        self.events = model.output.events(cache(partial(rounded, dtype=low_precision.DTYPE)))

    def initial_state(self, batch: int) -> LanguageModelState:
        nothing = self.model.embedding.weight.new_zeros(batch, self.model.recurrence.hidden_size)
        return LanguageModelState(self.recurrence.initial(batch), self.reader.empty_memory(nothing))

    def inputs(self, tokens: Tensor) -> Inputs:
        return Inputs(tokens, torch.cat([self.recurrence.inputs(self.model.embedding(some)) for some in tokens.split(WORDS_AT_ONCE)]))

    def step_rows(self, words: Inputs, places: Tensor, state: LanguageModelState, rows: Tensor) -> tuple[Tensor, LanguageModelState]:
        output, recurrent = self.recurrence.step_rows(words.values, places, state.recurrent, rows)
        outputs, tokens = output.unsqueeze(1), words.tokens.index_select(0, places).unsqueeze(1)
        memory = tuple(part.index_select(0, rows) for part in state.memory)
        features, _ = self.reader(outputs, tokens, memory)
        return features.squeeze(1), LanguageModelState(recurrent, self.reader.advance(outputs, tokens, memory))

    def step_bytes(self, state: LanguageModelState, words: Inputs) -> int:
        """The recurrence overwrites its own copies; what it holds besides is small on a CPU, and as large again elsewhere."""
        copies = 1 if self.device.type == "cpu" else 3
        return STEP_COPIES * row_bytes(*state.memory) + copies * row_bytes(*state.recurrent, words.values)

    def piece_sizes(self, length: int, most: int) -> list[int]:
        """Of few distinct sizes: kernels are compiled for each."""
        return piece_sizes(length, most)
