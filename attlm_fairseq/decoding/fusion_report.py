"""The two lines that tell what fused language models did.

Shapes: K language models.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class FusionReport:
    """What the language models did: sums over the best hypotheses, and how often they chose them."""

    def __init__(self, lms: Sequence[tuple[str, float]]) -> None:
        """``lms`` are names and weights in the order of the hypotheses' ``lm_scores``."""
        self.lms = list(lms)
        self.sentences = 0
        self.tokens = 0
        self.sums = [0.0] * (len(self.lms) + 1)  # the translation model's and each LM's
        self.chosen = 0
        self.compared = 0
        self.differ = 0

    def add(self, hypotheses: Sequence[Sequence[dict[str, Tensor]]], len_penalty: float) -> None:
        """Count a batch: for each sentence its hypotheses, best first."""
        weights = torch.tensor([weight for _, weight in self.lms], dtype=torch.float)
        for of_sentence in hypotheses:
            if not of_sentence:
                continue
            lm = torch.stack([hypothesis["lm_scores"].sum(dim=1).cpu() for hypothesis in of_sentence])  # (hypotheses, K)
            total = torch.stack([hypothesis["positional_scores"].float().sum().cpu() for hypothesis in of_sentence])
            translation = total - lm @ weights
            lengths = torch.tensor([len(hypothesis["tokens"]) for hypothesis in of_sentence], dtype=torch.float)
            self.sentences += 1
            self.tokens += int(lengths[0])
            self.sums = [have + more for have, more in zip(self.sums, [translation[0].item(), *lm[0].tolist()], strict=True)]
            self.chosen += int((translation / lengths**len_penalty).argmax()) != 0

    def compare(self, hypotheses: Sequence[Sequence[dict]], without: Sequence[Sequence[dict]]) -> None:
        """Count in how many sentences the best hypothesis is another than that of decoding without the LMs."""
        for fused, plain in zip(hypotheses, without, strict=True):
            if fused and plain:
                self.compared += 1
                self.differ += not torch.equal(fused[0]["tokens"].cpu(), plain[0]["tokens"].cpu())

    def __str__(self) -> str:
        """Two lines; natural log, means over the tokens of the best hypotheses with their ends."""
        if not self.sentences:
            return "language models: no sentence was decoded"
        names = ["the translation model", *(f"{name} (weight {weight:g})" for name, weight in self.lms)]
        means = ", ".join(f"{name} {value / max(1, self.tokens):.4f}" for name, value in zip(names, self.sums, strict=True))
        lines = [
            f"language models: mean ln p of a token of the best hypothesis, sentence ends included: {means}",
            f"language models: put another hypothesis of the beam first in {share(self.chosen, self.sentences)}",
        ]
        if self.compared:
            lines[-1] += f"; the best one differs from decoding without them in {share(self.differ, self.compared)}"
        return "\n".join(lines)


def share(count: int, of: int) -> str:
    return f"{count} of {of} sentences ({count / of:.1%})"
