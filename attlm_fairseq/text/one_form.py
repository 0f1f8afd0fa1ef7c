"""Ids of lists and the names in another file that should match them: two forms of the same id are the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence

Form = Callable[[str], str]
_FOLDERS = re.compile(r".*[/\\]", re.DOTALL)
_ENDING = re.compile(r"(?<=.)\.[A-Za-z][A-Za-z0-9]{1,4}", re.DOTALL)  # .wav, .flac, .mp3, .TextGrid is too long, .1 is part of an id


def in_one_form(ids: Sequence[str], names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return ids of lists, and the names that should match them, in the first of ``in_forms`` in which every id is a name.

    If there is none, or different ids or names would become the same, they are returned as they are.
    """
    for formed, formed_names in in_forms(ids, names):
        alike = len(set(formed)) < len(set(ids)) or len(set(formed_names)) < len(set(names))
        if not alike and set(formed_names).issuperset(formed):
            return formed, formed_names
    return list(ids), list(names)


def in_forms(ids: Sequence[str], names: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield ids of lists and names: as they are, in Unicode's form NFC, and as names of files without folder and ending.

    File names of macOS are in NFD, which looks the same. Lists of audio files often have paths for ids, where references have
    the bare name. Numbers are left as they are: those of lists without ids are positions, and files may be in another order.
    """
    yield list(ids), list(names)
    forms: list[Form] = [_composed]
    if not any(all(map(str.isdecimal, some)) for some in (ids, names)):
        forms.append(_file_name)
    for form in forms:
        yield list(map(form, ids)), list(map(form, names))


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _file_name(path: str) -> str:
    name = _FOLDERS.sub("", _composed(path))
    ending = _ENDING.fullmatch(name, max(name.rfind("."), 0))
    return name[: ending.start()] if ending else name
