"""Recognise lists: those that weights were tuned on, and lists of the same utterance."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

FINGERPRINT_HASHES = 1024  # lists that are 1 in 200 of those that were learned from have 5 of these on average
TABLE_HASHES = 1 << 14  # in a table of corrections, which may be learned from 100,000 lists: 16 of 100 that it was learned from
EARLIER_HASHES = 64  # of files of earlier versions
HASH_DIGITS = 8  # hexadecimal
LEARNED_SHARE = 0.5  # share of known references above which lists count as those that something was learned from
COMMON_SHARE = 0.1  # below, known references are utterances that are often said


def fingerprint(references: Iterable[Sequence[str]], hashes: int = FINGERPRINT_HASHES) -> str:
    """Return the smallest ``hashes`` of the references, joined.

    They are a sample of the references that does not depend on order, format or other lists.
    """
    return "".join(sorted(_hashes(references))[:hashes])


def known_share(references: Iterable[Sequence[str]], of: str) -> float:
    """Return the share of the distinct references that the fingerprint ``of`` covers.

    The share is exact if ``of`` has the hashes of all references that it was made from, else an estimate, from the hashes within
    the sample's range. It is 0 if none is: a small part of very many references can be missed.
    """
    known = {of[place : place + HASH_DIGITS] for place in range(0, len(of), HASH_DIGITS)}
    hashes = _hashes(references)
    if len(known) in (EARLIER_HASHES, FINGERPRINT_HASHES, TABLE_HASHES):
        hashes = {value for value in hashes if value <= max(known)}
    return len(hashes & known) / len(hashes) if hashes else 0.0


def _hashes(references: Iterable[Sequence[str]]) -> set[str]:
    texts = {" ".join(text.split()) for of_list in references for text in of_list} - {""}
    return {hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS] for text in texts}


def same_utterance(references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]], *prepared: Callable[[str], str]) -> np.ndarray:
    """Return an utterance number (N,) for each list, numbered in order of first appearance.

    Two lists are of the same utterance if their references match or their hypotheses, several different ones, are identical, unless
    these have no words. (One text alone, such as "yes", is often the answer to other utterances, too.) References match if they do after
    one of ``prepared``, ignoring case, white space and order. Such lists are not independent samples: weights tuned on one have seen the
    other.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    keys: dict[tuple[str, ...], int] = {}
    links = []
    for row, (of_list, texts) in enumerate(zip(references, hypotheses, strict=True)):
        of_row = {"hypotheses": sorted(texts) if len(set(texts)) > 1 else []}
        for number, prepare in enumerate(prepared):
            of_row[f"references {number}"] = sorted(" ".join(prepare(reference).lower().split()) for reference in of_list)
        filled = [(what, *found) for what, found in of_row.items() if any(map(str.strip, found))]  # silences are not one utterance
        links += [(row, keys.setdefault(key, len(keys))) for key in filled]
    lists = len(references)
    rows, columns = np.array(links, dtype=np.int64).reshape(-1, 2).T
    size = lists + len(keys)
    graph = coo_array((np.ones(len(rows)), (rows, lists + columns)), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    return labels[:lists].astype(np.int64)
