"""The first hypothesis of every list as text, in the layouts that scoring tools read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from attlm_fairseq.errors import quoted
from attlm_fairseq.files.writing import whole_file
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.formats.lines import one_line
from attlm_fairseq.nbest.formats.list_ids import writable
from attlm_fairseq.nbest.nbest_list import NbestList


def _text(_name: str, text: str) -> str:
    return text


def _kaldi(name: str, text: str) -> str:
    return f"{name} {text}" if text else name


def _sclite(name: str, text: str) -> str:
    return f"{text} ({name})" if text else f"({name})"


ONE_BEST_STYLES: dict[str, Callable[[str, str], str]] = {"text": _text, "kaldi": _kaldi, "sclite": _sclite}
ONE_BEST = {f"1best-{style}" if style != "text" else "1best": style for style in ONE_BEST_STYLES}
"""The styles by what ``--to`` calls them."""


def write_one_best(lists: Iterable[NbestList], path: str, style: str = "text") -> None:
    """Write one line per list, in order: the text of its first hypothesis, with tabs and line breaks as spaces.

    ``kaldi`` writes ``id text`` and ``sclite`` ``text (id)``; both need distinct ids without white space. ``path`` is as in
    ``write_nbest``. Raises InputError if there are no lists, or for an id that the style or a text that UTF-8 cannot hold;
    nothing is written then.
    """
    line_of, what = ONE_BEST_STYLES[style], f"1best-{style}"
    distinct = style != "text"
    with whole_file(path) as out:
        for nbest in writable(lists, what) if distinct else _told_of_order(writable(lists, what, lambda _: None)):
            if distinct and (re.search(r"\s", nbest.id) or not nbest.id):
                raise nbest.error(f"the id {quoted(nbest.id)} is empty or has white space in it: {style} lines cannot hold it")
            out.write(line_of(nbest.id, one_line(nbest.hypotheses[0].text)) + "\n")


def _told_of_order(lists: Iterable[NbestList]) -> Iterator[NbestList]:
    """Yield the lists. Log at the end if their numbers do not rise: lines without ids would be taken for those of a corpus in order."""
    last, turned = -1, False
    for nbest in lists:
        number = int(nbest.id) if re.fullmatch("[0-9]{1,18}", nbest.id) else last
        turned, last = turned or number < last, number
        yield nbest
    if turned:
        note(
            "note: the lists are not in the order of their numbers, and so are the texts written; "
            "`--to 1best-kaldi | sort -n | cut -d ' ' -f 2-` sorts them"
        )
