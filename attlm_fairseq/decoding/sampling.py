"""Sentences drawn from a language model.

Shapes: N sentences in the batch, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attlm_fairseq.checkpoints.vocabulary import BOS, EOS, PAD, UNK
from attlm_fairseq.decoding.incremental_lm import IncrementalLM
from attlm_fairseq.decoding.sampling_options import SamplingOptions

BATCH = 64  # sentences drawn together; fixed, so that the n-th sentence of a seed does not depend on their number


@dataclass(frozen=True)
class Sample:
    """A sentence. ``log_prob`` is the model's ln p, summed over all words (prefix included) and ``</s>`` if it ``ended``."""

    words: tuple[str, ...]
    log_prob: float
    ended: bool


def sample_sentences(
    lm: IncrementalLM, number: int, *, prefix: Sequence[str] = (), options: SamplingOptions | None = None, seed: int = 1
) -> Iterator[Sample]:
    """Draw sentences that begin with the words of ``prefix``.

    A seed always gives the same sequence of sentences; ``number`` only sets how many are returned.
    """
    options = options or SamplingOptions()
    random = torch.Generator().manual_seed(seed)
    for begin in range(0, number, BATCH):
        yield from sample_batch(lm, min(BATCH, number - begin), prefix, options, random)


def sample_batch(lm: IncrementalLM, count: int, prefix: Sequence[str], options: SamplingOptions, random: torch.Generator) -> list[Sample]:
    """Draw at most ``BATCH`` sentences.

    At every word a random number is drawn for each row of a full batch, needed or not, so that results do not depend on
    ``count``.
    """
    words = [list(prefix) for _ in range(count)]
    scores = torch.zeros(count, dtype=torch.float64)
    ended = [False] * count
    active = torch.arange(count)
    log_probs, states = lm.step(lm.start(count), torch.full((count,), lm.eos))
    for token in lm.vocabulary.ids(prefix):
        scores += log_probs[:, token].double().cpu()
        log_probs, states = lm.step(states, torch.full((count,), token))
    for _ in range(options.max_words - len(prefix)):
        uniform = torch.rand(BATCH, generator=random, dtype=torch.float64)
        tokens = choose(log_probs.cpu(), uniform[active], options)
        scores[active] += log_probs.cpu()[torch.arange(len(tokens)), tokens].double()
        for row, token in zip(active.tolist(), tokens.tolist(), strict=True):
            if token == EOS:
                ended[row] = True
            else:
                words[row].append(lm.vocabulary.symbols[token])
        going_on = (tokens != EOS).nonzero().squeeze(1)
        active = active[going_on]
        if not len(active):
            break
        log_probs, states = lm.step(lm.select(states, going_on), tokens[going_on])
    return [Sample(tuple(words[row]), scores[row].item(), ended[row]) for row in range(count)]


def choose(log_probs: Tensor, uniform: Tensor, options: SamplingOptions) -> Tensor:
    """Return one token id per row (N,), given natural-log probabilities (N, V) and random numbers in [0, 1) (N,)."""
    log_probs = log_probs.double()
    log_probs[:, [BOS, PAD] if options.unknown else [BOS, PAD, UNK]] = -math.inf
    if options.temperature == 0:
        return log_probs.argmax(dim=1)
    values, tokens = log_probs.sort(dim=1, descending=True, stable=True)
    probabilities = torch.softmax((values - values[:, :1]) / options.temperature, dim=1)  # the largest is 0 at any temperature
    if options.top_k:
        probabilities[:, options.top_k :] = 0.0
    cumulative = probabilities.cumsum(dim=1)
    total = cumulative[:, -1:]
    probabilities[cumulative - probabilities >= options.top_p * total] = 0.0  # likelier words already reach top_p
    if options.top_p == 1:
        probabilities[cumulative - probabilities >= total] = 0.0
    cumulative = probabilities.cumsum(dim=1)
    places = torch.searchsorted(cumulative, (uniform * cumulative[:, -1]).unsqueeze(1), right=True).squeeze(1)
    last = (probabilities > 0).sum(dim=1) - 1  # rounding must not select a word that was removed
    return tokens.gather(1, torch.minimum(places, last).unsqueeze(1)).squeeze(1)
