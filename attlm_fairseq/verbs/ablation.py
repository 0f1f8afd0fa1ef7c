"""What each LM and each score of the lists adds to a tuned system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.corrector import CORRECTOR
from attlm_fairseq.nbest.corrections.expansion import SCORES
from attlm_fairseq.nbest.features.combination import COMPUTED
from attlm_fairseq.nbest.features.lm_features import differing_lms, is_lm_feature
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.statistics.evaluation import MeasuredLists, Row, compare
from attlm_fairseq.nbest.tuning.ablation import answers_without
from attlm_fairseq.nbest.tuning.folds import MIN_FOLDS
from attlm_fairseq.nbest.tuning.search_options import SearchOptions
from attlm_fairseq.nbest.tuning.tuned_system import TunedSystem
from attlm_fairseq.verbs.tune_options import TuneOptions

MANY_SCORES = 12  # of the lists: more, such as the sparse features of Moses, are not left out one by one


def ablation(
    measured: MeasuredLists,
    metric: Metric,
    system: TunedSystem,
    names_without: Mapping[str, Sequence[str]],
    options: TuneOptions,
    search: SearchOptions,
) -> list[Row]:
    """Return the cross-validated row of ``system``, then one row for each part that is left out, compared with it.

    ``names_without`` maps each part to the features that are tuned without it. Without cross-validation there are no rows,
    and a warning says so.
    """
    if system.gain is None or not names_without:
        lacks = f"it needs cross-validation, of {MIN_FOLDS} different lists at least" if names_without else "there is no score to leave out"
        note(f"WARNING: no --ablation: {lacks}")
        return []
    found = answers_without(
        measured,
        metric,
        names_without,
        rules=options.rules,
        folds=options.folds,
        strength=options.strength,
        options=search,
    )
    folds = system.folds[system.label]
    rows = [(system.label, dict(system.systems)[system.label])]
    rows += [(f"without {part}", answers) for part, answers in found]
    labels = {label: folds for label, _ in rows}
    return compare(rows, metric, seed=options.seed, unpaired=(), folds=labels, groups=system.utterances.tolist())


def parts(names: Sequence[str], lms: Sequence[str], *, sparse: bool) -> Mapping[str, list[str]]:
    """Return the features that are left out together, by name: each LM with its counts, and each score of the lists.

    The difference of two LMs goes with the counts of both. The number of words, the rank and the scores of candidates that
    were added to the lists are never left out, nor are the scores of the lists if they are sparse or many.
    """
    kept = {*COMPUTED, *SCORES, CORRECTOR}
    others = [name for name in names if name not in kept and name not in lms and not is_lm_feature(name, lms)]
    # not the counts of an LM that `attlm jackknife` has scored with
    scores = [name for name in others if not any(is_lm_feature(name, [other]) for other in others)]
    if scores and (sparse or len(scores) > MANY_SCORES):
        note(f"note: --ablation keeps the scores of the lists ({len(scores)})")
        scores = []
    of_parts = {name: [name] for name in (*lms, *scores) if name in names}
    of_parts |= {name: [*both] for name in names if (both := differing_lms(name, lms))}
    return {part: [name for name in names if name in of or is_lm_feature(name, of)] for part, of in of_parts.items() if part not in kept}
