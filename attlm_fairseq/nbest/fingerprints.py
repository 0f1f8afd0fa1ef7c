"""Tell lists again: the lists that weights were tuned on, and lists of the same utterance."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np

FINGERPRINT_HASHES = 64
HASH_DIGITS = 8  # hexadecimal


def fingerprint(references: Iterable[Sequence[str]]) -> str:
    """Return the smallest hashes of the references, joined: a sample of them that does not depend on order, format or other lists."""
    return "".join(sorted(_hashes(references))[:FINGERPRINT_HASHES])


def known_share(references: Iterable[Sequence[str]], of: str) -> float:
    """Return the share of the distinct references that the fingerprint ``of`` knows.

    Exact for up to ``FINGERPRINT_HASHES`` references there, else an estimate, and 0 if none of these could be in the sample.
    """
    known = {of[place : place + HASH_DIGITS] for place in range(0, len(of), HASH_DIGITS)}
    hashes = _hashes(references)
    if len(known) == FINGERPRINT_HASHES:
        hashes = {value for value in hashes if value <= max(known)}
    return len(hashes & known) / len(hashes) if hashes else 0.0


def _hashes(references: Iterable[Sequence[str]]) -> set[str]:
    texts = {" ".join(text.split()) for of_list in references for text in of_list} - {""}
    return {hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS] for text in texts}


def same_utterance(references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]], prepared: Callable[[str], str]) -> np.ndarray:
    """Return a number (N,) for each list, the same for lists of the same utterance, in the order in which utterances first appear.

    Two lists belong to the same utterance if their references match (``prepared`` as the metric compares them, ignoring case, white space
    and order) or their hypotheses are identical. Such lists are not independent samples: what was tuned on one has seen the others.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    keys: dict[tuple[str, ...], int] = {}
    links = []
    for row, (of_list, texts) in enumerate(zip(references, hypotheses, strict=True)):
        compared = sorted(" ".join(prepared(reference).lower().split()) for reference in of_list)
        links += [(row, keys.setdefault(key, len(keys))) for key in (("references", *compared), ("hypotheses", *sorted(texts)))]
    lists = len(references)
    rows, columns = np.array(links, dtype=np.int64).reshape(-1, 2).T
    size = lists + len(keys)
    graph = coo_array((np.ones(len(rows)), (rows, lists + columns)), shape=(size, size))
    _, labels = connected_components(graph, directed=False)
    return labels[:lists].astype(np.int64)
