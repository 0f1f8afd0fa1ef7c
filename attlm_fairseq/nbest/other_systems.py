"""Read another system's output for the same utterances: n-best lists, or one text per line."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.reading import TextSource
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats import NbestFolderFormat, find_format, format_of, open_nbest
from attlm_fairseq.nbest.formats.ctm import CtmFormat, recordings
from attlm_fairseq.nbest.formats.text import TextFormat
from attlm_fairseq.nbest.line_matching import By, match_lines
from attlm_fairseq.nbest.nbest_list import Hypothesis, NbestList, silence
from attlm_fairseq.nbest.reference_files import REFS_BY, TEXT, TextFile, positions, read_as_ctm, without_ends
from attlm_fairseq.text.one_form import in_one_form


def read_texts(path: str, by: By | None = None) -> list[NbestList]:
    """Read one text per line as lists of one hypothesis. Ids come from the lines, or are their positions.

    Args:
        path: the file.
        by: ``"id"`` requires ids. With None, ids are taken if all lines have one, and a note says so. An id is a distinct
            first word, or last word in parentheses, each with a digit, dash or underscore.

    Raises:
        InputError: the file cannot be read, or not every line has an id of its own.
    """
    return list(TextFormat("order" if by == "number" else by).read(TextSource(path, "one text per line")))


def read_further(
    path: str, format_name: str | None, first: Sequence[NbestList], first_path: str, by: By | None = None, option: str = REFS_BY
) -> list[NbestList]:
    """Read another system's file for the utterances of ``first``: n-best lists, or one text per line.

    A file holds texts if its format is not recognised or ``format_name`` is "text". It also does if its format can look
    like plain lines and it has one line per list, unless ``format_name`` names that format and it gives as many lists.
    "text:id" and "text:order" are formats like any other: their lists are matched like n-best lists.

    Lists are matched by id if the ids are the same, else by order if one side has no ids of its own. Texts are matched
    by the rule of ``line_matching``.

    Returns:
        The lists in the order of ``first``, and a note on how the file was read.

    Raises:
        InputError: the file is of other utterances.
    """
    named = find_format(format_name) if format_name not in (None, TEXT) else None
    if (path != "-" and Path(path).is_dir()) or isinstance(named, NbestFolderFormat):
        return in_order_of(first, list(open_nbest(path, format_name)[1]), path, first_path)
    source = TextSource(path)
    form = None if format_name == TEXT else named or format_of(source.head)
    text = "".join(source.pieces())
    lines = list(TextSource(path, text=text).lines())
    if isinstance(form, CtmFormat):  # without a line for an utterance without words
        return _of_ctm(first, TextSource(path, text=text), by, option)
    if form is not None and (isinstance(form, TextFormat) or not form.like_text or len(lines) != len(first)):
        return in_order_of(first, list(form.read(TextSource(path, text=text))), path, first_path)
    if named is not None:
        lists: list[NbestList] = []
        with contextlib.suppress(InputError):
            lists = list(named.read(TextSource(path, text=text)))
        if len(lists) == len(first):
            return in_order_of(first, lists, path, first_path)
    ids = [nbest.id for nbest in first]
    try:
        texts = without_ends(lines)
        found = match_lines(ids, TextFile(path, texts, option=option), by)
    except InputError as error:
        raise InputError(f"{error}{f'; if it holds n-best lists, say --format {form.name}' if form else ''}") from None
    if format_name != TEXT:
        note(f"note: {path} is not an n-best list: read as one text per line{', with ids' if found.by_id else ''}")
    return [_one_text(name, text) for name, text in zip(ids, found.texts, strict=True)]


def _of_ctm(first: Sequence[NbestList], source: TextSource, by: By | None, option: str) -> list[NbestList]:
    """Return the lists of a CTM file for the utterances of ``first``: silence for those without a line."""
    lists = recordings(source)
    ids = [nbest.id for nbest in first]
    texts = [nbest.hypotheses[0].text for nbest in lists]
    match_lines(ids, TextFile(source.name, texts, [nbest.id for nbest in lists], option, sparse=True), by)
    note(read_as_ctm(source.name))
    names, keys = in_one_form([nbest.id for nbest in lists], ids)
    by_name = dict(zip(names, lists, strict=True))
    return [by_name[key] if key in by_name else silence(name, lists[0]) for key, name in zip(keys, ids, strict=True)]


def in_order_of(first: Sequence[NbestList], lists: list[NbestList], path: str, first_path: str) -> list[NbestList]:
    """Return the lists in the order of ``first``: by id if the ids are the same, else as they are if one side has no ids.

    Raises:
        InputError: both sides have ids, but other ones, or one of them repeated and in another order; or the numbers of lists differ.
    """
    ids_of_first, ids = in_one_form([nbest.id for nbest in first], [nbest.id for nbest in lists])
    if sorted(ids) == sorted(ids_of_first) and len(set(ids)) == len(ids):
        by_id = dict(zip(ids, lists, strict=True))
        return [by_id[name] for name in ids_of_first]
    if len(first) > 1 and ids != ids_of_first and all(of_file != positions(of_file) for of_file in (ids, ids_of_first)):
        for of_file, name in ((ids, path), (ids_of_first, first_path)):
            if repeated := [one for one, count in Counter(of_file).items() if count > 1]:
                advice = "give each list an id of its own, or the lists of both systems the same ids in the same order"
                raise InputError(f"the id {repeated[0]!r} is that of several lists: {advice}", path=name)
        known, known_of_first = set(ids), set(ids_of_first)
        missing = [name for name in ids_of_first if name not in known]
        unknown = [name for name in ids if name not in known_of_first]
        found = [f"lacks {_some(missing)} of {first_path}"] if missing else []
        found += [f"has {_some(unknown)} that {first_path} has not"] if unknown else []
        expected = "expected lists of the same utterances, with an empty text where a system has no words"
        raise InputError(f"{' and '.join(found)}: {expected}", path=path)
    if len(ids) != len(ids_of_first):
        known = {*ids} if ids != positions(ids) and {*ids} < {*ids_of_first} else {*ids_of_first}
        lacking = next((f"; the first one that it lacks is {name!r}" for name in ids_of_first if name not in known), "")
        raise InputError(f"{len(ids)} lists, but {first_path} has {len(first)}: compare lists of the same utterances{lacking}", path=path)
    return lists


def _some(names: Sequence[str]) -> str:
    return f"{len(names)} list{'s' if len(names) > 1 else ''} ({names[0]!r}{', ..' if len(names) > 1 else ''})"


def _one_text(name: str, text: str) -> NbestList:
    return NbestList(name, [Hypothesis(text, rank=1)])
