"""Ranks that a file gives its hypotheses. The order in which they stand decides; a warning tells if the ranks contradict it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from attlm_fairseq.errors import quoted
from attlm_fairseq.messages import FileNotes
from attlm_fairseq.nbest.formats import keys

_RANK = re.compile(r"(?:.+_)?rank")
_WHOLE = re.compile(r"[0-9]{1,9}(?:\.0+)?")  # pandas writes the numbers of a column with gaps as 2.0


def warn_of_other_order(name: str, lists: Sequence[Sequence[object]], others: Iterable[str], notes: FileNotes, *, counted: bool) -> None:
    """Warn if numbers that rank the hypotheses are not in the order in which the hypotheses stand.

    Numbers of a counter's name, such as ``row``, may count the rows of the file: they rank the hypotheses if they begin again in each
    list. Rescored lists have another order than the decoder's ranks. They are known by their total.

    Args:
        name: of the numbers.
        lists: the numbers in each of the first lists of the file, or what stands in their place.
        others: the names of all other members, or columns.
        notes: those on the file.
        counted: whether the numbers count hypotheses or rows, see ``keys.is_count``.
    """
    key = keys.of_header(name)
    if not (counted or _RANK.fullmatch(key)) or any(keys.of_header(other) in keys.TOTALS for other in others):
        return
    if not all(_WHOLE.fullmatch(str(value)) for of_list in lists for value in of_list):
        return
    ranks = [[int(float(str(value))) for value in of_list] for of_list in lists if of_list]
    if keys.is_counter(key) and not all(sorted(of_list) == [*range(min(ranks[0]), min(ranks[0]) + len(of_list))] for of_list in ranks):
        return
    if any(earlier > later for of_list in ranks for earlier, later in pairwise(of_list)):
        notes.warn(
            f"the hypotheses are not in the order of {quoted(name)}: the first of each list counts as the decoder's best. If "
            f"{quoted(name)} tells which is, sort each list by it"
        )
