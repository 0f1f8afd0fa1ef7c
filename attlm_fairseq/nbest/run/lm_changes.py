"""Changes of the LMs of a run: the value of one attribute for one LM by name, or for all LMs that can have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

from attlm_fairseq.errors import InputError
from attlm_fairseq.nbest.run.config import RunConfig
from attlm_fairseq.scoring.lm_files import OF_FAIRSEQ, lm_kind
from attlm_fairseq.scoring.lm_options import check_name
from attlm_fairseq.scoring.lm_spec import LMSpec

Named = tuple[str | None, Any]
"""A value for the LM of this name; None: for all LMs."""


@dataclass(frozen=True)
class LMChange:
    """An attribute of LMs that can be changed.

    Attributes:
        field: the attribute of LMSpec.
        fits: the LMs that can have the attribute.
        by_default: of these, the LMs that a value without a name changes.
        expected: what is missing if no LM fits.
    """

    field: str
    fits: Callable[[LMSpec], bool] = lambda lm: True
    by_default: Callable[[LMSpec], bool] = lambda lm: True
    expected: str = "LM that it is for"

    def apply(self, lms: dict[str, LMSpec], name: str | None, value: Any, called: str) -> None:
        """Change the LM of this name, or all that the attribute is for. Messages begin with ``called``.

        Raises:
            InputError: no LM has this name, or the attribute fits no LM.
        """
        if name is not None and name not in lms:
            raise InputError(f"{called} {name}=..: no LM has this name; there are {', '.join(lms) or 'none'}")
        chosen = [lm for lm in lms.values() if name in (None, lm.name) and self.fits(lm) and (name or self.by_default(lm))]
        if not chosen:
            raise InputError(f"{called}{f' {name}=..' if name else ''}: there is no {self.expected}")
        lms |= {lm.name: replace(lm, **{self.field: value}) for lm in chosen}


def _is_plain(lm: LMSpec) -> bool:
    return not lm.mixture


def _reads_sentences(lm: LMSpec) -> bool:
    return not lm.uses_source


def _scores_words(lm: LMSpec) -> bool:
    """Return whether an LM gives each word a probability, unlike a mixture or a translation model of Hugging Face."""
    return not lm.mixture and not (lm.uses_source and _is_folder(lm))


def _scores_ends(lm: LMSpec) -> bool:
    return _reads_sentences(lm) and not _holds("masked")(lm)


def _is_translation(lm: LMSpec) -> bool:
    return lm.translation is not None


def _is_folder(lm: LMSpec) -> bool:
    return bool(lm.checkpoints) and lm.checkpoints[0].is_dir()


def _has_checkpoints(lm: LMSpec) -> bool:
    return bool(lm.checkpoints)


def _holds(kind: str) -> Callable[[LMSpec], bool]:
    """Return whether all checkpoints of an LM are of this kind. A translation model is of no kind."""
    return lambda lm: bool(lm.checkpoints) and not lm.translation and all(lm_kind(path) == kind for path in lm.checkpoints)


LM_CHANGES = (
    LMChange("oov", lambda lm: not lm.translates_back, _scores_words),
    LMChange("context_sentences", _is_plain, _reads_sentences),
    LMChange("neural_cache", _is_plain, _holds("attlm")),
    LMChange("unigram_cache", _is_plain, _scores_ends),
    LMChange("temperature", _is_plain, _holds("attlm")),
    LMChange("adapt", _is_plain, _holds("attlm")),
    LMChange("sentence_start", _has_checkpoints, _holds("huggingface"), "LM of Hugging Face"),
    LMChange("sentence_end", _has_checkpoints, _holds("huggingface"), "LM of Hugging Face"),
    LMChange("prompt", _has_checkpoints, _holds("huggingface"), "causal LM of Hugging Face"),
    LMChange("source_text", _is_translation, expected="translation model"),
    LMChange("languages", _is_translation, _is_folder, "translation model of Hugging Face"),
    LMChange("source_prefix", _is_translation, _is_folder, "translation model of Hugging Face"),
    LMChange("only_close", by_default=_holds("masked"), expected="masked LM; for another LM give NAME=NUMBER"),
)


def with_lm_changes(
    run: RunConfig,
    *,
    text: Iterable[Named] = (),
    mixture: Iterable[Named] = (),
    ensemble_weights: Iterable[Named] = (),
    **changes: Iterable[Named],
) -> RunConfig:
    """Return the run with these changes of its LMs by options of the command line. ``changes``: by the fields of ``LM_CHANGES``.

    A value for one LM wins over a value for all, in any order.

    Raises:
        InputError: a change fits no LM, text steps are given twice, the file of an LM cannot be read, the name of a mixture is not
            allowed or is that of another LM, a member of a mixture is not an LM, or ensemble weights do not fit exactly one ensemble.
    """
    text = list(text)
    if twice := [name for place, (name, _) in enumerate(text) if name in [other for other, _ in text[:place]]]:
        raise InputError(f"--text is given twice for {twice[0] or 'all LMs'}: join the steps by commas")
    lms = {lm.name: lm for lm in run.lms}
    for name, members in mixture:
        lms |= _mixed(lms, name, members)
    for name, shares in ensemble_weights:
        lms |= _weighted(lms, name, shares)
    for name, steps in text:
        if name is None:
            run = replace(run, text=steps)
        else:
            LMChange("text").apply(lms, name, steps, "--text")
    for change in LM_CHANGES:
        for name, value in sorted(changes.get(change.field, ()), key=lambda named: named[0] is not None):  # a name wins in any order
            change.apply(lms, name, value, f"--{change.field.replace('_', '-')}")
    return replace(run, lms=tuple(lms.values()))


def _mixed(lms: dict[str, LMSpec], name: str | None, members: tuple[tuple[str, float], ...]) -> dict[str, LMSpec]:
    name = name or next(name for name in numbered("mix") if name not in lms)
    old = lms.get(check_name(name), LMSpec(name))
    if old.kenlm or old.checkpoints:
        raise InputError(f"--mixture {name}=..: {name!r} is one of the LMs already")
    return {name: replace(old, mixture=members)}


def _weighted(lms: dict[str, LMSpec], name: str | None, shares: tuple[float, ...]) -> dict[str, LMSpec]:
    ensembles = [lm for lm in lms.values() if len(lm.checkpoints) > 1 and name in (None, lm.name)]
    if len(ensembles) != 1:
        which = f"{len(ensembles)} ensembles" if name is None else f"no ensemble {name!r}"
        raise InputError(f"--ensemble-weights: there {'is' if name else 'are'} {which}; give NAME=NUMBER:NUMBER.. of one of them")
    [ensemble] = ensembles
    if len(shares) != len(ensemble.checkpoints):
        raise InputError(
            f"--ensemble-weights: {ensemble.name} has {len(ensemble.checkpoints)} checkpoints: "
            f"expected {len(ensemble.checkpoints)} numbers, not {len(shares)}"
        )
    return {ensemble.name: replace(ensemble, ensemble_weights=shares)}


def with_dictionary(run: RunConfig, path: Path) -> RunConfig:
    """Return the run with this dictionary for its LMs of fairseq: a file for language models, a folder for translation models.

    Raises InputError if there is no such LM.
    """
    fits = [_takes_dictionary(lm, path) for lm in run.lms]
    if not any(fits):
        raise InputError(
            "--dict: there is no LM that it is for: expected a dict.txt for checkpoints of LMs, a folder for translation models", path=path
        )
    return replace(run, lms=tuple(replace(lm, dictionary=path) if fit else lm for lm, fit in zip(run.lms, fits, strict=True)))


def _takes_dictionary(lm: LMSpec, path: Path) -> bool:
    if lm.translation is not None or path.is_dir():
        return _is_translation(lm) and not _is_folder(lm) and path.is_dir()
    return any(lm_kind(file) in OF_FAIRSEQ for file in lm.checkpoints)


def numbered(name: str) -> Iterator[str]:
    """Yield the name, then the name with 2, 3, .."""
    return chain([name], (f"{name}{number}" for number in count(2)))
