"""Lists with known best weights."""

from __future__ import annotations

import numpy as np

from attlm_fairseq.nbest.metrics.making import make_metric

WER, BLEU = make_metric("wer"), make_metric("bleu")


def wer_lists(seed: int, lists: int, names: int, sizes=(1, 9), integers: bool = False):
    """Ragged lists with duplicates; the first feature says something about the errors, the others are noise."""
    generator = np.random.default_rng(seed)
    matrices, statistics = [], []
    for _ in range(lists):
        n = int(generator.integers(*sizes, endpoint=True))
        errors = generator.integers(0, 6, size=n).astype(float)
        matrix = generator.integers(-3, 4, size=(n, names)).astype(float) if integers else generator.normal(size=(n, names))
        matrix[:, 0] = np.round(matrix[:, 0] - 0.5 * errors, 0 if integers else 9)
        if n > 2:  # a duplicate in everything, and one that only looks the same
            matrix[1], errors[1] = matrix[0], errors[0]
            matrix[2] = matrix[0]
        matrices.append(matrix)
        statistics.append(np.stack([errors, np.full(n, 7.0)], axis=1))
    return matrices, statistics


def bleu_lists(seed: int, lists: int, names: int):
    generator = np.random.default_rng(seed)
    words = ["a", "b", "c", "d"]
    matrices, statistics = [], []
    for _ in range(lists):
        reference = " ".join(generator.choice(words, size=8))
        texts = [" ".join(generator.choice(words, size=int(generator.integers(0, 10)))) for _ in range(int(generator.integers(1, 7)))]
        matrices.append(generator.normal(size=(len(texts), names)))
        statistics.append(BLEU.statistics(texts, [reference]))
    return matrices, statistics
