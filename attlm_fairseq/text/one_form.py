"""Ids of lists and the names in another file that should match them: two forms of the same id are the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

_FOLDERS = re.compile(r".*[/\\]", re.DOTALL)
_FOLDERS_AND_ENDING = re.compile(
    rf"{_FOLDERS.pattern}|\.(?:wav|flac|mp3|m4a|mp4|ogg|oga|opus|webm|aac|sph|aiff?|au|amr|wma|mkv|mov|avi|pcm|raw)$",
    re.DOTALL | re.IGNORECASE,
)
_LIKE_ID = re.compile(r"(?=.*\d)(?=.*\D)", re.DOTALL)  # a name such as yes.wav may be what is said in it


def in_one_form(ids: Sequence[str], names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return ids of lists, and the names that should match them, in that form of ``in_forms`` in which most ids are names."""
    return max(in_forms(ids, names), key=lambda form: len({*form[0]}.intersection(form[1])))


def in_forms(ids: Sequence[str], names: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield ids of lists and names in forms in which different ones stay different: as they are, and in Unicode's form NFC.

    File names of macOS are in NFD, which looks the same. Further, the ids or the names as names of audio files, without their folders,
    and without the ending, too: lists of audio files often have paths for ids, where references have the bare name. Only names with
    digits and other characters are taken for such: numbers are the positions of lists without ids, and a word may be a text.
    """
    yield list(ids), list(names)
    composed, of_names = ([unicodedata.normalize("NFC", name) for name in some] for some in (ids, names))
    if _as_different(composed, ids) and _as_different(of_names, names):
        yield composed, of_names
    for pattern in (_FOLDERS, _FOLDERS_AND_ENDING):
        short_ids, short_names = ([pattern.sub("", name) for name in some] for some in (composed, of_names))
        yield from ([(short_ids, of_names)] if _as_different(short_ids, ids) and _like_ids(short_ids) else [])
        yield from ([(composed, short_names)] if _as_different(short_names, names) and _like_ids(short_names) else [])


def _as_different(formed: Sequence[str], names: Sequence[str]) -> bool:
    return len({*formed}) == len({*names})


def _like_ids(names: Sequence[str]) -> bool:
    return all(map(_LIKE_ID.match, names))
