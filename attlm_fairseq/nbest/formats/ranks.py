"""Ranks that a file gives its hypotheses. The order in which they stand decides; a warning tells if the ranks contradict it."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import pairwise

from attlm_fairseq.errors import quoted
from attlm_fairseq.messages import FileNotes
from attlm_fairseq.nbest.formats import keys

_RANK = re.compile(r"(?:.+_)?rank")
_WHOLE = re.compile(r"[0-9]{1,9}(?:\.0+)?")  # pandas writes the numbers of a column with gaps as 2.0


def warn_of_other_order(
    numbers: Mapping[str, Sequence[Sequence[object]]], counts: Container[str], names: Iterable[str], notes: FileNotes
) -> None:
    """Warn if all numbers that rank the hypotheses are in another order than the hypotheses.

    Numbers of a counter's name, such as ``row``, may count the rows of the file: they rank the hypotheses if they begin again in each
    list. Rescored lists have another order than the decoder's ranks. They are known by their total.

    Args:
        numbers: what stands under each name in each of the first lists of the file.
        counts: the names of numbers that count hypotheses or rows, see ``keys.is_count``.
        names: the names of all members, or columns.
        notes: those on the file.
    """
    if any(keys.of_header(name) in keys.TOTALS for name in names):
        return
    ranks = {name: found for name, lists in numbers.items() if (found := _ranks(name, lists, name in counts))}
    ranks = {name: found for name, found in ranks.items() if _RANK.fullmatch(keys.of_header(name))} or ranks
    if ranks and not any(map(_in_order, ranks.values())):
        name = quoted(next(iter(ranks)))
        notes.warn(
            f"the hypotheses are not in the order of {name}: the first of each list counts as the decoder's best. If {name} tells which "
            "is, sort each list by it"
        )


def _ranks(name: str, lists: Sequence[Sequence[object]], counted: bool) -> list[list[int]]:
    """Return the ranks of the hypotheses in each list; empty if these are none."""
    key = keys.of_header(name)
    if not (counted or _RANK.fullmatch(key)) or not all(_WHOLE.fullmatch(str(value)) for of_list in lists for value in of_list):
        return []
    ranks = [[int(float(str(value))) for value in of_list] for of_list in lists if of_list]
    starts_again = all(sorted(of_list) == [*range(min(ranks[0]), min(ranks[0]) + len(of_list))] for of_list in ranks)
    return ranks if starts_again or not keys.is_counter(key) else []


def _in_order(ranks: list[list[int]]) -> bool:
    return all(earlier <= later for of_list in ranks for earlier, later in pairwise(of_list))
