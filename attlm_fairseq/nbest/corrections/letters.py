"""A weighted edit transducer of letters, learned by EM (Ristad and Yianilos 1998), for spellings that were never seen.

Given the source ``a_1 .. a_m``, the target is generated from left to right. Before each source letter, and at the end,
any number of letters b is inserted, each with probability ``insert[b]``. Insertion stops with probability ``1 -
sum(insert)``. Then ``a_i`` becomes b with probability ``change[a_i][b]``; b may be nothing (``""``). A space is a letter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from attlm_fairseq.nbest.corrections.alignment import BEGIN, END, AlignedPair

ROUNDS = 6
MIN_SIMILARITY = 0.5  # 1 - edits / letters of the longer one: other blocks are other words, not other spellings
MAX_LETTERS = 32
IDENTITY = 1.0  # pseudo-counts of each source letter
OTHER = 0.5  # pseudo-count shared by all other targets
INSERTED = 0.5  # pseudo-count shared by all inserted letters
TOGETHER = 1024  # pairs of one step: all at once fill the memory
MANY_LETTERS = 200  # of so many, as in Chinese and Korean, only changes that were seen are kept: all would be millions
SEEN = 0.01  # expected number of times


@dataclass(frozen=True)
class LetterChannel:
    """Costs (-ln p). ``changes[a][b]``, ``inserts[b]``; ``stop``: the cost of ending insertions."""

    changes: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    inserts: Mapping[str, float] = field(default_factory=dict)
    stop: float = 0.0

    def change(self, letter: str) -> Mapping[str, float]:
        """Return the costs of what a source letter may become; a letter that was never seen stays."""
        return self.changes.get(letter) or {letter: 0.0}


def learn_letters(pairs: Iterable[AlignedPair]) -> LetterChannel:
    """Learn from the blocks of aligned hypotheses whose two sides are spelled alike. Without any, nothing can change."""
    spellings: defaultdict[tuple[str, str], float] = defaultdict(float)
    for pair in pairs:
        for block in pair.blocks:
            source = " ".join(pair.hypothesis[block.begin : block.end])
            target = " ".join(pair.reference[block.target_begin : block.target_end])
            if alike(source, target):
                spellings[source, target] += pair.weight
    return estimate(spellings)


def alike(source: str, target: str) -> bool:
    """Return whether one text may be another spelling of the other."""
    from rapidfuzz.distance import Levenshtein

    if not source or not target or max(len(source), len(target)) > MAX_LETTERS or {source, target} & {BEGIN, END}:
        return False
    return Levenshtein.normalized_similarity(source, target) >= MIN_SIMILARITY


def estimate(spellings: Mapping[tuple[str, str], float]) -> LetterChannel:
    """Estimate the transducer of weighted (source, target) pairs by ROUNDS of EM, which begins with the identity."""
    if not spellings:
        return LetterChannel()
    letters = sorted({letter for pair in spellings for text in pair for letter in text})
    place = {letter: i for i, letter in enumerate(letters)}
    size = len(letters)
    pairs = sorted(spellings, key=lambda pair: (*map(len, pair), pair))
    batches = [_batch(pairs[begin : begin + TOGETHER], spellings, place) for begin in range(0, len(pairs), TOGETHER)]
    prior = np.full((size, size + 1), OTHER / (size + 1))
    prior[np.arange(size), np.arange(size)] += IDENTITY
    changes, inserts = _normalised(prior, np.full(size, INSERTED / size), 1.0)
    for _ in range(ROUNDS):
        changed, inserted, stops = np.zeros_like(changes), np.zeros_like(inserts), 0.0
        for batch in batches:
            more_changed, more_inserted, more_stops = _expected(batch, changes, inserts)
            changed, inserted, stops = changed + more_changed, inserted + more_inserted, stops + more_stops
        changes, inserts = _normalised(prior + changed, INSERTED / size + inserted, stops)
    with np.errstate(divide="ignore"):
        costs, insert_costs = -np.log(changes), -np.log(inserts)
    options = [*letters, ""]
    kept = (changed >= SEEN) | (size <= MANY_LETTERS)
    kept[np.arange(size), np.arange(size)] = kept[:, size] = True  # what stays, and what is left out
    return LetterChannel(
        {a: {options[b]: float(costs[i, b]) for b in np.flatnonzero(kept[i]).tolist()} for i, a in enumerate(letters)},
        {b: float(insert_costs[i]) for i, b in enumerate(letters)},
        -math.log(1.0 - float(inserts.sum())),
    )


class _Batch(NamedTuple):
    """P pairs: letters of sources (P, rows) and targets (P, columns), padded with V; lengths (P, 2); weights (P,)."""

    sources: np.ndarray
    targets: np.ndarray
    lengths: np.ndarray
    weights: np.ndarray


def _batch(pairs: Sequence[tuple[str, str]], weights: Mapping[tuple[str, str], float], place: Mapping[str, int]) -> _Batch:
    sources, targets = (_matrix([[place[letter] for letter in text] for text in side], len(place)) for side in zip(*pairs, strict=True))
    lengths = np.array([[len(source), len(target)] for source, target in pairs])
    return _Batch(sources, targets, lengths, np.array([weights[pair] for pair in pairs]))


def _matrix(rows: Sequence[Sequence[int]], fill: int) -> np.ndarray:
    matrix = np.full((len(rows), max(map(len, rows))), fill)
    for row, values in zip(matrix, rows, strict=True):
        row[: len(values)] = values
    return matrix


def _normalised(changed: np.ndarray, inserted: np.ndarray, stops: float) -> tuple[np.ndarray, np.ndarray]:
    return changed / changed.sum(axis=1, keepdims=True), inserted / (inserted.sum() + stops)


def _expected(batch: _Batch, changes: np.ndarray, inserts: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the expected changes (V, V + 1), insertions (V,) and stops of P pairs (E-step), by forward and backward sums.

    ``alpha[i, j]`` (P,) is the probability of having read i source letters and written j target letters. Padding letters have
    index V.
    """
    sources, targets, lengths, weights = batch
    size = len(inserts)
    change = np.vstack([changes, np.zeros((1, size + 1))])
    insert = np.append(inserts, 0.0)
    stop = 1.0 - inserts.sum()
    count, rows, columns = len(sources), sources.shape[1] + 1, targets.shape[1] + 1
    alpha, beta = np.zeros((rows, columns, count)), np.zeros((rows, columns, count))
    alpha[0, 0] = 1.0
    for i in range(rows):
        for j in range(columns):
            if i:
                alpha[i, j] += alpha[i - 1, j] * stop * change[sources[:, i - 1], size]
            if j:
                alpha[i, j] += alpha[i, j - 1] * insert[targets[:, j - 1]]
            if i and j:
                alpha[i, j] += alpha[i - 1, j - 1] * stop * _changed(change, sources[:, i - 1], targets[:, j - 1], size)
    everyone = np.arange(count)
    ends = alpha[lengths[:, 0], lengths[:, 1], everyone] * stop
    beta[lengths[:, 0], lengths[:, 1], everyone] = stop
    scale = weights / np.where(ends > 0, ends, 1.0)
    changed, inserted = np.zeros((size + 1, size + 1)), np.zeros(size + 1)
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            if i + 1 < rows:
                part = stop * change[sources[:, i], size] * beta[i + 1, j]
                beta[i, j] += part
                np.add.at(changed[:, size], sources[:, i], scale * alpha[i, j] * part)
            if j + 1 < columns:
                part = insert[targets[:, j]] * beta[i, j + 1]
                beta[i, j] += part
                np.add.at(inserted, targets[:, j], scale * alpha[i, j] * part)
            if i + 1 < rows and j + 1 < columns:
                part = stop * _changed(change, sources[:, i], targets[:, j], size) * beta[i + 1, j + 1]
                beta[i, j] += part
                np.add.at(changed, (sources[:, i], targets[:, j]), scale * alpha[i, j] * part)
    return changed[:size], inserted[:size], float((weights * (lengths[:, 0] + 1)).sum())


def _changed(change: np.ndarray, source: np.ndarray, target: np.ndarray, size: int) -> np.ndarray:
    """p(target letter | source letter), 0 for padding of the target: column V is deletion."""
    return np.where(target < size, change[source, target], 0.0)
