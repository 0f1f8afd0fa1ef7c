"""Minimum-Bayes-risk choice: the hypothesis that is expected to lose least, if one of the list is right (Goel and Byrne 2000)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attlm_fairseq.nbest.metrics import BLEU, EditRate, ErrorRate, Metric, make_metric

LOSSES = ("wer", "cer", "bleu", "chrf", "ter")


def loss_metric(name: str) -> Metric:
    """The metric of a loss (one of LOSSES). BLEU splits at white space: hypotheses are compared as they are."""
    return make_metric(name, **({"tokenize": "none"} if name == "bleu" else {}))


def pairwise_losses(texts: Sequence[str], metric: Metric) -> np.ndarray:
    """What choosing hypothesis i loses where hypothesis j is right: (n, n), row i, column j.

    For an error rate the errors (edits), a number and not a rate, so that a list counts by its length, as in the corpus metric.
    For BLEU ``1 - BLEU / 100`` of the sentence with sacreBLEU's exponential smoothing over the orders that it has (sacreBLEU's
    sentence BLEU: ``smooth:exp``, ``eff:yes``); for chrF ``1 - chrF / 100``.
    """
    distinct = list(dict.fromkeys(texts))
    if isinstance(metric, EditRate):
        losses = metric.distances(distinct)
    else:
        losses = np.stack([_losses_against(distinct, truth, metric) for truth in distinct], axis=1)
    place = {text: i for i, text in enumerate(distinct)}
    of_text = np.array([place[text] for text in texts])
    return losses[of_text[:, None], of_text]


def expected_losses(losses: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """The risk of each hypothesis, (.., n, n) and (.., n) -> (.., n). Equal hypotheses have equal risks to the last bit."""
    return (losses * probabilities[..., None, :]).sum(axis=-1)


def least_risk(losses: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """The hypotheses (.., n) from the least risk to the greatest; equal risks by probability, then in the order given."""
    return np.lexsort((-probabilities, expected_losses(losses, probabilities)))


def sentence_bleu(statistics: np.ndarray) -> np.ndarray:
    """sacreBLEU's sentence BLEU in percent from the statistics of :class:`BLEU`, (.., 10) -> (..)."""
    length, reference_length, matched, ngrams = statistics[..., 0], statistics[..., 1], statistics[..., 2:6], statistics[..., 6:10]
    has = ngrams > 0  # a sentence of k < 4 words has k orders
    halvings = np.cumsum(has & (matched == 0), axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_precisions = np.where(matched == 0, -np.log(2.0) * halvings, np.log(matched)) - np.log(ngrams)
        log_precision = np.where(has, log_precisions, 0.0).sum(axis=-1) / has.sum(axis=-1)
        log_brevity = np.where(length < reference_length, 1.0 - reference_length / length, 0.0)
        score = 100.0 * np.exp(log_precision + log_brevity)
    return np.where(matched.any(axis=-1), score, 0.0)


def sentence_losses(statistics: np.ndarray, metric: Metric) -> np.ndarray:
    """What sentences lose by themselves, (.., S) -> (..): errors of an error rate; for BLEU (of the sentence) and chrF, percent points."""
    if isinstance(metric, ErrorRate):
        return statistics[..., 0]
    return 100.0 - (sentence_bleu(statistics) if isinstance(metric, BLEU) else metric.score(statistics))


def _losses_against(texts: Sequence[str], truth: str, metric: Metric) -> np.ndarray:
    statistics = metric.statistics(texts, [truth])
    losses = sentence_losses(statistics, metric)
    if isinstance(metric, ErrorRate):
        return losses
    # Two empty hypotheses agree, though they have no n-gram to say so.
    return np.where([text.split() == truth.split() for text in texts], 0.0, losses / 100.0)
