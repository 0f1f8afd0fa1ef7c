"""Minimum-Bayes-risk choice: the hypothesis that is expected to lose least, if one of the list is right (Goel and Byrne 2000)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attlm_fairseq.nbest.metrics import BLEU, EditRate, ErrorRate, Metric, NgramMetric, make_metric

LOSSES = ("wer", "cer", "bleu", "chrf", "ter")
PRODUCTS = 1 << 22  # held at a time


def loss_metric(name: str, tokenize: str = "none") -> Metric:
    """The metric of a loss (one of LOSSES, or ``external:COMMAND``).

    ``tokenize`` is BLEU's, see ``BLEU``; by itself it splits at white space.

    Case counts: where it is not to, the texts are in lower case already.
    """
    options: dict[str, dict[str, Any]] = {"bleu": {"tokenize": tokenize}, "ter": {"lowercase": False}}
    return make_metric(name, **options.get(name, {}))


def pairwise_losses(texts: Sequence[str], metric: Metric) -> np.ndarray:
    """What choosing hypothesis i loses where hypothesis j is right: (n, n), row i, column j.

    For an error rate the errors (edits), a number and not a rate, so that a list counts by its length, as in the corpus metric.
    For BLEU ``1 - BLEU / 100`` of the sentence with sacreBLEU's exponential smoothing over the orders that it has (sacreBLEU's
    sentence BLEU: ``smooth:exp``, ``eff:yes``); for chrF ``1 - chrF / 100``.
    """
    distinct = list(dict.fromkeys(texts))
    if isinstance(metric, EditRate):
        losses = metric.distances(distinct)
    elif isinstance(metric, NgramMetric):
        losses = np.concatenate([sentence_losses(statistics, metric) / 100.0 for statistics in metric.among(distinct)], axis=1)
        words: dict[tuple[str, ...], int] = {}
        same = np.array([words.setdefault(tuple(text.split()), i) for i, text in enumerate(distinct)])
        losses[same[:, None] == same] = 0.0  # two empty hypotheses agree, though they have no n-gram to say so
    else:
        losses = np.stack([metric.statistics(distinct, [truth])[:, 0] for truth in distinct], axis=1)
    if len(distinct) == len(texts):
        return losses
    place = {text: i for i, text in enumerate(distinct)}
    of_text = np.array([place[text] for text in texts])
    return losses[of_text[:, None], of_text]


def expected_losses(losses: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """The risk of each hypothesis, (.., n, n) and (.., n) -> (.., n). Equal hypotheses have equal risks to the last bit."""
    rows = max(1, PRODUCTS * losses.shape[-2] // max(1, losses.size))
    return np.concatenate(
        [(losses[..., begin : begin + rows, :] * probabilities[..., None, :]).sum(axis=-1) for begin in range(0, losses.shape[-2], rows)],
        axis=-1,
    )


def least_risk(losses: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """The hypotheses (.., n) from the least risk to the greatest; equal risks by probability, then in the order given."""
    return np.lexsort((-probabilities, expected_losses(losses, probabilities)))


def sentence_losses(statistics: np.ndarray, metric: Metric) -> np.ndarray:
    """What sentences lose by themselves, (.., S) -> (..): errors of an error rate; for BLEU (of the sentence) and chrF, percent points."""
    if isinstance(metric, ErrorRate):
        return statistics[..., 0]
    return 100.0 - (metric.score(statistics, effective_order=True) if isinstance(metric, BLEU) else metric.score(statistics))
