"""Jack-knifing: each list gets what was learned from the lists of the other folds.

A model that has seen the references of a list scores too well on it, and weights tuned there would trust it too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.fingerprints import same_utterance
from attlm_fairseq.nbest.metrics.making import make_metric
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.tuning.folds import FOLDS, assign_folds
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline


def folds_of(
    lists: Sequence[NbestList],
    folds: int = FOLDS,
    metric: Metric | None = None,
    groups: np.ndarray | None = None,
    text: TextPipeline = NO_STEPS,
) -> np.ndarray:
    """Return the fold (N,) of each list, from 0. Raises InputError if there are too few lists for so many folds.

    Lists of one group (N,), such as a document, share a fold; without groups, lists of one utterance do: those whose references match for
    the metric (default: WER), or after the text steps of what is learned.
    """
    if groups is None:
        texts = [[hypothesis.text for hypothesis in nbest.hypotheses] for nbest in lists]
        groups = same_utterance([nbest.references for nbest in lists], texts, (metric or make_metric("wer")).prepared, text.prepared)
    count = len(set(groups.tolist()))
    if not 2 <= folds <= count:
        raise InputError(f"{count} different lists or groups cannot be divided into {folds} folds: give more lists")
    return assign_folds(groups.tolist(), folds)


def by_folds(
    lists: Sequence[NbestList],
    folds: np.ndarray,
    learn: Callable[[list[NbestList]], Callable[[list[NbestList]], Iterable[NbestList]]],
) -> list[NbestList]:
    """Return the lists in order. Those of each fold pass through what ``learn`` learns from the other folds."""
    done: list[NbestList | None] = [None] * len(lists)
    for _, others, held_out in splits(folds):
        apply = learn([lists[i] for i in others])
        for i, nbest in zip(held_out, apply([lists[i] for i in held_out]), strict=True):
            done[i] = nbest
    return [nbest for nbest in done if nbest is not None]


def splits(folds: np.ndarray) -> Iterator[tuple[int, list[int], list[int]]]:
    """Yield for each fold its number, the lists of the other folds, and its own."""
    for fold in range(int(folds.max()) + 1):
        yield fold, np.flatnonzero(folds != fold).tolist(), np.flatnonzero(folds == fold).tolist()
