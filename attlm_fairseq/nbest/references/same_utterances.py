"""Further files about the utterances of a first one: lists or texts, each put beside the list of the first that it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from attlm_fairseq.errors import InputError
from attlm_fairseq.files import TextSource
from attlm_fairseq.nbest.formats import NbestFolderFormat, NbestFormat, find_format, format_of, open_nbest
from attlm_fairseq.nbest.formats.lines import split_end
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList
from attlm_fairseq.nbest.references.line_ids import require_same_ids, texts_of

TEXT = "text"  # as in ``--format text``: one text a line
LIKE_TEXT = ("plain", "kaldi", "nemo", "srilm")  # the formats that lines of text can look like


@dataclass(frozen=True, slots=True)
class Further:
    """The lists of a further file in the order of the first's, one hypothesis each if they are texts, and how they were paired."""

    lists: list[NbestList]
    are_texts: bool
    by_id: bool  # and not by order


def read_further(path: str, format_name: str | None, first: Sequence[NbestList], first_path: str, *, in_doubt: bool = False) -> Further:
    """The lists of ``path``, those of the same utterances as ``first`` (read from ``first_path``), in their order.

    Texts, one a line, are what ``--format text`` says, what is in no format, and what only looks like one (tabs, blank lines, words
    that end in numbers) where there are as many lines as lists: unless these lines give lists of the same ids. Lines that carry the
    lists' ids, ``id text`` or ``text (id)``, go by them. Lists with the same ids in another order go by them too.

    Raises InputError for other ids, for other numbers of lists or lines, and, ``in_doubt``, for texts without ids where those of ``first``
    are numbers in another order, so that nobody knows which text is whose.
    """
    form = None
    if format_name != TEXT:
        if format_name is not None:
            form = find_format(format_name)
        if (path != "-" and Path(path).is_dir()) or isinstance(form, NbestFolderFormat):
            return _paired(list(open_nbest(path, format_name)[1]), first, path, first_path)
    source = TextSource(path)
    if format_name is None:
        form = format_of(source.head)
    if form is not None and form.name not in LIKE_TEXT:
        return _paired(list(form.read(source.lines() if form.by_line else source.pieces(), source.name)), first, path, first_path)
    lines = list(source.lines())
    texts = [split_end(line)[0] for line in lines]
    texts[0] = texts[0].removeprefix("\ufeff")
    ids = [nbest.id for nbest in first]
    # plain lists of several hypotheses begin with the ids too
    may_have_ids = form is None or form.name != "plain" or len(lines) == len(first)
    found = texts_of(texts, ids, f"the lists of {first_path}", path) if may_have_ids else None
    if found is not None:
        return Further([_text(name, found[name]) for name in ids], True, True)
    lists = _lists_if_they_are(form, lines, source.name, ids, format_name is not None) if form is not None else None
    if lists is not None:
        return _paired(lists, first, path, first_path)
    if len(texts) != len(first):
        raise InputError(f"{len(texts)} lines of text, but {first_path} has {len(first)} lists: expected one text a line", path=path)
    if in_doubt and ids != _places(ids) and set(ids) == set(_places(ids)):
        message = (
            f"texts without ids, and the ids of {first_path} are the numbers 0 to {len(ids) - 1} in another order: which text is whose?"
            " Give texts with ids (attlm rescore --to 1best-kaldi), or say --refs-by order"
        )
        raise InputError(message, path=path)
    return Further([_text(name, text) for name, text in zip(ids, texts, strict=True)], True, False)


def read_texts(path: str, ids: Sequence[str] | None = None, *, leave_over: bool = False) -> list[NbestList]:
    """One text a line as lists of one hypothesis, called by their place from 0; or by the ids that they carry, if ``ids`` are given.

    An empty line is an empty text. Raises InputError where the file cannot be read, is empty or is no UTF-8, and where ``ids`` are given
    and the lines carry others or none, or not all of them unless ids may be left over.
    """
    texts = [split_end(line)[0] for line in TextSource(path, "one text a line").lines()]
    texts[0] = texts[0].removeprefix("\ufeff")
    found = texts_of(texts, ids, "the references", path, leave_over=leave_over) if ids is not None else None
    if ids is not None and found is None:
        message = (
            f"texts without ids, and the references have some (first: {ids[0]!r}): expected 'id text' or 'text (id)', or --refs-by order"
        )
        raise InputError(message, path=path)
    items = found.items() if found is not None else zip(_places(texts), texts, strict=True)
    return [replace(_text(name, text), line=line) for line, (name, text) in enumerate(items, 1)]


def _lists_if_they_are(form: NbestFormat, lines: Sequence[str], path: str, ids: Sequence[str], named: bool) -> list[NbestList] | None:
    """The lists; None where there are as many lines as ``ids``, and texts, one a line, are more likely.

    So they are where the lines do not give as many lists, or lists of other ids in a format that the user has not ``named``.
    """
    try:
        lists = list(form.read(lines, path))
    except InputError:
        if len(lines) != len(ids):
            raise
        return None
    shared = len(lists) if named else len({nbest.id for nbest in lists} & set(ids))
    single = form.name == "srilm" and len(ids) == 1  # the list's id is the file's name
    return lists if len(lines) != len(ids) or single or (len(lists) == len(ids) and 2 * shared > len(ids)) else None


def _paired(lists: list[NbestList], first: Sequence[NbestList], path: str, first_path: str) -> Further:
    """By id where the ids are the same, each once, in another order; else by order, if one of the two has none but places."""
    ids, ids_of_first = ([nbest.id for nbest in of_file] for of_file in (lists, first))
    if ids == ids_of_first:
        return Further(lists, False, True)
    if sorted(ids) == sorted(ids_of_first) and len(set(ids)) == len(ids):
        by_id = {nbest.id: nbest for nbest in lists}
        return Further([by_id[name] for name in ids_of_first], False, True)
    if len(first) > 1 and all(of_file != _places(of_file) and len(set(of_file)) == len(of_file) for of_file in (ids, ids_of_first)):
        require_same_ids(ids, ids_of_first, f"the lists of {first_path}", path)
    if len(ids) != len(ids_of_first):
        raise InputError(f"{len(ids)} lists, but {first_path} has {len(first)}: compare lists of the same utterances", path=path)
    return Further(lists, False, False)


def _places(items: Sequence[object]) -> list[str]:
    """The ids of lists that have none."""
    return [str(place) for place, _ in enumerate(items)]


def _text(name: str, text: str) -> NbestList:
    return NbestList(name, [Hypothesis(text, rank=1)])
