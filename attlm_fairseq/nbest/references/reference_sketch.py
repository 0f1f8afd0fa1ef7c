"""Whether lists are those that weights were tuned on: told by a short sketch of their references, in any order and any format."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

SIZE = 64  # hashes
DIGITS = 8


def reference_sketch(references: Iterable[Sequence[str]]) -> str:
    """The SIZE smallest hashes of the lists' references, one after the other: a sample that does not depend on the other lists."""
    return "".join(sorted(_hashes(references))[:SIZE])


def known_share(references: Iterable[Sequence[str]], sketch: str) -> float:
    """Which share of these lists' distinct references is among those that the sketch is of: exact for up to SIZE, else an estimate.

    It is 0 where these are so few of so many that none of them could be in the sketch.
    """
    known = {sketch[place : place + DIGITS] for place in range(0, len(sketch), DIGITS)}
    hashes = _hashes(references)
    if len(known) == SIZE:
        largest = max(known)
        hashes = {value for value in hashes if value <= largest}
    return len(hashes & known) / len(hashes) if hashes else 0.0


def _hashes(references: Iterable[Sequence[str]]) -> set[str]:
    texts = {" ".join(text.split()) for of_list in references for text in of_list} - {""}
    return {hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS] for text in texts}
