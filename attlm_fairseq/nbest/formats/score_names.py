"""The names of scores in files: which is the decoder's own, and which are free."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable

from attlm_fairseq.nbest.nbest_list import DECODER_SCORES, Hypothesis, NbestList

TOTAL = "total"  # the name under which rescoring's total is written: never read back as a score


def main_score(scores: Collection[str]) -> str | None:
    """Return the name of the decoder's own score: the only one, or the one that formats call so."""
    return next(iter(scores)) if len(scores) == 1 else next((name for name in DECODER_SCORES if name in scores), None)


def required_main_score(nbest: NbestList, hypothesis: Hypothesis) -> str:
    """Return the name of the decoder's own score, for formats that need one.

    Raises:
        InputError: the hypothesis has no score, or several and none of them has a name in DECODER_SCORES.
    """
    name = main_score(hypothesis.scores)
    if name is None:
        found = f"none of its scores ({', '.join(hypothesis.scores)}) is called" if hypothesis.scores else "it has no score, such as"
        needed = f"{found} {' or '.join(DECODER_SCORES)}: the format needs the decoder's own"
        raise nbest.error(f"list {nbest.id}, hypothesis {hypothesis.rank}: {needed}; write jsonl instead")
    return name


def fresh_names(
    names: Iterable[str], taken: Iterable[str], legal: Callable[[str], str], compared: Callable[[str], str] = str
) -> dict[str, str]:
    """Return each name in its legal form; where a score of that name is there already, a number from 2 is appended.

    Two names are the same if ``compared`` returns the same for both.
    """
    used = set(map(compared, taken))
    fresh = {}
    for name in names:
        candidate = base = legal(name)
        tries = 1
        while compared(candidate) in used:
            tries += 1
            candidate = f"{base}{tries}"
        used.add(compared(candidate))
        fresh[name] = candidate
    return fresh


def one_word(name: str) -> str:
    """Return a score name without white space or ``=``, for fields that are split at them."""
    return re.sub(r"[\s=]+", "_", name)
