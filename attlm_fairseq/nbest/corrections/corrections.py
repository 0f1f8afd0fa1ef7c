"""Corrections learned from lists with references: their parts, learning and applying."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any

from attlm_fairseq import magic
from attlm_fairseq.batching import batch_by_size
from attlm_fairseq.errors import InputError, require_whole_number
from attlm_fairseq.files.hashes import sha256
from attlm_fairseq.files.writing import is_stream, whole_file
from attlm_fairseq.messages import note
from attlm_fairseq.nbest.corrections.alignment import MAX_WORDS, AlignedPair, align_list
from attlm_fairseq.nbest.corrections.corrector import CORRECTOR, Corrector
from attlm_fairseq.nbest.corrections.expansion import CANDIDATES, Channel, expand, refuse_to_replace
from attlm_fairseq.nbest.corrections.exposure import held_share, warning_of_exposure
from attlm_fairseq.nbest.corrections.letters import LetterChannel, learn_letters
from attlm_fairseq.nbest.corrections.numbers import LANGUAGE, NumberChannel, learn_numbers
from attlm_fairseq.nbest.corrections.phrase_list import SimilarPhrases
from attlm_fairseq.nbest.corrections.phrase_table import PhraseTable, learn_phrases
from attlm_fairseq.nbest.corrections.search import Candidate, KenLMSearch, NoLM, Search, SearchLM
from attlm_fairseq.nbest.corrections.search_lm import estimate_search_lm, lm_next_to
from attlm_fairseq.nbest.corrections.spelling import SpellingSearch
from attlm_fairseq.nbest.corrections.table_file import Table, read_table, write_table
from attlm_fairseq.nbest.corrections.table_notes import warn_of_part
from attlm_fairseq.nbest.corrections.written import check_steps, usual_forms
from attlm_fairseq.nbest.fingerprints import LEARNED_SHARE, TABLE_HASHES, fingerprint
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.text.pipeline import NO_STEPS, TextPipeline, parse_steps
from attlm_fairseq.text.symbols import END, START, UNKNOWN

LISTS_TOGETHER = 64  # that are expanded at a time: by a neural corrector, by one process


class _Folder:
    """A temporary folder that goes with this object. ``tempfile.TemporaryDirectory`` warns unless somebody closes it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="attlm-corrections-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class Corrections(Table):
    """Replacements for words of hypotheses, and the n-gram LM that guides the search for candidates.

    ``lm`` is an ARPA or KenLM binary file over the words of the lists after the steps ``text``. Use ``learn_corrections`` to make
    a table, or ``load`` to read one.
    """

    phrase_list: SimilarPhrases | None = None
    corrector: Corrector | None = None
    _folder: _Folder | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        rules = sum(map(len, self.phrases.rules.values()))
        return f"{rules} phrases, {len(self.phrases.kept)} words, from {self.lists} lists"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: not what is made of it when it is used, such as the LM as KenLM holds it.

        An LM that was estimated stands in a folder that goes with this object, so its text is pickled.
        """
        state = {part.name: getattr(self, part.name) for part in fields(self)}
        if self._folder is not None and self.lm is not None:
            state |= {"_folder": None, "lm": self.lm.read_bytes()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["lm"], bytes):
            folder = _Folder()
            path = folder.path / "references.arpa"
            path.write_bytes(state["lm"])
            state = {**state, "lm": path, "_folder": folder}
        for name, value in state.items():
            object.__setattr__(self, name, value)

    def expand(self, nbest: NbestList, size: int = CANDIDATES) -> NbestList:
        """Return the list with at most ``size`` new hypotheses after the input ones. See ``expansion.expand``.

        Raises InputError if it is not an ``NbestList``, ``size`` is not a whole number, or as ``expansion.expand`` does.
        """
        require_whole_number("size", size)
        if not isinstance(nbest, NbestList):
            raise InputError(f"{nbest!r:.80}: expected an attlm.NbestList; `attlm.read_nbest` and `attlm.rescore` make such lists")
        return next(self.expand_all([nbest], size))

    def expand_all(self, lists: Iterable[NbestList], size: int = CANDIDATES) -> Iterator[NbestList]:
        """Yield the lists, each expanded. A neural corrector searches LISTS_TOGETHER, and adds its candidates to the ``size`` others."""
        if self.corrector is None:
            yield from (expand(nbest, self.channel, self._search_lm, size) for nbest in lists)
            return
        for some in in_batches(lists):
            for nbest in some:
                refuse_to_replace(nbest, (CORRECTOR,))
            texts = self.corrector.candidates([nbest.hypotheses[0].text if nbest.hypotheses else "" for nbest in some])
            yield from self.corrector.scored(
                [expand(nbest, self.channel, self._search_lm, size, further) for nbest, further in zip(some, texts, strict=True)]
            )

    def seen(self, lists: Iterable[NbestList]) -> bool:
        """Return whether the table was learned from most of these lists, so that it has to be learned from other folds for them."""
        return self.share_of(nbest.references for nbest in lists) > LEARNED_SHARE

    def learned_again(self, lists: Iterable[NbestList], table: Path) -> Corrections:
        """Learn corrections like those of the file ``table`` from other lists, with the same language, text steps and phrase list.

        A given LM guides the search here, too; an LM that was estimated from the references is estimated from those of ``lists``.

        Raises:
            InputError: a list has no reference, there are no lists, or no LM can be estimated.
        """
        learned = learn_corrections(lists, lm=None if self.estimated(table) else self.lm, language=self.language, text=self.text)
        return replace(learned, phrase_list=self.phrase_list, corrector=self.corrector)

    def estimated(self, table: Path) -> bool:
        """Return whether the LM was estimated from the references that the file ``table`` was learned from."""
        if self.own_lm and self.lm is not None:
            return self.own_lm == sha256(self.lm)  # unless the table has been edited to name another LM
        return self.lm is not None and self.lm.resolve() == table.with_suffix(".arpa").resolve()

    def needs_folds(self, table: Path, lists: Sequence[NbestList]) -> bool:
        """Return whether the file ``table`` was learned from most of these lists, so that folds of them must learn it again.

        Warns if it was learned from some of them, or if the LM of the search was trained on their references and stays
        the same in all folds.
        """
        from attlm_fairseq.scoring.ngrams.kenlm_files import load_kenlm

        seen = self.seen(lists)
        if not seen:
            warn_of_part(table, self.share_of(nbest.references for nbest in lists))
        if self.lm is not None and not (seen and self.estimated(table)):
            share = held_share(load_kenlm(self.lm), (self.text.prepared(text) for nbest in lists for text in nbest.references))
            if warning := warning_of_exposure(f"the LM of {table}", share):
                note(warning)
        return seen

    def best_of(self, words: Sequence[str]) -> Candidate | None:
        """Return the best text of the search for one hypothesis, words as ``alignment.bounded`` makes them; None if it is too long."""
        if len(words) > MAX_WORDS:
            return None
        return next(iter(Search(self._search_lm, 1).best(self.channel.edges(words))), None)

    def in_memory(self) -> Corrections:
        """Return this object, with its LM read, so that the file may change or go. Raises InputError if the file is wrong."""
        _ = self.channel, self._search_lm  # which remember what they have read
        return self

    @cached_property
    def channel(self) -> Channel:
        """Return the sources of candidates, ready for lists."""
        return Channel(self.phrases, self.numbers, SpellingSearch(self.letters, self.vocabulary), self.phrase_list, self.text, self.usual)

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """Return the words of the LM; if that is a binary file, which does not list them, those of the table that it knows."""
        from attlm_fairseq.scoring.ngrams.kenlm_files import load_kenlm, read_unigrams

        if self.lm is None:
            return frozenset()
        with self.lm.open("rb") as file:
            binary = file.read(len(magic.KENLM_BINARY)) == magic.KENLM_BINARY
        if not binary:
            return frozenset(read_unigrams(self.lm)) - {START, END, UNKNOWN}
        model = load_kenlm(self.lm)
        of_rules = (word for rules in self.phrases.rules.values() for rule in rules for word in rule.target)
        return frozenset(word for word in {*self.phrases.kept, *of_rules} if word in model) - {START, END, UNKNOWN}

    @cached_property
    def _search_lm(self) -> SearchLM:
        if self.lm is None:
            return NoLM()
        from attlm_fairseq.scoring.ngrams.kenlm_files import load_kenlm

        return KenLMSearch(load_kenlm(self.lm))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table. An LM estimated from the references is written next to it, as NAME.arpa.

        Raises:
            InputError: there is no LM, a file cannot be written, or the LM was estimated from the references and
                ``path`` is a stream, or a file of the name NAME.arpa is not the LM of an earlier table.
        """
        lm, path = self.lm, Path(path)
        if lm is None:
            raise InputError("corrections without an LM and a table are not written: they are the phrase list alone", path=path)
        if self._folder is not None:
            if is_stream(str(path)):
                raise InputError("the LM estimated from the references is written next to the table: name a file, or give an LM", path=path)
            lm = lm_next_to(path, Path(str(self.lm)))
            with Path(str(self.lm)).open("rb") as estimated, whole_file(str(lm)) as out:
                shutil.copyfileobj(estimated, out.buffer)
        write_table(path, self, lm)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Corrections:
        """Read a table and find its LM.

        Raises:
            InputError: the file cannot be read, is not a table of corrections or names no LM, its LM is not there, or
                a line is wrong. The message names the line.
        """
        table = read_table(Path(path))
        if not os.path.isfile(str(table.lm)):  # noqa: PTH113 - Path.is_file raises for a name that is too long
            raise InputError(f"its LM {table.lm} is not there: mend the line '# lm =', or learn again", path=path)
        return cls(**vars(table))


def learn_corrections(
    lists: Iterable[NbestList], *, lm: Path | None = None, language: str = LANGUAGE, text: TextPipeline = NO_STEPS
) -> Corrections:
    """Learn corrections from lists that have references.

    Args:
        lists: at least one. Each hypothesis is compared with its closest reference.
        lm: an n-gram LM for the search. None estimates a KenLM 4-gram from the references, which needs KenLM's ``lmplz``.
        language: language of spelled-out numbers, as a num2words code. Without num2words, numbers are not changed.
        text: steps after which the words of hypotheses and references are compared.

    Raises:
        InputError: a list has no reference, there are no lists, a step does not treat each word by itself, or no LM can be estimated.
    """
    check_steps(text)
    folder = None
    pairs: list[AlignedPair] = []
    texts: list[str] = []
    written: list[list[str]] = []
    count = long = 0
    for nbest in lists:
        if not nbest.references:
            raise nbest.error(f"list {nbest.id!r} has no reference: corrections are learned from lists with references")
        hypotheses = [hypothesis.text for hypothesis in nbest.hypotheses]
        pairs += align_list(hypotheses, nbest.references, text)
        written += [hypotheses] if text.steps else []
        texts += nbest.references
        # a word has a character at least
        long += sum(len(line) + 2 > MAX_WORDS and len(text.words(line)) + 2 > MAX_WORDS for line in (*hypotheses, *nbest.references))
        count += 1
    if not count:
        raise InputError("there are no lists to learn corrections from")
    if long:
        note(f"note: {long} texts are too long to learn from ({MAX_WORDS} words with both boundaries at most), or to be corrected")
    if lm is None:
        folder = _Folder()
        lm = folder.path / "references.arpa"
        estimate_search_lm(map(text.prepared, texts), lm)
    return Corrections(
        learn_phrases(pairs),
        learn_numbers(pairs, language, text),
        learn_letters(pairs),
        lm,
        language,
        count,
        fingerprint(([reference] for reference in texts), TABLE_HASHES),
        own_lm="no" if folder is None else sha256(lm),
        text=text,
        usual=usual_forms(written, text),
        _folder=folder,
    )


def without_table() -> Corrections:
    """Return corrections without a table and an LM: for a phrase list or a neural corrector alone.

    They compare words and, in scripts without spaces between words, characters.
    """
    return Corrections(PhraseTable({}, {}), NumberChannel(), LetterChannel(), None, text=parse_steps(["characters"]))


def in_batches(lists: Iterable[NbestList]) -> Iterator[list[NbestList]]:
    """Yield LISTS_TOGETHER lists at a time, in order."""
    return batch_by_size(lists, repeat(LISTS_TOGETHER), lambda _: 1)
