"""The DecoderLM contract and its neural implementation: a language model that a decoder drives token by token.

Shapes: N hypotheses, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from attlm_fairseq.checkpoints import TrainedModel, load_model
from attlm_fairseq.modules.language_model import LanguageModelState
from attlm_fairseq.vocabulary import EOS


class DecoderLM:
    """A trained model as a decoder component: states are values, passed in and out; nothing is kept here between calls.

    ``states = lm.start(N)``, then ``lm.step(states, tokens)`` with the symbol that starts a sentence, ``lm.eos``, and from then on with
    the token that each hypothesis took. ``lm.select`` follows the decoder where it reorders, duplicates or drops hypotheses.
    """

    def __init__(self, trained: TrainedModel) -> None:
        self.model = trained.model
        self.vocabulary = trained.vocabulary
        self.eos = EOS
        self.device = trained.model.embedding.weight.device

    @classmethod
    def load(cls, path: Path, dictionary: Path | None = None, device: str = "cpu") -> DecoderLM:
        """Load a checkpoint of fairseq-train or a folder written by ``attlm export``. Raises InputError."""
        return cls(load_model(path, dictionary, device))

    def start(self, rows: int = 1) -> LanguageModelState:
        """The states of ``rows`` hypotheses that have not even begun: the first step feeds them ``eos``."""
        return self.model.initial_state(rows)

    @torch.inference_mode()
    def step(self, states: LanguageModelState, tokens: Tensor) -> tuple[Tensor, LanguageModelState]:
        """States of N hypotheses and the token (N,) each has just taken -> natural-log probabilities (N, V) of the next, and the new states."""
        features, states = self.model.step_features(tokens.to(self.device), states)
        return self.model.log_probs(features), states

    def select(self, states: LanguageModelState, rows: Tensor) -> LanguageModelState:
        """The states of the given rows (N,), in their order; a row may be taken any number of times."""
        return states.select(rows.to(self.device))
