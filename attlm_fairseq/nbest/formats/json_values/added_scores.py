"""What rescoring writes into JSON: scores, totals and references."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.formats.score_names import TOTAL, fresh_names
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList

TOTAL_COLUMN = f"{TOTAL}_score"


def exact(value: float, name: str, nbest: NbestList) -> str:
    """Return a score as JSON holds it, exact. Raises InputError if it is not finite: JSON has no such number."""
    if not math.isfinite(value):
        raise InputError(f"list {nbest.id}: the score {name} is {value}: only finite scores can be written")
    return repr(float(value))


def scores_as_members(
    scores: Mapping[str, float], nbest: NbestList, taken: Iterable[str], legal: Callable[[str], str] = str
) -> dict[str, str]:
    """Return scores as members of an object, each under a legal name that is not ``taken``.

    Raises:
        InputError: a score is not finite: JSON has no such number.
    """
    fresh = fresh_names(scores, taken, legal)
    return {fresh[name]: exact(score, name, nbest) for name, score in scores.items()}


def added_members(hypothesis: Hypothesis, nbest: NbestList, taken: Iterable[str], legal: Callable[[str], str] = str) -> dict[str, str]:
    """Return the LM scores and the total of a hypothesis as members of an object.

    Raises:
        InputError: a score or total is not finite: JSON has no such number.
    """
    total = {} if hypothesis.total is None else {TOTAL: exact(hypothesis.total, TOTAL, nbest)}
    return scores_as_members(hypothesis.lm_scores, nbest, [*taken, TOTAL], legal) | total


def added_columns(nbest: NbestList, taken: Iterable[str], legal: Callable[[str], str]) -> dict[str, str]:
    """Return the LM scores and totals of a list as one array of numbers each.

    Raises:
        InputError: a score or total is not finite: JSON has no such number. Or only some hypotheses have it.
    """
    hypotheses = nbest.hypotheses
    for name in dict.fromkeys(name for hypothesis in hypotheses for name in hypothesis.lm_scores):
        _require_all(nbest, f"score {name}", [name in hypothesis.lm_scores for hypothesis in hypotheses])
    _require_all(nbest, TOTAL, [hypothesis.total is not None for hypothesis in hypotheses])
    fresh = fresh_names(hypotheses[0].lm_scores, [*taken, TOTAL_COLUMN, *hypotheses[0].scores], legal)
    columns = {key: [exact(hypothesis.lm_scores[name], name, nbest) for hypothesis in hypotheses] for name, key in fresh.items()}
    totals = [exact(hypothesis.total, TOTAL, nbest) for hypothesis in hypotheses if hypothesis.total is not None]
    return {key: f"[{', '.join(column)}]" for key, column in (columns | ({TOTAL_COLUMN: totals} if totals else {})).items()}


def _require_all(nbest: NbestList, what: str, have: Sequence[bool]) -> None:
    if any(have) and not all(have):
        raise nbest.error(
            f"list {nbest.id!r}: {sum(have)} of {len(have)} hypotheses have the {what}: this format holds one for each or none"
        )


def references_as_value(nbest: NbestList) -> str | list[str]:
    return nbest.references[0] if len(nbest.references) == 1 else list(nbest.references)
