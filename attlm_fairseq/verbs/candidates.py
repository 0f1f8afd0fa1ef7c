"""Add candidate hypotheses to the lists before tuning, and report what they add."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.phrase_list import SimilarPhrases
from attlm_fairseq.nbest.corrections.spec import expand_for_tuning
from attlm_fairseq.nbest.corrections.written import WORD_BY_WORD
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.nbest.tuning.folds import FOLDS
from attlm_fairseq.verbs.run import warn_of_replaced_lm

NAMED = 5  # at most this many phrases that can never match are named in the warning


def expanded_for_tuning(
    lists: list[NbestList], run: RunConfig, metric: Metric, folds: int, groups: np.ndarray | None = None
) -> list[NbestList]:
    """Return the lists with the candidates that the run's corrections propose.

    If the table was learned from these lists, each list gets candidates learned from the other folds (jack-knifing).
    ``groups``: group number (N,) of each list; folds keep groups whole.

    Raises:
        InputError: as in ``expand_for_tuning``.
    """
    spec = run.candidates
    if not spec.anything:
        return lists
    expanded = expand_for_tuning(spec, lists, metric, folds if folds > 1 else FOLDS, groups)
    new = sum(len(nbest.hypotheses) for nbest in expanded) - sum(len(nbest.hypotheses) for nbest in lists)
    note(f"corrections: {new} new hypotheses in {len(lists)} lists")
    if unseen := _unseen(lists, expanded, metric):
        steps = [str(step) for step in metric.text.steps if step.name in WORD_BY_WORD]
        others = [str(step) for step in metric.text.steps if step.name not in WORD_BY_WORD]
        ways = [*([f"with --text {','.join(steps)}"] if steps else []), *([f"from lists after {','.join(others)}"] if others else [])]
        note(
            f"WARNING: {unseen} of them differ from an input hypothesis only in what --metric-text leaves out. If that is not to change, "
            f"learn corrections {', '.join(ways)}"
        )
    warn_of_replaced_lm(spec, spec.digests())
    if (phrases := spec.read_phrases()) is not None:
        note_phrases(phrases, lists, expanded)
    return expanded


def _unseen(lists: Sequence[NbestList], expanded: Sequence[NbestList], metric: Metric) -> int:
    """Return how many new hypotheses are an input hypothesis for the metric, but are written otherwise."""
    found = 0
    for nbest, more in zip(lists, expanded, strict=True) if metric.text.steps else ():
        known = {metric.prepared(hypothesis.text) for hypothesis in nbest.hypotheses}
        found += sum(metric.prepared(hypothesis.text) in known for hypothesis in more.hypotheses[len(nbest.hypotheses) :])
    return found


def note_phrases(phrases: SimilarPhrases, lists: Sequence[NbestList], expanded: Sequence[NbestList]) -> None:
    """Report how many phrases of the references occur in the lists, and which phrases can never match."""
    wanted = first = anywhere = reached = 0
    for nbest, more in zip(lists, expanded, strict=True):
        for phrase in {phrase for text in nbest.references for phrase in phrases.occurrences(text.split())}:
            texts = [phrases.occurrences(hypothesis.text.split()) for hypothesis in more.hypotheses]
            wanted += 1
            first += phrase in texts[0]
            anywhere += any(phrase in found for found in texts[: len(nbest.hypotheses)])
            reached += any(phrase in found for found in texts)
    if wanted:
        note(
            f"phrases: of {wanted} in the references the first hypotheses have {first / wanted:.1%}, the lists {anywhere / wanted:.1%}, "
            f"with candidates {reached / wanted:.1%}"
        )
    else:
        note("note: no phrase of the list is in the references: these lists cannot tell what the phrases are worth")
    never = phrases.never_matching(hypothesis.text for nbest in lists for hypothesis in nbest.hypotheses)
    if never:
        named = ", ".join(f"{' '.join(phrase.words)!r} (line {phrase.line})" for phrase in never[:NAMED])
        more_lines = f" and {len(never) - NAMED} more" if len(never) > NAMED else ""
        note(f"WARNING: phrases that can never match, for their letters are in none of the lists: {named}{more_lines}")
