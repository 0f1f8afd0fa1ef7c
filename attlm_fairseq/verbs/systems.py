"""Further systems' answers to the utterances of given lists."""

from __future__ import annotations

from collections.abc import Sequence

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.line_matching import By
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.other_systems import in_order_of, read_further
from attlm_fairseq.nbest.reference_files import REFS_BY
from attlm_fairseq.nbest.references import is_ctm, silent_lists
from attlm_fairseq.verbs.lists import Lists, NbestFile, is_file, lists_or_texts


def lists_of_system(
    name: str,
    other: Lists,
    first: Sequence[NbestList],
    first_name: str,
    by: By | None = None,
    compare_references: bool = True,
    option: str = REFS_BY,
) -> list[NbestList]:
    """Return the lists of another system in the order of ``first``: matched by id if both have the same ids, else by order.

    Args:
        name: the system's name, for messages.
        other: its lists, or a file of lists or of texts, one per line.
        first: the lists of the same utterances.
        first_name: the name of their system.
        by: how the lines of a text are matched, see ``references``.
        compare_references: require that lists which both have references have the same ones.
        option: the option that gives ``by``, for messages.

    Raises:
        InputError: the lists cannot be read, or are of other utterances.
    """
    if is_file(other):
        file = other if isinstance(other, NbestFile) else NbestFile(other)
        lists = read_further(str(file), file.format, first, first_name, by, option)
    else:
        lists = list(lists_or_texts(other))
        lists += silent_lists(lists, (nbest.id for nbest in first)) if is_ctm(lists) else []
        lists = in_order_of(first, lists, name, first_name)
    for own, nbest in zip(lists, first, strict=True):
        if compare_references and own.references and nbest.references and own.references != nbest.references:
            message = f"the reference of list {own.id!r} is not that of {first_name}; compare the same utterances in the same order"
            raise InputError(message, path=name, line=own.line or None)
    return lists
