"""The default weight of the decoder's own score. Without it the LMs alone would decide, which is rarely intended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from attlm_fairseq.batching import peeked
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.corrector import CORRECTOR
from attlm_fairseq.nbest.corrections.expansion import SCORES as CANDIDATE_SCORES
from attlm_fairseq.nbest.features.combination import COMPUTED, feature_names, features, is_incomplete, weighted_totals
from attlm_fairseq.nbest.features.lm_features import all_features, is_lm_feature
from attlm_fairseq.nbest.formats.hyporadise import AM_SCORE, score_key
from attlm_fairseq.nbest.formats.score_names import main_score
from attlm_fairseq.nbest.nbest_list import DECODER_SCORES, VOTE, NbestList
from attlm_fairseq.nbest.run.config import RunConfig

MIN_LISTS = 10  # that tell whether a score is what it seems
DOUBTED_SHARE = 0.9  # of these lists
LOOKED_AT = 1000  # lists
ALONE = (
    "WARNING: the lists have no score of the decoder: the LMs decide alone, which often makes lists worse; --weight rank=-1 also counts "
    "the input order, and `attlm tune` finds the weights"
)


def with_telling(run: RunConfig, lists: Iterable[NbestList]) -> tuple[NbestList | None, Iterator[NbestList]]:
    """Return the list that tells which scores the lists have, and an iterator over all lists; None if there is no list.

    It is the first with several hypotheses, among the first LOOKED_AT: an only hypothesis needs no scores, such as an empty text
    for silence. If incomplete lists are kept, it must have a score of its own. Without any such list, it is the first.
    """
    must_have = run.decision.keep_incomplete
    return peeked(lists, lambda nbest: len(nbest.hypotheses) > 1 and not (must_have and not own_scores(run, nbest)), LOOKED_AT)


def with_decoder_score(run: RunConfig, lists: Sequence[NbestList]) -> RunConfig:
    """Return the run with the weights of ``with_default`` for these lists. Logs its line, if there is one, and warnings of ``Doubts``."""
    telling, _ = with_telling(run, lists)
    if telling is None:
        return run
    weights, line = with_default(run, run.weights, telling)
    if line:
        note(line)
    for doubts in doubts_of_default(run, weights):
        for nbest in lists:
            doubts.add(nbest)
        doubts.tell()
    return replace(run, weights=weights)


def with_default(run: RunConfig, weights: Mapping[str, float], nbest: NbestList) -> tuple[dict[str, float], str]:
    """Return the weights with 1 for the decoder's own score, unless the weights already cover it, and a line for the user.

    It is added if an LM of the run, or a feature of its LMs, has a weight and neither a score of the list nor ``rank`` has one. It is
    also added if there are no weights at all and the decision goes by posteriors.
    The decoder's score is the only score of the list, or the one with a name in DECODER_SCORES. Without any, the LMs decide alone.

    Args:
        run: the LMs.
        weights: the given weights.
        nbest: the list of ``with_telling``.

    Returns:
        The weights, and a line for the user if one is added, if it is unclear which score is the decoder's, or if there is none and the
        weights do not say what to do then; else "".
    """
    if run.adds_candidates:  # their weights were tuned, with those of all scores
        return dict(weights), ""
    own = own_scores(run, nbest)
    names = [lm.name for lm in run.scored]
    of_lms = {name for name in weights if name in names or is_lm_feature(name, names)}
    by_rank = not weights and run.decision.rule != "max"
    if not (any(weights[name] for name in of_lms) or by_rank) or any(name in weights for name in (*own, "rank")):
        return dict(weights), ""
    if not own:
        translates = any(lm.uses_source and weights.get(lm.name) for lm in run.scored)  # which is what a decoder's score says, too
        says_how = weights.keys() - of_lms - {"words"} or by_rank or translates or len(nbest.hypotheses) == 1
        return dict(weights), "" if says_how else ALONE
    everywhere = [name for name in own if nbest.sparse or all(name in hypothesis.scores for hypothesis in nbest.hypotheses)]
    decoder = main_score(everywhere) or main_score(own)  # a hypothesis that lacks it is told when the totals are computed
    if decoder is None:
        if by_rank:
            found = ", ".join(own)
            return {}, f"note: no weight is given, and it is unclear which of {found} is the decoder's own score: posteriors go by rank"
        return dict(weights), f"WARNING: none of the lists' own scores ({', '.join(own)}) has a weight: the LMs decide alone"
    otherwise = "rank=-1 goes by rank" if by_rank else "or 0 to let the LMs decide alone"
    what = "by which the joined systems vote" if decoder == VOTE else "the decoder's own score"
    line = f"note: {decoder}, {what}, has weight 1: give it another one, {otherwise}"
    return {**weights, decoder: 1.0}, line


def own_scores(run: RunConfig, nbest: NbestList) -> list[str]:
    """Return the scores that came with a list, but for those that have the name of an LM of the run or of one of its features.

    An earlier run with these LMs may have written them. In a HyPoradise file such names end in ``_score``.
    """
    lms = {*nbest.hypotheses[0].lm_scores, *(lm.name for lm in run.scored)}
    replaced = lms | all_features(lms)
    earlier = set(map(written_name, replaced))
    return [name for name in _scores_of(nbest) if name not in replaced and name not in earlier]


def written_name(name: str) -> str:
    """Return the name under which a HyPoradise file has the score ``name`` of an earlier run; the name itself if that is the decoder's."""
    key = score_key(name)
    return name if key == AM_SCORE else key


def doubts_of_default(run: RunConfig, weights: Mapping[str, float]) -> list[Doubts]:
    """Return what counts doubts about the score that ``with_default`` has given a weight, if there is one."""
    return list(map(Doubts, weights.keys() - run.weights.keys() - {VOTE}))


class Doubts:
    """Counts what speaks against a score's being a natural log, higher for better hypotheses, while lists pass by."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lists = self._rising = self._between = 0

    def tell(self) -> None:
        """Log the warning, if there is one."""
        if (warning := self.warning()) is not None:
            note(warning)

    def add(self, nbest: NbestList) -> None:
        """Count a list, unless all its hypotheses have the same score."""
        first, *others = (hypothesis.scores.get(self._name, 0.0) for hypothesis in nbest.hypotheses)
        if any(score != first for score in others):
            self._lists += 1
            self._rising += first < sum(others) / len(others)
            self._between += all(0 <= score <= 1 for score in (first, *others))

    def warning(self) -> str | None:
        """Return a warning if nearly all lists that count say that the score is a cost or a probability; else None."""
        if self._lists < MIN_LISTS:
            return None
        if self._rising >= DOUBTED_SHARE * self._lists:
            seen = f"is lower for the first hypothesis than for the others in {self._rising} of {self._lists} lists"
            ways = f"if it is a cost, negate it, or give --weight {self._name}=-1; if not, are the lists sorted, best first?"
            return f"WARNING: {self._name} {seen}: {ways}"
        if self._between >= DOUBTED_SHARE * self._lists:
            return (
                f"WARNING: {self._name} lies between 0 and 1, as if it were a probability: it is added to log-probabilities as it is; "
                "expected its natural log"
            )
        return None


def distances_from_best(nbest: NbestList, run: RunConfig) -> list[float]:
    """Return how far the decoder's score of each hypothesis is below the best of the list: natural log, 0 or more.

    One hypothesis alone needs no score. If incomplete lists are kept, one in which a hypothesis lacks the score has distances of 0.

    Raises:
        InputError: the list has no score of its own, it is unclear which score is the decoder's, or one is not a number.
    """
    if len(nbest.hypotheses) == 1:
        return [0.0]
    names = {lm.name for lm in run.lms}
    own = own_scores(run, nbest) or [name for name in _scores_of(nbest) if name not in names]
    # candidates have joined the list already; an earlier run may have left scores of a mixture's members
    own = [name for name in own if name not in (*CANDIDATE_SCORES, CORRECTOR, *names)] or own
    name = main_score(own)
    if name is None or any(name not in hypothesis.scores for hypothesis in nbest.hypotheses):
        if run.decision.keep_incomplete:
            return [0.0] * len(nbest.hypotheses)
        found = f"several, none of which is called {' or '.join(DECODER_SCORES)}: {', '.join(own)}" if len(own) > 1 else "none"
        raise nbest.error(
            f"list {nbest.id!r}: --only-close goes by the decoder's own score, expected one score for each hypothesis, found {found}"
        )
    scores = features(nbest, [name])[:, 0]
    return (scores.max() - scores).tolist()


def total_without_lms(nbest: NbestList, config: RunConfig) -> list[float]:
    """Return the total of each hypothesis without the scores that the LMs of the run give it, with the default decoder weight."""
    weights, _ = with_default(config, config.weights, nbest)
    lms, featured = {lm.name for lm in config.scored}, [lm.name for lm in config.scored if lm.only_close is None]
    own = {name: weight for name, weight in weights.items() if name not in lms and not is_lm_feature(name, featured)}
    if config.decision.keep_incomplete and is_incomplete(nbest, own):
        return [0.0] * len(nbest.hypotheses)  # nothing depends on it
    names = [name for name in feature_names(nbest) if own.get(name)]
    [totals] = weighted_totals([features(nbest, names)], names, weights)
    return totals.tolist()


def _scores_of(nbest: NbestList) -> list[str]:
    """Return the names of the scores that came with a list, in their order."""
    return [*dict.fromkeys(name for hypothesis in nbest.hypotheses for name in hypothesis.scores if name not in COMPUTED)]
