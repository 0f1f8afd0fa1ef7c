"""Ranks that a file gives its hypotheses. The order in which they stand decides; a warning tells if the ranks contradict it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from attlm_fairseq.errors import quoted
from attlm_fairseq.messages import FileNotes
from attlm_fairseq.nbest.formats import keys

_RANK = re.compile(r"(?:.+_)?rank")


def warn_of_other_order(name: str, lists: Sequence[Sequence[object]], others: Iterable[str], notes: FileNotes, *, counted: bool) -> None:
    """Warn if numbers that rank the hypotheses are not in the order in which the hypotheses stand.

    Rescored lists have another order than the decoder's ranks. They are known by their total.

    Args:
        name: of the numbers.
        lists: the numbers in each of the first lists of the file.
        others: the names of all other members, or columns.
        notes: those on the file.
        counted: whether the numbers count hypotheses or rows, see ``keys.is_count``.
    """
    if not _RANK.fullmatch(keys.of_header(name)) and (not counted or keys.is_counter(keys.of_header(name))):
        return
    if any(keys.of_header(other) in keys.TOTALS for other in others) or not all(
        type(value) is int for of_list in lists for value in of_list
    ):
        return
    if any(earlier > later for of_list in lists for earlier, later in pairwise(of_list)):  # type: ignore[operator]
        notes.warn(
            f"the hypotheses are not in the order of {quoted(name)}: the first of each list counts as the decoder's best. If "
            f"{quoted(name)} tells which is, sort each list by it"
        )
