"""NIST's ctm: one word of an answer per line, with its time and confidence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from attlm_fairseq.files import whole_file
from attlm_fairseq.nbest.formats.lines import distinct, quoted
from attlm_fairseq.nbest.nbest_list import NbestList, Sausage

CHANNEL = "1"
NO_TIMES = ";; no times in {}: word n of an utterance begins at n - 1 seconds and lasts 1 second\n"


def write_ctm(lists: Iterable[NbestList], path: str) -> None:
    """Write ``id 1 begin duration word confidence`` for each word of each answer, times in seconds.

    The lists carry their ``sausage``. If a list has no times, a comment says so and each word lasts one second. An
    utterance without words has no line. ``path`` is as in ``write_nbest``. Raises InputError for an id that a line cannot
    hold; nothing is written then.
    """
    told = False
    with whole_file(path) as out:
        for place, nbest in enumerate(distinct(lists, "ctm")):
            if not nbest.id or re.search(r"\s", nbest.id) or nbest.id.startswith(";;"):
                raise nbest.error(f"the id {quoted(nbest.id)} is empty, has white space in it or begins with ;; - ctm lines cannot hold it")
            assert nbest.sausage is not None, "a list without confidences"
            if not told and nbest.sausage.answer and not nbest.sausage.times:
                out.write(NO_TIMES.format(f"the list {nbest.id} and others" if place else "the lists"))
                told = True
            out.writelines(_lines(nbest.id, nbest.sausage))


def _lines(name: str, sausage: Sausage) -> Iterator[str]:
    for place, (word, share) in enumerate(sausage.answer):
        begin, end = sausage.times[place] if sausage.times else (float(place), place + 1.0)
        yield f"{name} {CHANNEL} {begin:.2f} {end - begin:.2f} {word} {share:.6f}\n"
