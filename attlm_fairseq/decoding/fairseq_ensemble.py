"""fairseq's ensemble of translation models, extended by language models.

Shapes: N rows of the batch (sentences times beam), n selected rows, K language models, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from fairseq.sequence_generator import EnsembleModel, EnsembleModelWithAlignment
from torch import Tensor

from attlm_fairseq.checkpoints.vocabulary import EOS
from attlm_fairseq.decoding.fairseq_lms import FusedLM


class FusedEnsemble(EnsembleModel):
    """fairseq's ensemble of translation models with language models added to its log-probabilities.

    A batch begins with ``forward_encoder``, which resets the LMs' states. For the LMs every hypothesis begins with ``</s>``, whatever
    symbol the decoder begins with. They skip its first ``tags`` tokens, which are language tags.
    """

    def __init__(self, models: Sequence, lms: Sequence[FusedLM]) -> None:
        super().__init__(models)
        self.lms = list(lms)
        self.tags = 0
        self.forget()

    def forget(self) -> None:
        self.states: list[Any] | None = None  # each LM's states after the distinct hypotheses of the last step
        self.last: list[Tensor] = []  # each LM's ln p (distinct hypotheses, V) of the last step
        self.distinct = torch.empty(0, dtype=torch.long)  # for each row of the last step, its index among the distinct hypotheses
        self.order: Tensor | None = None  # for each row of the next step, its row in the last step
        self.scores = torch.empty(0)  # ln p of the tokens taken so far: (N, positions, K)

    def forward_encoder(self, net_input: dict[str, Tensor]) -> Any:
        self.forget()
        return super().forward_encoder(net_input)

    def forward_decoder(self, tokens: Tensor, encoder_outs: Any, incremental_states: Any, temperature: float = 1.0) -> tuple:
        log_probs, attention = super().forward_decoder(tokens, encoder_outs, incremental_states, temperature)
        newest = tokens[:, -1]
        states_before = self.states
        if states_before is None:
            self.scores = log_probs.new_zeros(len(tokens), tokens.size(1) - 1, len(self.lms), dtype=torch.float)
            before, newest = torch.zeros_like(newest), torch.full_like(newest, EOS)
            if tokens.size(1) <= self.tags:
                self.distinct, self.last, self.order = before, [], None
                return log_probs, attention
        else:
            rows = torch.arange(len(tokens), device=tokens.device) if self.order is None else self.order
            self.scores = torch.cat((self.scores[rows], self.of_tokens(rows, newest)), dim=1)
            before = self.distinct[rows]
        # LMs do not see the source, so equal hypotheses are scored once, even if they translate different sentences
        vocabulary = log_probs.size(1)
        kept, self.distinct = (before * vocabulary + newest).unique(return_inverse=True)
        parents, taken = kept.div(vocabulary, rounding_mode="floor"), kept % vocabulary
        self.last, self.states = [], []
        for place, fused in enumerate(self.lms):
            states = fused.lm.start() if states_before is None else fused.lm.select(states_before[place], parents)
            lm_log_probs, after = fused.lm.step(states, taken)
            self.states.append(after)
            # an LM may be on another device: in training, fairseq builds the generator while the model is still on the CPU
            self.last.append(lm_log_probs.to(log_probs.device))
            lm_log_probs = self.last[-1].to(log_probs.dtype)
            at_once = 32 if tokens.device.type == "cpu" else len(tokens)  # few rows stay in a CPU's cache until they are added
            for sums, some in zip(log_probs.split(at_once), self.distinct.split(at_once), strict=True):
                sums.add_(lm_log_probs.index_select(0, some), alpha=fused.weight)  # in place: no other code uses these tensors
        self.order = None
        return log_probs, attention

    def reorder_incremental_state(self, incremental_states: Any, new_order: Tensor) -> None:
        """Select the rows ``new_order`` after beams were reordered and finished sentences left the batch."""
        super().reorder_incremental_state(incremental_states, new_order)
        self.order = new_order

    def become(self, rows: Tensor) -> None:
        """Replace each row of the last step by the hypothesis in ``rows`` (N,), with its tokens and probabilities."""
        self.distinct, self.scores = self.distinct[rows], self.scores[rows]

    def ended(self, rows: Tensor) -> Tensor:
        """Return ln p of each token and of ``</s>``, (n, positions, K), for the rows (n,), which end at this step."""
        return torch.cat((self.scores[rows], self.of_tokens(rows, torch.full_like(rows, EOS))), dim=1)

    def of_tokens(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Return ln p (n, 1, K) of one token for each of the rows (n,) of the last step."""
        found = [last[self.distinct[rows], tokens] for last in self.last]
        return torch.stack(found, dim=-1).unsqueeze(1) if found else self.scores.new_zeros(len(rows), 1, len(self.lms))


class FusedEnsembleWithAlignment(FusedEnsemble, EnsembleModelWithAlignment):
    """``FusedEnsemble`` for ``--print-alignment``."""
