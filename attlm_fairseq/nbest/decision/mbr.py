"""Minimum Bayes risk: choose the hypothesis with the least expected loss over the list (Goel and Byrne 2000)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attlm_fairseq.nbest.decision.rover import TIE
from attlm_fairseq.nbest.metrics.edit_rates import EditRate
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.metrics.metric import ErrorRate, Metric
from attlm_fairseq.nbest.metrics.ngram_metrics import BLEU, NgramMetric

LOSSES = ("wer", "cer", "bleu", "chrf", "ter")
PRODUCTS = 1 << 22  # held at a time


def loss_metric(name: str, tokenize: str = "none", spaces: bool = True) -> Metric:
    """Return the metric of a loss.

    Case counts: texts to be compared without case are lower-cased before.

    Args:
        name: one of LOSSES, or ``external:COMMAND``.
        tokenize: BLEU's tokenizer; the default splits at white space.
        spaces: whether spaces count in CER.
    """
    options: dict[str, dict[str, Any]] = {"bleu": {"tokenize": tokenize}, "cer": {"spaces": spaces}, "ter": {"lowercase": False}}
    return make_metric(name, **options.get(name, {}))


def pairwise_losses(texts: Sequence[str], metric: Metric) -> np.ndarray:
    """Return the loss of choosing hypothesis i if hypothesis j is right: (n, n), row i, column j.

    - Error rates: the number of errors, not the rate, so that long lists weigh more, as in the corpus metric.
    - BLEU: ``1 - BLEU / 100`` with sacreBLEU's sentence BLEU (``smooth:exp``, ``eff:yes``).
    - chrF: ``1 - chrF / 100``.
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
    """Return the risk of each hypothesis, (.., n, n) and (.., n) -> (.., n). Equal hypotheses have bitwise equal risks."""
    rows = max(1, PRODUCTS * losses.shape[-2] // max(1, losses.size))
    return np.concatenate(
        [(losses[..., begin : begin + rows, :] * probabilities[..., None, :]).sum(axis=-1) for begin in range(0, losses.shape[-2], rows)],
        axis=-1,
    )


def risks(losses: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the expected losses (.., n). Those that differ by less than TIE of the greatest are the same number: the least of them.

    In another order of summation they would differ in another way, and rounding must not decide.
    """
    expected = expected_losses(losses, probabilities)
    order = expected.argsort(axis=-1, kind="stable")
    ascending = np.take_along_axis(expected, order, axis=-1)
    greater = np.diff(ascending, axis=-1, prepend=-np.inf) > TIE * np.abs(ascending).max(axis=-1, keepdims=True)
    same = np.empty_like(expected)
    np.put_along_axis(same, order, np.maximum.accumulate(np.where(greater, ascending, -np.inf), axis=-1), axis=-1)
    return same


def least_risk(losses: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the indices of the hypotheses (.., n) by ascending risk; equal risks by probability, then in the order given."""
    return np.lexsort((-probabilities, risks(losses, probabilities)))


def sentence_losses(statistics: np.ndarray, metric: Metric) -> np.ndarray:
    """Return the losses of single sentences, (.., S) -> (..): errors for an error rate; percent points for BLEU and chrF."""
    if isinstance(metric, ErrorRate):
        return statistics[..., 0]
    return 100.0 - (metric.score(statistics, effective_order=True) if isinstance(metric, BLEU) else metric.score(statistics))
