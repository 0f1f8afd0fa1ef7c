"""Fit word confidences, and measure them on lists that they were not fitted on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.decision.confidence import Confidence, words_of_pieces
from attlm_fairseq.nbest.decision.decision import Decision, compared_text
from attlm_fairseq.nbest.fingerprints import LEARNED_SHARE, known_share
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.statistics.calibration import Calibration, JudgedWords, fit_confidence
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists
from attlm_fairseq.nbest.tuning.folds import FOLDS, assign_folds
from attlm_fairseq.text import TextPipeline


def require_words(metric: Metric) -> None:
    """Raise InputError if the metric does not count words."""
    if metric.name != "WER":
        raise InputError(
            f"--confidence is of words that are right or wrong: it goes with --metric wer, not {metric.name}; for text without spaces "
            "between words, --metric wer --metric-text characters makes characters words"
        )


def judged_words(
    lists: MeasuredLists, metric: Metric, weights: Mapping[str, float], decision: Decision, places: Sequence[int] | None = None
) -> JudgedWords:
    """Mark each word of the chosen hypotheses as right or wrong, after the metric's text steps. ``places``: of these lists, else of all.

    Raises:
        InputError: the metric does not count words.
    """
    require_words(metric)
    loaded = Decision(
        decision.rule, decision.scale, _judged_text(metric, decision).load(), tokenize=decision.tokenize, spaces=decision.spaces
    )
    return JudgedWords.of(lists.lists if places is None else [lists.lists[place] for place in places], weights, loaded)


def _judged_text(metric: Metric, decision: Decision) -> TextPipeline:
    """Return the text steps after which words are judged."""
    return decision.text if decision.text.steps else compared_text(metric)


def fit(
    lists: MeasuredLists, metric: Metric, held_out: Iterable[tuple[Sequence[int], Mapping[str, float]]], decision: Decision
) -> Confidence:
    """Return the scale and coverage that best fit the word confidences on these lists.

    Args:
        lists: scored lists with references.
        metric: must be WER.
        held_out: numbers of lists, with the weights that decide on them: those tuned without them, because weights
            know the lists they were tuned on, and their answers look surer than others will be.
        decision: makes the answers.

    Raises:
        InputError: the metric does not count words, or the decision cannot be made with these weights.
    """
    parts = [judged_words(lists, metric, weights, decision, places) for places, weights in held_out]
    return fit_confidence(JudgedWords.joined(parts))


def calibrate(lists: MeasuredLists, metric: Metric, run: RunConfig, utterances: np.ndarray, in_sample: bool) -> Calibration:
    """Measure how well word confidences match reality, on lists that scale and coverage were not fitted on.

    The scale and coverage of ``run`` are used if they exist and were tuned on other lists. Otherwise they are fitted by
    cross-validation: the lists of each fold get the values fitted on the other folds. The answers are those of ``run`` all the
    same, also if they are ``in_sample``; the result says so. If each list is one hypothesis with
    confidences of its own, as in CTM, these are measured.

    Args:
        lists: scored lists with references.
        metric: must be WER.
        run: weights, decision and, if fitted, confidence.
        utterances: utterance number of each list (N,). Lists of the same utterance stay in one fold.
        in_sample: whether the weights of ``run`` were tuned on these lists, or its corrections learned from them.

    Raises:
        InputError: the metric does not count words, or there are fewer than two utterances.
    """
    words = judged_words(lists, metric, run.weights, run.decision)
    right = words.all_right
    if (own := _own_confidences(lists, _judged_text(metric, run.decision).load())) is not None:
        return Calibration.of(own, right, None)
    if run.confidence is not None and known_share(lists.references, run.tuned_on) <= LEARNED_SHARE:
        confidences = run.confidence.coverage * words.posteriors(run.confidence.scale)
        return Calibration.of(confidences, right, run.confidence, in_sample=in_sample)
    folds = min(FOLDS, len(set(utterances.tolist())))
    if folds < 2:
        raise InputError("--confidence needs two different lists: scale and coverage are fitted on one and judged on the other")
    fold_of = assign_folds(utterances.tolist(), folds)
    found = [np.empty(0)] * len(fold_of)
    for fold in range(folds):
        fitted = fit_confidence(words.of_lists(np.flatnonzero(fold_of != fold).tolist()))
        for i in np.flatnonzero(fold_of == fold).tolist():
            found[i] = fitted.coverage * words.of_lists([i]).posteriors(fitted.scale)
    return Calibration.of(np.concatenate(found), right, None, folds, in_sample=in_sample)


def _own_confidences(lists: MeasuredLists, text: TextPipeline) -> np.ndarray | None:
    """Return the confidence of each compared word, as the lists' file gives it; None if it does not give all.

    A part of a word has the confidence of the word. Logs why confidences of the file are not measured.
    """
    hypotheses = [nbest.hypotheses[0] for nbest in lists.lists]
    if not any(hypothesis.confidences for hypothesis in hypotheses):
        return None
    unknown = sum(len(hypothesis.confidences) != len(hypothesis.text.split()) for hypothesis in hypotheses)
    wrong = next((share for hypothesis in hypotheses for share in hypothesis.confidences if not 0 <= share <= 1), None)
    why = ""
    if any(len(nbest.hypotheses) > 1 for nbest in lists.lists):
        why = "lists have several hypotheses"
    elif unknown:
        why = f"{unknown} of {len(hypotheses)} lists have words without one"
    elif wrong is not None:
        why = f"{wrong:g} is not from 0 to 1"
    if why:
        note(f"note: the confidences that the file gives are not measured: {why}")
        return None
    return np.array([hypothesis.confidences[word] for hypothesis in hypotheses for word in words_of_pieces(hypothesis.text, text)])
