"""What the user is told if a table of corrections was learned from the lists that it corrects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.table_file import Table
from attlm_fairseq.nbest.fingerprints import COMMON_SHARE, LEARNED_SHARE
from attlm_fairseq.nbest.nbest_list import NbestList

WHOLE_SHARE = 0.95  # of the references: a table that knows so many was learned from the lists, and not from a part of them
WEAKER = 0.7  # folds that learn from fewer lists than this share of the table's are worth telling of: 5 folds leave 0.8


def warn_of_part(table: Path, share: float) -> None:
    """Log a warning if a table was learned from this share of the lists, unless it is small, or so large that folds learn it again."""
    if COMMON_SHARE < share <= LEARNED_SHARE:
        note(
            f"WARNING: {table} was learned from about {share:.0%} of these lists. Its corrections of them are too good, and so are the "
            "figures: leave these lists out, or learn from others"
        )


def note_jackknifed(path: Path, table: Table, lists: Sequence[NbestList], fold_of: np.ndarray) -> None:
    """Log that the file ``path`` was learned from these lists, so that those of each fold (N,) are expanded by what the others teach."""
    share = table.share_of(nbest.references for nbest in lists)
    whole = share >= WHOLE_SHARE
    note(
        f"note: {path} was learned from {'these lists' if whole else f'about {share:.0%} of these lists'}: here each list has what was "
        "learned from the other folds (jack-knifing), without rows that were edited by hand"
        + (". Lists that it was not learned from need no folds" if whole else "")
    )
    learned = round(len(lists) - float(np.bincount(fold_of)[fold_of].mean()))  # for a list, on average
    if not whole:
        note(f"WARNING: {path} has not seen the other lists, and is not measured on them: leave out those that it was learned from")
    elif learned < table.lists * WEAKER:
        note(
            f"WARNING: the folds learn from {learned} lists, and {path} was learned from {table.lists}: expect better figures of it than "
            "those below. Give all lists that it was learned from, in more --folds, or other lists"
        )
