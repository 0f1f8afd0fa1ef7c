"""Ids of lists and the names in another file that should match them: those that look the same are the same."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def in_one_form(ids: Sequence[str], names: list[str]) -> tuple[Sequence[str], list[str]]:
    """Return ids of lists, and the names that should match them. Both are in Unicode's form NFC if all ids match only then.

    File names of macOS are in NFD, which looks the same.
    """
    if set(names).issuperset(ids):
        return ids, names
    composed, composed_names = [_composed(name) for name in ids], [_composed(name) for name in names]
    if len(set(composed)) == len(set(ids)) and set(composed_names).issuperset(composed):
        return composed, composed_names
    return ids, names


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)
