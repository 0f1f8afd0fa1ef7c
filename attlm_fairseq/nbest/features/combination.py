"""Log-linear combination: the total of a hypothesis is the weighted sum of its features; the best total comes first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

# Features computed from any hypothesis. They hide list scores of the same name: their weights must mean the same for all
# lists, and rank=-1 must keep the input order.
COMPUTED = {
    "words": lambda hypothesis: float(len(hypothesis.text.split())),
    "rank": lambda hypothesis: float(hypothesis.rank - 1),
}

# Largest absolute value of a score; totals may reach its square. Nothing overflows up to there. It admits the lowest
# float32, which some programs write for the logarithm of 0.
MAX_ABSOLUTE = 1e40

KEEP_INCOMPLETE = "`attlm rescore --keep-incomplete` leaves such lists as they are"


def feature_names(nbest: NbestList) -> list[str]:
    """Return the features that every hypothesis of the list has: scores as read, LM scores, computed ones; in that order.

    In a sparse list every hypothesis has the scores that any of them has.
    """
    hypotheses = nbest.hypotheses if nbest.sparse else nbest.hypotheses[:1]
    scores = (name for hypothesis in hypotheses for name in hypothesis.scores)
    lm_scores = (name for hypothesis in hypotheses for name in hypothesis.lm_scores)
    names = dict.fromkeys([*scores, *lm_scores, *COMPUTED])
    return [name for name in names if all(_value(nbest, hypothesis, name) is not None for hypothesis in nbest.hypotheses)]


def features(nbest: NbestList, names: Sequence[str]) -> np.ndarray:
    """Return the named features of each hypothesis, (n_hypotheses, n_features) float64, rows in the order of the list.

    The features are ``words`` (white-space words of the text), ``rank`` (places behind the input 1-best: 0, 1, 2, ..),
    ``lm_scores`` and the ``scores`` as read. Of equal names the first counts. In a sparse list, a missing score is 0; so it is if there
    is one hypothesis alone, such as an empty text for silence: nothing depends on its scores.

    Raises:
        InputError: one of several hypotheses of a list that is not sparse lacks a named score, or a score is not a number or is
            beyond MAX_ABSOLUTE.
    """
    matrix = np.empty((len(nbest.hypotheses), len(names)))
    for row, hypothesis in enumerate(nbest.hypotheses):
        for column, name in enumerate(names):
            value = _value(nbest, hypothesis, name)
            if value is None:
                known = ", ".join(dict.fromkeys([*hypothesis.scores, *hypothesis.lm_scores])) or "none"
                raise nbest.error(f"list {nbest.id!r}, hypothesis {row + 1} has no score {name!r}; its scores: {known}; {KEEP_INCOMPLETE}")
            if not abs(value) <= MAX_ABSOLUTE:
                expected = f"expected a number from -{MAX_ABSOLUTE:g} to {MAX_ABSOLUTE:g}"
                raise nbest.error(f"list {nbest.id!r}, hypothesis {row + 1}: score {name!r} is {value}, {expected}")
            matrix[row, column] = value
    return matrix


def is_incomplete(nbest: NbestList, weights: Mapping[str, float]) -> bool:
    """Return whether one of several hypotheses of the list lacks a score that has a weight."""
    names = [name for name, weight in weights.items() if weight]
    return any(_value(nbest, hypothesis, name) is None for hypothesis in nbest.hypotheses for name in names)


def log_linear(columns: Sequence[np.ndarray] | np.ndarray, weights: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the weighted sum of feature columns (at least one, all of one shape): totals of that shape.

    Columns are added one by one. A matrix product may round a hypothesis' total differently with what else is in the
    array: equal hypotheses would not tie, and tuning would not see the totals of ``combine``.
    """
    totals, term = np.zeros_like(columns[0]), np.empty_like(columns[0])
    with np.errstate(over="ignore", invalid="ignore"):  # of unheard-of weights: see check_totals
        for column, weight in zip(columns, weights, strict=True):
            if weight:
                totals += np.multiply(column, weight, out=term)
    return totals


def weighted_totals(matrices: Sequence[np.ndarray], names: Sequence[str], weights: Mapping[str, float]) -> list[np.ndarray]:
    """Return the totals (n_i,) of lists from their features (n_i, F), columns ``names``; a feature that has no weight counts 0.

    Features are added up in alphabetical order of their names, so that neither the order of weights nor that of columns
    matters.
    """
    columns = [column for column in alphabetical(names) if weights.get(names[column])]
    of_columns = [weights[names[column]] for column in columns]
    return [log_linear(matrix.T[columns], of_columns) if columns else np.zeros(len(matrix)) for matrix in matrices]


def alphabetical(names: Sequence[str]) -> list[int]:
    """Return the places of the names in their alphabetical order: the one in which features are added up everywhere."""
    return sorted(range(len(names)), key=lambda column: names[column])


def check_totals(nbest: NbestList, totals: np.ndarray) -> None:
    """Raise InputError if a total of the list is not a number or is beyond the square of MAX_ABSOLUTE."""
    if not (np.abs(totals) <= MAX_ABSOLUTE**2).all():
        raise nbest.error(f"list {nbest.id!r}: the weighted sum of the scores is beyond {MAX_ABSOLUTE**2:g}: give smaller weights")


def combine(nbest: NbestList, weights: Mapping[str, float]) -> NbestList:
    """Return a copy of the list with totals, sorted by total, best first; equal totals keep their input order.

    A feature without a weight counts 0, and one with weight 0 need not be in the list. If all weights are 0, the list
    stays in input order and its totals are not set.

    Raises:
        InputError: a weight is not finite, none of several hypotheses has the score of a weight (unless the list is sparse), or a
            needed feature is missing from a hypothesis.
    """
    for name, weight in weights.items():
        if not math.isfinite(weight):
            raise InputError(f"weight of {name!r} is {weight}, expected a finite number")
    names = [name for name, weight in weights.items() if weight]
    if not names:
        return replace(nbest, hypotheses=sorted(nbest.hypotheses, key=lambda hypothesis: hypothesis.rank))
    for name in names if len(nbest.hypotheses) > 1 else ():
        if all(_value(nbest, hypothesis, name) is None for hypothesis in nbest.hypotheses):
            known = dict.fromkeys(
                name for hypothesis in nbest.hypotheses for name in [*hypothesis.scores, *hypothesis.lm_scores, *COMPUTED]
            )
            raise nbest.error(
                f"weight for {name!r}, which is not a feature of list {nbest.id!r}; its features are {', '.join(known)}; "
                "a score of the lists needs the name that it had when the weights were tuned; else give the LM or the --corrections of then"
            )
    [totals] = weighted_totals([features(nbest, names)], names, weights)
    check_totals(nbest, totals)
    scored = sorted(zip(nbest.hypotheses, totals.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0].rank))
    return replace(nbest, hypotheses=[replace(hypothesis, total=total) for hypothesis, total in scored])


def _value(nbest: NbestList, hypothesis: Hypothesis, name: str) -> float | None:
    if name in COMPUTED:
        return COMPUTED[name](hypothesis)
    if name in hypothesis.lm_scores:
        return hypothesis.lm_scores[name]
    return hypothesis.scores.get(name, 0.0 if nbest.sparse or len(nbest.hypotheses) == 1 else None)
