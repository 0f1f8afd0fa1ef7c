"""The sources of candidates for a run: a table of corrections, a phrase list, a neural corrector, or several of these."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from attlm_fairseq.errors import InputError
from attlm_fairseq.files.hashes import sha256, sha256_of_folder
from attlm_fairseq.files.writing import is_stream
from attlm_fairseq.nbest.corrections.corrections import Corrections, without_table
from attlm_fairseq.nbest.corrections.corrector import Corrector
from attlm_fairseq.nbest.corrections.expansion import CANDIDATES
from attlm_fairseq.nbest.corrections.jackknife import by_folds, folds_of
from attlm_fairseq.nbest.corrections.phrase_list import SimilarPhrases
from attlm_fairseq.nbest.corrections.table_file import Table, read_table
from attlm_fairseq.nbest.corrections.table_notes import note_jackknifed
from attlm_fairseq.nbest.metrics.metric import Metric
from attlm_fairseq.nbest.nbest_list import NbestList
from attlm_fairseq.nbest.tuning.folds import FOLDS
from attlm_fairseq.numeric import WHOLE_NUMBER
from attlm_fairseq.scoring.lm_options import ALLOWED

MAX_CANDIDATES = 1000


@dataclass(frozen=True)
class CandidateSpec:
    """The ``[corrections]`` table of an ``attlm.toml``: the sources of candidates, and how many candidates may join a list.

    Candidates of the neural corrector do not count towards this maximum. ``corrector_languages`` and ``corrector_prefix`` are
    ``languages`` and ``source_prefix`` of ``load_translation_models``.
    """

    table: Path | None = None
    phrases: Path | None = None
    candidates: int = CANDIDATES
    corrector: Path | None = None
    corrector_languages: str | None = None
    corrector_prefix: str | None = None
    loaded: Corrections | None = field(default=None, repr=False, compare=False)
    digests_at_load: Mapping[str, str] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, allowed in (("corrector_languages", ALLOWED["languages"]), ("corrector_prefix", ALLOWED["source_prefix"])):
            value = getattr(self, name)
            if value is not None and not allowed.is_right(value):
                raise InputError(f"{name} is {value!r}, expected {allowed.expected}")
            if value is not None and self.corrector is None:
                raise InputError(f"{name} is for a corrector, and none is given")
        if not (WHOLE_NUMBER.is_right(self.candidates) and self.candidates <= MAX_CANDIDATES):
            raise InputError(f"candidates is {self.candidates!r}, expected 0 to {MAX_CANDIDATES}")

    def changed(self, **given: Any) -> CandidateSpec:
        """Return this with the attributes ``given``; None leaves what there is. A new corrector has only the options given with it.

        Raises InputError as the constructor, or if a number of candidates is given and nothing that makes them.
        """
        changes = {name: value for name, value in given.items() if value is not None}
        if "corrector" in changes:
            changes = {"corrector_languages": None, "corrector_prefix": None} | changes
        if changes.keys() - {"candidates"}:
            changes |= {"loaded": None, "digests_at_load": None}
        found = replace(self, **changes)
        if "candidates" in changes and not found.anything:
            raise InputError("--candidates is for --corrections, --phrases or --corrector, none of which is given")
        return found

    @property
    def anything(self) -> bool:
        return any(path is not None for path in (self.table, self.phrases, self.corrector))

    def in_memory(self) -> CandidateSpec:
        """Return this with its files read. Raises InputError as ``load``."""
        return replace(self.noted(), loaded=self.load().in_memory()) if self.anything else self

    def noted(self) -> CandidateSpec:
        """Return this with the ``digests`` of its files, before these are read and used. Raises InputError as ``digests``."""
        return replace(self, digests_at_load=self.digests()) if self.anything else self

    def digests(self) -> Mapping[str, str]:
        """Return the SHA-256 of each source that was learned: ``table``, ``search_lm`` and ``corrector``; a phrase list may change.

        They are those of when it was ``noted``. A table on a stream has none: it can be read once. Raises InputError if a file cannot be
        read.
        """
        if self.digests_at_load is not None:
            return self.digests_at_load
        found = {}
        if self.table is not None and not is_stream(str(self.table)):
            found["table"] = sha256(self.table)
            if (lm := read_table(self.table).lm) is not None and os.path.isfile(lm):  # noqa: PTH113 - as ``Corrections.load``, which says more
                found["search_lm"] = sha256(lm)
        if self.corrector is not None and self.corrector.exists():  # else it is a name in the cache of Hugging Face
            found["corrector"] = sha256_of_folder(self.corrector) if self.corrector.is_dir() else sha256(self.corrector)
        return found

    def read_table(self) -> Table | None:
        """Return the table alone; None if there is none. Raises InputError if its file is wrong."""
        return None if self.table is None else self.loaded or read_table(self.table)

    def read_phrases(self) -> SimilarPhrases | None:
        """Return the phrases alone; None if there are none. Raises InputError if their file is wrong."""
        if self.phrases is None:
            return None
        return SimilarPhrases.load(self.phrases) if self.loaded is None else self.loaded.phrase_list

    def load(self) -> Corrections:
        """Read the files, unless they are in memory.

        Raises:
            InputError: a file cannot be read or is wrong, the LM of the table is not there, or the corrector cannot be loaded, as in
                ``load_translation_models``.
        """
        if self.loaded is not None:
            return self.loaded
        phrases = self.read_phrases()
        corrections = Corrections.load(self.table) if self.table else without_table()
        corrector = Corrector.load(self.corrector, self.corrector_languages, self.corrector_prefix) if self.corrector else None
        return replace(corrections, phrase_list=phrases, corrector=corrector)


def expand_for_tuning(
    spec: CandidateSpec, lists: Sequence[NbestList], metric: Metric | None = None, folds: int = FOLDS, groups: np.ndarray | None = None
) -> list[NbestList]:
    """Expand lists with references so that weights can be tuned on them.

    If the table was learned from these lists, each list gets what is learned from the other folds (jackknifing; see
    ``folds_of``). If the table's LM was estimated from the references, so is the LM of each fold.

    Returns:
        The lists. A note says if they were jackknifed.

    Raises:
        InputError: a file of ``spec`` cannot be used, a list already has a score that candidates get, or a hypothesis
            is too long for the corrector. With jackknifing also: a list has no reference, there are too few lists for
            the folds, or no LM can be estimated.
    """
    loaded = spec.load()
    table = spec.table
    if table is None or not loaded.needs_folds(table, lists):
        return list(loaded.expand_all(lists, spec.candidates))

    def learn(others: list[NbestList]) -> Callable[[list[NbestList]], Iterable[NbestList]]:
        corrections = loaded.learned_again(others, table)
        return lambda of_fold: corrections.expand_all(of_fold, spec.candidates)

    fold_of = folds_of(lists, folds, metric, groups, loaded.text)
    note_jackknifed(table, loaded, lists, fold_of)
    return by_folds(lists, fold_of, learn)
