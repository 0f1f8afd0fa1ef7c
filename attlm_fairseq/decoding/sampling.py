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

BATCH = 256  # sentences drawn together; fixed, so that the n-th sentence of a seed does not depend on their number
ROWS = 64  # distributions in float64 at a time


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
        scores[active] += log_probs.gather(1, tokens.unsqueeze(1).to(log_probs.device)).squeeze(1).double().cpu()
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
    chunks = zip(log_probs.split(ROWS), uniform.split(ROWS), strict=True)
    return torch.cat([_choose(rows.double(), numbers, options) for rows, numbers in chunks])


def _choose(log_probs: Tensor, uniform: Tensor, options: SamplingOptions) -> Tensor:
    log_probs[:, [BOS, PAD] if options.unknown else [BOS, PAD, UNK]] = -math.inf
    if options.temperature == 0:
        return log_probs.argmax(dim=1)
    best = log_probs.amax(dim=1, keepdim=True)
    probabilities = torch.softmax((log_probs - best) / options.temperature, dim=1)  # the largest is 0 at any temperature
    if not options.top_k and options.top_p == 1:
        return _at(probabilities, uniform)
    probabilities, tokens = probabilities.sort(dim=1, descending=True, stable=True)
    if options.top_k:
        probabilities[:, options.top_k :] = 0.0
    cumulative = probabilities.cumsum(dim=1)
    probabilities[cumulative - probabilities >= options.top_p * cumulative[:, -1:]] = 0.0  # likelier words already reach top_p
    return tokens.gather(1, _at(probabilities, uniform).unsqueeze(1)).squeeze(1)


def _at(probabilities: Tensor, uniform: Tensor) -> Tensor:
    """Return the place (N,) of each row's number in the cumulative distribution. Places of probability 0 are never returned."""
    cumulative = probabilities.cumsum(dim=1)
    total = cumulative[:, -1]
    below = torch.minimum(uniform * total, total.nextafter(total.new_zeros(())))  # rounding must not reach the sum
    return torch.searchsorted(cumulative, below.unsqueeze(1), right=True).squeeze(1)
