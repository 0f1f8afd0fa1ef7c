"""Beam search for fairseq's generator: few of very many values are found fast, n-gram models asked for few tokens.

Shapes: S sentences, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from fairseq.search import BeamSearch, Sampling
from torch import Tensor

from attlm_fairseq.checkpoints.vocabulary import EOS
from attlm_fairseq.decoding.ngram_tokens import NgramTokens

PIECE_SIZE = 64  # values whose maximum is taken together when a few of very many are looked for


def largest(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """``rows.topk(count)`` of (S, n): values and places (S, count), the largest first, in a third of its time on a CPU.

    The largest values are in those pieces of a row that have the largest maxima, no more pieces than values.
    """
    pieces = rows.size(1) // PIECE_SIZE
    if rows.device.type != "cpu" or pieces <= count:
        values, at = rows.topk(count)
        return values, at
    chosen = rows[:, : pieces * PIECE_SIZE].unflatten(1, (pieces, PIECE_SIZE)).amax(dim=-1).topk(count, sorted=False).indices
    within = (chosen.unsqueeze(-1) * PIECE_SIZE + torch.arange(PIECE_SIZE)).flatten(1)
    left_over = torch.arange(pieces * PIECE_SIZE, rows.size(1)).expand(len(rows), -1)
    places = torch.cat((within, left_over), dim=1)
    best = rows.gather(1, places).topk(count)
    return best.values, places.gather(1, best.indices)


class FastBeamSearch(BeamSearch):
    """fairseq's beam search, with ``largest``."""

    def step(
        self,
        step: int,
        lprobs: Tensor,
        scores: Tensor | None,
        prev_output_tokens: Tensor | None = None,
        original_batch_idxs: Tensor | None = None,
        candidate_multiple: int = 2,
    ) -> tuple[Tensor, Tensor, Tensor]:
        # at first all hypotheses are alike
        totals = lprobs[:, :1] if step == 0 or scores is None else lprobs + scores[:, :, step - 1].unsqueeze(-1)
        totals = totals.reshape(len(totals), -1)
        count = min(candidate_multiple * lprobs.size(1), totals.size(1) - 1)
        values, places = self.best(totals, count, lprobs.size(), prev_output_tokens)
        return values, places % lprobs.size(2), places // lprobs.size(2)

    def best(self, totals: Tensor, count: int, size: Sequence[int], tokens: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the largest totals (S, count) of (S, beam V), and their places. ``size`` is (S, beam, V); ``tokens`` are (S beam, T)."""
        return largest(totals, count)


class FewTokensBeamSearch(FastBeamSearch):
    """Beam search with n-gram models that are asked only for the tokens that can still be among the best.

    An n-gram model of positive weight adds at most 0. So if the search takes K tokens, a token is not among them if its score without
    the n-gram models is below the K-th best total found so far. The result is that of asking for all tokens.
    """

    def __init__(self, dictionary: Any, ngrams: Sequence[tuple[NgramTokens, float]]) -> None:
        """Take n-gram models over the decoder's vocabulary, each with its weight."""
        super().__init__(dictionary)
        self.ngrams = list(ngrams)
        self.tags = 0  # of the first tokens of each hypothesis, which the n-gram models do not read

    def best(self, totals: Tensor, count: int, size: Sequence[int], tokens: Tensor | None) -> tuple[Tensor, Tensor]:
        if tokens is None:
            raise ValueError("n-gram models need the tokens taken so far")
        if tokens.size(1) <= self.tags:
            return largest(totals, count)
        _, beam, vocabulary = size
        contexts = [[ngram.context([EOS, *row[1 + self.tags :]]) for row in tokens.tolist()] for ngram, _ in self.ngrams]
        fused_totals = torch.full_like(totals, -math.inf)
        for sentence, row in enumerate(totals):
            known: dict[int, float] = {}  # place in the row -> what the n-gram models add
            asked = 2 * count
            while True:
                best, places = (found[0] for found in largest(row.unsqueeze(0), min(asked, len(row))))
                for place in places.tolist():
                    if place not in known:
                        hypothesis, token = sentence * beam + place // vocabulary, place % vocabulary
                        pairs = zip(self.ngrams, contexts, strict=True)
                        known[place] = sum(weight * ngram.score(of[hypothesis], token) for (ngram, weight), of in pairs)
                fused_best = (best + best.new_tensor([known[place] for place in places.tolist()])).topk(count).values
                if asked >= len(row) or fused_best[-1] >= best[-1]:
                    break
                asked *= 4
            found = list(known)
            fused_totals[sentence, found] = row[found] + row.new_tensor(list(known.values()))
        return largest(fused_totals, count)


class FusedSampling(Sampling):
    """fairseq's sampling of sums with language models: ``--sampling-topp`` is a share of the sum of all tokens, which is not 1."""

    def _sample_topp(self, lprobs: Tensor) -> tuple[Tensor, Tensor]:
        total = lprobs.logsumexp(dim=-1, keepdim=True)
        probabilities, tokens = super()._sample_topp(lprobs - total)
        return probabilities * total.exp(), tokens  # a hypothesis keeps the score of the sums
