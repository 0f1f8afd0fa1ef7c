"""Language models for scoring, in float32 or with matrix products in bfloat16.

Shapes: N rows, W distinct words, T positions, K input projection, F features.
"""

from __future__ import annotations

from functools import cache, partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from attlm_fairseq.modules.kernels import low_precision
from attlm_fairseq.modules.kernels.low_precision import piece_sizes, rounded, with_bfloat16_products
from attlm_fairseq.modules.language_model import Inputs, LanguageModel
from attlm_fairseq.modules.memory import Read
from attlm_fairseq.modules.output import EventLogProbs
from attlm_fairseq.modules.state import LanguageModelState, row_bytes
from attlm_fairseq.numeric import ceil_div

STEP_COPIES = 6  # a step needs at most this many times the memory of its rows' states and inputs
WORDS_AT_ONCE = 1024  # words whose inputs are rounded together


class Stepped(NamedTuple):
    """The result of a step of N rows."""

    features: Tensor  # (N, F)
    read: Read | None  # what the reader has read, weights (N, M), if the output layer needs it
    state: LanguageModelState


class ScoringModel(Protocol):
    """A model that steps selected rows of a state and scores events."""

    feature_size: int
    device: torch.device
    events: EventLogProbs

    def initial_state(self, batch: int) -> LanguageModelState:
        """Return ``batch`` rows of the state before the first token."""

    def inputs(self, tokens: Tensor) -> Inputs:
        """Return the input projections of distinct words (W,), which do not depend on the position."""

    def step_rows(self, words: Inputs, places: Tensor, state: LanguageModelState, rows: Tensor) -> Stepped:
        """Step N rows: the words at ``places`` (N,), each following a row ``rows`` (N,) of ``state``."""

    def read(self, tokens: Tensor, state: LanguageModelState) -> Stepped:
        """Read T tokens per row, (N, T), given the state before them. Features and what was read are of N * T rows, row after row."""

    def step_bytes(self, state: LanguageModelState, words: Inputs) -> int:
        """Return the largest memory in bytes that a step needs per row."""

    def piece_sizes(self, length: int, most: int) -> list[int]:
        """Return the sizes of the pieces in which to step ``length`` rows, at most ``most`` rows each."""


class Float32Model:
    """The model without changes."""

    def __init__(self, model: LanguageModel, normaliser: str = "exact") -> None:
        self.model = model
        self.feature_size = model.feature_size
        self.device = model.embedding.weight.device
        self.events = model.output.events(normaliser=normaliser)
        self.initial_state, self.inputs = model.initial_state, model.inputs

    def step_rows(self, words: Inputs, places: Tensor, state: LanguageModelState, rows: Tensor) -> Stepped:
        return Stepped(*self.model.step_features(words.select(places), state.select(rows)))

    def read(self, tokens: Tensor, state: LanguageModelState) -> Stepped:
        features, read, after = self.model.read(tokens, state)
        return Stepped(features.flatten(0, 1), read and read.at(torch.ones_like(tokens, dtype=torch.bool)), after)

    def step_bytes(self, state: LanguageModelState, words: Inputs) -> int:
        return STEP_COPIES * (state.bytes + row_bytes(words.values))

    def piece_sizes(self, length: int, most: int) -> list[int]:
        """Return as few sizes as possible, all nearly equal."""
        pieces = ceil_div(length, most)
        return [length // pieces + (number < length % pieces) for number in range(pieces)]


class Bfloat16Model:
    """The model with matrix products in bfloat16, its weights rounded once.

    Factors and results of products are rounded to bfloat16. Everything else is float32: biases, gates, cells, the reader's
    memory and weights, features and sums.
    """

    def __init__(self, model: LanguageModel, normaliser: str = "exact") -> None:
        self.model = model
        self.feature_size = model.feature_size
        self.device = model.embedding.weight.device
        self.recurrence = model.recurrence.bfloat16_steps()
        self.reader = with_bfloat16_products(model.reader)
        self.events = model.output.events(cache(partial(rounded, dtype=low_precision.DTYPE)), normaliser)

    def initial_state(self, batch: int) -> LanguageModelState:
        nothing = self.model.embedding.weight.new_zeros(batch, self.model.recurrence.hidden_size)
        return LanguageModelState(self.recurrence.initial(batch), self.reader.empty_memory(nothing))

    def inputs(self, tokens: Tensor) -> Inputs:
        return Inputs(tokens, torch.cat([self.recurrence.inputs(self.model.embedding(some)) for some in tokens.split(WORDS_AT_ONCE)]))

    def step_rows(self, words: Inputs, places: Tensor, state: LanguageModelState, rows: Tensor) -> Stepped:
        output, recurrent = self.recurrence.step_rows(words.values, places, state.recurrent, rows)
        outputs, tokens = output.unsqueeze(1), words.tokens.index_select(0, places).unsqueeze(1)
        memory = tuple(part.index_select(0, rows) for part in state.memory)
        features, read, after = self.reader.read_on(self.model.states(outputs), tokens, memory, self.model.output.needs_read)
        features = self.model.joined(features, outputs).squeeze(1)
        return Stepped(features, read and read.map(lambda part: part.squeeze(1)), LanguageModelState(recurrent, after))

    def read(self, tokens: Tensor, state: LanguageModelState) -> Stepped:
        distinct, places = tokens.unique(return_inverse=True)
        words, rows = self.inputs(distinct), torch.arange(len(tokens), device=self.device)
        steps = []
        for of_position in places.unbind(1):
            steps.append(self.step_rows(words, of_position, state, rows))
            state = steps[-1].state
        by_row = torch.arange(tokens.numel(), device=self.device).view(tokens.size(1), -1).t().flatten()
        reads = [step.read for step in steps if step.read is not None]
        read = Read.cat(reads).map(lambda part: part[by_row]) if reads else None
        return Stepped(torch.cat([step.features for step in steps])[by_row], read, state)

    def step_bytes(self, state: LanguageModelState, words: Inputs) -> int:
        """Return the bytes of a step per row: copies of the memory and of the recurrent state, three of the latter on a GPU."""
        copies = 1 if self.device.type == "cpu" else 3
        return STEP_COPIES * row_bytes(*state.memory) + copies * row_bytes(*state.recurrent, words.values)

    def piece_sizes(self, length: int, most: int) -> list[int]:
        """Return few distinct sizes, because a kernel is compiled for each size."""
        return piece_sizes(length, most)
